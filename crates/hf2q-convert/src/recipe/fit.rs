//! Types for rows that cannot be cut into the blocks of the wanted type.

use hf2q_gguf::TensorType;

/// Types in blocks of 256 and what takes their place, in blocks of 32 and rather larger than smaller.
const SMALLER_BLOCKS: &[(TensorType, TensorType)] = &[
    (TensorType::Q2K, TensorType::Q4_0),
    (TensorType::Q3K, TensorType::Q4_0),
    (TensorType::Q4K, TensorType::Q5_0),
    (TensorType::Q5K, TensorType::Q5_1),
    (TensorType::Q6K, TensorType::Q8_0),
    (TensorType::Iq4Xs, TensorType::Iq4Nl),
];

/// `wanted`, or the type that takes its place in rows of so many columns; in the end f16, which fits all.
pub(super) fn fit(wanted: TensorType, columns: u64) -> TensorType {
    let fits = |ty: TensorType| columns.is_multiple_of(ty.block_len() as u64);
    let smaller = SMALLER_BLOCKS.iter().find(|(ty, _)| *ty == wanted).map(|&(_, ty)| ty);
    [Some(wanted), smaller].into_iter().flatten().find(|&ty| fits(ty)).unwrap_or(TensorType::F16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_take_the_next_smaller_block() {
        for (wanted, columns, ty) in [
            (TensorType::Q4K, 2816, TensorType::Q4K),
            (TensorType::Q4K, 704, TensorType::Q5_0),
            (TensorType::Iq4Xs, 704, TensorType::Iq4Nl),
            (TensorType::Q6K, 48, TensorType::F16),
            (TensorType::Q4_0, 48, TensorType::F16),
            (TensorType::Bf16, 7, TensorType::Bf16),
        ] {
            assert_eq!(fit(wanted, columns), ty, "{wanted} in rows of {columns}");
        }
    }

    #[test]
    fn every_large_block_has_a_smaller_one() {
        for ty in TensorType::all().filter(|t| t.block_len() > 32 && hf2q_quant::can_encode(*t)) {
            assert_ne!(fit(ty, 32), TensorType::F16, "{ty}");
        }
    }
}
