//! Reads, encodes and writes at the same time, in the memory of a few rows.

use std::ops::Range;

use hf2q_gguf::{GgufWriter, TensorType};
use hf2q_quant::lattice::Fit;

use crate::deviation::Deviation;
use crate::encoding::Encoding;
use crate::error::ConvertError;
use crate::ordered::ordered;
use crate::plan::Progress;
use crate::source::SourceTensor;

/// Values that one task encodes, if a row is not longer: they stay in a core's cache.
const TASK_VALUES: usize = 1 << 17;

/// A tensor with the type to write it in.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    pub(crate) tensor: &'a SourceTensor,
    pub(crate) ty: TensorType,
    pub(crate) encoding: &'a Encoding,
}

/// Some rows of one matrix of one job.
struct Task {
    job: usize,
    rows: Range<usize>,
}

/// What a task makes. Its memory is used again by a later task.
#[derive(Default)]
struct Encoded {
    values: Vec<f32>,
    bytes: Vec<u8>,
    /// For the comparison.
    decoded: Vec<f32>,
    deviation: Deviation,
    fit: Fit,
}

/// What encoding did to the values.
pub(crate) struct Written {
    /// How far the written values of each job lie from the source, where that was to be measured.
    pub(crate) deviations: Vec<Deviation>,
    /// How well values lay on the lattice of `q4_0`, where they should.
    pub(crate) fit: Fit,
}

/// Encodes all jobs on all cores and writes them in order.
pub(crate) fn write(
    jobs: &[Job<'_>],
    measure: bool,
    writer: &mut GgufWriter,
    progress: &mut dyn Progress,
) -> Result<Written, ConvertError> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let tasks = tasks(jobs);
    let mut written = Written { deviations: vec![Deviation::default(); jobs.len()], fit: Fit::default() };
    let mut done = 0;
    progress.start(jobs.iter().map(|j| j.tensor.rows.source_bytes(j.tensor.rows.count())).sum());
    ordered(
        tasks.len(),
        threads,
        |i, out| jobs[tasks[i].job].encode(&tasks[i].rows, measure, out),
        |i, encoded: &Encoded| {
            let Task { job, rows } = &tasks[i];
            let tensor = jobs[*job].tensor;
            writer.write(&tensor.name, &encoded.bytes)?;
            written.deviations[*job] = written.deviations[*job].and(encoded.deviation);
            written.fit += encoded.fit;
            done += tensor.rows.source_bytes(rows.len());
            if progress.advance(&tensor.name, done) { Ok(()) } else { Err(ConvertError::Cancelled) }
        },
    )?;
    Ok(written)
}

/// Cuts every matrix into tasks of whole rows.
fn tasks(jobs: &[Job<'_>]) -> Vec<Task> {
    let mut tasks = Vec::new();
    for (job, Job { tensor, .. }) in jobs.iter().enumerate() {
        let rows = &tensor.rows;
        let step = (TASK_VALUES / rows.cols().max(1)).max(1);
        for matrix in 0..rows.matrices() {
            let (first, end) = (matrix * rows.matrix_rows(), (matrix + 1) * rows.matrix_rows());
            let starts = (first..end).step_by(step);
            tasks.extend(starts.map(|start| Task { job, rows: start..(start + step).min(end) }));
        }
    }
    tasks
}

impl Job<'_> {
    fn encode(&self, rows: &Range<usize>, measure: bool, out: &mut Encoded) -> Result<(), ConvertError> {
        out.bytes.clear();
        out.deviation = Deviation::default();
        out.fit = Fit::default();
        let source = &self.tensor.rows;
        match source.raw(self.ty, rows.clone()) {
            Some(bytes) => self.copy(bytes, rows, out)?,
            None => self.convert(rows, measure, out)?,
        }
        source.release(rows.clone());
        Ok(())
    }

    /// The source holds what is to be written.
    fn copy(&self, bytes: &[u8], rows: &Range<usize>, out: &mut Encoded) -> Result<(), ConvertError> {
        hf2q_quant::check_blocks(self.ty, bytes).map_err(|source| ConvertError::BadBlock {
            tensor: self.tensor.name.clone(),
            row: rows.start,
            source,
        })?;
        out.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn convert(&self, rows: &Range<usize>, measure: bool, out: &mut Encoded) -> Result<(), ConvertError> {
        let failed =
            |source| ConvertError::Encode { tensor: self.tensor.name.clone(), row: rows.start, source };
        out.values.clear();
        self.tensor.rows.read(rows.clone(), &mut out.values).map_err(failed)?;
        let matrix = rows.start / self.tensor.rows.matrix_rows().max(1);
        out.fit = self.encoding.encode(self.ty, matrix, &out.values, &mut out.bytes).map_err(failed)?;
        if measure {
            out.decoded.resize(out.values.len(), 0.0);
            hf2q_quant::dequantize(self.ty, &out.bytes, &mut out.decoded).map_err(failed)?;
            out.deviation = Deviation::between(&out.values, &out.decoded);
        }
        Ok(())
    }
}
