//! Keys and values of one layer.

use half::f16;
use hf2q_plan::{BackendError, Cache, KvFormat, PAGE};

use crate::backend::{NAME, allocate};

/// Values are kept as f32, rounded to what the cache's format holds; NaN until they are written.
pub(crate) struct CacheData {
    k: Vec<f32>,
    v: Vec<f32>,
    k_format: KvFormat,
    v_format: KvFormat,
    head_dim: usize,
    width: usize,
}

impl CacheData {
    pub(crate) fn new(cache: &Cache, pages: usize) -> Result<Self, BackendError> {
        for format in [cache.k_format, cache.v_format] {
            if !matches!(format, KvFormat::F32 | KvFormat::F16) {
                let why =
                    format!("cache format {} is unknown to it, accepted are f32 and f16", format.name());
                return Err(BackendError::Unsupported { backend: NAME, op: cache.name.clone(), why });
            }
        }
        let width = cache.kv_heads * cache.head_dim;
        let len = pages.saturating_mul(PAGE).saturating_mul(width);
        Ok(Self {
            k: allocate(&cache.name, len, f32::NAN)?,
            v: allocate(&cache.name, len, f32::NAN)?,
            k_format: cache.k_format,
            v_format: cache.v_format,
            head_dim: cache.head_dim,
            width,
        })
    }

    pub(crate) fn head_dim(&self) -> usize {
        self.head_dim
    }

    pub(crate) fn kv_heads(&self) -> usize {
        self.width / self.head_dim
    }

    /// Stores the keys and values of all heads at a slot.
    pub(crate) fn store(&mut self, slot: u32, k: &[f32], v: &[f32]) {
        let at = slot as usize * self.width;
        for (to, &from) in self.k[at..at + self.width].iter_mut().zip(k) {
            *to = round(self.k_format, from);
        }
        for (to, &from) in self.v[at..at + self.width].iter_mut().zip(v) {
            *to = round(self.v_format, from);
        }
    }

    pub(crate) fn copy(&mut self, from: u32, to: u32) {
        let (from, to) = (from as usize * self.width, to as usize * self.width);
        self.k.copy_within(from..from + self.width, to);
        self.v.copy_within(from..from + self.width, to);
    }

    pub(crate) fn key(&self, slot: u32, head: usize) -> &[f32] {
        let at = slot as usize * self.width + head * self.head_dim;
        &self.k[at..at + self.head_dim]
    }

    pub(crate) fn value(&self, slot: u32, head: usize) -> &[f32] {
        let at = slot as usize * self.width + head * self.head_dim;
        &self.v[at..at + self.head_dim]
    }
}

fn round(format: KvFormat, x: f32) -> f32 {
    match format {
        KvFormat::F16 => f16::from_f32(x).to_f32(),
        // `new` accepts no others.
        _ => x,
    }
}
