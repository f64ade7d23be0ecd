//! Operations on whole rows of a known sequence: a kernel that was compiled for it.
//!
//! The sequences that models record are few: `row_straight.cuh` lists them, and a test looks that none is missing. Any other, and rows
//! of other widths, go to the kernel of `row_program.rs`, which reads the sequence from memory and takes twice as long.

use std::sync::LazyLock;

use hf2q_plan::{BackendError, RowKind};

use super::row_program::{AHEAD, Code, Micro, flag, helpers};
use super::{Arguments, Call, Cx, Grid, Region, Rows, kind_code, launch_ahead, norm};
use crate::compile::{Compiler, small};
use crate::error::CudaError;
use crate::library::Function;
use crate::sources::Variant;

const FILE: &str = "row_straight";

/// Most rows of memory and numbers of a program: `Straight` of the kernel.
const ROWS: usize = 20;
const NUMBERS: usize = 8;

/// Flags of a word beside those of an operation.
const WEIGHT: u32 = 32;
const SCALE_BY: u32 = 64;

/// Widths are whole steps of quantized rows.
const STEP: usize = 256;

/// Programs by their words, in the order of their numbers.
static KNOWN: LazyLock<Vec<Vec<u32>>> = LazyLock::new(|| {
    let lines = include_str!("../../kernels/row_straight.cuh").lines();
    let words = |line: &str| {
        let (_, words) = line.strip_prefix("#define WORDS_")?.split_once(' ')?;
        words.split(", ").map(|word| u32::from_str_radix(word.strip_prefix("0x")?, 16).ok()).collect()
    };
    lines.filter_map(words).collect()
});

/// Most columns of the kernels of a program: sums over experts need registers.
fn columns(words: &[u32]) -> [usize; 2] {
    if words.iter().any(|word| word & 3 == 3) { [3072, 4096] } else { [4096, 8192] }
}

fn variant(number: usize, columns: usize) -> Variant {
    let value = |n: usize| u32::try_from(n).expect("a small constant");
    Variant::plain(FILE).with("PROGRAM", value(number)).with("COLUMNS", value(columns))
}

pub(super) fn variants() -> Vec<Variant> {
    let of = |(number, words): (usize, &Vec<u32>)| columns(words).map(|n| variant(number, n));
    KNOWN.iter().enumerate().flat_map(of).collect()
}

/// An operation as the kernel is told of it; `None`: it does nothing there.
fn word(m: &Micro) -> Option<u32> {
    let code = match m.code {
        Code::Load => 0,
        Code::Wait => return None,
        Code::Copy => 1,
        Code::Norm => 2,
        Code::ExpertSum => 3,
    };
    let given = |at: u64, flag: u32| if at == 0 { 0 } else { flag };
    let flags = m.flags | given(m.by, WEIGHT) | given(m.scale_by, SCALE_BY);
    Some(code | flags << 2 | m.to << 16 | m.a << 20 | m.add << 24)
}

/// The words of a program.
fn words(micros: &[Micro]) -> Vec<u32> {
    micros.iter().filter_map(word).collect()
}

/// `Straight` of the kernel.
#[derive(Clone, Copy)]
#[repr(C)]
struct Args {
    kind: u32,
    width: u32,
    blocks: u32,
    padding: u32,
    ahead: [Region; AHEAD],
    numbers: [f32; NUMBERS],
    rows: [Rows; ROWS],
}

// SAFETY: the fields are those of the kernel's structure; rows lie in the arena, codes have been allocated for as many rows
// as the program accepts.
#[expect(unsafe_code, reason = "promises the layout that a kernel reads")]
unsafe impl Arguments for Args {}

/// What the operations name, in their order; `None`: more than the kernel takes.
fn operands(micros: &[Micro]) -> Option<([Rows; ROWS], [f32; NUMBERS])> {
    let at = |data: u64| Rows { data, stride: 0, width: 0 };
    let (mut rows, mut numbers) = (Vec::new(), Vec::new());
    for m in micros {
        match m.code {
            Code::Load => rows.push(m.rows),
            Code::ExpertSum => rows.extend([m.rows, m.weights]),
            Code::Norm if m.flags & flag::SAME_FACTOR == 0 => numbers.push(m.eps),
            _ => (),
        }
        rows.extend([m.by, m.scale_by].into_iter().filter(|&data| data != 0).map(at));
        if m.flags & flag::SCALE != 0 {
            numbers.push(m.scale);
        }
        if m.flags & flag::STORE != 0 {
            rows.push(m.out);
        }
        if m.flags & flag::QUANTIZE != 0 {
            rows.extend([m.codes, m.groups].map(at));
        }
    }
    let fits = rows.len() <= ROWS && numbers.len() <= NUMBERS;
    rows.resize(ROWS, at(0));
    numbers.resize(NUMBERS, 0.0);
    fits.then_some((rows.try_into().ok()?, numbers.try_into().ok()?))
}

