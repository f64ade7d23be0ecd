//! Which type each tensor gets.

use hf2q_arch::{Class, Role, TensorRow};
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

    /// The type of one tensor. Norms, routers and scalars stay f32, and so does everything one-dimensional. The embedding and the
    /// output matrix, which every token reads, are kept at 8 bits or more. Rows that are no multiple of the block
    /// become f16.
    pub fn tensor_type(self, row: &TensorRow) -> TensorType {
        let exact = matches!(row.class, Class::Norm | Class::Router | Class::Scalar);
        if exact || row.shape.len() < 2 {
            return TensorType::F32;
        }
        let wanted = match (self.base, row.class) {
            (TensorType::Q4_0, Class::Embedding | Class::Output) => TensorType::Q8_0,
            // Small, and read by every layer.
            (base, Class::Matrix(Role::PerLayerModel)) if base.block_len() > 1 => TensorType::Bf16,
            (base, _) => base,
        };
        if row.shape[0].is_multiple_of(wanted.block_len()) { wanted } else { TensorType::F16 }
    }
}
