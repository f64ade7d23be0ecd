//! Sixteen lanes of `f32` and `i32` on every instruction set.
//!
//! A search for the scale of a group is a chain of float operations whose order decides the bytes. Lanes keep
//! that order by working on sixteen groups at once: lane `i` does to group `i` what scalar code would do, and a
//! branch becomes a mask. Nothing is fused and nothing is summed across lanes, so every instruction set gives the
//! bits of scalar code.
//!
//! A [`Kernel`] is written once and compiled for each instruction set. What it calls is `#[inline(always)]` and
//! uses no closures: only code inlined into [`dispatch`]'s functions is compiled with the instructions.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod isa;
mod portable;

use std::ops::{Add, BitAnd, BitOr, Div, Mul, Neg, Not, Sub};

pub(crate) use isa::Isa;

/// Lanes of a vector.
pub(crate) const LANES: usize = 16;

/// 1.5 · 2²³: adding it to a small float leaves the nearest integer in the low bits.
const ROUNDER: f32 = 12_582_912.0;

/// One instruction set. Its value is the proof that the instructions exist. Kernels use it through [`Floats`],
/// [`Ints`] and [`Mask`].
pub(crate) trait Simd: Copy {
    type F: Copy;
    type I: Copy;
    type M: Copy;

    fn splat(self, x: f32) -> Self::F;
    fn load(self, from: &[f32; LANES]) -> Self::F;
    fn store(self, v: Self::F, to: &mut [f32; LANES]);
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a < b ? a : b`.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a > b ? a : b`.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    fn sqrt(self, a: Self::F) -> Self::F;
    fn truncate(self, a: Self::F) -> Self::I;
    fn min_across(self, a: Self::F) -> f32;
    fn max_across(self, a: Self::F) -> f32;
    fn less(self, a: Self::F, b: Self::F) -> Self::M;
    fn equal(self, a: Self::F, b: Self::F) -> Self::M;
    fn select(self, m: Self::M, a: Self::F, b: Self::F) -> Self::F;
    fn bits(self, a: Self::F) -> Self::I;
    fn of_bits(self, a: Self::I) -> Self::F;
    /// Lane `i` of row `j` becomes lane `j` of row `i`.
    fn transpose(self, rows: [Self::F; LANES]) -> [Self::F; LANES];
    fn lookup(self, table: &[f32; LANES], index: Self::I) -> Self::F;

    fn int_splat(self, x: i32) -> Self::I;
    fn int_load(self, from: &[i32; LANES]) -> Self::I;
    fn int_store(self, v: Self::I, to: &mut [i32; LANES]);
    fn int_add(self, a: Self::I, b: Self::I) -> Self::I;
    fn int_sub(self, a: Self::I, b: Self::I) -> Self::I;
    fn int_and(self, a: Self::I, b: Self::I) -> Self::I;
    fn int_or(self, a: Self::I, b: Self::I) -> Self::I;
    fn int_min(self, a: Self::I, b: Self::I) -> Self::I;
    fn int_max(self, a: Self::I, b: Self::I) -> Self::I;
    fn int_equal(self, a: Self::I, b: Self::I) -> Self::M;
    fn int_select(self, m: Self::M, a: Self::I, b: Self::I) -> Self::I;
    fn int_to_float(self, a: Self::I) -> Self::F;
    /// The low bytes.
    fn int_store_bytes(self, v: Self::I, to: &mut [u8; LANES]);

    fn mask_and(self, a: Self::M, b: Self::M) -> Self::M;
    fn mask_or(self, a: Self::M, b: Self::M) -> Self::M;
    fn mask_not(self, a: Self::M) -> Self::M;
    /// Bit `i` is lane `i`.
    fn mask_bits(self, a: Self::M) -> u16;

    /// Runs a routine that is compiled once, not at each place that uses it.
    fn outline<R: Routine<Self>>(self, routine: R) -> R::Output;
}

/// Work that is compiled for every instruction set.
pub(crate) trait Kernel {
    type Output;

    /// Implementations are `#[inline(always)]`.
    fn run<S: Simd>(self, s: S) -> Self::Output;
}

/// Part of a kernel.
pub(crate) trait Routine<S> {
    type Output;

    /// Implementations are `#[inline(always)]`.
    fn call(self, s: S) -> Self::Output;
}

impl<S: Simd, K: Kernel> Routine<S> for K {
    type Output = K::Output;

    #[inline(always)]
    fn call(self, s: S) -> K::Output {
        self.run(s)
    }
}

/// Runs a kernel with the best instruction set of this processor.
pub(crate) fn dispatch<K: Kernel>(kernel: K) -> K::Output {
    Isa::detect().run(kernel)
}

