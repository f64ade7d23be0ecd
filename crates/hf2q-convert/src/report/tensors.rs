//! Tensors by layer and role, from their names.

use std::collections::{BTreeMap, BTreeSet};

use hf2q_gguf::TensorType;

use crate::record::Record;

/// The records in the groups that the page shows.
pub(super) struct Tensors<'a> {
    pub(super) records: &'a [Record],
    /// Matrices of layers by role, then layer.
    pub(super) roles: Vec<(&'a str, BTreeMap<u32, &'a Record>)>,
    /// Every layer that has a matrix.
    pub(super) layers: Vec<u32>,
    /// Matrices of no layer.
    pub(super) outside: Vec<&'a Record>,
    /// Everything with one row: norms, scales.
    pub(super) vectors: Vec<&'a Record>,
}

/// What records add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sum {
    pub(super) tensors: usize,
    pub(super) elements: u64,
    pub(super) bytes: u64,
}

/// Roles in the order of computation; others follow by name.
const ORDER: &[&str] = &[
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_output",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
    "ffn_gate_inp",
    "ffn_gate_exps",
    "ffn_up_exps",
    "ffn_gate_up_exps",
    "ffn_down_exps",
    "inp_gate",
    "proj",
];

impl<'a> Tensors<'a> {
    pub(super) fn new(records: &'a [Record]) -> Self {
        let mut roles: BTreeMap<(usize, &str), BTreeMap<u32, &Record>> = BTreeMap::new();
        let (mut layers, mut outside, mut vectors) = (BTreeSet::new(), Vec::new(), Vec::new());
        for record in records {
            if record.shape.iter().skip(1).all(|&d| d == 1) {
                vectors.push(record);
            } else if let Some((layer, role)) = place(&record.name) {
                let order = ORDER.iter().position(|known| *known == role).unwrap_or(ORDER.len());
                roles.entry((order, role)).or_default().insert(layer, record);
                layers.insert(layer);
            } else {
                outside.push(record);
            }
        }
        Self {
            records,
            roles: roles.into_iter().map(|((_, role), by_layer)| (role, by_layer)).collect(),
            layers: layers.into_iter().collect(),
            outside,
            vectors,
        }
    }

    /// Every type that occurs, the one with the fewest bits first.
    pub(super) fn types(&self) -> Vec<TensorType> {
        let mut types: Vec<TensorType> = self.records.iter().map(|r| r.ty).collect();
        let density = |ty: &TensorType| ty.block_bytes() * 4096 / ty.block_len();
        types.sort_by_key(|ty| (density(ty), ty.id()));
        types.dedup();
        types
    }

    pub(super) fn total(&self) -> Sum {
        sum(self.records)
    }
}

pub(super) fn sum<'a>(records: impl IntoIterator<Item = &'a Record>) -> Sum {
    records.into_iter().fold(Sum::default(), |s, r| Sum {
        tensors: s.tensors + 1,
        elements: s.elements.saturating_add(r.elements()),
        bytes: s.bytes.saturating_add(r.bytes),
    })
}

/// Layer and role of `blk.LAYER.ROLE.weight`.
pub(super) fn place(name: &str) -> Option<(u32, &str)> {
    let (layer, rest) = name.strip_prefix("blk.")?.split_once('.')?;
    Some((layer.parse().ok()?, rest.strip_suffix(".weight").unwrap_or(rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_places() {
        assert_eq!(place("blk.12.attn_q.weight"), Some((12, "attn_q")));
        assert_eq!(place("blk.0.ffn_gate_inp.scale"), Some((0, "ffn_gate_inp.scale")));
        for other in ["token_embd.weight", "blk.x.attn_q.weight", "blk.99999999999.a.weight", "blk.1"] {
            assert_eq!(place(other), None, "{other}");
        }
    }
}
