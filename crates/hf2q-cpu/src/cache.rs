//! Keys and values of one layer.

use hf2q_plan::{BackendError, Cache, KvFormat, KvVector, PAGE};
use hf2q_quant::kv::Piece;

use crate::memory::Memory;
use crate::simd::LANES;

/// Bytes of a scale, which is in half precision.
pub(crate) const SCALE_BYTES: usize = 2;

/// Which way vectors lie in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Side by side: row `d` holds component `d` of all [`PAGE`] keys.
    Keys,
    /// One after another: row `p` holds the value of position `p`, padded to whole SIMD vectors.
    Values,
}

/// How the keys or the values of one head lie in a page: rows of elements, then scales `[blocks][PAGE]` in half
/// precision for vectors that have them. Formats of less than 8 bits pack the elements of a row in groups of 64.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) side: Side,
    pub(crate) format: KvFormat,
    /// Number of rows.
    pub(crate) rows: usize,
    /// Elements of a row.
    pub(crate) row_len: usize,
    /// Bytes of a row.
    pub(crate) row_bytes: usize,
    /// Scales of a vector; 0: elements are not scaled.
    pub(crate) scales: usize,
    /// Components of a vector that share a scale, or all of them.
    pub(crate) block: usize,
}

impl Layout {
    fn new(side: Side, vector: KvVector) -> Self {
        let KvVector { format, head_dim, .. } = vector;
        let (rows, row_len) = match side {
            Side::Keys => (head_dim, PAGE),
            Side::Values => (PAGE, head_dim.next_multiple_of(LANES)),
        };
        let (scales, block) = (vector.scales(), vector.block().unwrap_or(head_dim));
        let row_bytes = row_len * format.bits() / 8;
        Self { side, format, rows, row_len, row_bytes, scales, block }
    }

    /// Bytes from the start to the scales.
    pub(crate) fn scales_at(&self) -> usize {
        self.rows * self.row_bytes
    }

    /// Bytes of the keys or values of a head in a page.
    pub(crate) fn bytes(&self) -> usize {
        self.scales_at() + self.scales * PAGE * SCALE_BYTES
    }

    /// Copies vector `from.1` of one block to vector `to.1` of another, which may be the same.
    ///
    /// # Safety
    /// Both pointers are the start of [`Layout::bytes`] bytes that nobody else writes, or reads where they are written.
    #[expect(unsafe_code, reason = "blocks are given as pointers")]
    pub(crate) unsafe fn copy(&self, from: (*const u8, usize), to: (*mut u8, usize)) {
        assert!(from.1 < PAGE && to.1 < PAGE, "a vector of a page");
        // SAFETY: what is touched lies in vectors of the page, so within the blocks, for which the caller vouches.
        unsafe {
            for i in 0..self.scales {
                let at = |i: usize, vector: usize| self.scales_at() + (i * PAGE + vector) * SCALE_BYTES;
                std::ptr::copy(from.0.add(at(i, from.1)), to.0.add(at(i, to.1)), SCALE_BYTES);
            }
            match (self.side, self.format.turbo()) {
                (Side::Values, _) => {
                    let (from, to) = (from.0.add(from.1 * self.row_bytes), to.0.add(to.1 * self.row_bytes));
                    std::ptr::copy(from, to, self.row_bytes);
                }
                (Side::Keys, Some(turbo)) => {
                    let (source, target) = (turbo.pieces(from.1), turbo.pieces(to.1));
                    for row in 0..self.rows {
                        let at = row * self.row_bytes;
                        copy_code((from.0.add(at), source), (to.0.add(at), target));
                    }
                }
                (Side::Keys, None) => {
                    let width = self.row_bytes / self.row_len;
                    for row in 0..self.rows {
                        let at = |vector: usize| row * self.row_bytes + vector * width;
                        std::ptr::copy(from.0.add(at(from.1)), to.0.add(at(to.1)), width);
                    }
                }
            }
        }
    }
}

/// Copies one code between groups.
///
/// # Safety
/// The pointers are the start of groups that hold the pieces, and nobody else uses the bytes that are written.
#[expect(unsafe_code, reason = "blocks are given as pointers")]
unsafe fn copy_code(from: (*const u8, [Piece; 2]), to: (*mut u8, [Piece; 2])) {
    // SAFETY: the caller vouches for the bytes of the pieces.
    unsafe {
        let [low, high] = from.1;
        let code = low.get(*from.0.add(low.byte)) | high.get(*from.0.add(high.byte));
        put_code(to.0, to.1, code);
    }
}

/// Writes one code into a group.
///
/// # Safety
/// `group` is the start of a group that holds the pieces, and nobody else uses the bytes that are written.
#[inline(always)]
#[expect(unsafe_code, reason = "blocks are given as pointers")]
pub(crate) unsafe fn put_code(group: *mut u8, [low, high]: [Piece; 2], code: u8) {
    // SAFETY: the caller vouches for the bytes of the pieces.
    unsafe {
        let byte = group.add(low.byte);
        *byte = low.put(*byte, code);
        if high != low {
            let byte = group.add(high.byte);
            *byte = high.put(*byte, code);
        }
    }
}

/// The pages of one layer. Within a page every KV head has a block of keys, if keys are stored, and a block of values:
/// see [`Layout`].
#[derive(Debug)]
pub(crate) struct CacheMemory {
    memory: Memory,
    pub(crate) cache: Cache,
    /// `None`: keys are formed of values.
    pub(crate) keys: Option<Layout>,
    pub(crate) values: Layout,
    pages: usize,
}

