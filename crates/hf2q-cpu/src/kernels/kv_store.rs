//! Keys and values into the cache.

use std::ops::Range;

use hf2q_plan::{Cut, KvFormat, PAGE};
use hf2q_quant::half::f32_to_bf16;
use hf2q_quant::kv::{GROUP, INT8_BLOCK, MAX_BLOCK, Turbo, encode_int8};

use crate::cache::{Layout, SCALE_BYTES, Side, put_code};
use crate::call::{Context, Operand, Scratch, VectorCall, Work};
use crate::simd::{LANES, Simd};
use crate::step::StepData;

/// See [`hf2q_plan::KvStore`]. A unit is a KV head of the rows that store into one page: codes of several keys share
/// a byte.
pub(crate) struct KvStore {
    /// `None`: the cache forms keys of values.
    pub(crate) k: Option<Operand>,
    pub(crate) v: Operand,
    pub(crate) cache: usize,
    pub(crate) group: usize,
    pub(crate) kv_heads: usize,
    /// Estimated nanoseconds of a value of `v`, and of `k` if there is one.
    pub(crate) per_value: f32,
}

/// Components of the longest vector that TurboQuant takes.
const MAX_HEAD: usize = 2 * MAX_BLOCK;

/// Estimated nanoseconds of a value.
pub(crate) fn nanoseconds(format: KvFormat) -> f32 {
    match format {
        KvFormat::F32 | KvFormat::F16 | KvFormat::Bf16 => 0.5,
        KvFormat::Q8_0 => 1.0,
        _ => 3.0,
    }
}

impl VectorCall for KvStore {
    fn work(&self, step: &StepData) -> Work {
        let units = step.stores(self.group).pages() * self.kv_heads;
        let values = (step.count(self.v.rows) * self.v.place.width) as f32;
        Work::new(units, 20.0 + values * self.per_value / units.max(1) as f32)
    }

    #[inline(always)]
    fn run<S: Simd>(&self, s: S, cx: &Context<'_>, units: Range<usize>, _scratch: &mut Scratch) {
        let v = cx.view(self.v.place);
        let memory = &cx.caches[self.cache];
        let head_dim = memory.cache.head_dim;
        let cut = memory.cache.cut();
        for unit in units {
            let (page, head) = (unit / self.kv_heads, unit % self.kv_heads);
            let columns = head * head_dim..(head + 1) * head_dim;
            for &row in cx.step.stores(self.group).rows(page) {
                let (page, slot) = cx.step.target(self.group, row);
                if let (Some(k), Some(layout)) = (self.k, &memory.keys) {
                    let target = Target { block: memory.key_block(page, head), layout, slot, cut: None };
                    target.store(s, cx.view(k.place).columns(row, columns.clone()));
                }
                let block = memory.value_block(page, head);
                let target = Target { block, layout: &memory.values, slot, cut: cut.as_ref() };
                target.store(s, v.columns(row, columns.clone()));
            }
        }
    }
}

/// Where a vector goes. Nobody else touches the block while it is stored.
struct Target<'a> {
    block: *mut u8,
    layout: &'a Layout,
    /// Which vector of the page.
    slot: usize,
    /// The order in which components are stored, where it is not their own.
    cut: Option<&'a Cut>,
}

