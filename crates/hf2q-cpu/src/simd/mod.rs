//! Sixteen f32 lanes on every instruction set.
//!
//! A kernel is written once against [`Simd`] and compiled for each instruction set. All of them have sixteen lanes,
//! fused multiply-add and the same reduction trees, so a kernel gives the same bits on all of them. Code that is
//! generic over `Simd` is `#[inline(always)]` up to [`dispatch`] and uses no closures: only inside [`dispatch`]'s
//! functions may the compiler use the instructions.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod levels;
mod math;
mod portable;
#[cfg(target_arch = "x86_64")]
mod transpose;

pub(crate) use math::{exp, gelu_tanh, silu, tanh};

use crate::isa::Isa;
use portable::Portable;

/// Lanes of a vector.
pub(crate) const LANES: usize = 16;

/// Bits of 1.5 · 2²³: adding that number to a small float rounds it to an integer, which is then in the low bits.
pub(crate) const ROUNDER: f32 = 12_582_912.0;

/// The operations of one instruction set. Its value is the proof that the instructions exist.
pub(crate) trait Simd: Copy {
    /// Sixteen lanes.
    type V: Copy;

    /// Whether there are 32 registers of sixteen lanes.
    const WIDE: bool;

    /// Runs a kernel that is compiled once, not at each place that uses it.
    fn outline<K: Kernel>(self, kernel: K) -> K::Output;

    fn splat(self, x: f32) -> Self::V;
    fn load(self, from: &[f32; LANES]) -> Self::V;
    fn store(self, v: Self::V, to: &mut [f32; LANES]);
    /// Rounds to nearest, ties to even.
    fn store_f16(self, v: Self::V, to: &mut [u16; LANES]);

    /// # Safety
    /// 64 bytes from `from` must be readable; any alignment.
    #[expect(unsafe_code, reason = "reads through pointers: the contract is above")]
    unsafe fn read_f32(self, from: *const u8) -> Self::V;
    /// # Safety
    /// 32 bytes from `from` must be readable; any alignment.
    #[expect(unsafe_code, reason = "reads through pointers: the contract is above")]
    unsafe fn read_f16(self, from: *const u8) -> Self::V;
    /// # Safety
    /// 32 bytes from `from` must be readable; any alignment.
    #[expect(unsafe_code, reason = "reads through pointers: the contract is above")]
    unsafe fn read_bf16(self, from: *const u8) -> Self::V;
    /// Signed bytes.
    ///
    /// # Safety
    /// 16 bytes from `from` must be readable.
    #[expect(unsafe_code, reason = "reads through pointers: the contract is above")]
    unsafe fn read_i8(self, from: *const u8) -> Self::V;
    /// The levels of codes `16 j ..` of a group of 64 codes of `BITS` bits: see [`hf2q_quant::kv`].
    ///
    /// # Safety
    /// `8 · BITS` bytes from `group` must be readable, any alignment, and `j` below 4.
    #[expect(unsafe_code, reason = "reads through pointers: the contract is above")]
    unsafe fn read_levels<const BITS: usize>(self, group: *const u8, j: usize) -> Self::V;

