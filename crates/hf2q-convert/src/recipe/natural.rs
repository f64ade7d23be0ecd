//! The types of an unquantized conversion.

use hf2q_gguf::TensorType;

/// Lists of tokens: the tensors of integers.
const TOKENS: [(&str, TensorType); 2] = [("masked_embd_ordering", TensorType::I32), ("d2t", TensorType::I64)];

/// What says which tokens get logits, as a router says which experts compute.
const CENTROIDS: &str = "masked_embd_centroids.weight";

/// The type that llama.cpp's converter gives a tensor of a checkpoint whose matrices are `own` (f32, f16 or bf16): what
/// kernels only read as f32 is f32, the rest is `own`. Tensors that recipes leave alone have this type in quantized
/// files too.
pub fn natural_type(name: &str, shape: &[u64], own: TensorType) -> TensorType {
    if let Some((_, ty)) = TOKENS.iter().find(|(tokens, _)| *tokens == name) {
        return *ty;
    }
    let exact = shape.len() < 2
        || !name.ends_with(".weight")
        || name.ends_with("_norm.weight")
        || name.ends_with(".ffn_gate_inp.weight")
        || name == CENTROIDS;
    if exact { TensorType::F32 } else { own }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrices_keep_the_types_of_the_checkpoint() {
        for (name, shape, ty) in [
            ("token_embd.weight", &[8, 9][..], TensorType::Bf16),
            ("per_layer_model_proj.weight", &[8, 9], TensorType::Bf16),
            ("blk.0.ffn_down_exps.weight", &[8, 9, 2], TensorType::Bf16),
            ("blk.0.ffn_down_exps.scale", &[9], TensorType::F32),
            ("blk.0.ffn_gate_inp.weight", &[8, 9], TensorType::F32),
            ("blk.0.attn_norm.weight", &[8], TensorType::F32),
            ("blk.0.pre_ffw_norm_2.weight", &[8], TensorType::F32),
            ("masked_embd_centroids.weight", &[8, 9], TensorType::F32),
            ("masked_embd_ordering", &[9], TensorType::I32),
            ("d2t", &[9], TensorType::I64),
        ] {
            assert_eq!(natural_type(name, shape, TensorType::Bf16), ty, "{name}");
        }
    }
}
