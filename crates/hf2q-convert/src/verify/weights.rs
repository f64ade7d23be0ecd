//! Reads all weights once: looks for bad blocks, and compares with the source where there is one.

use std::collections::BTreeMap;
use std::ops::Range;

use hf2q_gguf::{Gguf, TensorInfo};
use hf2q_quant::{Fault, QuantError};

use super::{Problem, Verified};
use crate::deviation::Deviation;
use crate::error::ConvertError;
use crate::ordered::ordered;
use crate::plan::Progress;
use crate::rows::Rows;
use crate::source::SourceTensor;

/// Values that one task looks at, if a row is not longer.
const TASK_VALUES: usize = 1 << 17;

/// What was found in one tensor, or in some of its rows.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    /// The first bad block.
    bad: Option<(usize, Fault)>,
    pub(super) deviation: Option<Deviation>,
    undecodable: Option<QuantError>,
}

impl Found {
    /// What is wrong with the tensor.
    pub(super) fn problem(self, of: &Verified, limit: f64) -> Option<Problem> {
        let tensor = of.name.clone();
        if let Some((block, fault)) = self.bad {
            return Some(Problem::Block { tensor, block, fault });
        }
        if let Some(error) = self.undecodable {
            return Some(Problem::Decode { tensor, error });
        }
        let found = self.deviation?.relative_error();
        if found.is_nan() {
            return Some(Problem::SourceNotFinite { tensor });
        }
        (found > limit).then_some(Problem::Far { tensor, found, limit })
    }

    /// Adds what was found in later rows.
    fn and(&mut self, later: &Self) {
        self.bad = self.bad.or(later.bad);
        self.undecodable = self.undecodable.take().or_else(|| later.undecodable.clone());
        self.deviation = match (self.deviation, later.deviation) {
            (Some(a), Some(b)) => Some(a.and(b)),
            (a, b) => a.or(b),
        };
    }
}

/// A tensor of the file with what it is compared to.
struct Pair<'a> {
    info: &'a TensorInfo,
    data: &'a [u8],
    stored: Rows,
    original: Option<&'a Rows>,
}

struct Task {
    pair: usize,
    rows: Range<usize>,
}

/// Memory of a thread.
#[derive(Default)]
struct Scratch {
    stored: Vec<f32>,
    original: Vec<f32>,
}

/// Looks at every tensor of the file, on all cores. Returns what was found in each, in order.
pub(super) fn check(
    gguf: &Gguf,
    originals: &BTreeMap<String, &SourceTensor>,
    progress: &mut dyn Progress,
) -> Result<Vec<Found>, ConvertError> {
    let pairs: Vec<Pair<'_>> = gguf
        .tensors()
        .iter()
        .map(|info| Pair {
            info,
            data: gguf.data(info),
            stored: Rows::blocks(info.ty, &gguf.bytes(info), &info.shape),
            original: originals.get(&info.name).map(|original| &original.rows),
        })
        .collect();
    let tasks: Vec<Task> =
        pairs.iter().enumerate().flat_map(|(pair, p)| p.cut().map(move |rows| Task { pair, rows })).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut found: Vec<Found> = pairs.iter().map(|_| Found::default()).collect();
    let mut done = 0;
    progress.start(gguf.tensors().iter().map(|t| t.bytes).sum());
    ordered(
        tasks.len(),
        threads,
        |i, scratch: &mut Scratch, found: &mut Found| {
            *found = pairs[tasks[i].pair].look_at(&tasks[i].rows, scratch);
            Ok(())
        },
        |i, part: &Found| {
            let Task { pair, rows } = &tasks[i];
            found[*pair].and(part);
            // All rows before these are done with, so none of them comes back.
            pairs[*pair].stored.release(rows.clone());
            pairs[*pair].original.inspect(|original| original.release(rows.clone()));
            done += pairs[*pair].stored.source_bytes(rows.len());
            if progress.advance(&pairs[*pair].info.name, done) {
                Ok(())
            } else {
                Err(ConvertError::Cancelled)
            }
        },
    )?;
    Ok(found)
}

impl Pair<'_> {
    /// Ranges of rows that cross no end of a matrix, neither in the file nor in the source.
    fn cut(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let mine = self.stored.matrix_rows();
        let matrix = gcd(mine, self.original.map_or(mine, Rows::matrix_rows)).max(1);
        let rows_of = |rows: &Rows| rows.per_task(TASK_VALUES);
        let step = self.original.map_or(rows_of(&self.stored), rows_of).clamp(1, matrix);
        let rows = self.stored.count();
        (0..rows).step_by(matrix).flat_map(move |first| {
            let end = (first + matrix).min(rows);
            (first..end).step_by(step).map(move |start| start..(start + step).min(end))
        })
    }

    fn look_at(&self, rows: &Range<usize>, scratch: &mut Scratch) -> Found {
        let mut found = Found::default();
        let ty = self.info.ty;
        let per_row = self.stored.cols() / ty.block_len();
        let bytes = per_row * ty.block_bytes();
        let data = &self.data[rows.start * bytes..rows.end * bytes];
        if let Err(bad) = hf2q_quant::check_blocks(ty, data) {
            found.bad = Some((rows.start * per_row + bad.index, bad.what));
        }
        if let Some(original) = self.original {
            match compare(&self.stored, original, rows.clone(), scratch) {
                Ok(deviation) => found.deviation = Some(deviation),
                Err(error) => found.undecodable = Some(error),
            }
        }
        found
    }
}

fn compare(
    stored: &Rows,
    original: &Rows,
    rows: Range<usize>,
    scratch: &mut Scratch,
) -> Result<Deviation, QuantError> {
    scratch.stored.clear();
    scratch.original.clear();
    stored.read(rows.clone(), &mut scratch.stored)?;
    original.read(rows, &mut scratch.original)?;
    Ok(Deviation::between(&scratch.original, &scratch.stored))
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
