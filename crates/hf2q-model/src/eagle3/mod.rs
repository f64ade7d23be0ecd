//! EAGLE-3 heads (Li et al. 2025, arXiv 2503.01840): drafters of one layer that read what some layers of their target have
//! made.
//!
//! The states in front of these layers are made one by a matrix; that is the first state of a draft. A row of the head reads a
//! state at position `t` and the embedding of the token at `t + 1`, and guesses the token at `t + 2`. What its layer gives is the
//! state of the next row. A head may know some tokens only, and may have no embedding: then it reads its target's, without the
//! factor of some families.

mod record;

use hf2q_arch::{Architecture, Eagle};
use hf2q_gguf::Bytes;
use hf2q_plan::{KvFormat, Recording};

use crate::error::ModelError;
use crate::model::{Model, StoredTensor};

/// A head and what it takes of its target.
#[derive(Clone, Debug)]
pub struct Eagle3 {
    head: Model,
    eagle: Eagle,
    embedding: StoredTensor,
    taps: Vec<String>,
    /// Token of each logit; `None`: logits are of all tokens.
    tokens: Option<Vec<u32>>,
}

const EMBEDDING: &str = "token_embd.weight";

impl Eagle3 {
    /// Joins a head to its target, whose embedding is shared, not copied, where the head has none.
    ///
    /// # Errors
    /// If `head` is no head, or one of another model: the first difference is named.
    pub fn new(head: Model, target: &Model) -> Result<Self, ModelError> {
        let Some(eagle) = head.config().eagle.clone() else {
            let found = head.config().architecture.name();
            return Err(ModelError::NoDrafter { found, accepted: Architecture::Eagle3.name() });
        };
        let (ours, theirs) = (head.config(), target.config());
        same("vocabulary", ours.vocab, theirs.vocab)?;
        same("hidden size of the model", eagle.target_hidden, theirs.hidden)?;
        let embedding = match head.tensor(EMBEDDING) {
            Some(own) => own.clone(),
            None => {
                same("hidden size, for it has no embedding of its own,", ours.hidden, theirs.hidden)?;
                target.tensor(EMBEDDING).expect("every model has an embedding").clone()
            }
        };
        let states = target.states()?;
        let tap = |&layer: &usize| {
            let layers = format!("at most {}", theirs.layers.len());
            states.get(layer).cloned().ok_or_else(|| differs("layer whose input is read", layer, layers))
        };
        let taps = eagle.target_layers.iter().map(tap).collect::<Result<_, _>>()?;
        let tokens = head.tensor("d2t").map(|listed| tokens(listed, ours.vocab)).transpose()?;
        Ok(Self { head, eagle, embedding, taps, tokens })
    }

    /// The head's own part.
    pub fn head(&self) -> &Model {
        &self.head
    }

    /// Names of the target's operations whose results it reads, each `[R, target_hidden]`; the target is recorded with
    /// [`all_rows`](crate::RecordOptions::all_rows).
    pub fn taps(&self) -> &[String] {
        &self.taps
    }

    /// Width of the head's states.
    pub fn width(&self) -> usize {
        self.head.config().hidden
    }

    /// Width of what [`Eagle3::record_fusion`] reads: all taps side by side.
    pub fn features(&self) -> usize {
        self.eagle.features()
    }

    /// Logits of all tokens, of a row's `logits`; tokens that the head does not know are impossible.
    pub fn of_all_tokens(&self, logits: &[f32]) -> Vec<f32> {
        let Some(tokens) = &self.tokens else { return logits.to_vec() };
        let mut all = vec![f32::NEG_INFINITY; self.head.config().vocab];
        for (&token, &logit) in tokens.iter().zip(logits) {
            all[token as usize] = logit;
        }
        all
    }

    /// Writes down how taps become a state: one input, all taps of a row side by side; in place of logits states `[L, width]`.
    ///
    /// # Errors
    /// If an operation does not take a tensor's type.
    pub fn record_fusion(&self) -> Result<Recording, ModelError> {
        Ok(record::fusion(self)?)
    }

    /// Writes the layer down. Input: a state for each row; output: the state for the next row, `[L, width]`.
    ///
    /// # Errors
    /// If an operation does not take a tensor's type.
    pub fn record(&self, format: KvFormat) -> Result<Recording, ModelError> {
        record::layer(self, format)
    }

    /// The bytes of a recording's weights, in the order in which a backend wants them.
    ///
    /// # Panics
    /// If another head made the recording.
    pub fn weights_for(&self, recording: &Recording) -> Vec<Bytes> {
        let bytes = |id: &hf2q_plan::TensorId| match recording.tensors[id.index()].name.as_str() {
            EMBEDDING => self.embedding.data.clone(),
            name => self.head.tensor(name).expect("the recording is of this head").data.clone(),
        };
        recording.weights.iter().map(bytes).collect()
    }
}

/// The list of tokens of a tensor that is always i64.
fn tokens(listed: &StoredTensor, vocabulary: usize) -> Result<Vec<u32>, ModelError> {
    let token = |(index, &bytes): (usize, &[u8; 8])| {
        let token = i64::from_le_bytes(bytes);
        let known = u32::try_from(token).ok().filter(|&t| (t as usize) < vocabulary);
        known.ok_or(ModelError::ListedToken { tensor: "d2t", index, token, vocabulary })
    };
    listed.data.as_chunks::<8>().0.iter().enumerate().map(token).collect()
}

fn same(what: &str, ours: usize, theirs: usize) -> Result<(), ModelError> {
    if ours == theirs { Ok(()) } else { Err(differs(what, ours, theirs)) }
}

fn differs(what: &str, drafter: impl ToString, target: impl ToString) -> ModelError {
    let (what, drafter, target) = (what.to_owned(), drafter.to_string(), target.to_string());
    ModelError::OtherTarget { what, drafter, target }
}
