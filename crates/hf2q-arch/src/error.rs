//! What can be wrong with a model's description.

use hf2q_gguf::GgufError;

/// Where a description comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// `config.json` of a checkpoint.
    ConfigJson,
    /// Metadata of a GGUF file.
    Metadata,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::ConfigJson => "config.json",
            Self::Metadata => "GGUF metadata",
        })
    }
}

/// A description that names no model this crate knows.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchError {
    /// The model belongs to an unknown family.
    #[error("{origin}: {key} is {found:?}; accepted are {accepted}")]
    UnknownArchitecture {
        /// Which file.
        origin: Origin,
        /// The key that names the family.
        key: &'static str,
        /// Its value.
        found: String,
        /// Values that are accepted.
        accepted: String,
    },
    /// A key that every model of the family needs is absent.
    #[error("{origin}: key {key} is missing")]
    Missing {
        /// Which file.
        origin: Origin,
        /// The key.
        key: String,
    },
    /// A key has a value that is malformed or asks for something that is not implemented.
    #[error("{origin}: {key} is {found}; accepted is {accepted}")]
    Value {
        /// Which file.
        origin: Origin,
        /// The key.
        key: String,
        /// Its value.
        found: String,
        /// What would be accepted.
        accepted: String,
    },
    /// Keys of `config.json` that might change results and that nothing here understands.
    #[error(
        "config.json has keys that are not known for {architecture}: {}; remove those that do not change the model's results",
        keys.join(", ")
    )]
    UnknownKeys {
        /// `general.architecture`.
        architecture: &'static str,
        /// The keys, each with its value.
        keys: Vec<String>,
    },
    /// A GGUF key is absent or of another type.
    #[error(transparent)]
    Gguf(#[from] GgufError),
}

impl ArchError {
    pub(crate) fn value(
        origin: Origin,
        key: impl Into<String>,
        found: impl ToString,
        accepted: impl Into<String>,
    ) -> Self {
        Self::Value { origin, key: key.into(), found: found.to_string(), accepted: accepted.into() }
    }
}
