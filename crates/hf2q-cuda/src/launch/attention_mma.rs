//! Attention over keys and values of 16-bit floats with tensor cores.

use hf2q_plan::{Attention, BackendError, Cache, KvFormat, PAGE, Pairing, RowKind};

use super::attention::{Args, Prepared};
use super::mat_mul_quantize::Coded;
use super::{Arguments, Call, Cx, Grid, launch_ahead};
use crate::compile::{Compiler, small};
use crate::error::CudaError;
use crate::library::Function;
use crate::sources::Variant;

/// Queries of a block, in every variant; results do not depend on it.
const QUERIES: [usize; 2] = [8, 32];

/// Up to so many rows are of as many sequences as likely as not, and each has a block of its own.
const FEW: usize = 64;

/// Pages of a span where rows see everything: parts enough for a device, and few to be joined.
const SPAN: usize = 4;

/// Components of a head that there are kernels for, and whether keys are formed of values.
const SHAPES: [Shape; 6] = [
    Shape { width: 64, formed: false },
    Shape { width: 128, formed: false },
    Shape { width: 256, formed: false },
    Shape { width: 512, formed: false },
    Shape { width: 64, formed: true },
    Shape { width: 512, formed: true },
];

/// What a kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    width: usize,
    formed: bool,
}

impl Shape {
    /// The kernel for an operation on a cache, if there is one whose blocks use at most so many bytes of shared memory.
    pub(super) fn of(cache: &Cache, o: &Attention, most: usize) -> Option<Self> {
        let shape = Self { width: cache.head_dim, formed: o.formed_keys.is_some() };
        let halves =
            cache.values().format == KvFormat::F16 && cache.keys().is_none_or(|k| k.format == KvFormat::F16);
        let turns = o.formed_keys.is_none_or(|k| {
            let apart = k.rope.pairing == Pairing::Adjacent || (k.rope.dims / 2).is_multiple_of(8);
            let few = k.pairs > 0 && k.pairs.is_multiple_of(8) && 8 * k.pairs <= cache.head_dim;
            #[expect(clippy::float_cmp, reason = "factors other than exactly one are for another kernel")]
            let unscaled = k.rope.magnitude == 1.0;
            few && apart && unscaled
        });
        let fits = QUERIES.iter().all(|&q| shape.shared(q) <= most);
        (SHAPES.contains(&shape) && halves && turns && fits && o.recent.is_none()).then_some(shape)
    }

    fn variant(self, queries: usize) -> Variant {
        let word = |n: usize| u32::try_from(n).expect("a small number");
        let variant = Variant::plain("attention_mma").with("WIDTH", word(self.width));
        variant.with("QUERIES", word(queries)).with("FORMED", self.formed.into())
    }

    /// Bytes of shared memory of a block.
    fn shared(self, queries: usize) -> usize {
        let (turning, stages) = (self.width / 4, if self.formed && queries == QUERIES[0] { 2 } else { 1 });
        let keys = PAGE * if self.formed { 2 * turning } else { self.width };
        let halves = stages * PAGE * (self.width + 8) + keys + 2 * queries * (self.width + 8);
        let words = queries * (PAGE + 4 + 10) + turning + 2 * PAGE + self.width / 8;
        2 * halves + 4 * words
    }
}

fn join_variant() -> Variant {
    Variant::plain("attention_join")
}

pub(super) fn variants() -> Vec<Variant> {
    let all = SHAPES.iter().flat_map(|shape| QUERIES.map(|q| shape.variant(q)));
    all.chain([join_variant()]).collect()
}

/// `struct Join` of the kernel.
#[derive(Clone, Copy)]
#[repr(C)]
struct JoinArgs {
    attention: Args,
    to: Coded,
}

// SAFETY: the fields are those of the kernel's structure; codes have been allocated for as many rows as the program accepts.
#[expect(unsafe_code, reason = "promises the layout that a kernel reads")]
unsafe impl Arguments for JoinArgs {}

struct Attend {
    shape: Shape,
    /// By [`QUERIES`].
    functions: [Function; QUERIES.len()],
    join: Function,
    /// Where results are quantized to, and what does that where spans are not joined.
    coded: Option<(Coded, Box<dyn Call>)>,
    args: Args,
    rows: RowKind,
    split_rows: usize,
    multiprocessors: usize,
}

impl Call for Attend {
    fn launch(&self, cx: &Cx<'_>) -> Result<(), CudaError> {
        let count = cx.count(self.rows);
        if count == 0 {
            return Ok(());
        }
        let i = usize::from(count > FEW);
        let split = count <= self.split_rows;
        let mut args = self.args;
        if !split {
            args.spans = 0;
        }
        let shared = self.shape.shared(QUERIES[i]);
        // Of wide heads there is one block on each multiprocessor, with more threads.
        let (each, threads) = if self.shape.width == 512 { (1, 512) } else { (2, 256) };
        let grid = Grid { blocks: [each * self.multiprocessors, 1, 1], threads: [threads, 1, 1], shared };
        launch_ahead(cx, self.functions[i], grid, &args)?;
        if !split {
            return self.coded.as_ref().map_or(Ok(()), |(_, quantize)| quantize.launch(cx));
        }
        let to = self.coded.as_ref().map_or_else(Coded::none, |(coded, _)| *coded);
        let args = JoinArgs { attention: args, to };
        let blocks = [count, self.args.heads as usize, self.shape.width / 32];
        launch_ahead(cx, self.join, Grid::new(blocks, 128), &args)
    }
}

/// Prepares the kernels of a shape.
pub(super) fn prepare(
    c: &mut Compiler<'_>,
    shape: Shape,
    p: Prepared,
    coded: Option<(Coded, Box<dyn Call>)>,
) -> Result<Box<dyn Call>, BackendError> {
    let [few, many] = QUERIES.map(|q| c.function_with(&shape.variant(q), "attention_mma", shape.shared(q)));
    let functions = [few?, many?];
    let join = c.function(&join_variant(), "join_spans")?;
    let Prepared { mut args, rows, split_rows } = p;
    if args.sees_everything() {
        args.span = small(SPAN)?;
    }
    let multiprocessors = c.device.info.multiprocessors as usize;
    Ok(Box::new(Attend { shape, functions, join, coded, args, rows, split_rows, multiprocessors }))
}