/// Sixteen `f32`.
#[derive(Clone, Copy)]
pub(crate) struct Floats<S: Simd> {
    s: S,
    v: S::F,
}

/// Sixteen `i32`; sums wrap.
#[derive(Clone, Copy)]
pub(crate) struct Ints<S: Simd> {
    s: S,
    v: S::I,
}

/// Sixteen truths.
#[derive(Clone, Copy)]
pub(crate) struct Mask<S: Simd> {
    s: S,
    v: S::M,
}

macro_rules! operators {
    ($($trait:ident $name:ident for $type:ident = $raw:ident;)*) => {$(
        impl<S: Simd> $trait for $type<S> {
            type Output = Self;

            #[inline(always)]
            fn $name(self, other: Self) -> Self {
                Self { s: self.s, v: self.s.$raw(self.v, other.v) }
            }
        }
    )*};
}

operators! {
    Add add for Floats = add;
    Sub sub for Floats = sub;
    Mul mul for Floats = mul;
    Div div for Floats = div;
    Add add for Ints = int_add;
    Sub sub for Ints = int_sub;
    BitAnd bitand for Ints = int_and;
    BitOr bitor for Ints = int_or;
    BitAnd bitand for Mask = mask_and;
    BitOr bitor for Mask = mask_or;
}

impl<S: Simd> Neg for Floats<S> {
    type Output = Self;

    /// Flips the sign, of zero and NaN too.
    #[inline(always)]
    fn neg(self) -> Self {
        let sign = self.s.int_splat(i32::MIN);
        Self { s: self.s, v: self.s.of_bits(self.s.int_add(self.s.bits(self.v), sign)) }
    }
}

impl<S: Simd> Not for Mask<S> {
    type Output = Self;

    #[inline(always)]
    fn not(self) -> Self {
        Self { s: self.s, v: self.s.mask_not(self.v) }
    }
}

impl<S: Simd> Floats<S> {
    /// The same number in every lane.
    #[inline(always)]
    pub(crate) fn splat(s: S, x: f32) -> Self {
        Self { s, v: s.splat(x) }
    }

    #[inline(always)]
    pub(crate) fn load(s: S, from: &[f32; LANES]) -> Self {
        Self { s, v: s.load(from) }
    }

    #[inline(always)]
    pub(crate) fn store(self, to: &mut [f32; LANES]) {
        self.s.store(self.v, to);
    }

    #[inline(always)]
    pub(crate) fn to_array(self) -> [f32; LANES] {
        let mut out = [0.0; LANES];
        self.store(&mut out);
        out
    }

    /// `self < other ? self : other`, so `other` where either is NaN.
    #[inline(always)]
    pub(crate) fn min(self, other: Self) -> Self {
        Self { s: self.s, v: self.s.min(self.v, other.v) }
    }

    /// `self > other ? self : other`, so `other` where either is NaN.
    #[inline(always)]
    pub(crate) fn max(self, other: Self) -> Self {
        Self { s: self.s, v: self.s.max(self.v, other.v) }
    }

    #[inline(always)]
    pub(crate) fn sqrt(self) -> Self {
        Self { s: self.s, v: self.s.sqrt(self.v) }
    }

    #[inline(always)]
    pub(crate) fn abs(self) -> Self {
        let magnitude = self.s.int_splat(i32::MAX);
        Self { s: self.s, v: self.s.of_bits(self.s.int_and(self.s.bits(self.v), magnitude)) }
    }

    /// False where either is NaN.
    #[inline(always)]
    pub(crate) fn less(self, other: Self) -> Mask<S> {
        Mask { s: self.s, v: self.s.less(self.v, other.v) }
    }

    /// False where either is NaN.
    #[inline(always)]
    pub(crate) fn more(self, other: Self) -> Mask<S> {
        other.less(self)
    }

    /// False where either is NaN.
    #[inline(always)]
    pub(crate) fn equal(self, other: Self) -> Mask<S> {
        Mask { s: self.s, v: self.s.equal(self.v, other.v) }
    }

    /// Nearest integer, ties to even, as a float. Only for magnitudes up to 2²².
    #[inline(always)]
    pub(crate) fn round(self) -> Self {
        let rounder = Self::splat(self.s, ROUNDER);
        self + rounder - rounder
    }

    /// Nearest integer, ties to even, for magnitudes up to 4194303. Beyond it gives what the low bits of the sum
    /// with the rounder say, as the reference does: NaN becomes 0, infinity -4194304.
    #[inline(always)]
    pub(crate) fn nearest_int(self) -> Ints<S> {
        let sum = self + Self::splat(self.s, ROUNDER);
        let low = Ints { s: self.s, v: self.s.bits(sum.v) } & Ints::splat(self.s, 0x007f_ffff);
        low - Ints::splat(self.s, 0x0040_0000)
    }

