//! Which type each tensor gets.
//!
//! A recipe is a base type and a few rules for the matrices that suffer most ([`table`]). [`choose`] applies them the way
//! `llama-quantize` does, so that both give every tensor the same type.

mod choose;
mod facts;
mod fit;
mod natural;
mod overrides;
mod rule;
mod slot;
mod table;

use std::fmt;

use hf2q_gguf::TensorType;

use crate::error::ConvertError;

pub use choose::{Candidate, Choice, choose};
pub use facts::Facts;
pub use natural::natural_type;
pub use overrides::{Overrides, Pattern};
pub use slot::place;

use table::{MIXTURES, Mixture, NOT_ENCODED};

/// An output type for a whole model.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Recipe(&'static Mixture);

impl Recipe {
    /// The recipe with a name, in any case. `q3_k`, `q4_k` and `q5_k` are short for their `_m` variants.
    ///
    /// # Errors
    /// [`ConvertError::Recipe`] or [`ConvertError::RecipeNotEncoded`], which list what is accepted.
    pub fn from_name(name: &str) -> Result<Self, ConvertError> {
        let lower = name.to_ascii_lowercase();
        let named = |m: &&Mixture| m.name == lower || m.alias == Some(lower.as_str());
        match MIXTURES.iter().find(named) {
            Some(mixture) => Ok(Self(mixture)),
            None if NOT_ENCODED.contains(&lower.as_str()) => {
                Err(ConvertError::RecipeNotEncoded { found: lower })
            }
            None => Err(ConvertError::Recipe { found: name.to_owned() }),
        }
    }

    /// Every recipe, floats first, then by size.
    pub fn all() -> impl Iterator<Item = Self> {
        MIXTURES.iter().map(Self)
    }

    /// Every name but the aliases, floats first, then by size.
    pub fn names() -> impl Iterator<Item = &'static str> {
        MIXTURES.iter().map(|m| m.name)
    }

    /// Its name, lower case.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Another name that [`Recipe::from_name`] takes for it.
    pub fn alias(self) -> Option<&'static str> {
        self.0.alias
    }

    /// The type that most matrices get.
    pub fn base(self) -> TensorType {
        self.0.base
    }

    /// Whether its base type has blocks, unlike f32, f16 and bf16.
    pub fn is_quantized(self) -> bool {
        self.base().block_len() > 1
    }

    /// `general.file_type`, as llama.cpp numbers it.
    pub fn file_type(self) -> u32 {
        self.0.file_type
    }

    /// Whether this tensor is useless in type `ty` unless its own importances are known. [`choose`] refuses a recipe with
    /// such tensors where there are no importances at all; who encodes them must refuse those that are missing.
    pub fn needs_importance(self, tensor: &str, ty: TensorType) -> bool {
        self.0.needs_importance == Some(ty) && !slot::is_table(tensor)
    }
}

impl fmt::Debug for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Recipe").field(&self.0.name).finish()
    }
}
