//! Where codes and scales lie in a block.

use super::LEN;

/// Codes of two bits: of each half of 128 values, byte `l` of 32 holds values `l`, `l + 32`, `l + 64`, `l + 96`
/// from the low bits up.
#[inline(always)]
pub(crate) fn put_pairs(codes: &[u8; LEN], out: &mut [u8]) {
    for (half, out) in codes.as_chunks::<128>().0.iter().zip(out.as_chunks_mut::<32>().0) {
        for (l, out) in out.iter_mut().enumerate() {
            let low = (half[l] & 3) | (half[l + 32] & 3) << 2;
            *out = low | (half[l + 64] & 3) << 4 | (half[l + 96] & 3) << 6;
        }
    }
}

/// Codes of four bits, of which there may be more: of each 64 values, byte `l` of 32 holds value `l` low, value
/// `l + 32` high.
#[inline(always)]
pub(crate) fn put_nibbles(codes: &[u8; LEN], out: &mut [u8]) {
    for (codes, out) in codes.as_chunks::<64>().0.iter().zip(out.as_chunks_mut::<32>().0) {
        for (l, out) in out.iter_mut().enumerate() {
            *out = (codes[l] & 15) | (codes[l + 32] << 4);
        }
    }
}

/// One more bit of each code: bit `g` of byte `l` belongs to value `32 * g + l`.
#[inline(always)]
pub(crate) fn put_bit(codes: &[u8; LEN], bit: u8, out: &mut [u8]) {
    for (l, out) in out.iter_mut().enumerate().take(32) {
        let mut bits = 0;
        for group in 0..8 {
            bits |= ((codes[group * 32 + l] >> bit) & 1) << group;
        }
        *out = bits;
    }
}

/// The inverse of [`k4_scale_min`](crate::layout::k4_scale_min) for numbers below 64.
pub(crate) fn k4_scales(scales: &[u8; 8], mins: &[u8; 8]) -> [u8; 12] {
    let mut packed = [0; 12];
    packed[..4].copy_from_slice(&scales[..4]);
    packed[4..8].copy_from_slice(&mins[..4]);
    for j in 4..8 {
        packed[j + 4] = (scales[j] & 15) | (mins[j] << 4);
        packed[j - 4] |= (scales[j] >> 4) << 6;
        packed[j] |= (mins[j] >> 4) << 6;
    }
    packed
}

/// The inverse of [`q3k_scales`](crate::layout::q3k_scales), from scales plus 32.
pub(crate) fn q3_scales(scales: &[u8; 16]) -> [u8; 12] {
    let mut packed = [0; 12];
    for (j, scale) in scales.iter().enumerate() {
        packed[j % 8] |= (scale & 15) << (4 * (j / 8));
        packed[8 + j % 4] |= (scale >> 4) << (2 * (j / 4));
    }
    packed
}
