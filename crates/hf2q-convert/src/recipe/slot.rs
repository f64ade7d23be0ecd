//! What a tensor is for, told by its name.

/// The groups of tensors that rules tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// The output matrix, and the tables that stand in for it where none is stored.
    Output,
    /// Token embedding and per-layer embedding.
    Embedding,
    /// Value projections, also where they are fused with others.
    AttnV,
    AttnK,
    AttnOutput,
    /// Down projections, of experts as well.
    FfnDown,
    /// The rest.
    Other,
    /// In a rule: any of these.
    Every,
}

pub(super) const OUTPUT: &str = "output.weight";
const EMBEDDING: &str = "token_embd.weight";
pub(super) const PER_LAYER_EMBEDDING: &str = "per_layer_token_embd.weight";

/// Parts of names and what they mean; the first that is found counts.
const PARTS: &[(&str, Slot)] = &[
    ("attn_qkv.weight", Slot::AttnV),
    ("attn_kv_b.weight", Slot::AttnV),
    ("attn_v.weight", Slot::AttnV),
    ("attn_k.weight", Slot::AttnK),
    ("attn_output.weight", Slot::AttnOutput),
    ("ffn_down", Slot::FfnDown),
];

/// Parts of the names of matrices that are never quantized: norms, routers, centroids, and the small projection to all
/// layers' embeddings.
const EXACT: &[&str] =
    &["_norm.weight", "ffn_gate_inp.weight", "per_layer_model_proj", "masked_embd_centroids"];

impl Slot {
    pub(super) fn of(name: &str) -> Self {
        match name {
            OUTPUT => Self::Output,
            EMBEDDING | PER_LAYER_EMBEDDING => Self::Embedding,
            _ => PARTS.iter().find(|(part, _)| name.contains(part)).map_or(Self::Other, |&(_, slot)| slot),
        }
    }

    /// Whether a rule for `self` is one for `other`.
    pub(super) fn covers(self, other: Self) -> bool {
        self == Self::Every || self == other
    }
}

/// Whether a tensor keeps its type in every recipe: it is a vector, no weight, or too sensitive.
pub(super) fn is_exact(name: &str, shape: &[u64]) -> bool {
    let is_vector = shape.iter().skip(1).all(|&d| d == 1);
    is_vector || !name.ends_with("weight") || EXACT.iter().any(|part| name.contains(part))
}

/// Whether a row belongs to a token: the embeddings and the output matrix.
pub(super) fn is_table(name: &str) -> bool {
    matches!(Slot::of(name), Slot::Output | Slot::Embedding)
}

/// The layer of a tensor, by its name.
pub(super) fn layer(name: &str) -> Option<usize> {
    name.strip_prefix("blk.")?.split('.').next()?.parse().ok()
}

/// Sort key of the order in which `llama-quantize` visits and writes tensors: what belongs to no layer, then layer by
/// layer, by name. Some recipes count tensors on the way.
pub fn place(name: &str) -> (Option<usize>, &str) {
    (layer(name), name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_slots() {
        for (name, slot) in [
            ("blk.3.attn_k.weight", Slot::AttnK),
            ("blk.3.attn_k_norm.weight", Slot::Other),
            ("blk.3.ffn_down_exps.weight", Slot::FfnDown),
            ("blk.3.ffn_gate_up_exps.weight", Slot::Other),
            ("per_layer_token_embd.weight", Slot::Embedding),
            ("blk.3.attn_output.weight", Slot::AttnOutput),
            ("output.weight", Slot::Output),
            ("output_norm.weight", Slot::Other),
        ] {
            assert_eq!(Slot::of(name), slot, "{name}");
        }
    }

    #[test]
    fn layers_are_visited_by_number() {
        let mut names = ["blk.10.a", "blk.9.b", "output.weight", "blk.9.a", "blk.x.a"];
        names.sort_by_key(|n| place(n));
        assert_eq!(names, ["blk.x.a", "output.weight", "blk.9.a", "blk.9.b", "blk.10.a"]);
    }

    #[test]
    fn a_matrix_of_one_row_is_a_vector() {
        assert!(is_exact("blk.0.attn_q.weight", &[64, 1]));
        assert!(!is_exact("blk.0.attn_q.weight", &[64, 1, 2]));
        assert!(is_exact("blk.0.ffn_down_exps.scale", &[64, 2]));
        assert!(is_exact("per_layer_model_proj.weight", &[64, 2]));
    }
}
