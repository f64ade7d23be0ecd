//! Which type each tensor gets.

use hf2q_arch::Config;
use hf2q_gguf::TensorType;

use crate::error::ConvertError;

/// An output type for a whole model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recipe {
    base: TensorType,
}

impl Recipe {
    /// The recipe with a name: `f32`, `f16`, `bf16`, `q8_0` or `q4_0`.
    pub fn from_name(name: &str) -> Result<Self, ConvertError> {
        match TensorType::from_name(&name.to_lowercase()) {
            Some(
                base @ (TensorType::F32
                | TensorType::F16
                | TensorType::Bf16
                | TensorType::Q8_0
                | TensorType::Q4_0),
            ) => Ok(Self { base }),
            _ => Err(ConvertError::Recipe { found: name.to_owned() }),
        }
    }

    /// Accepted names.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ["f32", "f16", "bf16", "q8_0", "q4_0"].into_iter()
    }

    /// The type that most matrices get.
    pub fn base(self) -> TensorType {
        self.base
    }

    /// `general.file_type`, as llama.cpp numbers it.
    pub fn file_type(self) -> u32 {
        match self.base {
            TensorType::F16 => 1,
            TensorType::Q4_0 => 2,
            TensorType::Q8_0 => 7,
            TensorType::Bf16 => 32,
            _ => 0,
        }
    }
}

/// Changes to a recipe.
#[derive(Clone, Debug, Default)]
pub struct Overrides {}

/// What of a model decides types.
pub struct Facts {}

impl Facts {
    /// The facts of a model.
    pub fn from_config(_: &Config) -> Self {
        Self {}
    }
}

/// A tensor that needs a type.
pub struct Candidate<'a> {
    /// GGUF name.
    pub name: &'a str,
    /// Columns first.
    pub shape: &'a [u64],
    /// What it is where it is not quantized.
    pub ty: TensorType,
}

/// The type of a tensor.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// The type.
    pub ty: TensorType,
    /// Why.
    pub why: crate::record::Why,
}

/// Interim.
pub fn choose(
    recipe: &Recipe,
    _: &Facts,
    _: &Overrides,
    _: bool,
    tensors: &[Candidate<'_>],
) -> Result<Vec<Choice>, ConvertError> {
    use crate::record::Why;
    Ok(tensors
        .iter()
        .map(|t| {
            let kept = t.shape.len() < 2
                || !t.name.ends_with("weight")
                || t.name.contains("ffn_gate_inp")
                || t.name.contains("_norm");
            if kept {
                return Choice { ty: t.ty, why: Why::Kept };
            }
            let wanted = match (recipe.base, t.name) {
                (TensorType::Q4_0, "token_embd.weight" | "output.weight" | "per_layer_token_embd.weight") => {
                    TensorType::Q8_0
                }
                (base, "per_layer_model_proj.weight") if base.block_len() > 1 => TensorType::Bf16,
                (base, _) => base,
            };
            if t.shape[0].is_multiple_of(wanted.block_len() as u64) {
                Choice { ty: wanted, why: Why::Recipe }
            } else {
                Choice { ty: TensorType::F16, why: Why::Fallback { wanted } }
            }
        })
        .collect())
}
