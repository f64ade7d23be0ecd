//! Which families of models there are, and what all models of a family share.

/// A family of models that share one forward pass and one set of tensor names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// Gemma 4: dense, mixture of experts, and with per-layer embeddings.
    Gemma4,
    /// Gemma 3, text part.
    Gemma3,
    /// Llama and what has its shape (Mistral 7B, SmolLM2).
    Llama,
    /// Qwen 3, dense.
    Qwen3,
    /// Qwen 3 with a mixture of experts in every layer.
    Qwen3Moe,
    /// A drafter for a Gemma 4: layers of its kind that read the other model's keys and values.
    Gemma4Assistant,
    /// EAGLE-3 (Li et al. 2025, arXiv 2503.01840): one layer that drafts from what its target's layers have made.
    Eagle3,
}

/// Non-linearity of the gated feed-forward network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// GELU in its tanh form.
    GeluTanh,
    /// `x · sigmoid(x)`.
    Silu,
}

/// Which columns of a head form a rotated pair, as the GGUF file stores the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// `(i, i + dims/2)`.
    Halves,
    /// `(2i, 2i + 1)`: rows of Q and K are permuted when a checkpoint is converted.
    Adjacent,
}

impl Architecture {
    /// Every architecture.
    pub const ALL: [Self; 7] = [
        Self::Gemma4,
        Self::Gemma3,
        Self::Llama,
        Self::Qwen3,
        Self::Qwen3Moe,
        Self::Gemma4Assistant,
        Self::Eagle3,
    ];

    /// The value of `general.architecture`, which is also the prefix of the metadata keys.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gemma4 => "gemma4",
            Self::Gemma3 => "gemma3",
            Self::Llama => "llama",
            Self::Qwen3 => "qwen3",
            Self::Qwen3Moe => "qwen3moe",
            Self::Gemma4Assistant => "gemma4-assistant",
            Self::Eagle3 => "eagle3",
        }
    }

    /// The architecture with a [`Architecture::name`].
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|a| a.name() == name)
    }

    /// The architecture of a `model_type` of `config.json`, of the whole model or of its text part.
    pub fn from_model_type(model_type: &str) -> Option<Self> {
        MODEL_TYPES.iter().find(|(name, _)| *name == model_type).map(|(_, a)| *a)
    }

    /// Whether it computes no text by itself: it drafts for another model.
    pub fn is_drafter(self) -> bool {
        matches!(self, Self::Gemma4Assistant | Self::Eagle3)
    }

    /// Gemma scales its embeddings and surrounds both halves of a layer with norms.
    pub fn is_gemma(self) -> bool {
        self == Self::Gemma3 || self.is_gemma4()
    }

    /// Whether the layers are those of Gemma 4.
    pub fn is_gemma4(self) -> bool {
        matches!(self, Self::Gemma4 | Self::Gemma4Assistant)
    }

    /// Whether the layers are those of Llama, but for what they read in an [`Architecture::Eagle3`].
    pub fn is_llama(self) -> bool {
        matches!(self, Self::Llama | Self::Eagle3)
    }

    /// The non-linearity of the feed-forward network.
    pub fn activation(self) -> Activation {
        if self.is_gemma() { Activation::GeluTanh } else { Activation::Silu }
    }

    /// Which columns of Q and K are rotated together.
    pub fn pairing(self) -> Pairing {
        if self.is_llama() { Pairing::Adjacent } else { Pairing::Halves }
    }

    /// Whether every head of Q and K is normalized before it is rotated.
    pub fn has_head_norms(self) -> bool {
        !self.is_llama()
    }

    /// What multiplies the embeddings.
    pub(crate) fn embedding_scale(self, hidden: usize) -> f32 {
        if self.is_gemma() { (hidden as f64).sqrt() as f32 } else { 1.0 }
    }
}

/// `model_type` of the accepted checkpoints.
const MODEL_TYPES: &[(&str, Architecture)] = &[
    ("gemma4", Architecture::Gemma4),
    ("gemma4_text", Architecture::Gemma4),
    ("gemma4_unified", Architecture::Gemma4),
    ("gemma4_unified_text", Architecture::Gemma4),
    ("gemma4_assistant", Architecture::Gemma4Assistant),
    ("gemma4_unified_assistant", Architecture::Gemma4Assistant),
    ("gemma3", Architecture::Gemma3),
    ("gemma3_text", Architecture::Gemma3),
    ("llama", Architecture::Llama),
    ("mistral", Architecture::Llama),
    ("qwen3", Architecture::Qwen3),
    ("qwen3_moe", Architecture::Qwen3Moe),
];

/// The accepted values of `model_type`, for messages.
pub(crate) fn accepted_model_types() -> String {
    MODEL_TYPES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// The accepted values of `general.architecture`, for messages.
pub(crate) fn accepted_names() -> String {
    Architecture::ALL.map(Architecture::name).join(", ")
}
