//! Gemma 4's assistants: drafters that read what the model they draft for has computed.
//!
//! An assistant makes no keys and values. Its windowed layers read those of the target's last windowed layer that makes
//! its own, its global layers those of the last such global layer. A drafted token comes of the token before it and of a hidden
//! state: the target's behind its last norm, or, further on, the assistant's own, projected to the target's width. All
//! tokens of a draft are drawn at one position, the one behind the last that the target has computed, so queries are one
//! position ahead of the last key.
//!
//! Here the target's keys and values are inputs of the assistant's recording, which stores them in caches of its own. A row at a
//! position holds the keys and values of that position and asks from there, so its keys are turned one position back.

mod head;
mod record;
mod taps;
mod target;
mod turn;

use std::borrow::Cow;

use hf2q_arch::{Architecture, Layer};
use hf2q_gguf::Bytes;
use hf2q_plan::{KvFormat, Recording};

use crate::error::ModelError;
use crate::model::Model;
use head::Ordered;
use target::Target;

pub use taps::{KvTap, Taps};

/// An assistant and what it takes of the model that it drafts for.
#[derive(Clone, Debug)]
pub struct Assistant {
    drafter: Model,
    target: Target,
    /// Whose keys and values are read, in the order of the recording's inputs.
    sources: Vec<Source>,
    ordered: Option<Ordered>,
}

/// Keys and values that some layers of the assistant read.
#[derive(Clone, Copy, Debug)]
struct Source {
    /// The first of the assistant's layers that reads them.
    reader: usize,
    /// The target's layer that makes them.
    layer: usize,
}

impl Assistant {
    /// Joins a drafter to its target. The target's weights are shared, not copied.
    ///
    /// # Errors
    /// If `drafter` is no assistant, or one of another model: the first difference is named.
    pub fn new(drafter: Model, target: &Model) -> Result<Self, ModelError> {
        let Some(assistant) = drafter.config().assistant else {
            let found = drafter.config().architecture.name();
            return Err(ModelError::NoDrafter { found, accepted: Architecture::Gemma4Assistant.name() });
        };
        let (ours, theirs) = (drafter.config(), target.config());
        if theirs.architecture != Architecture::Gemma4 {
            let (found, accepted) = (theirs.architecture.name(), Architecture::Gemma4.name());
            return Err(differ("architecture of the model", accepted, found));
        }
        same("vocabulary", ours.vocab, theirs.vocab)?;
        same("hidden size of the model", assistant.target_hidden, theirs.hidden)?;
        let readers = (0..ours.layers.len()).filter(|&i| ours.layers[i].kv_from == Some(i));
        let mut sources = Vec::new();
        for reader in readers {
            let windowed = ours.layers[reader].window.is_some();
            let kind = if windowed { "windowed layers" } else { "global layers" };
            let makes = |l: &Layer| l.window.is_some() == windowed && l.kv_from.is_none();
            let Some(layer) = theirs.layers.iter().rposition(makes) else {
                return Err(differ(kind, "some", "none"));
            };
            same_heads(kind, &ours.layers[reader], &theirs.layers[layer])?;
            sources.push(Source { reader, layer });
        }
        let ordered = Ordered::new(&drafter)?;
        let target = Target::new(target, sources.iter().map(|s| s.layer))?;
        Ok(Self { drafter, target, sources, ordered })
    }

    /// The assistant's own part.
    pub fn drafter(&self) -> &Model {
        &self.drafter
    }

    /// Width of the target's residual stream.
    pub fn target_hidden(&self) -> usize {
        self.target.hidden
    }

