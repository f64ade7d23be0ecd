//! Keys and values of one block of positions.

use hf2q_plan::{KvFormat, NO_PAGE, PAGE};

use super::element::{Element, Elements, with_element};
use super::product::CACHE_LINE;
use super::{Attention, Keys, Source, Unit, form, parts};
use crate::cache::{CacheMemory, Layout};
use crate::call::Context;
use crate::lines::Lines;
use crate::simd::{Kernel, LANES, Simd};

/// The keys or the values of a block.
#[derive(Clone, Copy)]
pub(super) struct Stored {
    pub(super) elements: Elements,
    /// `[scale_count][PAGE]` in half precision.
    pub(super) scales: *const u8,
    /// Scales of a vector; 0: elements are not scaled.
    pub(super) scale_count: usize,
    /// Components of a vector that share a scale.
    pub(super) block: usize,
}

/// One block: keys `[head_dim][PAGE]`, or `[PAGE][block]` where only the components of one block are formed; values
/// `[PAGE][padded head_dim]`.
pub(super) struct Block {
    pub(super) index: usize,
    pub(super) keys: Stored,
    pub(super) values: Stored,
    /// Keys and values of the block that is read next, if they are read as they lie in the cache.
    pub(super) next: Option<(*const u8, *const u8)>,
}

/// Which block is wanted, and what for.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) index: usize,
    /// Queries that use it.
    pub(super) queries: usize,
    /// Whether the next one will be wanted, too.
    pub(super) go_on: bool,
}

/// Memory of blocks that do not lie in the cache as they are needed.
#[derive(Default)]
pub(super) struct Buffers {
    gathered: (Vec<u8>, Vec<u8>),
    wide: (Lines<f32>, Lines<f32>),
    formed: form::Buffers,
    parts: Vec<f32>,
}

impl Block {
    /// Block `index` as the unit sees it: a page of the cache; a copy, where some of its positions are found along a
    /// path; elements in single precision where `queries` use them; keys formed where only values are stored.
    #[inline(always)]
    pub(super) fn find<S: Simd>(
        s: S,
        cx: &Context<'_>,
        (call, source, unit): (&Attention, &Source, &Unit),
        Wanted { index, queries, go_on }: Wanted,
        buffers: &mut Buffers,
    ) -> Self {
        let memory = &cx.caches[source.cache];
        let row = unit.rows.start;
        let by_path = cx.step.step.tree_base[row] as usize;
        let mut block = if by_path >= (index + 1) * PAGE || cx.step.is_paged(row) {
            let page = cx.step.page(source.group, row, index);
            // A block that some row of the unit finds by page table, for that has been checked.
            let has_next = go_on && (cx.step.is_paged(row) || by_path >= (index + 2) * PAGE);
            let next = has_next.then(|| cx.step.page(source.group, row, index + 1));
            let next = next.filter(|&page| page != NO_PAGE as usize);
            let next = next.map(|page| blocks(memory, page, unit.kv_head));
            let block = located(memory, index, blocks(memory, page, unit.kv_head));
            Self { next, ..block }
        } else {
            gather(cx, (call, source, unit), index, &mut buffers.gathered)
        };
        block.keys = match &source.keys {
            Keys::Formed(former) => form::keys(s, former, &block, &mut buffers.formed),
            Keys::Parts(parts) => parts::keys(s, parts, &block, &mut buffers.parts),
            Keys::Stored => {
                let next = block.next.map(|next| next.0);
                let elements = widened(s, (block.keys.elements, next), queries, &mut buffers.wide.0);
                Stored { elements, ..block.keys }
            }
        };
        let values = (block.values.elements, block.next.map(|next| next.1));
        block.values.elements = widened(s, values, queries, &mut buffers.wide.1);
        block
    }
}

/// The blocks of a head's keys and values in a page.
fn blocks(memory: &CacheMemory, page: usize, head: usize) -> (*const u8, *const u8) {
    (memory.key_block(page, head), memory.value_block(page, head))
}

