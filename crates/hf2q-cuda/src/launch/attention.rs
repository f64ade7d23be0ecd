//! Attention over the cache.

use hf2q_plan::{Attention, BackendError, CacheId, FormedKeys, NamedOp, PAGE, Pairing, RowKind, Span};

use super::kv::{CacheArgs, cache};
use super::norm::frequencies;
use super::{
    Arguments, Call, Cx, Grid, Region, Rows, attention_mma, kind_code, launch_ahead, mat_mul_quantize,
};
use crate::compile::{Compiler, small};
use crate::error::CudaError;
use crate::library::Function;
use crate::sources::Variant;
use crate::step::SPAN_PAGES;

const THREADS: usize = 256;

/// Queries of a block, in every variant; results do not depend on it.
const QUERIES: [usize; 3] = [2, 4, 8];

/// Most components of a head.
const WIDEST: usize = 2 * THREADS;

/// Bytes for the partial results of a kind of layers.
const SPACE: usize = 128 << 20;

/// Bytes that one row may take beyond that: without parts, a few blocks would read all that it sees.
const SPACE_OF_ROW: usize = 1 << 30;

/// Most rows whose spans are computed side by side: with more there is work enough.
const SPLIT_ROWS: usize = 16;

fn variant(queries: usize) -> Variant {
    Variant::plain("attention").with("QUERIES", u32::try_from(queries).expect("a small number"))
}

pub(super) fn variants() -> Vec<Variant> {
    QUERIES.into_iter().map(variant).chain(attention_mma::variants()).collect()
}

/// `struct Attention` of the kernels.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Args {
    pub(super) sources: [SourceArgs; 2],
    q: Rows,
    out: Rows,
    pub(super) spans: u64,
    spans_each: u32,
    pub(super) heads: u32,
    window: u32,
    scale: f32,
    softcap: f32,
    kind: u32,
    pub(super) span: u32,
    keys: KeyArgs,
    ahead: Region,
}

impl Args {
    /// Queries that share a KV head.
    pub(super) fn sharing(&self) -> usize {
        self.heads as usize / self.sources[0].cache.kv_heads()
    }

    /// Whether there is no window.
    pub(super) fn sees_everything(&self) -> bool {
        self.window == 0
    }

    /// Components of a head.
    pub(super) fn head_dim(&self) -> usize {
        self.sources[0].cache.head_dim()
    }
}

/// Where keys and values are read.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct SourceArgs {
    pub(super) cache: CacheArgs,
    group: u32,
    /// Pages that rows read from the second source; 0: there is none.
    pages: u32,
}

/// How keys are formed of values, where only these are stored.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct KeyArgs {
    weights: u64,
    frequencies: u64,
    offsets: u64,
    pairs: u32,
    adjacent: u32,
    magnitude: f32,
    turning: u32,
}

// SAFETY: the fields are those of the kernel's structure; pages and slots of an accepted step lie in the cache, and
// there are as many spans of a row as its group has pages for.
#[expect(unsafe_code, reason = "promises the layout that a kernel reads")]
unsafe impl Arguments for Args {}

struct Attend {
    /// By [`QUERIES`].
    functions: [Function; QUERIES.len()],
    join: Function,
    args: Args,
    rows: RowKind,
    /// Rows up to which there is room for partial results.
    split_rows: usize,
    /// Blocks that the device runs at a time.
    blocks: usize,
}

/// Bytes of shared memory of a block.
fn shared(queries: usize, width: usize) -> usize {
    let parts = 4;
    let words =
        queries * (width / 32 * 34 + width + (parts + 1) * PAGE + 5) + THREADS * 33 + 2 * 256 + width + PAGE;
    words * size_of::<f32>()
}

impl Call for Attend {
    fn launch(&self, cx: &Cx<'_>) -> Result<(), CudaError> {
        let count = cx.count(self.rows);
        if count == 0 {
            return Ok(());
        }
        // Few rows are of as many sequences as likely as not.
        let wanted = if count <= 4 { self.args.sharing() } else { QUERIES[QUERIES.len() - 1] };
        let i = QUERIES.iter().position(|&q| q >= wanted).unwrap_or(QUERIES.len() - 1);
        let split = count <= self.split_rows;
        let mut args = self.args;
        if !split {
            args.spans = 0;
        }
        let shared = shared(QUERIES[i], self.args.head_dim().next_multiple_of(32));
        let grid = Grid { blocks: [self.blocks, 1, 1], threads: [THREADS, 1, 1], shared };
        launch_ahead(cx, self.functions[i], grid, &args)?;
        if !split {
            return Ok(());
        }
        launch_ahead(cx, self.join, Grid::new([count, args.heads as usize, 1], THREADS), &args)
    }
}

/// Spans that a row may see: all pages of its group, or those of its window, and one more where it begins amid a span.
fn spans(pages: usize, window: Option<u32>) -> usize {
    let windowed = window.map_or(usize::MAX, |w| (w as usize).div_ceil(PAGE) + 1);
    pages.min(windowed).div_ceil(SPAN_PAGES) + 1
}

pub(crate) fn attention(
    c: &mut Compiler<'_>,
    op: &NamedOp,
    o: &Attention,
) -> Result<Box<dyn Call>, BackendError> {
    let (shape, prepared) = prepared(c, op, o)?;
    match shape {
        Some(shape) => attention_mma::prepare(c, shape, prepared, None),
        None => single(c, prepared),
    }
}

