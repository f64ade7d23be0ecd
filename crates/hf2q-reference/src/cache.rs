//! Keys and values of one layer.

use half::{bf16, f16};
use hf2q_plan::{BackendError, Cache, Cut, KvFormat, KvVector, PAGE};
use hf2q_quant::kv::{INT8_BLOCK, Turbo, UNIT_SCALE, encode_int8, rotate_back};

use crate::backend::{NAME, allocate};

/// Values are kept as f32: what the cache's format makes of them, decoded and rotated back. NaN until they are written.
pub(crate) struct CacheData {
    k: Vec<f32>,
    v: Vec<f32>,
    /// `None`: attention makes keys of values.
    keys: Option<KvVector>,
    values: KvVector,
    /// The order in which components of values are stored.
    cut: Option<Cut>,
    head_dim: usize,
    width: usize,
}

impl CacheData {
    pub(crate) fn new(cache: &Cache, pages: usize) -> Result<Self, BackendError> {
        for format in [cache.k_format, cache.v_format] {
            if !format.accepts(cache.head_dim) {
                let why = format!("a cache of {} has no heads of {}", format.name(), cache.head_dim);
                return Err(BackendError::Unsupported { backend: NAME, op: cache.name.clone(), why });
            }
        }
        let width = cache.kv_heads * cache.head_dim;
        let len = pages.saturating_mul(PAGE).saturating_mul(width);
        Ok(Self {
            k: allocate(&cache.name, if cache.keys().is_some() { len } else { 0 }, f32::NAN)?,
            v: allocate(&cache.name, len, f32::NAN)?,
            keys: cache.keys(),
            values: cache.values(),
            cut: cache.cut(),
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

    /// Stores the keys, if they are stored, and the values of all heads at a slot.
    pub(crate) fn store(&mut self, slot: u32, k: Option<&[f32]>, v: &[f32]) {
        let at = slot as usize * self.width;
        let keys = self.keys.zip(k).map(|(vector, k)| (&mut self.k, (vector, None), k));
        for (to, vector, from) in keys.into_iter().chain([(&mut self.v, (self.values, self.cut), v)]) {
            let to = &mut to[at..at + self.width];
            for (to, from) in to.chunks_exact_mut(self.head_dim).zip(from.chunks_exact(self.head_dim)) {
                to.copy_from_slice(from);
                pass_through(vector, to);
            }
        }
    }

    pub(crate) fn copy(&mut self, from: u32, to: u32) {
        let (from, to) = (from as usize * self.width, to as usize * self.width);
        if self.keys.is_some() {
            self.k.copy_within(from..from + self.width, to);
        }
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

/// Encodes and decodes the vector of a head.
fn pass_through((vector, cut): (KvVector, Option<Cut>), x: &mut [f32]) {
    if let Some(cut) = cut {
        let mut sorted = vec![0.0; x.len()];
        cut.sort(x, &mut sorted);
        pass_through((vector, None), &mut sorted);
        return cut.unsort(&sorted, x);
    }
    let format = vector.format;
    match (format, format.turbo()) {
        (_, Some(turbo)) => {
            let block = vector.block().unwrap_or(x.len());
            x.chunks_exact_mut(block).for_each(|x| turbo_block(turbo, vector.has_unit_scale(), x));
        }
        (KvFormat::F16, _) => x.iter_mut().for_each(|x| *x = f16::from_f32(*x).to_f32()),
        (KvFormat::Bf16, _) => x.iter_mut().for_each(|x| *x = bf16::from_f32(*x).to_f32()),
        (KvFormat::Q8_0, _) => x.as_chunks_mut().0.iter_mut().for_each(int8_block),
        // Single precision: `new` accepts no others.
        _ => {}
    }
}

fn turbo_block(turbo: Turbo, unit: bool, x: &mut [f32]) {
    let mut codes = vec![0; x.len()];
    let scale = if unit {
        turbo.encode_unit(x, &mut codes);
        UNIT_SCALE
    } else {
        turbo.encode(x, &mut codes)
    };
    turbo.decode_rotated(&codes, scale, x);
    rotate_back(x);
}

fn int8_block(x: &mut [f32; INT8_BLOCK]) {
    let mut codes = [0; INT8_BLOCK];
    let scale = f16::from_bits(encode_int8(x, &mut codes)).to_f32();
    for (x, code) in x.iter_mut().zip(codes) {
        *x = scale * f32::from(code.cast_signed());
    }
}
