//! Inputs that `make_goldens.py` makes alike, and hashes.

use hf2q_gguf::TensorType;

/// SplitMix64.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

/// Groups of 32 from subnormals of a single to the range of half precision: uniform values, halves of small
/// integers (ties of the rounding, both signs at the largest magnitude) and nearly empty groups with zeros of
/// both signs, by turns.
pub(crate) fn values(count: usize) -> Vec<f32> {
    let mut numbers = Numbers(7);
    let mut out = Vec::with_capacity(count);
    for group in 0..count / 32 {
        let exponent = (numbers.next() % 164) as i32 - 172;
        for _ in 0..32 {
            let r = numbers.next();
            out.push(match group % 3 {
                0 => (((r >> 40) as i32 - (1 << 23)) as f64 * 2f64.powi(exponent)) as f32,
                1 => ((r >> 32) % 33) as f32 * 0.5 - 8.0,
                _ if r.is_multiple_of(29) => ((r >> 32) % 5) as f32 - 2.0,
                _ => [0.0, -0.0][(r >> 63) as usize],
            });
        }
    }
    out
}

/// Weights of columns from 2^-8 to 2^7, a quarter of them zero.
pub(crate) fn weights(columns: usize) -> Vec<f32> {
    let mut numbers = Numbers(9);
    let mut weight = || match numbers.next() {
        r if r.is_multiple_of(4) => 0.0,
        r => 2f32.powi(((r >> 32) % 16) as i32 - 8),
    };
    (0..columns).map(|_| weight()).collect()
}

/// FNV-1a.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

/// All types with a decoder.
pub(crate) fn decodable() -> impl Iterator<Item = TensorType> {
    TensorType::all().filter(|&ty| hf2q_quant::can_decode(ty))
}

pub(crate) fn decode(ty: TensorType, blocks: &[u8]) -> Vec<f32> {
    let mut out = vec![0.0; blocks.len() / ty.block_bytes() * ty.block_len()];
    hf2q_quant::dequantize(ty, blocks, &mut out).expect("whole blocks of a type with a decoder");
    out
}

pub(crate) fn encode(ty: TensorType, values: &[f32]) -> Vec<u8> {
    let mut out = Vec::new();
    hf2q_quant::quantize(ty, values, &mut out).expect("finite values in the range of the type");
    out
}

pub(crate) fn encode_weighted(ty: TensorType, rows: &[f32], weights: &[f32]) -> Vec<u8> {
    let mut out = Vec::new();
    hf2q_quant::quantize_weighted(ty, rows, weights, &mut out).expect("finite rows in the range of the type");
    out
}
