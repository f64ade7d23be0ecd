//! Lanes as an array: for machines without the other instruction sets, and what those are compared with.

use half::f16;

use super::{Kernel, LANES, Simd};

/// Plain Rust.
#[derive(Clone, Copy)]
pub(super) struct Portable;

type V = [f32; LANES];

#[inline(always)]
fn fold(mut v: V, f: fn(f32, f32) -> f32) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            v[i] = f(v[i], v[i + width]);
        }
        width /= 2;
    }
    v[0]
}

#[inline(always)]
fn zip(a: V, b: V, f: fn(f32, f32) -> f32) -> V {
    std::array::from_fn(|i| f(a[i], b[i]))
}

fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

fn smaller(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

#[expect(unsafe_code, reason = "reads through pointers, as the trait says")]
impl Simd for Portable {
    type V = V;

    const WIDE: bool = false;

    #[inline(never)]
    fn outline<K: Kernel>(self, kernel: K) -> K::Output {
        kernel.run(self)
    }

    #[inline(always)]
    fn splat(self, x: f32) -> V {
        [x; LANES]
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> V {
        *from
    }

    #[inline(always)]
    fn store(self, v: V, to: &mut [f32; LANES]) {
        *to = v;
    }

    #[inline(always)]
    fn store_f16(self, v: V, to: &mut [u16; LANES]) {
        *to = v.map(|x| f16::from_f32(x).to_bits());
    }

    #[inline(always)]
    unsafe fn read_f32(self, from: *const u8) -> V {
        // SAFETY: the caller vouches for 64 bytes; arrays of bytes have no alignment.
        let bytes = unsafe { from.cast::<[[u8; 4]; LANES]>().read() };
        bytes.map(f32::from_le_bytes)
    }

    #[inline(always)]
    unsafe fn read_f16(self, from: *const u8) -> V {
        // SAFETY: the caller vouches for 32 bytes; arrays of bytes have no alignment.
        let bytes = unsafe { from.cast::<[[u8; 2]; LANES]>().read() };
        bytes.map(|b| f16::from_le_bytes(b).to_f32())
    }

    #[inline(always)]
    unsafe fn read_bf16(self, from: *const u8) -> V {
        // SAFETY: the caller vouches for 32 bytes; arrays of bytes have no alignment.
        let bytes = unsafe { from.cast::<[[u8; 2]; LANES]>().read() };
        bytes.map(|b| f32::from_bits(u32::from(u16::from_le_bytes(b)) << 16))
    }

    #[inline(always)]
    unsafe fn read_i8(self, from: *const u8) -> V {
        // SAFETY: the caller vouches for 16 bytes.
        let bytes = unsafe { from.cast::<[i8; LANES]>().read() };
        bytes.map(f32::from)
    }

    #[inline(always)]
    unsafe fn read_levels<const BITS: usize>(self, group: *const u8, j: usize) -> V {
        // SAFETY: the caller vouches for the group.
        unsafe { super::levels::portable::read::<BITS>(group, j) }
    }

    #[inline(always)]
    fn add(self, a: V, b: V) -> V {
        zip(a, b, |a, b| a + b)
    }

    #[inline(always)]
    fn sub(self, a: V, b: V) -> V {
        zip(a, b, |a, b| a - b)
    }

    #[inline(always)]
    fn mul(self, a: V, b: V) -> V {
        zip(a, b, |a, b| a * b)
    }

    #[inline(always)]
    fn div(self, a: V, b: V) -> V {
        zip(a, b, |a, b| a / b)
    }

    #[inline(always)]
    fn fma(self, a: V, b: V, c: V) -> V {
        std::array::from_fn(|i| a[i].mul_add(b[i], c[i]))
    }

    #[inline(always)]
    fn max(self, a: V, b: V) -> V {
        zip(a, b, larger)
    }

    #[inline(always)]
    fn min(self, a: V, b: V) -> V {
        zip(a, b, smaller)
    }

    #[inline(always)]
    fn if_less(self, (a, b): (V, V), x: V, y: V) -> V {
        std::array::from_fn(|i| if a[i] < b[i] { x[i] } else { y[i] })
    }

    #[inline(always)]
    fn in_lanes(self, v: V, (low, high): (usize, usize), other: V) -> V {
        std::array::from_fn(|i| if i >= low && i < high { v[i] } else { other[i] })
    }

    #[inline(always)]
    fn abs(self, v: V) -> V {
        v.map(f32::abs)
    }

    #[inline(always)]
    fn with_sign(self, v: V, sign: V) -> V {
        zip(v, sign, f32::copysign)
    }

    #[inline(always)]
    fn prefetch(self, _at: *const u8) {}

    #[inline(always)]
    fn pow2(self, t: V) -> V {
        t.map(|t| f32::from_bits((t.to_bits() << 23).wrapping_add(1.0_f32.to_bits())))
    }

    #[inline(always)]
    fn exchange<const DISTANCE: usize>(self, v: V) -> V {
        std::array::from_fn(|i| v[i ^ DISTANCE])
    }

    #[inline(always)]
    fn transpose(self, rows: [V; LANES]) -> [V; LANES] {
        std::array::from_fn(|j| std::array::from_fn(|i| rows[i][j]))
    }

    #[inline(always)]
    fn sum(self, v: V) -> f32 {
        fold(v, |a, b| a + b)
    }

    #[inline(always)]
    fn largest(self, v: V) -> f32 {
        fold(v, larger)
    }
}
