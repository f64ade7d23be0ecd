//! What was asked for with --draft becomes a drafter, and the target a plan that shows it what it wants to see.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use hf2q_arch::Architecture;
use hf2q_engine::draft::{AssistantDrafter, EagleDrafter};
use hf2q_engine::{DraftShape, Drafter, Drafting, EngineOptions, ModelDrafter, Needs, Ngram};
use hf2q_gguf::Gguf;
use hf2q_model::assistant::Assistant;
use hf2q_model::eagle3::Eagle3;
use hf2q_model::{Model, RecordOptions};
use hf2q_plan::{Backend, KvFormat, Passes, Plan};
use hf2q_text::Tokenizer;

use crate::args::{DraftArg, DraftArgs, EngineArgs};
use crate::{load, session, terminal};

/// The model that answers.
pub(crate) struct Target<'a> {
    pub(crate) model: &'a Model,
    pub(crate) tokenizer: &'a Tokenizer,
    pub(crate) engine: &'a EngineArgs,
    /// As they are wanted; [`Prepared::sizes`] says what they are.
    pub(crate) sizes: EngineOptions,
}

/// A drafter, and bytes of memory that it takes beside the target.
type Opened = (Box<dyn Drafter>, u64);

/// Makes sizes fit the memory that there is.
pub(crate) type Fit<'a> = &'a dyn Fn(&Plan, &dyn Backend, EngineOptions) -> Result<EngineOptions>;

/// Where a model is run and as what.
pub(crate) struct Prepared {
    pub(crate) plan: Arc<Plan>,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) sizes: EngineOptions,
    pub(crate) drafting: Option<Drafting>,
    /// Memory of the drafter.
    pub(crate) drafter_bytes: u64,
}

/// Chooses a backend, makes sizes fit, opens the drafter there, and plans the target.
pub(crate) fn prepare(target: &Target<'_>, args: &DraftArgs, fit: Fit<'_>) -> Result<Prepared> {
    let heads = matches!(args.draft, DraftArg::Model(_));
    let options = RecordOptions { all_rows: heads || target.engine.kv.all_rows, ..target.engine.kv };
    let plan = Arc::new(Plan::compile(target.model.record(&options)?, Passes::ALL));
    let backend = target.engine.backend(target.model, &[(&plan, target.sizes)])?;
    let sizes = fit(&plan, &*backend, target.sizes)?;
    let target = &Target { sizes, ..*target };
    let (drafter, drafter_bytes): Opened = match &args.draft {
        DraftArg::None => {
            return Ok(Prepared { plan, backend, sizes, drafting: None, drafter_bytes: 0 });
        }
        DraftArg::Ngram => (Box::new(Ngram::new()), 0),
        DraftArg::Model(path) => file(path, target, &backend).context("--draft")?,
    };
    if args.shape() == DraftShape::Tree && !drafter.branches() {
        bail!("--draft-shape tree: the drafter {} guesses chains only; take chain or auto", drafter.name());
    }
    let warn = |error: &hf2q_engine::EngineError| {
        terminal::note(&format!("note: some answers get no drafts any more: {error}"));
    };
    let (taps, all_rows) = (drafter.taps().to_vec(), drafter.needs_all_rows());
    let drafting = Some(Drafting { drafter, depth: args.depth(), shape: args.shape(), warn: Box::new(warn) });
    let mut recording = target.model.record(&RecordOptions { all_rows, ..options })?;
    recording.keep(&taps).context("--draft")?;
    let plan = Arc::new(Plan::compile(recording, Passes::ALL));
    Ok(Prepared { plan, backend, sizes, drafting, drafter_bytes })
}

/// The drafter that a file holds.
fn file(path: &Path, target: &Target<'_>, backend: &Arc<dyn Backend>) -> Result<Opened> {
    let gguf = load::any(path)?;
    let name = load::stem_of_set(path);
    let architecture = gguf.metadata().opt_str("general.architecture")?.and_then(Architecture::from_name);
    // A drafter that is made for one model may come without its tokens.
    let alone = architecture.is_none_or(|a| !a.is_drafter());
    if alone || gguf.metadata().get("tokenizer.ggml.model").is_some() {
        let tokenizer = Tokenizer::from_metadata(gguf.metadata())?;
        same_vocabulary(target.tokenizer, &tokenizer).with_context(|| path.display().to_string())?;
    }
    match architecture {
        Some(Architecture::Gemma4Assistant) => Ok((assistant(&gguf, target, &**backend)?, gguf.file_bytes())),
        Some(Architecture::Eagle3) => Ok((eagle(&gguf, target, &**backend)?, gguf.file_bytes())),
        _ => model(&gguf, &name, target, &**backend),
    }
}

