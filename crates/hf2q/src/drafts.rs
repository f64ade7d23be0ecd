//! What was asked for with --draft becomes a drafter, and the target a plan that shows it what it wants to see.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use hf2q_arch::Architecture;
use hf2q_engine::draft::{AssistantDrafter, EagleDrafter};
use hf2q_engine::{Budget, DraftShape, Drafter, Drafting, EngineOptions, ModelDrafter, Needs, Ngram};
use hf2q_model::assistant::Assistant;
use hf2q_model::eagle3::Eagle3;
use hf2q_model::{Model, RecordOptions};
use hf2q_plan::{Backend, Cache, KvFormat, Passes, Plan, Recording};
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

/// Sizes as they are wanted, and bytes that a drafter's caches take for each byte of the target's.
pub(crate) type Wanted = (EngineOptions, f64);

/// Makes sizes fit the memory that there is.
pub(crate) type Fit<'a> = &'a dyn Fn(&Plan, &dyn Backend, Wanted) -> Result<EngineOptions>;

/// Where a model is run and as what.
pub(crate) struct Prepared {
    pub(crate) plan: Arc<Plan>,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) sizes: EngineOptions,
    pub(crate) drafting: Option<Drafting>,
    /// What the drafter takes of memory.
    pub(crate) drafter: Option<Needs>,
}

/// Chooses a backend, makes sizes fit, opens the drafter there, and plans the target.
pub(crate) fn prepare(target: &Target<'_>, args: &DraftArgs, fit: Fit<'_>) -> Result<Prepared> {
    let found = match &args.draft {
        DraftArg::Model(path) => {
            Some(DraftModel::read(path, target.model, Some(target.tokenizer)).context("--draft")?)
        }
        DraftArg::None | DraftArg::Ngram => None,
    };
    let options =
        RecordOptions { all_rows: found.is_some() || target.engine.kv.all_rows, ..target.engine.kv };
    let plan = Arc::new(Plan::compile(target.model.record(&options)?, Passes::ALL));
    let backend = target.engine.backend(target.model, &[(&plan, target.sizes)])?;
    let beside = found.as_ref().map_or(Ok(0.0), |found| found.beside(&target.engine.kv, &plan.recording))?;
    let sizes = fit(&plan, &*backend, (target.sizes, beside))?;
    let target = &Target { sizes, ..*target };
    let (drafter, needs): (Box<dyn Drafter>, Option<Needs>) = match (found, &args.draft) {
        (None, DraftArg::Ngram) => (Box::new(Ngram::new()), None),
        (None, _) => return Ok(Prepared { plan, backend, sizes, drafting: None, drafter: None }),
        (Some(found), _) => {
            let needs = found.needs(&*backend, (target.model, &target.engine.kv), sizes)?;
            (found.open(target, &*backend).context("--draft")?, Some(needs))
        }
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
    Ok(Prepared { plan, backend, sizes, drafting, drafter: needs })
}

/// How heads keep keys and values.
const HEAD: KvFormat = KvFormat::F16;

/// What a file holds that drafts, before an engine is made of it.
pub(crate) enum DraftModel {
    /// A model of its own, and its name.
    Model(String, Model),
    /// A head that reads what some of the target's layers have made.
    Eagle(Eagle3),
    /// One that reads the target's keys and values.
    Assistant(Assistant),
}

impl DraftModel {
    /// Reads a file; refuses one that is for another target, and, where the target's tokens are known, one with others.
    pub(crate) fn read(path: &Path, target: &Model, tokenizer: Option<&Tokenizer>) -> Result<Self> {
        let gguf = load::any(path)?;
        let architecture = gguf.metadata().opt_str("general.architecture")?.and_then(Architecture::from_name);
        // A drafter that is made for one model may come without its tokens.
        let alone = architecture.is_none_or(|a| !a.is_drafter());
        let has_tokens = alone || gguf.metadata().get("tokenizer.ggml.model").is_some();
        if let Some(tokenizer) = tokenizer.filter(|_| has_tokens) {
            let found = Tokenizer::from_metadata(gguf.metadata())?;
            same_vocabulary(tokenizer, &found).with_context(|| path.display().to_string())?;
        }
        let model = load::model(&gguf)?;
        Ok(match architecture {
            Some(Architecture::Gemma4Assistant) => Self::Assistant(Assistant::new(model, target)?),
            Some(Architecture::Eagle3) => Self::Eagle(Eagle3::new(model, target)?),
            _ => Self::Model(load::stem_of_set(path), model),
        })
    }

    /// Bytes of its caches for each byte of those of `target`, of as many positions.
    fn beside(&self, kv: &RecordOptions, target: &Recording) -> Result<f64> {
        let own = match self {
            Self::Model(_, model) => model.record(kv)?,
            Self::Eagle(head) => head.record(HEAD)?,
            Self::Assistant(assistant) => assistant.record(HEAD)?,
        };
        Ok(page_bytes(&own) as f64 / page_bytes(target).max(1) as f64)
    }

    /// What [`DraftModel::open`] would take of memory beside a target that is opened with `sizes`.
    pub(crate) fn needs(
        &self,
        backend: &dyn Backend,
        (target, kv): (&Model, &RecordOptions),
        sizes: EngineOptions,
    ) -> Result<Needs> {
        Ok(match self {
            Self::Model(_, model) => {
                let (plan, sizes) = planned(model, (target, kv), sizes)?;
                Needs::new(backend, &plan, model.weights_for(&plan.recording), sizes)?
            }
            Self::Eagle(head) => EagleDrafter::needs(head, backend, (HEAD, sizes))?,
            Self::Assistant(assistant) => {
                AssistantDrafter::needs(assistant, &target.record(kv)?, backend, (HEAD, sizes))?
            }
        })
    }

    fn open(self, target: &Target<'_>, backend: &dyn Backend) -> Result<Box<dyn Drafter>> {
        let (kv, sizes) = (&target.engine.kv, target.sizes);
        Ok(match self {
            Self::Model(name, model) => {
                let (plan, sizes) = planned(&model, (target.model, kv), sizes)?;
                Box::new(ModelDrafter::new(&name, session::open(&model, plan, (backend, sizes))?))
            }
            Self::Eagle(head) => Box::new(EagleDrafter::open(head, backend, (HEAD, sizes))?),
            Self::Assistant(assistant) => {
                let recording = target.model.record(kv)?;
                Box::new(AssistantDrafter::open(assistant, &recording, backend, (HEAD, sizes))?)
            }
        })
    }
}

/// Bytes of a page in all caches.
fn page_bytes(recording: &Recording) -> usize {
    recording.caches.iter().map(Cache::page_bytes).sum()
}

/// A model of its own as a drafter: with the target's cache formats, as many sequences, and as many pages.
fn planned(
    model: &Model,
    (target, kv): (&Model, &RecordOptions),
    sizes: EngineOptions,
) -> Result<(Arc<Plan>, EngineOptions)> {
    let plan = Arc::new(Plan::compile(model.record(kv)?, Passes::ALL));
    let mut cache = sizes.cache;
    if let Budget::Bytes(bytes) = &mut cache.budget {
        let one = page_bytes(&plan.recording);
        let beside = one as f64 / page_bytes(&target.record(kv)?).max(1) as f64;
        *bytes = ((*bytes as f64 * beside) as usize).max(one);
    }
    let rows = sizes.rows.max(sizes.sequences);
    Ok((plan, EngineOptions { rows, logit_rows: sizes.sequences, cache, ..sizes }))
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
