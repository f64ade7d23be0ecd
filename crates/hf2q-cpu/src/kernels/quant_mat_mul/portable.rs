//! 8 lanes in plain Rust; the loops are simple enough for the compiler to use what vectors the target has.

use half::f16;

use super::panel::Panel;
use super::simd::{Kernel, Simd};

const N: usize = 8;

/// No instruction set in particular.
#[derive(Clone, Copy)]
pub(super) struct Portable;

impl Simd for Portable {
    const LANES: usize = N;
    const TILE: usize = 4;
    const SEAL: u8 = 0;
    type Words = [u32; N];
    type Floats = [f32; N];

    #[inline(always)]
    fn load16(self, panel: &Panel<'_>, at: usize) -> [[u32; N]; 4] {
        let bytes = panel.checked(N, at, 16);
        let word = |row: usize, j: usize| {
            let start = row * panel.stride() + 4 * j;
            u32::from_le_bytes([bytes[start], bytes[start + 1], bytes[start + 2], bytes[start + 3]])
        };
        std::array::from_fn(|j| std::array::from_fn(|row| word(row, j)))
    }

    #[inline(always)]
    fn load4(self, panel: &Panel<'_>, at: usize) -> [u32; N] {
        let bytes = panel.checked(N, at, 4);
        std::array::from_fn(|row| {
            let four = &bytes[row * panel.stride()..][..4];
            u32::from_le_bytes([four[0], four[1], four[2], four[3]])
        })
    }

    #[inline(always)]
    fn prefetch(self, _at: *const u8) {}

    #[inline(always)]
    fn load(self, from: &[u32]) -> [u32; N] {
        std::array::from_fn(|i| from[i])
    }

    #[inline(always)]
    fn store(self, words: [u32; N], to: &mut [u32]) {
        to[..N].copy_from_slice(&words);
    }

    #[inline(always)]
    fn splat(self, word: u32) -> [u32; N] {
        [word; N]
    }

    #[inline(always)]
    fn and(self, a: [u32; N], b: [u32; N]) -> [u32; N] {
        std::array::from_fn(|i| a[i] & b[i])
    }

    #[inline(always)]
    fn or(self, a: [u32; N], b: [u32; N]) -> [u32; N] {
        std::array::from_fn(|i| a[i] | b[i])
    }

    #[inline(always)]
    fn add(self, a: [u32; N], b: [u32; N]) -> [u32; N] {
        std::array::from_fn(|i| a[i].wrapping_add(b[i]))
    }

    #[inline(always)]
    fn max(self, a: [u32; N], b: [u32; N]) -> [u32; N] {
        std::array::from_fn(|i| (a[i] as i32).max(b[i] as i32) as u32)
    }

    #[inline(always)]
    fn shl(self, a: [u32; N], n: u32) -> [u32; N] {
        a.map(|v| v << n)
    }

    #[inline(always)]
    fn sar(self, a: [u32; N], n: u32) -> [u32; N] {
        a.map(|v| (v as i32 >> n) as u32)
    }

    #[inline(always)]
    fn shr(self, a: [u32; N], n: u32) -> [u32; N] {
        a.map(|v| v >> n)
    }

    #[inline(always)]
    fn lookup(self, table: &[u8; 16], index: [u32; N]) -> [u32; N] {
        index.map(|v| u32::from_le_bytes(v.to_le_bytes().map(|i| table[usize::from(i & 15)])))
    }

    #[inline(always)]
    fn spread(self, bits: [u32; N]) -> [u32; N] {
        bits.map(|v| ((v & 15) * 0x0204_0810) & 0x1010_1010)
    }

    #[inline(always)]
    fn seal(self, codes: [u32; N]) -> [u32; N] {
        codes
    }

    #[inline(always)]
    fn dot(self, sum: [u32; N], codes: [[u32; N]; 2], x: [u32; 2]) -> [u32; N] {
        dot(dot(sum, codes[0], x[0], i32::from), codes[1], x[1], i32::from)
    }

    #[inline(always)]
    fn dot_sealed(self, sum: [u32; N], codes: [[u32; N]; 2], x: [u32; 2]) -> [u32; N] {
        let signed = |code| i32::from(code as i8);
        dot(dot(sum, codes[0], x[0], signed), codes[1], x[1], signed)
    }

    #[inline(always)]
    fn half(self, words: [u32; N]) -> [f32; N] {
        words.map(|v| f16::from_bits(v as u16).to_f32())
    }

    #[inline(always)]
    fn to_floats(self, words: [u32; N]) -> [f32; N] {
        words.map(|v| v as i32 as f32)
    }

    #[inline(always)]
    fn as_floats(self, words: [u32; N]) -> [f32; N] {
        words.map(f32::from_bits)
    }

    #[inline(always)]
    fn as_words(self, floats: [f32; N]) -> [u32; N] {
        floats.map(f32::to_bits)
    }

    #[inline(always)]
    fn mul(self, a: [f32; N], b: [f32; N]) -> [f32; N] {
        std::array::from_fn(|i| a[i] * b[i])
    }

    #[inline(always)]
    fn fma(self, a: [f32; N], b: [f32; N], c: [f32; N]) -> [f32; N] {
        std::array::from_fn(|i| a[i].mul_add(b[i], c[i]))
    }

    #[inline(always)]
    fn enter<K: Kernel>(self, kernel: K) {
        kernel.run(self);
    }
}

#[inline(always)]
fn dot(sum: [u32; N], codes: [u32; N], x: u32, widen: impl Fn(u8) -> i32) -> [u32; N] {
    let x = x.to_le_bytes().map(|b| i32::from(b as i8));
    std::array::from_fn(|i| {
        let c = codes[i].to_le_bytes().map(&widen);
        let products = c[0] * x[0] + c[1] * x[1] + c[2] * x[2] + c[3] * x[3];
        sum[i].wrapping_add(products as u32)
    })
}
