//! `tq1_0`: 256 values of three levels, five in a byte, `x = d * (t - 1)`.
//!
//! | bytes | part |
//! |---|---|
//! | 0..48 | values 0..240: bytes 0..32 hold values `m`, `m + 32` ... `m + 128`; bytes 32..48 the same, 16 apart |
//! | 48..52 | values 240..256: byte `m` holds values `m`, `m + 4`, `m + 8`, `m + 12` |
//! | 52..54 | `d`, f16 |
//!
//! A byte is a fraction of 256 whose digits to base 3 are the values, first value first.

use std::ops::Range;

/// Values of a block.
pub const LEN: usize = 256;
/// Bytes of a block.
pub const BYTES: usize = 54;
/// Values, five in a byte.
pub const QS: Range<usize> = 0..48;
/// The last values, four in a byte.
pub const QH: Range<usize> = 48..52;
/// Offset of the scale.
pub const D: usize = 52;

/// Decodes one block.
pub fn dequantize_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = super::half_at(block, D);
    let (first, rest) = out.split_at_mut(160);
    let (second, last) = rest.split_at_mut(80);
    for (bytes, out) in [(&block[..32], first), (&block[32..48], second), (&block[QH], last)] {
        for (digit, out) in out.chunks_mut(bytes.len()).enumerate() {
            for (&byte, out) in bytes.iter().zip(out) {
                *out = f32::from(digit_of(byte, digit) - 1) * d;
            }
        }
    }
}

/// The digit after the point that is number `digit`.
fn digit_of(byte: u8, digit: usize) -> i8 {
    const POWERS: [u8; 5] = [1, 3, 9, 27, 81];
    let fraction = byte.wrapping_mul(POWERS[digit]);
    ((u16::from(fraction) * 3) >> 8) as i8
}
