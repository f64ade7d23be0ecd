//! How elements of a cache are read.

use hf2q_plan::KvFormat;
use hf2q_quant::kv::GROUP;

use crate::simd::{LANES, Simd};

/// Elements of a block that a product reads: `rows` of `row_len`, without their scales.
#[derive(Clone, Copy)]
pub(super) struct Elements {
    pub(super) start: *const u8,
    pub(super) format: KvFormat,
    pub(super) rows: usize,
    /// A multiple of [`LANES`], and of [`GROUP`] where codes are packed.
    pub(super) row_len: usize,
    pub(super) row_bytes: usize,
}

/// One format of elements.
pub(super) trait Element {
    /// Bits of an element, if it pays to bring the next block closer while one is read; else 0: copies are near.
    const AHEAD: usize;

    /// Bytes from the start of a row to columns `group + 16 j ..`, or to the group where that is packed.
    fn offset(group: usize, j: usize) -> usize;

    /// Columns `group + 16 j ..` of a row.
    ///
    /// # Safety
    /// `row` is the start of a row that has these columns; `group` is a multiple of [`GROUP`] and `j` below 4.
    #[expect(unsafe_code, reason = "reads through pointers: the contract is above")]
    unsafe fn read<S: Simd>(s: S, row: *const u8, group: usize, j: usize) -> S::V;
}

pub(super) struct Single;
pub(super) struct Half;
pub(super) struct Brain;
pub(super) struct Int8;
pub(super) struct Packed<const BITS: usize>;

macro_rules! plain {
    ($($name:ident $bytes:literal $bits:literal $read:ident;)*) => {$(
        #[expect(unsafe_code, reason = "reads through pointers, as the trait says")]
        impl Element for $name {
            const AHEAD: usize = $bits;

            #[inline(always)]
            fn offset(group: usize, j: usize) -> usize {
                (group + j * LANES) * $bytes
            }

            #[inline(always)]
            unsafe fn read<S: Simd>(s: S, row: *const u8, group: usize, j: usize) -> S::V {
                // SAFETY: the caller vouches for the columns.
                unsafe { s.$read(row.add(Self::offset(group, j))) }
            }
        }
    )*};
}

plain! {
    Single 4 0 read_f32;
    Half 2 16 read_f16;
    Brain 2 16 read_bf16;
    Int8 1 8 read_i8;
}

#[expect(unsafe_code, reason = "reads through pointers, as the trait says")]
impl<const BITS: usize> Element for Packed<BITS> {
    const AHEAD: usize = BITS;

    #[inline(always)]
    fn offset(group: usize, _j: usize) -> usize {
        group / GROUP * (GROUP / 8 * BITS)
    }

    #[inline(always)]
    unsafe fn read<S: Simd>(s: S, row: *const u8, group: usize, j: usize) -> S::V {
        // SAFETY: the caller vouches for the columns, so for their group.
        unsafe { s.read_levels::<BITS>(row.add(Self::offset(group, j)), j) }
    }
}

/// Evaluates `$body` with `$e` as the type of a format's elements.
macro_rules! with_element {
    ($format:expr, $e:ident => $body:expr) => {{
        use hf2q_plan::KvFormat as F;

        use crate::kernels::attention::element::{Brain, Half, Int8, Packed, Single};
        macro_rules! arm {
            ($ty:ty) => {{
                type $e = $ty;
                $body
            }};
        }
        match $format {
            F::F16 => arm!(Half),
            F::Bf16 => arm!(Brain),
            F::Q8_0 => arm!(Int8),
            F::Tq2 => arm!(Packed<2>),
            F::Tq3 => arm!(Packed<3>),
            F::Tq4 => arm!(Packed<4>),
            F::Tq5 => arm!(Packed<5>),
            F::Tq6 => arm!(Packed<6>),
            F::Tq8 => arm!(Packed<8>),
            // Layouts are made for the formats above and this one.
            _ => arm!(Single),
        }
    }};
}

pub(super) use with_element;