    /// Asks for the line of memory at an address, which may be any, to be brought into the second-level cache.
    fn prefetch(self, at: *const u8);

    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a · b + c`, rounded once.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `a > b ? a : b` in each lane, so `b` where either is NaN.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a < b ? a : b` in each lane, so `b` where either is NaN.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a < b ? x : y` in each lane, with `ab = (a, b)`.
    fn if_less(self, ab: (Self::V, Self::V), x: Self::V, y: Self::V) -> Self::V;
    /// `v` in the lanes from `range.0` up to `range.1`, `other` in the rest.
    fn in_lanes(self, v: Self::V, range: (usize, usize), other: Self::V) -> Self::V;
    fn abs(self, v: Self::V) -> Self::V;
    /// The magnitude of `v` with the sign of `sign`; `v` must not be negative.
    fn with_sign(self, v: Self::V, sign: Self::V) -> Self::V;
    /// `2^n` where `t = n + ROUNDER` with `n` in `-126 ..= 127`.
    fn pow2(self, t: Self::V) -> Self::V;
    /// Lane `i` gets lane `i ^ DISTANCE`; a distance is 1, 2, 4 or 8.
    fn exchange<const DISTANCE: usize>(self, v: Self::V) -> Self::V;
    /// Lane `j` of vector `i` becomes lane `i` of vector `j`.
    fn transpose(self, rows: [Self::V; LANES]) -> [Self::V; LANES];
    /// Lane `i` plus lane `i + 8`, then 4, 2 and 1 apart.
    fn sum(self, v: Self::V) -> f32;
    /// The largest lane, by [`Simd::max`] in the tree of [`Simd::sum`].
    fn largest(self, v: Self::V) -> f32;

    /// Up to sixteen values, zeros behind them.
    #[inline(always)]
    fn load_part(self, from: &[f32]) -> Self::V {
        let mut all = [0.0; LANES];
        all[..from.len()].copy_from_slice(from);
        self.load(&all)
    }

    /// The first lanes, as many as `to` holds.
    #[inline(always)]
    fn store_part(self, v: Self::V, to: &mut [f32]) {
        let mut all = [0.0; LANES];
        self.store(v, &mut all);
        let n = to.len();
        to.copy_from_slice(&all[..n]);
    }
}

/// Work that is compiled for every instruction set.
pub(crate) trait Kernel {
    type Output;

    /// Implementations are `#[inline(always)]`.
    fn run<S: Simd>(self, s: S) -> Self::Output;
}

/// Runs a kernel with an instruction set.
pub(crate) fn dispatch<K: Kernel>(isa: Isa, kernel: K) -> K::Output {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Amx(s) => avx512::enter(s.avx512(), kernel),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512(s) => avx512::enter(s, kernel),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(s) => avx2::enter(s, kernel),
        Isa::Portable => kernel.run(Portable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Walk<'a>(&'a [f32; LANES], &'a [f32; LANES]);

    impl Kernel for Walk<'_> {
        type Output = Vec<u32>;

        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> Vec<u32> {
            let (a, b) = (s.load(self.0), s.load(self.1));
            let c = s.splat(0.3);
            let outs = [
                s.add(a, b),
                s.sub(a, b),
                s.mul(a, b),
                s.div(a, b),
                s.fma(a, b, c),
                s.max(a, b),
                s.min(a, b),
                s.if_less((a, b), a, c),
                s.in_lanes(a, (3, 11), b),
                s.in_lanes(a, (0, 16), b),
                s.in_lanes(a, (9, 9), b),
                s.abs(a),
                s.with_sign(s.abs(a), b),
                s.pow2(s.add(s.splat(-126.0), s.splat(ROUNDER))),
                s.load_part(&self.0[..5]),
                s.exchange::<1>(a),
                s.exchange::<2>(a),
                s.exchange::<4>(a),
                s.exchange::<8>(a),
                exp(s, a),
                tanh(s, a),
                gelu_tanh(s, a),
                silu(s, b),
            ];
            let rows: [S::V; LANES] = std::array::from_fn(|i| s.add(a, s.splat(i as f32)));
            let outs = outs.into_iter().chain(s.transpose(rows));
            let mut bits = vec![s.sum(a).to_bits(), s.largest(b).to_bits()];
            for v in outs {
                let mut lanes = [0.0; LANES];
                s.store(v, &mut lanes);
                bits.extend(lanes.map(f32::to_bits));
            }
            let mut halves = [0; LANES];
            s.store_f16(a, &mut halves);
            bits.extend(halves.map(u32::from));
            bits
        }
    }

    #[test]
    fn every_instruction_set_gives_the_same_bits() {
        let mut state = 1_u32;
        for round in 0..2000 {
            let mut next = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let unit = (state >> 8) as f32 / (1 << 24) as f32 - 0.5;
                unit * [1.0, 8.0, 100.0, 1e-4, 1e5][round % 5]
            };
            let a = std::array::from_fn(|_| next());
            let b = std::array::from_fn(|_| next());
            let want = dispatch(Isa::Portable, Walk(&a, &b));
            for isa in Isa::available() {
                assert_eq!(dispatch(isa, Walk(&a, &b)), want, "{}", isa.name());
            }
        }
    }
}
