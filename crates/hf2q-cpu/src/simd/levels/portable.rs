//! Levels by the definition of the codes.

use hf2q_quant::kv::{GROUP, Turbo};

use crate::simd::LANES;

/// # Safety
/// `8 · BITS` bytes from `group` must be readable, and `j` below 4.
#[inline(always)]
#[expect(unsafe_code, reason = "reads through a pointer")]
pub(crate) unsafe fn read<const BITS: usize>(group: *const u8, j: usize) -> [f32; LANES] {
    let turbo = const { turbo(BITS) };
    // SAFETY: the caller vouches for the bytes.
    let group = unsafe { std::slice::from_raw_parts(group, GROUP / 8 * BITS) };
    let values = turbo.values();
    let mut out = [0.0; LANES];
    for (lane, out) in out.iter_mut().enumerate() {
        *out = values[usize::from(turbo.unpack_one(group, j * LANES + lane))];
    }
    out
}

const fn turbo(bits: usize) -> Turbo {
    match bits {
        2 => Turbo::Tq2,
        3 => Turbo::Tq3,
        4 => Turbo::Tq4,
        5 => Turbo::Tq5,
        6 => Turbo::Tq6,
        8 => Turbo::Tq8,
        _ => panic!("codes have 2, 3, 4, 5, 6 or 8 bits"),
    }
}