impl CacheMemory {
    pub(crate) fn new(cache: &Cache, pages: usize) -> Result<Self, BackendError> {
        let what = format!("the cache {}", cache.name);
        let too_large = BackendError::OutOfMemory { what: what.clone(), bytes: usize::MAX };
        let keys = cache.keys().map(|vector| Layout::new(Side::Keys, vector));
        let values = Layout::new(Side::Values, cache.values());
        let page = cache.kv_heads * (keys.map_or(0, |k| k.bytes()) + values.bytes());
        let bytes = page.checked_mul(pages).ok_or(too_large)?;
        Ok(Self { memory: Memory::new(&what, bytes)?, cache: cache.clone(), keys, values, pages })
    }

    /// The block of keys of a head in a page; of no bytes where keys are not stored.
    pub(crate) fn key_block(&self, page: usize, head: usize) -> *mut u8 {
        self.block((page, head), 0, self.key_bytes())
    }

    /// The block of values of a head in a page.
    pub(crate) fn value_block(&self, page: usize, head: usize) -> *mut u8 {
        self.block((page, head), self.key_bytes(), self.values.bytes())
    }

    fn key_bytes(&self) -> usize {
        self.keys.map_or(0, |keys| keys.bytes())
    }

    fn block(&self, (page, head): (usize, usize), at: usize, len: usize) -> *mut u8 {
        assert!(page < self.pages && head < self.cache.kv_heads, "page {page}, head {head} of the cache");
        let head_bytes = self.key_bytes() + self.values.bytes();
        let start = (page * self.cache.kv_heads + head) * head_bytes + at;
        self.memory.pointer::<u8>(start, len)
    }

    /// Bytes of all pages.
    pub(crate) fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Copies one slot to another.
    #[expect(unsafe_code, reason = "blocks are pointers")]
    pub(crate) fn copy_slot(&mut self, from: usize, to: usize) {
        let (source, target) = (from / PAGE, to / PAGE);
        let (i, j) = (from % PAGE, to % PAGE);
        for head in 0..self.cache.kv_heads {
            let keys = (self.key_block(source, head), self.key_block(target, head));
            let values = (self.value_block(source, head), self.value_block(target, head));
            // SAFETY: blocks have the bytes of their layouts, and the cache is borrowed exclusively.
            unsafe {
                if let Some(layout) = &self.keys {
                    layout.copy((keys.0, i), (keys.1, j));
                }
                self.values.copy((values.0, i), (values.1, j));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_hold_no_more_than_codes_and_scales() {
        for format in KvFormat::ALL {
            for (head_dim, unit) in KvFormat::TURBO_HEADS.into_iter().flat_map(|n| [(n, false), (n, true)]) {
                for side in [Side::Keys, Side::Values] {
                    let vector = KvVector { format, head_dim, unit, cut: None };
                    let layout = Layout::new(side, vector);
                    assert_eq!(layout.bytes(), PAGE * vector.bytes(), "{side:?} {vector:?}");
                }
            }
        }
    }

    #[test]
    fn a_cache_is_as_large_as_the_plan_says() {
        let mut r = hf2q_plan::Recorder::default();
        let group = r.group("global", None);
        let rope = hf2q_plan::RopeParams {
            dims: 512,
            pairing: hf2q_plan::Pairing::Halves,
            base: 1e6,
            freq_scale: 1.0,
            factors: None,
            yarn: None,
            magnitude: 1.0,
        };
        let table = hf2q_plan::Weight { ty: hf2q_gguf::TensorType::F32, cols: 512, rows: 1, experts: 1 };
        let table = r.weight("table", table);
        let x = r.embed("embed", table, 1.0);
        for format in KvFormat::ALL {
            for i in 0..3 {
                r.prefix(format!("{}{i}", format.name()));
                let keys = hf2q_plan::FormedKeys { weight: None, rope, pairs: 256 };
                let _ = match i {
                    0 => r.cache(group, 2, 256, (format, format)),
                    1 => r.unit_cache(group, 2, 256, (format, format)),
                    _ => r.value_cache(group, 2, 512, (format, keys)),
                };
            }
        }
        for cache in r.finish(x).unwrap().caches {
            let memory = CacheMemory::new(&cache, 3).unwrap();
            let head = memory.key_bytes() + memory.values.bytes();
            assert_eq!(head * cache.kv_heads, cache.page_bytes(), "{}", cache.name);
        }
    }

    #[test]
    #[expect(unsafe_code, reason = "blocks are given as pointers")]
    fn a_copied_vector_is_alone_in_changing() {
        for format in KvFormat::ALL {
            for side in [Side::Keys, Side::Values] {
                let layout = Layout::new(side, KvVector { format, head_dim: 64, unit: false, cut: None });
                let from: Vec<u8> = (0..layout.bytes()).map(|i| (i * 89 + i / 251) as u8).collect();
                let to: Vec<u8> = from.iter().map(|b| !b).collect();
                let mut there = to.clone();
                // SAFETY: all blocks have the bytes of the layout.
                unsafe {
                    layout.copy((from.as_ptr(), 13), (there.as_mut_ptr(), 42));
                    // Back and forth within one block changes nothing.
                    let block = there.as_mut_ptr();
                    layout.copy((block, 42), (block, 42));
                }
                let changed: u32 = there.iter().zip(&to).map(|(a, b)| (a ^ b).count_ones()).sum();
                let bits = 8 * format.bytes(64) as u32;
                assert!(changed > bits / 4 && changed <= bits, "{side:?} {}: {changed}", format.name());
                let mut back = from.clone();
                // SAFETY: as above.
                unsafe { layout.copy((there.as_ptr(), 42), (back.as_mut_ptr(), 13)) }
                assert!(back == from, "{side:?} {}: what was copied is what was there", format.name());
            }
        }
    }
}
