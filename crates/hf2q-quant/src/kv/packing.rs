//! Codes of 2 to 8 bits in groups of 64, laid out for vectors of sixteen 32-bit lanes.
//!
//! A group has one or two planes: the low bits of every code, and the rest. In a plane of `w` bits a code, code
//! `16 j + l` lies in byte `4 (l mod 2w) + j`, from bit `w (l / 2w)` on. So the `2w` words of a plane, repeated to
//! sixteen, shifted by `w (l / 2w)` in lane `l` and then by `8 j`, are vector `j` of the codes.
//!
//! | bits | planes | bytes |
//! |---|---|---|
//! | 2 | 2 | 16 |
//! | 3 | 2, 1 | 24 |
//! | 4 | 4 | 32 |
//! | 5 | 4, 1 | 40 |
//! | 6 | 4, 2 | 48 |
//! | 8 | 8 | 64 |

use super::Turbo;

/// Codes of a group.
pub const GROUP: usize = 64;

/// Part of a code in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Byte of the group.
    pub byte: usize,
    /// First bit in the byte.
    pub shift: usize,
    /// Bits, within the byte.
    pub width: usize,
    /// First bit in the code.
    pub from: usize,
}

impl Piece {
    #[inline(always)]
    fn mask(self) -> u8 {
        (0xff_u16 >> (8 - self.width)) as u8
    }

    /// A byte of a group with this part of a code put into it.
    #[inline(always)]
    pub fn put(self, byte: u8, code: u8) -> u8 {
        (byte & !(self.mask() << self.shift)) | (((code >> self.from) & self.mask()) << self.shift)
    }

    /// This part of the code that a byte of a group holds.
    #[inline(always)]
    pub fn get(self, byte: u8) -> u8 {
        ((byte >> self.shift) & self.mask()) << self.from
    }
}

impl Turbo {
    /// Bytes of a group.
    #[inline(always)]
    pub fn group_bytes(self) -> usize {
        GROUP / 8 * self.bits()
    }

    /// Bits of the planes; 0: there is no second one.
    #[inline(always)]
    fn planes(self) -> [usize; 2] {
        match self {
            Self::Tq2 => [2, 0],
            Self::Tq3 => [2, 1],
            Self::Tq4 => [4, 0],
            Self::Tq5 => [4, 1],
            Self::Tq6 => [4, 2],
            Self::Tq8 => [8, 0],
        }
    }

    /// Where code `index` of a group lies; both pieces are the same where there is one plane.
    ///
    /// # Panics
    /// If `index` is not below [`GROUP`].
    #[inline(always)]
    pub fn pieces(self, index: usize) -> [Piece; 2] {
        assert!(index < GROUP, "code {index} of a group of {GROUP}");
        let [first, second] = self.planes();
        let low = piece(first, index);
        if second == 0 {
            return [low, low];
        }
        let high = piece(second, index);
        [low, Piece { byte: high.byte + GROUP / 8 * first, from: first, ..high }]
    }

    /// Packs a group.
    ///
    /// # Panics
    /// If `group` does not have [`Turbo::group_bytes`].
    #[inline(always)]
    pub fn pack(self, codes: &[u8; GROUP], group: &mut [u8]) {
        assert_eq!(group.len(), self.group_bytes(), "bytes of a group of {} bits", self.bits());
        let [first, second] = self.planes();
        let (low, high) = group.split_at_mut(GROUP / 8 * first);
        match first {
            2 => plane::<2>(codes, 0, low),
            4 => plane::<4>(codes, 0, low),
            _ => plane::<8>(codes, 0, low),
        }
        match second {
            1 => plane::<1>(codes, first, high),
            2 => plane::<2>(codes, first, high),
            _ => {}
        }
    }

    /// Code `index` of a group.
    ///
    /// # Panics
    /// If `group` is shorter than [`Turbo::group_bytes`] or `index` not below [`GROUP`].
    #[inline(always)]
    pub fn unpack_one(self, group: &[u8], index: usize) -> u8 {
        let [low, high] = self.pieces(index);
        low.get(group[low.byte]) | high.get(group[high.byte])
    }
}

/// Packs bits `from .. from + WIDTH` of the codes into a plane, byte by byte.
#[inline(always)]
fn plane<const WIDTH: usize>(codes: &[u8; GROUP], from: usize, out: &mut [u8]) {
    let words = 2 * WIDTH;
    let mask = (0xff_u16 >> (8 - WIDTH)) as u8;
    for (word, bytes) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        for (j, byte) in bytes.iter_mut().enumerate() {
            *byte = 0;
            for lane in (word..16).step_by(words) {
                *byte |= ((codes[16 * j + lane] >> from) & mask) << (WIDTH * (lane / words));
            }
        }
    }
}

/// The piece of a plane of `width` bits that begins the group and the code.
#[inline(always)]
fn piece(width: usize, index: usize) -> Piece {
    let (j, lane) = (index / 16, index % 16);
    Piece { byte: 4 * (lane % (2 * width)) + j, shift: width * (lane / (2 * width)), width, from: 0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_bit_belongs_to_one_code() {
        for turbo in Turbo::ALL {
            let mut used = vec![0_u8; turbo.group_bytes()];
            for index in 0..GROUP {
                let mut all = vec![0; used.len()];
                for piece in turbo.pieces(index) {
                    all[piece.byte] = piece.put(all[piece.byte], 0xff);
                }
                for (used, new) in used.iter_mut().zip(all) {
                    assert_eq!(*used & new, 0, "{turbo:?}: code {index} overlaps another");
                    *used |= new;
                }
            }
            assert!(used.iter().all(|&b| b == 0xff), "{turbo:?}: unused bits");
        }
    }

    proptest! {
        #[test]
        fn codes_come_back(codes in proptest::collection::vec(any::<u8>(), GROUP)) {
            for turbo in Turbo::ALL {
                let largest = (0xff_u16 >> (8 - turbo.bits())) as u8;
                let codes: [u8; GROUP] = std::array::from_fn(|i| codes[i] & largest);
                let mut group = vec![0xa5; turbo.group_bytes()];
                turbo.pack(&codes, &mut group);
                for (index, &code) in codes.iter().enumerate() {
                    prop_assert_eq!(turbo.unpack_one(&group, index), code);
                }
            }
        }
    }
}
