//! How fast the dot products of the tile kernel are when everything they read is in the first-level cache.

use super::portable::Portable;
use super::simd::{Kernel, Simd};
use crate::isa::Isa;

/// Words of codes in each lane, and of activations in each row: as many as a record has.
const WORDS: usize = 8;

/// Most lanes of a vector.
const LANES: usize = 16;

/// Runs the dot products of `steps` records; returns their number of multiplications and additions.
pub(crate) fn dots(isa: Isa, steps: usize) -> usize {
    let codes = [0x0102_0304; WORDS * LANES];
    let x = [0x0403_0201; 8 * WORDS];
    let mut dots = Dots { codes: &codes, x: &x, steps, done: 0 };
    let all = &mut dots;
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Amx(token) => return super::amx::dots(token, steps),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512(token) => token.enter(all),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(token) => token.enter(all),
        Isa::Portable => Portable.enter(all),
    }
    dots.done
}

struct Dots<'a> {
    codes: &'a [u32; WORDS * LANES],
    x: &'a [u32; 8 * WORDS],
    steps: usize,
    done: usize,
}

impl Kernel for &mut Dots<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        match S::TILE {
            8 => tile::<S, 8>(simd, self),
            _ => tile::<S, 4>(simd, self),
        }
    }
}

#[inline(always)]
fn tile<S: Simd, const R: usize>(simd: S, dots: &mut Dots<'_>) {
    let mut sums = [simd.splat(0); R];
    for _ in 0..dots.steps {
        // Opaque, so that no product is taken out of the loop.
        let (codes, x) = std::hint::black_box((dots.codes, dots.x));
        for j in (0..WORDS).step_by(2) {
            let pair = [simd.load(&codes[j * S::LANES..]), simd.load(&codes[(j + 1) * S::LANES..])];
            for (r, sum) in sums.iter_mut().enumerate() {
                *sum = simd.dot(*sum, pair, [x[WORDS * r + j], x[WORDS * r + j + 1]]);
            }
        }
    }
    for sum in sums {
        let mut lanes = [0; LANES];
        simd.store(sum, &mut lanes);
        std::hint::black_box(lanes);
    }
    // Four bytes in each word of each lane, a multiplication and an addition each.
    dots.done += dots.steps * R * WORDS * S::LANES * 4 * 2;
}
