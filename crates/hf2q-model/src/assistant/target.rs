//! What an assistant takes of the model that it drafts for.

use hf2q_gguf::TensorType;

use super::differ;
use super::turn::Turn;
use crate::error::ModelError;
use crate::model::{Model, StoredTensor};

/// Tables and weights of the target.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) hidden: usize,
    embedding: StoredTensor,
    embedding_scale: f32,
    kv: Vec<Kv>,
}

/// How keys of a layer are made of its values, and how they turn.
#[derive(Clone, Debug)]
struct Kv {
    /// Weights of the keys' norm.
    norm: Vec<f32>,
    turn: Turn,
}

impl Target {
    /// Views of the target's tensors; `layers` are those whose keys and values are read.
    pub(super) fn new(target: &Model, layers: impl Iterator<Item = usize>) -> Result<Self, ModelError> {
        let config = target.config();
        let kv = |i: usize| {
            let layer = &config.layers[i];
            let factors = layer.rope.factors.then(|| floats(target, "rope_freqs.weight"));
            let turn = Turn::new(layer.head_dim, layer.rope, factors.as_deref());
            let yarn = || differ("rotation", "none or linear scaling", &format!("{:?}", layer.rope.scaling));
            let norm = floats(target, &format!("blk.{i}.attn_k_norm.weight"));
            Ok(Kv { norm, turn: turn.ok_or_else(yarn)? })
        };
        Ok(Self {
            hidden: config.hidden,
            embedding: target.tensor("token_embd.weight").expect("every model has an embedding").clone(),
            embedding_scale: config.embedding_scale,
            kv: layers.map(kv).collect::<Result<_, ModelError>>()?,
        })
    }

    /// Appends the scaled embedding of a token.
    pub(super) fn embed(&self, token: u32, out: &mut Vec<f32>) -> Result<(), ModelError> {
        let StoredTensor { ty, data, .. } = &self.embedding;
        let bytes = ty.row_bytes(self.hidden).unwrap_or(0);
        let start = (token as usize).saturating_mul(bytes);
        let row = data.get(start..start.saturating_add(bytes)).filter(|row| !row.is_empty());
        let row = row.ok_or(ModelError::NoToken { token })?;
        let first = out.len();
        out.resize(first + self.hidden, 0.0);
        decode(*ty, row, &mut out[first..])?;
        out[first..].iter_mut().for_each(|x| *x *= self.embedding_scale);
        Ok(())
    }

    pub(super) fn form(&self, source: usize, values: &[f32]) -> Vec<f32> {
        let norm = &self.kv[source].norm;
        values.iter().zip(norm.iter().cycle()).map(|(v, w)| v * w).collect()
    }

    pub(super) fn turn(&self, source: usize, keys: &mut [f32], by: i64) {
        self.kv[source].turn.apply(keys, by);
    }
}

fn decode(ty: TensorType, row: &[u8], out: &mut [f32]) -> Result<(), ModelError> {
    hf2q_quant::dequantize(ty, row, out).map_err(|source| ModelError::Embedding { source })
}

/// The values of a tensor of the tensor map that is always f32.
fn floats(model: &Model, name: &str) -> Vec<f32> {
    let tensor = model.tensor(name).expect("Model::new has found every tensor of the map");
    tensor.data.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect()
}
