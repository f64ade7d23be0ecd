//! Lanes as an array: for machines without the other instruction sets, and what those are compared with.

use super::{LANES, Routine, Simd};

/// Plain Rust.
#[derive(Clone, Copy)]
pub(super) struct Portable;

type F = [f32; LANES];
type I = [i32; LANES];
/// -1 or 0.
type M = [i32; LANES];

/// Functions of lanes. Where other instruction sets are used they are not inlined: arrays in long kernels take a
/// compiler ten times as long as vectors.
macro_rules! functions {
    ($(fn $name:ident(self $(, $arg:ident: $in:ty)*) $(-> $out:ty)? $body:block)*) => {$(
        #[cfg_attr(target_arch = "x86_64", inline(never))]
        #[cfg_attr(not(target_arch = "x86_64"), inline(always))]
        fn $name(self $(, $arg: $in)*) $(-> $out)? $body
    )*};
}

macro_rules! lanewise {
    ($($name:ident($($arg:ident: $in:ty),*) -> $out:ty = $body:expr;)*) => {$(
        functions! {
            fn $name(self $(, $arg: $in)*) -> $out {
                let mut out = [Default::default(); LANES];
                for (i, out) in out.iter_mut().enumerate() {
                    $(let $arg = $arg[i];)*
                    *out = $body;
                }
                out
            }
        }
    )*};
}

#[inline(always)]
fn mask(truth: bool) -> i32 {
    -i32::from(truth)
}

impl Simd for Portable {
    type F = F;
    type I = I;
    type M = M;

    lanewise! {
        add(a: F, b: F) -> F = a + b;
        sub(a: F, b: F) -> F = a - b;
        mul(a: F, b: F) -> F = a * b;
        div(a: F, b: F) -> F = a / b;
        min(a: F, b: F) -> F = if a < b { a } else { b };
        max(a: F, b: F) -> F = if a > b { a } else { b };
        sqrt(a: F) -> F = a.sqrt();
        truncate(a: F) -> I = a as i32;
        less(a: F, b: F) -> M = mask(a < b);
        equal(a: F, b: F) -> M = mask(a == b);
        select(m: M, a: F, b: F) -> F = f32::from_bits((a.to_bits() & m as u32) | (b.to_bits() & !m as u32));
        bits(a: F) -> I = a.to_bits() as i32;
        of_bits(a: I) -> F = f32::from_bits(a as u32);
        int_add(a: I, b: I) -> I = a.wrapping_add(b);
        int_sub(a: I, b: I) -> I = a.wrapping_sub(b);
        int_and(a: I, b: I) -> I = a & b;
        int_or(a: I, b: I) -> I = a | b;
        int_min(a: I, b: I) -> I = a.min(b);
        int_max(a: I, b: I) -> I = a.max(b);
        int_equal(a: I, b: I) -> M = mask(a == b);
        int_select(m: M, a: I, b: I) -> I = (a & m) | (b & !m);
        int_to_float(a: I) -> F = a as f32;
        mask_and(a: M, b: M) -> M = a & b;
        mask_or(a: M, b: M) -> M = a | b;
        mask_not(a: M) -> M = !a;
    }

    functions! {
        fn min_across(self, a: F) -> f32 {
            let mut min = a[0];
            for a in a {
                min = if a < min { a } else { min };
            }
            min
        }

        fn max_across(self, a: F) -> f32 {
            let mut max = a[0];
            for a in a {
                max = if a > max { a } else { max };
            }
            max
        }

        fn splat(self, x: f32) -> F {
            [x; LANES]
        }

        fn load(self, from: &F) -> F {
            *from
        }

        fn store(self, v: F, to: &mut F) {
            *to = v;
        }

        fn transpose(self, rows: [F; LANES]) -> [F; LANES] {
            let mut out = rows;
            for (i, row) in rows.iter().enumerate() {
                for (out, &v) in out.iter_mut().zip(row) {
                    out[i] = v;
                }
            }
            out
        }

        fn lookup(self, table: &F, index: I) -> F {
            let mut out = index.map(|_| 0.0);
            for (out, index) in out.iter_mut().zip(index) {
                *out = table[index as usize % LANES];
            }
            out
        }

        fn int_splat(self, x: i32) -> I {
            [x; LANES]
        }

        fn int_load(self, from: &I) -> I {
            *from
        }

        fn int_store(self, v: I, to: &mut I) {
            *to = v;
        }

        fn int_store_bytes(self, v: I, to: &mut [u8; LANES]) {
            for (to, v) in to.iter_mut().zip(v) {
                *to = v as u8;
            }
        }

        fn mask_bits(self, a: M) -> u16 {
            let mut bits = 0;
            for (i, a) in a.into_iter().enumerate() {
                bits |= ((a & 1) as u16) << i;
            }
            bits
        }
    }

    #[inline(never)]
    fn outline<R: Routine<Self>>(self, routine: R) -> R::Output {
        routine.call(self)
    }
}