/// Attention whose result is only read quantized; what is read soon is brought near meanwhile.
pub(crate) fn quantized(
    c: &mut Compiler<'_>,
    (op, o): (&NamedOp, &Attention),
    regions: &[Region],
) -> Result<Vec<Box<dyn Call>>, BackendError> {
    let (shape, mut prepared) = prepared(c, op, o)?;
    prepared.args.ahead = regions.first().copied().unwrap_or_default();
    let (coded, call) = mat_mul_quantize::quantize(c, o.out, 1)?;
    match shape {
        Some(shape) => Ok(vec![attention_mma::prepare(c, shape, prepared, call.map(|call| (coded, call)))?]),
        None => Ok([single(c, prepared)?].into_iter().chain(call).collect()),
    }
}

/// What kernels are given, and the shape of those with tensor cores if there is one.
fn prepared(
    c: &mut Compiler<'_>,
    op: &NamedOp,
    o: &Attention,
) -> Result<(Option<attention_mma::Shape>, Prepared), BackendError> {
    let (description, cache) = (c.recording.cache(o.cache).clone(), cache(c, o.cache)?);
    let (head_dim, group) = (description.head_dim, description.group.index());
    if head_dim > WIDEST {
        return Err(Compiler::unsupported(op, format!("heads of {head_dim}, accepted are up to {WIDEST}")));
    }
    if let Span::Pages(_) = c.recording.groups[group].span {
        let why = format!("{} is of whole pages, which only recent positions are", description.name);
        return Err(Compiler::unsupported(op, why));
    }
    let window = c.recording.groups[group].span.most();
    let first = SourceArgs { cache: cache.args, group: small(group)?, pages: 0 };
    let second = o.recent.map(|(id, _)| recent(c, op, id)).transpose()?;
    let spans_each = spans(c.limits.pages[group], window) + usize::from(second.is_some());
    let row_bytes = o.heads * spans_each * (head_dim.next_multiple_of(32) + 4) * size_of::<f32>();
    let (q, out) = (c.operand(o.q)?, c.operand(o.out)?);
    let room = (SPACE / row_bytes).max(usize::from(row_bytes <= SPACE_OF_ROW));
    let split_rows = room.min(SPLIT_ROWS).min(c.max_rows(q.kind));
    let args = Args {
        sources: [first, second.unwrap_or(first)],
        q: q.rows,
        out: out.rows,
        spans: c.space("partial results of attention", split_rows * row_bytes)?,
        spans_each: small(spans_each)?,
        heads: small(o.heads)?,
        window: window.unwrap_or(0),
        scale: o.scale,
        softcap: o.softcap.unwrap_or(0.0),
        kind: kind_code(q.kind),
        span: small(SPAN_PAGES)?,
        keys: o.formed_keys.map_or(Ok(KeyArgs::default()), |k| formed_keys(c, &k))?,
        ahead: Region::default(),
    };
    let shape = attention_mma::Shape::of(&description, o, c.device.info.shared());
    Ok((shape, Prepared { args, rows: q.kind, split_rows }))
}

/// What all kernels are given.
pub(super) struct Prepared {
    pub(super) args: Args,
    pub(super) rows: RowKind,
    /// Rows up to which there is room for partial results.
    pub(super) split_rows: usize,
}

/// Prepares the kernel of single precision.
fn single(c: &mut Compiler<'_>, p: Prepared) -> Result<Box<dyn Call>, BackendError> {
    let width = p.args.head_dim().next_multiple_of(32);
    let functions = QUERIES.map(|q| c.function_with(&variant(q), "attention", shared(q, width)));
    let [few, some, many] = functions;
    let functions = [few?, some?, many?];
    let join = c.function(&variant(QUERIES[0]), "join")?;
    let blocks = 3 * c.device.info.multiprocessors as usize;
    let Prepared { args, rows, split_rows } = p;
    Ok(Box::new(Attend { functions, join, args, rows, split_rows, blocks }))
}

/// The cache in which rows find the pages up to their own.
fn recent(c: &mut Compiler<'_>, op: &NamedOp, id: CacheId) -> Result<SourceArgs, BackendError> {
    let recent = c.recording.cache(id).clone();
    let Span::Pages(pages) = c.recording.groups[recent.group.index()].span else {
        return Err(Compiler::unsupported(op, "recent positions that are no whole pages".to_owned()));
    };
    let cache = cache(c, id)?;
    Ok(SourceArgs { cache: cache.args, group: small(cache.group.index())?, pages })
}

/// Tables for keys that are formed of values.
fn formed_keys(c: &mut Compiler<'_>, keys: &FormedKeys) -> Result<KeyArgs, BackendError> {
    let frequencies = frequencies(c, &keys.rope)?;
    let bytes: Vec<u8> = frequencies.iter().flat_map(|f| f.to_le_bytes()).collect();
    let turns = (0..PAGE).flat_map(|p| frequencies.iter().map(move |f| (p as f64 * f).sin_cos()));
    let offsets: Vec<u8> = turns
        .flat_map(|(sin, cos)| [cos, sin])
        .flat_map(|x| {
            #[expect(clippy::cast_possible_truncation, reason = "rounding is meant")]
            let x = x as f32;
            x.to_le_bytes()
        })
        .collect();
    Ok(KeyArgs {
        weights: keys.weight.map(|id| c.weight(id)).transpose()?.map_or(0, |w| w.data),
        frequencies: c.constant("frequencies of keys", &bytes)?,
        offsets: c.constant("angles within a page", &offsets)?,
        pairs: small(frequencies.len())?,
        adjacent: u32::from(keys.rope.pairing == Pairing::Adjacent),
        magnitude: keys.rope.magnitude,
        turning: small(keys.pairs)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_all_spans_of_a_row() {
        // A window of 64 positions meets two pages.
        assert_eq!((spans(100, Some(64)), spans(100, None), spans(1, Some(1024))), (3, 101, 2));
    }
}