    /// Keys or values of a row, for each source of the recording.
    pub fn kv_widths(&self) -> impl Iterator<Item = usize> + '_ {
        self.sources.iter().map(|s| {
            let layer = &self.drafter.config().layers[s.reader];
            layer.kv_heads * layer.head_dim
        })
    }

    /// Writes the layers down as operations. Inputs of a row: [`Assistant::state`] of the token to go on from, which counts
    /// only where logits are wanted, then keys and values of each source. Logits are those of
    /// [`Assistant::of_all_tokens`]. Outputs are [`Assistant::NEXT`] and [`Assistant::SCORES`].
    ///
    /// # Errors
    /// If an operation does not take a tensor's type.
    pub fn record(&self, format: KvFormat) -> Result<Recording, ModelError> {
        record::record(self, format)
    }

    /// Number of the recording's output that is the hidden state to go on with, `[L, hidden]` of the target's width.
    pub const NEXT: usize = 0;

    /// Number of the recording's output that is the scores of groups of tokens, `[L, groups]`, where only some get logits.
    pub const SCORES: usize = 1;

    /// The bytes of a recording's weights, in the order in which a backend wants them.
    ///
    /// # Panics
    /// If another assistant made the recording.
    pub fn weights_for(&self, recording: &Recording) -> Vec<Bytes> {
        let bytes = |id: &hf2q_plan::TensorId| {
            let name = recording.tensors[id.index()].name.as_str();
            let ordered = self.ordered.as_ref().filter(|_| name == head::ORDERED).map(|o| &o.matrix);
            let stored = || self.drafter.tensor(name).map(|t| &t.data);
            ordered.or_else(stored).expect("the recording is of this assistant").clone()
        };
        recording.weights.iter().map(bytes).collect()
    }

    /// How many groups of tokens there are, where only some get logits.
    pub fn groups(&self) -> Option<usize> {
        self.ordered.as_ref().map(|ordered| ordered.weight.experts)
    }

    /// Logits of all tokens, of a row's `logits` and the `scores` of groups; tokens of other groups are impossible.
    pub fn of_all_tokens<'a>(&self, scores: &[f32], logits: &'a [f32]) -> Cow<'a, [f32]> {
        match &self.ordered {
            Some(ordered) => Cow::Owned(ordered.spread(scores, logits)),
            None => Cow::Borrowed(logits),
        }
    }

    /// Appends what a row goes on from: the target's scaled embedding of `token`, then `hidden`.
    ///
    /// # Errors
    /// If the token has no embedding, or its row cannot be decoded.
    pub fn state(&self, token: u32, hidden: &[f32], out: &mut Vec<f32>) -> Result<(), ModelError> {
        self.target.embed(token, out)?;
        out.extend_from_slice(hidden);
        Ok(())
    }

    /// Keys of a row that the target forms of its values: before they are turned.
    pub fn form(&self, source: usize, values: &[f32]) -> Vec<f32> {
        self.target.form(source, values)
    }

    /// Turns the keys of a row by so many positions.
    pub fn turn(&self, source: usize, keys: &mut [f32], by: i64) {
        self.target.turn(source, keys, by);
    }

    /// What the target's plan is to be watched for.
    ///
    /// # Errors
    /// If it is of another model.
    pub fn taps(&self, target: &Recording) -> Result<Taps, ModelError> {
        taps::find(target, self.sources.iter().map(|s| s.layer))
    }
}

fn same_heads(kind: &str, ours: &Layer, theirs: &Layer) -> Result<(), ModelError> {
    same(&format!("key and value heads of {kind}"), ours.kv_heads, theirs.kv_heads)?;
    same(&format!("head size of {kind}"), ours.head_dim, theirs.head_dim)?;
    if ours.rope != theirs.rope {
        let (ours, theirs) = (format!("{:?}", ours.rope), format!("{:?}", theirs.rope));
        return Err(differ(&format!("rotation of {kind}"), &ours, &theirs));
    }
    Ok(())
}

fn same(what: &str, ours: usize, theirs: usize) -> Result<(), ModelError> {
    if ours == theirs { Ok(()) } else { Err(differ(what, &ours.to_string(), &theirs.to_string())) }
}

fn differ(what: &str, drafter: &str, target: &str) -> ModelError {
    let (what, drafter, target) = (what.to_owned(), drafter.to_owned(), target.to_owned());
    ModelError::OtherTarget { what, drafter, target }
}
