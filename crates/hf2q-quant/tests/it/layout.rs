//! Layout constants against the table of tensor types, and packed scales against their definition.

use hf2q_gguf::TensorType;
use hf2q_quant::layout::{self, e8m0_half, iq4xs_scales, k4_scale_min, q3k_scales};

use crate::input::Numbers;

macro_rules! sizes {
    ($($ty:ident $module:ident),*) => {
        [$((TensorType::$ty, layout::$module::LEN, layout::$module::BYTES)),*]
    };
}

#[test]
fn block_sizes_are_those_of_the_types() {
    let all = sizes!(
        Q4_0 q4_0, Q4_1 q4_1, Q5_0 q5_0, Q5_1 q5_1, Q8_0 q8_0, Q2K q2_k, Q3K q3_k, Q4K q4_k, Q5K q5_k, Q6K q6_k,
        Iq4Nl iq4_nl, Iq4Xs iq4_xs, Mxfp4 mxfp4, Iq2Xxs iq2_xxs, Iq2Xs iq2_xs, Iq2S iq2_s, Iq3Xxs iq3_xxs, Iq3S iq3_s,
        Iq1S iq1_s, Iq1M iq1_m, Tq1_0 tq1_0, Tq2_0 tq2_0
    );
    for (ty, len, bytes) in all {
        assert_eq!((len, bytes), (ty.block_len(), ty.block_bytes()), "{ty}");
    }
}

/// Packs 6-bit scales and minimums of 8 groups.
fn pack_k4(scales: [u8; 8], minimums: [u8; 8]) -> [u8; 12] {
    let mut packed = [0; 12];
    for j in 0..4 {
        packed[j] = scales[j] | ((scales[j + 4] >> 4) << 6);
        packed[j + 4] = minimums[j] | ((minimums[j + 4] >> 4) << 6);
        packed[j + 8] = (scales[j + 4] & 15) | ((minimums[j + 4] & 15) << 4);
    }
    packed
}

#[test]
fn packed_scales_unpack() {
    let mut numbers = Numbers(3);
    for _ in 0..200 {
        let mut six = || (numbers.next() % 64) as u8;
        let scales = std::array::from_fn(|_| six());
        let minimums = std::array::from_fn(|_| six());
        let packed = pack_k4(scales, minimums);
        let unpacked = std::array::from_fn(|j| k4_scale_min(j, &packed));
        assert_eq!(unpacked, std::array::from_fn::<_, 8, _>(|j| (scales[j], minimums[j])));
    }
}

#[test]
fn signed_scales_span_their_range() {
    assert_eq!(q3k_scales(&[0; 12]), [-32; 16]);
    assert_eq!(q3k_scales(&[255; 12]), [31; 16]);
    assert_eq!(iq4xs_scales(0, &[0; 4]), [-32; 8]);
    assert_eq!(iq4xs_scales(u16::MAX, &[255; 4]), [31; 8]);
    let mut packed = [0; 12];
    (packed[3], packed[11]) = (0x50, 0b11_00_00_00);
    assert_eq!(q3k_scales(&packed)[11], 5 - 32, "low nibble of group 11 is the upper half of byte 3");
    assert_eq!(q3k_scales(&packed)[15], 48 - 32, "upper bits of group 15 are the last of byte 11");
    assert_eq!(iq4xs_scales(2 << 10, &[0, 0, 0x70, 0])[5], 7 + 32 - 32);
}

#[test]
fn exponents_are_half_powers_of_two() {
    for e in 0..=254 {
        assert_eq!(f64::from(e8m0_half(e)), 2f64.powi(i32::from(e) - 128), "{e}");
    }
    assert!(e8m0_half(255).is_finite());
}
