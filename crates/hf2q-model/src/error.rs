//! What can be wrong with a model file.

use std::path::PathBuf;

use hf2q_arch::ArchError;
use hf2q_plan::{PlanError, SelectError};

/// Why a file gives no model, or a model no recording.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A file with this problem.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file, the first one of a split set.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<ModelError>,
    },
    /// The metadata describe no model that is implemented.
    #[error(transparent)]
    Config(#[from] ArchError),
    /// The tensors do not fit the metadata. Everything that is wrong is listed.
    #[error(
        "the tensors do not fit the {architecture} model that the metadata describe{}",
        list(missing, wrong, unsupported)
    )]
    Tensors {
        /// `general.architecture`.
        architecture: &'static str,
        /// Tensors that must be there and are not.
        missing: Vec<String>,
        /// Tensors of another shape or type.
        wrong: Vec<WrongTensor>,
        /// Tensors that would change results and that nothing here reads.
        unsupported: Vec<String>,
    },
    /// The model computes no text by itself.
    #[error(
        "a model of architecture {architecture} only drafts for another one: give its file as --draft of run, chat, serve or bench, beside the model that it belongs to"
    )]
    Drafter {
        /// `general.architecture`.
        architecture: &'static str,
    },
    /// A file given as a drafter is none.
    #[error("a {found} model is no drafter of this kind; accepted is {accepted}")]
    NoDrafter {
        /// `general.architecture`.
        found: &'static str,
        /// What it should be.
        accepted: &'static str,
    },
    /// A drafter of another model.
    #[error(
        "the drafter belongs to another model: {what} is {drafter} in the drafter's file and {target} in the model's"
    )]
    OtherTarget {
        /// The first difference.
        what: String,
        /// What the drafter expects.
        drafter: String,
        /// What the model is.
        target: String,
    },
    /// A list of tokens names one that does not exist.
    #[error("tensor {tensor} lists {token} at place {index}, tokens are 0 to below {vocabulary}")]
    ListedToken {
        /// Its name.
        tensor: &'static str,
        /// Place in the list.
        index: usize,
        /// What stands there.
        token: i64,
        /// Tokens that exist.
        vocabulary: usize,
    },
    /// A token without an embedding.
    #[error("token {token} has no row in token_embd.weight")]
    NoToken {
        /// The token.
        token: u32,
    },
    /// An embedding that cannot be decoded.
    #[error("token_embd.weight of the model cannot be read: {source}")]
    Embedding {
        /// Why.
        source: hf2q_quant::QuantError,
    },
    /// A plan does not compute what a drafter reads.
    #[error(
        "the model's plan has nothing to watch for {what}; the recording must be of the model that the drafter was joined to"
    )]
    NoTap {
        /// What is not there.
        what: String,
    },
    /// An unknown synthetic model.
    #[error("no synthetic model {spec:?}; accepted are {accepted}")]
    Synthetic {
        /// What was asked for.
        spec: String,
        /// Names and types.
        accepted: String,
    },
    /// A setting of the cache's formats names something that does not exist.
    #[error("unknown {what} {name:?} in {item:?}; accepted are {accepted}")]
    KvUnknown {
        /// What it should be.
        what: &'static str,
        /// The name.
        name: String,
        /// The item that holds it.
        item: String,
        /// Names that exist.
        accepted: String,
    },
    /// A setting of the cache's formats says something that it replaces at once.
    #[error("{item:?} has no effect in {text:?}: later items replace all of it; leave one of them out")]
    KvReplaced {
        /// The item without effect.
        item: String,
        /// The whole setting.
        text: String,
    },
    /// A setting for recent positions where nothing is stored with TurboQuant.
    #[error(
        "{item:?} has no effect in {text:?}: only TurboQuant (tq2 to tq8) keeps recent positions in another format; \
         leave it out"
    )]
    KvRecent {
        /// The item without effect.
        item: String,
        /// The whole setting.
        text: String,
    },
    /// The layers ask for an operation that cannot be: a mistake in this crate, or a type that an operation does not take.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// An operation whose result is wanted is not there.
    #[error(transparent)]
    Select(#[from] SelectError),
}

/// A tensor of another shape or type than the metadata imply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongTensor {
    /// GGUF name.
    pub name: String,
    /// Its shape (columns first), type or size.
    pub found: String,
    /// What it must be.
    pub expected: String,
}

/// Something a user should know about a file that loads.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// The file holds tensors that nothing reads.
    UnusedTensors {
        /// Their names.
        names: Vec<String>,
    },
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::UnusedTensors { names } => {
                let first = names.first().map_or("", String::as_str);
                write!(f, "{} tensors of the file are not used, the first is {first}", names.len())
            }
        }
    }
}

fn list(missing: &[String], wrong: &[WrongTensor], unsupported: &[String]) -> String {
    let mut text = String::new();
    if !missing.is_empty() {
        text += &format!("; {} missing: {}", missing.len(), few(missing));
    }
    for WrongTensor { name, found, expected } in wrong {
        text += &format!("; {name} is {found}, expected {expected}");
    }
    if !unsupported.is_empty() {
        text += &format!("; {} not supported: {}", unsupported.len(), few(unsupported));
    }
    text
}

/// The first names of a list that may be very long; errors carry all of them.
fn few(names: &[String]) -> String {
    const SHOWN: usize = 20;
    let shown = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN { format!("{shown}, and {} more", names.len() - SHOWN) } else { shown }
}