    /// The integer part. Only for magnitudes below 2³¹.
    #[inline(always)]
    pub(crate) fn truncate(self) -> Ints<S> {
        Ints { s: self.s, v: self.s.truncate(self.v) }
    }

    /// The smallest of finite lanes; zeros are equal.
    #[inline(always)]
    pub(crate) fn min_across(self) -> f32 {
        self.s.min_across(self.v)
    }

    /// The largest of finite lanes; zeros are equal.
    #[inline(always)]
    pub(crate) fn max_across(self) -> f32 {
        self.s.max_across(self.v)
    }

    /// The entries of a table.
    #[inline(always)]
    pub(crate) fn lookup(table: &[f32; LANES], index: Ints<S>) -> Self {
        Self { s: index.s, v: index.s.lookup(table, index.v) }
    }
}

impl<S: Simd> Ints<S> {
    /// The same number in every lane.
    #[inline(always)]
    pub(crate) fn splat(s: S, x: i32) -> Self {
        Self { s, v: s.int_splat(x) }
    }

    #[inline(always)]
    pub(crate) fn load(s: S, from: &[i32; LANES]) -> Self {
        Self { s, v: s.int_load(from) }
    }

    #[inline(always)]
    pub(crate) fn store(self, to: &mut [i32; LANES]) {
        self.s.int_store(self.v, to);
    }

    #[inline(always)]
    pub(crate) fn to_array(self) -> [i32; LANES] {
        let mut out = [0; LANES];
        self.store(&mut out);
        out
    }

    /// Writes the low byte of every lane.
    #[inline(always)]
    pub(crate) fn store_bytes(self, to: &mut [u8; LANES]) {
        self.s.int_store_bytes(self.v, to);
    }

    #[inline(always)]
    pub(crate) fn min(self, other: Self) -> Self {
        Self { s: self.s, v: self.s.int_min(self.v, other.v) }
    }

    #[inline(always)]
    pub(crate) fn max(self, other: Self) -> Self {
        Self { s: self.s, v: self.s.int_max(self.v, other.v) }
    }

    #[inline(always)]
    pub(crate) fn equal(self, other: Self) -> Mask<S> {
        Mask { s: self.s, v: self.s.int_equal(self.v, other.v) }
    }

    /// As floats, rounded to nearest even.
    #[inline(always)]
    pub(crate) fn to_floats(self) -> Floats<S> {
        Floats { s: self.s, v: self.s.int_to_float(self.v) }
    }
}

impl<S: Simd> Mask<S> {
    /// `a` where the mask is set, `b` elsewhere.
    #[inline(always)]
    pub(crate) fn select(self, a: Floats<S>, b: Floats<S>) -> Floats<S> {
        Floats { s: self.s, v: self.s.select(self.v, a.v, b.v) }
    }

    /// `a` where the mask is set, `b` elsewhere.
    #[inline(always)]
    pub(crate) fn select_ints(self, a: Ints<S>, b: Ints<S>) -> Ints<S> {
        Ints { s: self.s, v: self.s.int_select(self.v, a.v, b.v) }
    }

    /// Bit `i` is lane `i`.
    #[inline(always)]
    pub(crate) fn bits(self) -> u16 {
        self.s.mask_bits(self.v)
    }

    /// Whether any lane is set.
    #[inline(always)]
    pub(crate) fn any(self) -> bool {
        self.bits() != 0
    }
}

/// Puts `count` rows of `N` values, a multiple of the lanes, side by side: element `j` of the result holds value `j`
/// of every row. Starts at row `first`; after the last row comes the first again, and lanes from `count` on repeat
/// the last row taken.
#[inline(always)]
pub(crate) fn side_by_side<S: Simd, const N: usize>(
    s: S,
    rows: &[[f32; N]],
    (first, count): (usize, usize),
    out: &mut [[f32; LANES]; N],
) {
    const { assert!(N.is_multiple_of(LANES)) };
    let mut lanes = [&rows[0]; LANES];
    for (lane, row) in lanes.iter_mut().enumerate() {
        *row = &rows[(first + lane.min(count - 1)) % rows.len()];
    }
    for (part, out) in out.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
        let mut square = [s.splat(0.0); LANES];
        for (row, from) in square.iter_mut().zip(lanes) {
            *row = s.load(&from.as_chunks().0[part]);
        }
        for (column, to) in s.transpose(square).into_iter().zip(out) {
            s.store(column, to);
        }
    }
}

#[cfg(test)]
mod tests;
