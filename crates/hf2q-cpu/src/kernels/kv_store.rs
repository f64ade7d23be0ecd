//! Keys and values into the cache.

use std::ops::Range;

use hf2q_plan::{KvFormat, PAGE};

use crate::call::{Context, Operand, Scratch, VectorCall, Work};
use crate::simd::{LANES, Simd};
use crate::step::StepData;

/// See [`hf2q_plan::KvStore`]. A unit is a row.
pub(crate) struct KvStore {
    pub(crate) k: Operand,
    pub(crate) v: Operand,
    pub(crate) cache: usize,
    pub(crate) group: usize,
}

impl VectorCall for KvStore {
    fn work(&self, step: &StepData) -> Work {
        Work::rows(step.count(self.k.rows), self.k.place.width, 1.0)
    }

    #[inline(always)]
    fn run<S: Simd>(&self, s: S, cx: &Context<'_>, units: Range<usize>, _scratch: &mut Scratch) {
        let (k, v) = (cx.view(self.k.place), cx.view(self.v.place));
        let memory = &cx.caches[self.cache];
        let cache = &memory.cache;
        for row in units {
            let (page, offset) = cx.step.target(self.group, row);
            for head in 0..cache.kv_heads {
                let columns = head * cache.head_dim..(head + 1) * cache.head_dim;
                let keys = Target { block: memory.keys(page, head), first: offset, stride: PAGE };
                store(s, k.columns(row, columns.clone()), cache.k_format, keys);
                let first = offset * memory.value_stride();
                let values = Target { block: memory.values(page, head), first, stride: 1 };
                store(s, v.columns(row, columns), cache.v_format, values);
            }
        }
    }
}

/// Where the components of a vector go within a block.
#[derive(Clone, Copy)]
struct Target {
    block: *mut u8,
    /// Elements from the start of the block to the first component.
    first: usize,
    /// Elements from one component to the next.
    stride: usize,
}

#[inline(always)]
#[expect(unsafe_code, reason = "several threads store into one block: no slice may cover it")]
fn store<S: Simd>(s: S, x: &[f32], format: KvFormat, target: Target) {
    let Target { block, first, stride } = target;
    match format {
        KvFormat::F16 => {
            for (i, x) in x.chunks(LANES).enumerate() {
                let mut halves = [0; LANES];
                s.store_f16(s.load_part(x), &mut halves);
                for (j, &half) in halves[..x.len()].iter().enumerate() {
                    let at = first + (i * LANES + j) * stride;
                    // SAFETY: `at` is a component of a slot of the block; slots of a step's rows are distinct.
                    unsafe { block.cast::<u16>().add(at).write(half) }
                }
            }
        }
        _ => {
            for (i, &x) in x.iter().enumerate() {
                // SAFETY: as above.
                unsafe { block.cast::<f32>().add(first + i * stride).write(x) }
            }
        }
    }
}