impl Target<'_> {
    #[inline(always)]
    fn store<S: Simd>(&self, s: S, x: &[f32]) {
        self.fetch(s, x.len());
        match (self.layout.format, self.layout.format.turbo()) {
            (_, Some(turbo)) => match self.cut {
                Some(cut) => {
                    let mut sorted = [0.0; MAX_HEAD];
                    let sorted = &mut sorted[..x.len()];
                    cut.sort(x, sorted);
                    self.turbo(turbo, sorted);
                }
                None => self.turbo(turbo, x),
            },
            (KvFormat::F16, _) => self.halves(s, x),
            (KvFormat::Bf16, _) => {
                for (i, &x) in x.iter().enumerate() {
                    self.put(i, f32_to_bf16(x));
                }
            }
            (KvFormat::Q8_0, _) => self.int8(x),
            _ => {
                for (i, &x) in x.iter().enumerate() {
                    self.put(i, x);
                }
            }
        }
    }

    /// Components of keys lie far apart, each in a line of memory that has left the caches since the token before: all are
    /// asked for at once, where stores would wait for one after the other.
    #[inline(always)]
    fn fetch<S: Simd>(&self, s: S, components: usize) {
        if self.layout.side == Side::Keys {
            let column = self.layout.row_bytes * self.slot / PAGE;
            for i in 0..components {
                s.prefetch(self.block.wrapping_add(i * self.layout.row_bytes + column));
            }
        }
    }

    #[inline(always)]
    fn halves<S: Simd>(&self, s: S, x: &[f32]) {
        for (i, x) in x.chunks(LANES).enumerate() {
            let mut halves = [0; LANES];
            s.store_f16(s.load_part(x), &mut halves);
            for (j, &half) in halves[..x.len()].iter().enumerate() {
                self.put(i * LANES + j, half);
            }
        }
    }

    #[inline(always)]
    fn int8(&self, x: &[f32]) {
        for (block, x) in x.as_chunks::<INT8_BLOCK>().0.iter().enumerate() {
            let mut codes = [0; INT8_BLOCK];
            self.put_scale(block, encode_int8(x, &mut codes));
            for (i, &code) in codes.iter().enumerate() {
                self.put(block * INT8_BLOCK + i, code);
            }
        }
    }

    #[inline(always)]
    fn turbo(&self, turbo: Turbo, x: &[f32]) {
        for (block, x) in x.chunks(self.layout.block).enumerate() {
            let (mut rotated, mut codes) = ([0.0; MAX_BLOCK], [0; MAX_BLOCK]);
            let (rotated, codes) = (&mut rotated[..x.len()], &mut codes[..x.len()]);
            rotated.copy_from_slice(x);
            if self.layout.scales > 0 {
                self.put_scale(block, turbo.encode(rotated, codes));
            } else {
                turbo.encode_unit(rotated, codes);
            }
            let first = block * self.layout.block;
            match self.layout.side {
                Side::Keys => self.key_codes(turbo, first, codes),
                Side::Values => self.value_codes(turbo, first, codes),
            }
        }
    }

    /// Codes of components from `first` on, each in the row of its component.
    #[inline(always)]
    #[expect(unsafe_code, reason = "no slice covers a block that threads share")]
    fn key_codes(&self, turbo: Turbo, first: usize, codes: &[u8]) {
        assert!(first + codes.len() <= self.layout.rows, "components leave the block");
        let pieces = turbo.pieces(self.slot);
        for (i, &code) in codes.iter().enumerate() {
            // SAFETY: the row exists, a row of keys is one group, and nobody else touches the block.
            unsafe { put_code(self.block.add((first + i) * self.layout.row_bytes), pieces, code) }
        }
    }

    /// Codes of components from `first` on, side by side in groups.
    #[inline(always)]
    #[expect(unsafe_code, reason = "no slice covers a block that threads share")]
    fn value_codes(&self, turbo: Turbo, first: usize, codes: &[u8]) {
        assert!(
            first + codes.len() <= self.layout.row_len && self.slot < self.layout.rows,
            "outside the block"
        );
        let bytes = turbo.group_bytes();
        for (i, codes) in codes.as_chunks::<GROUP>().0.iter().enumerate() {
            let at = self.slot * self.layout.row_bytes + (first / GROUP + i) * bytes;
            // SAFETY: the groups of a row lie in the block, and nobody else touches it.
            let group = unsafe { std::slice::from_raw_parts_mut(self.block.add(at), bytes) };
            turbo.pack(codes, group);
        }
    }

    /// Writes component `i` where elements have the size of `T`.
    #[inline(always)]
    #[expect(unsafe_code, reason = "no slice covers a block that threads share")]
    fn put<T>(&self, i: usize, value: T) {
        let (row, column) = match self.layout.side {
            Side::Keys => (i, self.slot),
            Side::Values => (self.slot, i),
        };
        let at = row * self.layout.row_bytes + column * size_of::<T>();
        assert!(at + size_of::<T>() <= self.layout.scales_at(), "a component leaves the block");
        // SAFETY: it lies in the block, and nobody else touches that.
        unsafe { self.block.add(at).cast::<T>().write_unaligned(value) }
    }

    #[inline(always)]
    #[expect(unsafe_code, reason = "no slice covers a block that threads share")]
    fn put_scale(&self, block: usize, scale: u16) {
        assert!(block < self.layout.scales && self.slot < PAGE, "a scale leaves the block");
        let at = self.layout.scales_at() + (block * PAGE + self.slot) * SCALE_BYTES;
        // SAFETY: the scales lie behind the rows in the block, and nobody else touches that.
        unsafe { self.block.add(at).cast::<u16>().write_unaligned(scale) }
    }
}
