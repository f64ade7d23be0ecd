//! Attention over the cache.

use hf2q_plan::{Attention, BackendError, NamedOp, PAGE, RowKind};

use super::kv::{CacheArgs, cache};
use super::{Arguments, Call, Cx, Grid, Rows, kind_code, launch};
use crate::compile::{Compiler, small};
use crate::error::CudaError;
use crate::library::Function;
use crate::sources::Variant;
use crate::step::{CHUNK, SPAN_PAGES};

const THREADS: usize = 256;

/// Queries of a block, in every variant; results do not depend on it.
const QUERIES: [usize; 3] = [2, 4, 8];

/// Most components of a head.
const WIDEST: usize = 2 * THREADS;

/// Bytes for the partial results of a kind of layers.
const SPACE: usize = 128 << 20;

/// Most rows whose spans are computed side by side: with more there is work enough.
const SPLIT_ROWS: usize = 16;

fn variant(queries: usize) -> Variant {
    Variant::plain("attention").with("QUERIES", u32::try_from(queries).expect("a small number"))
}

pub(super) fn variants() -> Vec<Variant> {
    QUERIES.into_iter().map(variant).collect()
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Args {
    cache: CacheArgs,
    q: Rows,
    out: Rows,
    spans: u64,
    spans_each: u32,
    heads: u32,
    group: u32,
    window: u32,
    scale: f32,
    softcap: f32,
    kind: u32,
    chunk_rows: u32,
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
    let words = queries * (2 * width + (parts + 1) * PAGE + 5) + THREADS * 33 + 2 * 256 + PAGE;
    words * size_of::<f32>()
}

impl Call for Attend {
    fn launch(&self, cx: &Cx<'_>) -> Result<(), CudaError> {
        let count = cx.count(self.rows);
        if count == 0 {
            return Ok(());
        }
        let cache = &self.args.cache;
        let sharing = self.args.heads as usize / cache.kv_heads();
        // Few rows are of as many sequences as likely as not.
        let wanted = if count <= 4 { sharing } else { QUERIES[QUERIES.len() - 1] };
        let i = QUERIES.iter().position(|&q| q >= wanted).unwrap_or(QUERIES.len() - 1);
        let split = count <= self.split_rows;
        let mut args = self.args;
        if !split {
            args.spans = 0;
        }
        let shared = shared(QUERIES[i], cache.head_dim().next_multiple_of(32));
        let grid = Grid { blocks: [self.blocks, 1, 1], threads: [THREADS, 1, 1], shared };
        launch(cx, self.functions[i], grid, &args)?;
        if !split {
            return Ok(());
        }
        launch(cx, self.join, Grid::new([count, args.heads as usize, 1], THREADS), &args)
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
    let (description, cache) = (c.recording.cache(o.cache).clone(), cache(c, o.cache)?);
    let (head_dim, group) = (description.head_dim, description.group.index());
    if o.recent.is_some() {
        let why = "recent positions that are kept exactly: say recent:off".to_owned();
        return Err(Compiler::unsupported(op, why));
    }
    if o.formed_keys.is_some() {
        return Err(Compiler::unsupported(op, "keys that are formed of values; store keys".to_owned()));
    }
    if head_dim > WIDEST {
        return Err(Compiler::unsupported(op, format!("heads of {head_dim}, accepted are up to {WIDEST}")));
    }
    let width = head_dim.next_multiple_of(32);
    let mut functions = Vec::new();
    for q in QUERIES {
        functions.push(c.function_with(&variant(q), "attention", shared(q, width))?);
    }
    let window = c.recording.groups[group].span.most();
    let spans_each = spans(c.limits.pages[group], window);
    let row_bytes = o.heads * spans_each * (width + 4) * size_of::<f32>();
    let (q, out) = (c.operand(o.q)?, c.operand(o.out)?);
    let split_rows = (SPACE / row_bytes).min(SPLIT_ROWS).min(c.max_rows(q.kind));
    let args = Args {
        cache: cache.args,
        q: q.rows,
        out: out.rows,
        spans: c.space("partial results of attention", split_rows * row_bytes)?,
        spans_each: small(spans_each)?,
        heads: small(o.heads)?,
        group: small(group)?,
        window: window.unwrap_or(0),
        scale: o.scale,
        softcap: o.softcap.unwrap_or(0.0),
        kind: kind_code(q.kind),
        chunk_rows: small(CHUNK)?,
    };
    let join = c.function(&variant(QUERIES[0]), "join")?;
    let functions = functions.try_into().unwrap_or_else(|_| unreachable!("one for each of QUERIES"));
    let blocks = 3 * c.device.info.multiprocessors as usize;
    Ok(Box::new(Attend { functions, join, args, rows: q.kind, split_rows, blocks }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_all_spans_of_a_row() {
        // A window of 64 positions meets two pages, which may lie in two spans.
        assert_eq!((spans(100, Some(64)), spans(100, None), spans(1, Some(1024))), (2, 51, 2));
    }
}