/// A block of these keys and values; where keys are not stored, values stand for them.
fn located(memory: &CacheMemory, index: usize, (keys, values): (*const u8, *const u8)) -> Block {
    let values = stored(&memory.values, values);
    let keys = memory.keys.as_ref().map_or(values, |layout| stored(layout, keys));
    Block { index, keys, values, next: None }
}

fn stored(layout: &Layout, start: *const u8) -> Stored {
    let &Layout { format, rows, row_len, row_bytes, scales, block, .. } = layout;
    Stored {
        elements: Elements { start, format, rows, row_len, row_bytes },
        scales: start.wrapping_add(layout.scales_at()),
        scale_count: scales,
        block,
    }
}

/// Copies the positions that a row sees, each from its slot.
#[expect(unsafe_code, reason = "blocks of the cache are pointers")]
fn gather(
    cx: &Context<'_>,
    (call, source, unit): (&Attention, &Source, &Unit),
    index: usize,
    (keys, values): &mut (Vec<u8>, Vec<u8>),
) -> Block {
    let memory = &cx.caches[source.cache];
    keys.resize(memory.keys.map_or(0, |layout| layout.bytes()), 0);
    values.resize(memory.values.bytes(), 0);
    let row = unit.rows.start;
    let visible = cx.step.visible(call.cache.span, row);
    for position in visible.start.max(index * PAGE)..visible.end.min((index + 1) * PAGE) {
        let slot = cx.step.slot(source.group, row, position);
        let from = blocks(memory, slot / PAGE, unit.kv_head);
        let (i, j) = (slot % PAGE, position % PAGE);
        // SAFETY: blocks have the bytes of their layouts; the cache is not written in this wave, and the copies are ours.
        unsafe {
            if let Some(layout) = &memory.keys {
                layout.copy((from.0, i), (keys.as_mut_ptr(), j));
            }
            memory.values.copy((from.1, i), (values.as_mut_ptr(), j));
        }
    }
    located(memory, index, (keys.as_ptr(), values.as_ptr()))
}

/// Queries from which on it pays to have a block's elements in single precision: packed codes are read faster.
fn worth_widening(format: KvFormat) -> usize {
    match format {
        KvFormat::F32 => usize::MAX,
        _ if format.turbo().is_some() => 2 * super::TILE + 1,
        _ => super::TILE + 1,
    }
}

/// The same elements in single precision, if enough queries use them.
#[inline(always)]
fn widened<S: Simd>(
    s: S,
    (from, next): (Elements, Option<*const u8>),
    queries: usize,
    to: &mut Lines<f32>,
) -> Elements {
    if queries < worth_widening(from.format) {
        return from;
    }
    let to = to.get(from.rows * from.row_len);
    s.outline(Widen { from, next: next.unwrap_or(from.start), to: &mut *to });
    let row_bytes = from.row_len * size_of::<f32>();
    Elements { start: to.as_ptr().cast(), format: KvFormat::F32, row_bytes, ..from }
}

/// Elements, and room for as many.
struct Widen<'a> {
    from: Elements,
    /// What is read next and lies alike.
    next: *const u8,
    to: &'a mut [f32],
}

impl Kernel for Widen<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        with_element!(self.from.format, E => self.all::<S, E>(s));
    }
}

impl Widen<'_> {
    #[inline(always)]
    #[expect(unsafe_code, reason = "blocks of the cache are pointers")]
    fn all<S: Simd, E: Element>(self, s: S) {
        let Elements { start, rows, row_len, row_bytes, .. } = self.from;
        assert_eq!(self.to.len(), rows * row_len, "room for all elements");
        let mut row = 0;
        while row < rows {
            let (to, _) = self.to[row * row_len..][..row_len].as_chunks_mut::<LANES>();
            let mut ahead = 0;
            while ahead < row_bytes {
                s.prefetch(self.next.wrapping_add(row * row_bytes + ahead));
                ahead += CACHE_LINE;
            }
            let mut i = 0;
            while i < to.len() {
                // SAFETY: `from` describes readable rows of `row_len` elements.
                let v = unsafe { E::read(s, start.add(row * row_bytes), i / 4 * 4 * LANES, i % 4) };
                s.store(v, &mut to[i]);
                i += 1;
            }
            row += 1;
        }
    }
}
