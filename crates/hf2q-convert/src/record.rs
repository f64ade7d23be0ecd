//! What became of one tensor: the rows of the report and of `verify`.

use hf2q_gguf::TensorType;

/// One tensor of a written file.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// GGUF name.
    pub name: String,
    /// GGUF order: columns first.
    pub shape: Vec<u64>,
    /// What it was before, for example `bf16`, `f8_e4m3 + scales`, `q4_k`.
    pub source: String,
    /// What it is now.
    pub ty: TensorType,
    /// Why it has this type.
    pub why: Why,
    /// Size of the stored data.
    pub bytes: u64,
    /// `‖x − q‖ / ‖x‖` over all values, where it was measured.
    pub relative_error: Option<f64>,
}

/// Why a tensor has its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It is the type that the recipe is named after.
    Recipe,
    /// The recipe mixes types, and this tensor gets another than most.
    Mixture,
    /// The user asked for it.
    Override,
    /// Its rows cannot be cut into blocks of the type it should have had.
    Fallback {
        /// That type.
        wanted: TensorType,
    },
    /// Its values lie on the lattice of `q4_0` already, so that type keeps them exactly.
    Lattice,
    /// It is not quantized: norms, scalars, routers, or a recipe of floats.
    Kept,
}

impl Record {
    /// Number of values.
    pub fn elements(&self) -> u64 {
        // Saturating: a shape may come from anywhere.
        self.shape.iter().fold(1, |n: u64, &d| n.saturating_mul(d))
    }
}