struct Straight {
    function: Function,
    args: Args,
    rows: RowKind,
    multiprocessors: usize,
}

impl Call for Straight {
    fn launch(&self, cx: &Cx<'_>) -> Result<(), CudaError> {
        let threads = norm::threads(self.args.width as usize);
        let count = cx.count(self.rows);
        let blocks = u32::try_from(count).expect("rows are bounded by the limits of a program");
        let grid = Grid::new([count + helpers(count, self.multiprocessors), 1, 1], threads);
        launch_ahead(cx, self.function, grid, &Args { blocks, ..self.args })
    }
}

/// Prepares a program whose kernel is known, if it is.
pub(super) fn prepare(
    c: &Compiler<'_>,
    micros: &[Micro],
    (rows, width): (RowKind, usize),
    regions: &[Region],
) -> Result<Option<Box<dyn Call>>, BackendError> {
    let words = words(micros);
    let number = KNOWN.iter().position(|known| *known == words);
    let most = columns(&words).into_iter().find(|&most| width <= most);
    let found = number.zip(most).zip(operands(micros)).filter(|_| width.is_multiple_of(STEP));
    let Some(((number, most), (operands, numbers))) = found else { return Ok(None) };
    let args = Args {
        kind: kind_code(rows),
        width: small(width)?,
        blocks: 0,
        padding: 0,
        ahead: std::array::from_fn(|i| regions.get(i).copied().unwrap_or_default()),
        numbers,
        rows: operands,
    };
    let function = c.function(&variant(number, most), FILE)?;
    let multiprocessors = c.device.info.multiprocessors as usize;
    Ok(Some(Box::new(Straight { function, args, rows, multiprocessors })))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use hf2q_gguf::TensorType;
    use hf2q_model::{RecordOptions, toy};
    use hf2q_plan::{KvFormat, NamedOp, Op, Passes, Plan, TensorId, TensorKind, View};

    use super::*;
    use crate::fuse::{self, Part};
    use crate::launch::row_program::{Places, write};

    /// Everything lies somewhere.
    struct Somewhere;

    impl Places for Somewhere {
        fn weight(&mut self, _: TensorId) -> Result<u64, BackendError> {
            Ok(256)
        }

        fn rows(&mut self, _: View) -> Result<Rows, BackendError> {
            Ok(Rows { data: 512, stride: 256, width: 256 })
        }

        fn coded(&mut self, _: View) -> Result<(u64, u64), BackendError> {
            Ok((1024, 2048))
        }
    }

    /// Has all matrices but those of routers in a quantized format.
    fn quantize(plan: &mut Plan) {
        let weights = plan.recording.ops.iter().filter_map(|op| match &op.op {
            Op::MatMul(o) => Some(o.weight),
            Op::ExpertMatMul(o) => Some(o.weight),
            _ => None,
        });
        for id in weights.collect::<Vec<_>>() {
            let tensor = &mut plan.recording.tensors[id.index()];
            if let TensorKind::Weight(weight) = &mut tensor.kind
                && !tensor.name.contains("gate_inp")
            {
                weight.ty = TensorType::Q4K;
            }
        }
    }

    /// Programs of models in quantized formats, and whose they are.
    fn programs() -> BTreeMap<Vec<u32>, Vec<String>> {
        let mut found: BTreeMap<Vec<u32>, Vec<String>> = BTreeMap::new();
        for (name, model) in toy::all(2) {
            let recording = model.record(&RecordOptions::uniform(KvFormat::F16)).unwrap();
            let mut plan = Plan::compile(recording, Passes::ALL);
            quantize(&mut plan);
            for part in fuse::parts(&plan, 99 << 10) {
                let Part::Rows(run) = part else { continue };
                let ops: Vec<&NamedOp> = run.iter().map(|&i| &plan.recording.ops[i]).collect();
                let (micros, _) = write(&mut Somewhere, &ops, &fuse::wanted(&plan.recording, &run)).unwrap();
                assert!(operands(&micros).is_some(), "{name}: too many operands");
                found.entry(words(&micros)).or_default().push(name.to_owned());
            }
        }
        found
    }

    #[test]
    fn programs_of_models_are_known() {
        let line = |(words, names): (Vec<u32>, Vec<String>)| {
            let words: Vec<String> = words.iter().map(|w| format!("{w:#010x}")).collect();
            format!("{} of {}", words.join(", "), names.join(" "))
        };
        let missing = programs().into_iter().filter(|(words, _)| !KNOWN.contains(words)).map(line);
        let missing: Vec<String> = missing.collect();
        assert!(missing.is_empty(), "row_straight.cuh lacks\n{}", missing.join("\n"));
    }
}