/// A drafter that reads the target's keys and values.
fn assistant(gguf: &Gguf, target: &Target<'_>, backend: &dyn Backend) -> Result<Box<dyn Drafter>> {
    let assistant = Assistant::new(load::model(gguf)?, target.model)?;
    let recording = target.model.record(&target.engine.kv)?;
    let how = (KvFormat::F16, target.sizes);
    Ok(Box::new(AssistantDrafter::open(assistant, &recording, backend, how)?))
}

/// A head that reads what some of the target's layers have made.
fn eagle(gguf: &Gguf, target: &Target<'_>, backend: &dyn Backend) -> Result<Box<dyn Drafter>> {
    let head = Eagle3::new(load::model(gguf)?, target.model)?;
    Ok(Box::new(EagleDrafter::open(head, backend, (KvFormat::F16, target.sizes))?))
}

/// A model of its own, with the same cache formats and as many sequences as the target.
fn model(gguf: &Gguf, name: &str, target: &Target<'_>, backend: &dyn Backend) -> Result<Opened> {
    let model = load::model(gguf)?;
    let plan = Arc::new(Plan::compile(model.record(&target.engine.kv)?, Passes::ALL));
    let rows = target.sizes.rows.max(target.sizes.sequences);
    let sizes = EngineOptions { rows, logit_rows: target.sizes.sequences, ..target.sizes };
    let needs = Needs::new(backend, &plan, model.weights_for(&plan.recording), sizes)?;
    let engine = session::open(&model, plan, (backend, sizes))?;
    Ok((Box::new(ModelDrafter::new(name, engine)), needs.total() as u64))
}

/// Refuses a drafter whose tokens mean something else than the target's.
fn same_vocabulary(target: &Tokenizer, draft: &Tokenizer) -> Result<()> {
    let show = |tokenizer: &Tokenizer, id: u32| {
        let control = if tokenizer.is_control(id) { " (control)" } else { "" };
        format!("{:?}{control}", String::from_utf8_lossy(tokenizer.token_bytes(id)))
    };
    let (have, others) = (target.vocab_len(), draft.vocab_len());
    let ids = 0..u32::try_from(have.min(others)).unwrap_or(u32::MAX);
    let differs = |id: &u32| {
        target.token_bytes(*id) != draft.token_bytes(*id) || target.is_control(*id) != draft.is_control(*id)
    };
    if let Some(id) = ids.into_iter().find(differs) {
        bail!(
            "it has another vocabulary: token {id} is {} there and {} in the model; a drafter needs the model's own tokens",
            show(draft, id),
            show(target, id)
        );
    }
    if have != others {
        bail!("it has {others} tokens, the model {have}; a drafter needs the model's own tokens");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use hf2q_gguf::{Metadata, Value};

    use super::*;

    fn tokenizer(tokens: &[&str], kinds: &[i32]) -> Tokenizer {
        let mut metadata = Metadata::default();
        for (key, value) in [
            ("tokenizer.ggml.model", Value::from("llama")),
            ("tokenizer.ggml.tokens", Value::from(tokens.iter().map(|&t| t.to_owned()).collect::<Vec<_>>())),
            ("tokenizer.ggml.scores", Value::from(vec![0.0_f32; tokens.len()])),
            ("tokenizer.ggml.token_type", Value::from(kinds.to_vec())),
        ] {
            metadata.insert(key, value);
        }
        Tokenizer::from_metadata(&metadata).unwrap()
    }

    #[test]
    fn the_first_other_token_is_named() {
        let target = tokenizer(&["<unk>", "a", "b", "c"], &[2, 1, 1, 1]);
        same_vocabulary(&target, &target).unwrap();
        let of = |tokens: &[&str], kinds: &[i32]| {
            same_vocabulary(&target, &tokenizer(tokens, kinds)).unwrap_err().to_string()
        };
        assert!(of(&["<unk>", "a", "c", "b"], &[2, 1, 1, 1]).contains("token 2 is \"c\" there and \"b\""));
        assert!(of(&["<unk>", "a", "b", "c"], &[2, 1, 3, 1]).contains("token 2 is \"b\" (control) there"));
        assert!(of(&["<unk>", "a", "b"], &[2, 1, 1]).contains("it has 3 tokens, the model 4"));
    }
}
