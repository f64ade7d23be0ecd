//! Keys and values of one block of positions.

use hf2q_plan::{KvFormat, PAGE};

use super::{Attention, Unit};
use crate::cache::{CacheMemory, element_bytes};
use crate::call::Context;
use crate::simd::{LANES, Simd};

/// Values that a product reads.
#[derive(Clone, Copy)]
pub(super) struct Elements {
    pub(super) start: *const u8,
    /// Number of values.
    pub(super) len: usize,
    pub(super) format: KvFormat,
}

/// One block: keys `[head_dim][PAGE]`, values `[PAGE][padded head_dim]`.
pub(super) struct Block {
    pub(super) index: usize,
    pub(super) keys: Elements,
    pub(super) values: Elements,
}

/// Memory of blocks that do not lie in the cache as they are needed.
#[derive(Default)]
pub(super) struct Buffers {
    gathered: (Vec<u32>, Vec<u32>),
    wide: (Vec<f32>, Vec<f32>),
}

impl Block {
    /// Block `index` as the unit sees it: a page of the cache; a copy, where some of its positions are found along a
    /// path; in single precision if `wide`.
    #[inline(always)]
    pub(super) fn find<S: Simd>(
        s: S,
        cx: &Context<'_>,
        (call, unit): (&Attention, &Unit),
        (index, wide): (usize, bool),
        buffers: &mut Buffers,
    ) -> Self {
        let memory = &cx.caches[call.cache];
        let row = unit.rows.start;
        let by_path = cx.step.step.tree_base[row] as usize;
        let mut block = if by_path >= (index + 1) * PAGE || cx.step.is_paged(row) {
            let page = cx.step.page(call.group_index, row, index);
            from_page(memory, (page, unit.kv_head), index)
        } else {
            gather(cx, (call, unit), index, &mut buffers.gathered)
        };
        if wide {
            block.keys = widened(s, block.keys, &mut buffers.wide.0);
            block.values = widened(s, block.values, &mut buffers.wide.1);
        }
        block
    }
}

fn from_page(memory: &CacheMemory, (page, head): (usize, usize), index: usize) -> Block {
    let cache = &memory.cache;
    let keys =
        Elements { start: memory.keys(page, head), len: cache.head_dim * PAGE, format: cache.k_format };
    let values = Elements {
        start: memory.values(page, head),
        len: PAGE * memory.value_stride(),
        format: cache.v_format,
    };
    Block { index, keys, values }
}

/// Copies the positions that a row sees, each from its slot.
fn gather(
    cx: &Context<'_>,
    (call, unit): (&Attention, &Unit),
    index: usize,
    (keys, values): &mut (Vec<u32>, Vec<u32>),
) -> Block {
    let memory = &cx.caches[call.cache];
    let (head_dim, stride) = (memory.cache.head_dim, memory.value_stride());
    let widths = (element_bytes(memory.cache.k_format), element_bytes(memory.cache.v_format));
    keys.resize(head_dim * PAGE * widths.0 / 4, 0);
    values.resize(PAGE * stride * widths.1 / 4, 0);
    let row = unit.rows.start;
    let visible = cx.step.visible(&call.group, row);
    for position in visible.start.max(index * PAGE)..visible.end.min((index + 1) * PAGE) {
        let slot = cx.step.slot(call.group_index, row, position);
        let from = from_page(memory, (slot / PAGE, unit.kv_head), index);
        let (i, j) = (slot % PAGE, position % PAGE);
        for d in 0..head_dim {
            copy((from.keys, d * PAGE + i), (keys, d * PAGE + j), 1);
        }
        copy((from.values, i * stride), (values, j * stride), stride);
    }
    Block {
        index,
        keys: Elements { start: keys.as_ptr().cast(), len: head_dim * PAGE, format: memory.cache.k_format },
        values: Elements { start: values.as_ptr().cast(), len: PAGE * stride, format: memory.cache.v_format },
    }
}

/// Copies `count` elements between positions given in elements.
#[expect(unsafe_code, reason = "blocks of the cache are pointers")]
fn copy((from, at): (Elements, usize), (to, to_at): (&mut [u32], usize), count: usize) {
    let width = element_bytes(from.format);
    assert!(at + count <= from.len && (to_at + count) * width <= size_of_val(to), "a copy leaves its block");
    // SAFETY: both ends are checked; the cache is not written in this wave, and the copy is ours.
    unsafe {
        let to = to.as_mut_ptr().cast::<u8>().add(to_at * width);
        std::ptr::copy_nonoverlapping(from.start.add(at * width), to, count * width);
    }
}

/// The same values in single precision.
#[inline(always)]
#[expect(unsafe_code, reason = "blocks of the cache are pointers")]
fn widened<S: Simd>(s: S, from: Elements, to: &mut Vec<f32>) -> Elements {
    if from.format != KvFormat::F16 {
        return from;
    }
    to.resize(from.len, 0.0);
    for (i, to) in to.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
        // SAFETY: blocks hold a multiple of LANES elements: PAGE is one, and values are padded to one.
        let v = unsafe { s.read_f16(from.start.add(i * LANES * 2)) };
        s.store(v, to);
    }
    Elements { start: to.as_ptr().cast(), len: from.len, format: KvFormat::F32 }
}
