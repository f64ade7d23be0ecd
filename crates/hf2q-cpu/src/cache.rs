//! Keys and values of one layer.

use hf2q_plan::{BackendError, Cache, KvFormat, PAGE};

use crate::memory::Memory;
use crate::simd::LANES;

/// The pages of one layer. Within a page every KV head has a block of keys `[head_dim][PAGE]` and a block of values
/// `[PAGE][value_stride]`: keys lie side by side, so that a vector holds the same component of sixteen keys; values
/// one after another, padded to whole vectors.
#[derive(Debug)]
pub(crate) struct CacheMemory {
    memory: Memory,
    pub(crate) cache: Cache,
    pages: usize,
}

/// Bytes of a stored value.
pub(crate) fn element_bytes(format: KvFormat) -> usize {
    format.bytes(1)
}

impl CacheMemory {
    pub(crate) fn new(cache: &Cache, pages: usize) -> Result<Self, BackendError> {
        let what = format!("the cache {}", cache.name);
        let too_large = BackendError::OutOfMemory { what: what.clone(), bytes: usize::MAX };
        let bytes = page_bytes(cache).checked_mul(pages).ok_or(too_large)?;
        Ok(Self { memory: Memory::new(&what, bytes)?, cache: cache.clone(), pages })
    }

    /// Values from one stored value vector to the next.
    pub(crate) fn value_stride(&self) -> usize {
        value_stride(&self.cache)
    }

    /// The block of keys of a head in a page.
    pub(crate) fn keys(&self, page: usize, head: usize) -> *mut u8 {
        self.block(page, head, 0)
    }

    /// The block of values of a head in a page.
    pub(crate) fn values(&self, page: usize, head: usize) -> *mut u8 {
        self.block(page, head, key_block_bytes(&self.cache))
    }

    fn block(&self, page: usize, head: usize, at: usize) -> *mut u8 {
        assert!(page < self.pages && head < self.cache.kv_heads, "page {page}, head {head} of the cache");
        let head_bytes = key_block_bytes(&self.cache) + value_block_bytes(&self.cache);
        let start = page * page_bytes(&self.cache) + head * head_bytes + at;
        self.memory.pointer::<u32>(start, 1).cast()
    }

    /// Copies one slot to another.
    pub(crate) fn copy_slot(&mut self, from: usize, to: usize) {
        let (source, target) = (from / PAGE, to / PAGE);
        let (i, j) = (from % PAGE, to % PAGE);
        let width = element_bytes(self.cache.k_format);
        let value_bytes = self.value_stride() * element_bytes(self.cache.v_format);
        for head in 0..self.cache.kv_heads {
            let keys = (self.keys(source, head), self.keys(target, head));
            for d in 0..self.cache.head_dim {
                copy((keys.0, (d * PAGE + i) * width), (keys.1, (d * PAGE + j) * width), width);
            }
            let values = (self.values(source, head), self.values(target, head));
            copy((values.0, i * value_bytes), (values.1, j * value_bytes), value_bytes);
        }
    }
}

/// Copies `len` bytes between offsets of blocks of one cache that is borrowed exclusively.
#[expect(unsafe_code, reason = "blocks are given as pointers")]
fn copy(from: (*mut u8, usize), to: (*mut u8, usize), len: usize) {
    // SAFETY: `copy_slot` keeps offsets within blocks, borrows the cache exclusively, and `copy` allows overlap.
    unsafe { std::ptr::copy(from.0.add(from.1), to.0.add(to.1), len) }
}

fn value_stride(cache: &Cache) -> usize {
    cache.head_dim.next_multiple_of(LANES)
}

fn key_block_bytes(cache: &Cache) -> usize {
    PAGE * cache.head_dim * element_bytes(cache.k_format)
}

fn value_block_bytes(cache: &Cache) -> usize {
    PAGE * value_stride(cache) * element_bytes(cache.v_format)
}

fn page_bytes(cache: &Cache) -> usize {
    cache.kv_heads * (key_block_bytes(cache) + value_block_bytes(cache))
}
