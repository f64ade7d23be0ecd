//! `hf2q fit`.

mod output;
mod subject;

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use hf2q_engine::{CacheOptions, EngineError, EngineOptions, Needs, WindowPolicy};
use hf2q_gguf::Bytes;
use hf2q_model::{Model, RecordOptions};
use hf2q_plan::{Backend, PAGE, Passes, Plan};

use super::texts;
use crate::args::{DraftArg, DraftArgs, FitArgs};
use crate::device::Wish;
use crate::drafts::DraftModel;
use crate::session::{DEFAULT_CONTEXT, ENDS};
use crate::{memory, terminal};

/// Formats to look at where none are asked for, the best first.
const FORMATS: [&str; 9] = ["f16", "q8_0", "tq8", "tq6", "k=tq6,v=tq4", "tq5", "tq4", "tq3", "tq2"];

/// What is asked for.
struct Question {
    model: String,
    context: usize,
    /// Tokens that the model was made for.
    longest: usize,
    sequences: usize,
    chunk: usize,
    /// Bytes that may be used.
    memory: u64,
    /// The GPU whose memory it is, if it is one.
    device: Option<String>,
    /// What guesses tokens, and how many of a step.
    drafter: Option<DraftModel>,
    draft_rows: usize,
}

/// A plan, its weights, and what drafts for the model with caches of these formats.
struct Subject<'a> {
    plan: Plan,
    weights: Vec<Bytes>,
    drafter: Option<&'a DraftModel>,
    target: (&'a Model, &'a RecordOptions),
}

impl Subject<'_> {
    fn needs(&self, backend: &dyn Backend, sizes: EngineOptions) -> Result<(Needs, Option<Needs>)> {
        let needs = Needs::new(backend, &self.plan, self.weights.clone(), sizes)?;
        let drafter = self.drafter.map(|drafter| drafter.needs(backend, self.target, sizes)).transpose()?;
        Ok((needs, drafter))
    }
}

/// What caches of some formats take.
struct Candidate {
    kv: RecordOptions,
    needs: Needs,
    /// Of what drafts.
    drafter: Option<Needs>,
    fits: bool,
    /// Tokens of the longest context that fits; `None`: none does.
    largest: Option<usize>,
}

impl Candidate {
    /// All bytes.
    fn total(&self) -> usize {
        total(&self.needs, self.drafter.as_ref())
    }
}

/// All bytes.
fn total(needs: &Needs, drafter: Option<&Needs>) -> usize {
    needs.total().saturating_add(drafter.map_or(0, Needs::total))
}

pub(crate) fn run(args: &FitArgs) -> Result<()> {
    let model = subject::open(&args.model, args.ty.as_deref())?;
    let longest = model.config().context_length;
    let mut question = Question {
        model: args.model.display().to_string(),
        context: args.context.unwrap_or(longest.min(DEFAULT_CONTEXT)),
        longest,
        sequences: args.sequences,
        chunk: args.chunk,
        memory: 0,
        device: None,
        drafter: drafter(args, &model)?,
        draft_rows: DraftArgs { draft: args.draft.clone(), ..DraftArgs::none() }.rows(),
    };
    texts::note_length("--context", question.context, &model);
    let formats = formats(args, &model)?;
    let backend = &*question.backend(args, &model, &formats)?;
    let free = match backend.free_memory()? {
        None => memory::free(),
        free => {
            question.device = Some(backend.describe());
            free
        }
    };
    question.memory = args.memory.or(free).context("how much memory is free? --memory says it")?;
    let (mut candidates, mut left_out) = (Vec::new(), Vec::new());
    for kv in formats {
        let candidate = match question.candidate(backend, &model, kv) {
            Err(error) if args.kv.is_empty() && is_unsupported(&error) => {
                left_out.push((kv.to_string(), error));
                continue;
            }
            found => found?,
        };
        // Where nobody asked for it, what is no smaller than something better says nothing.
        let smaller = |last: &Candidate| candidate.total() < last.total();
        if !args.kv.is_empty() || candidates.last().is_none_or(smaller) {
            candidates.push(candidate);
        }
    }
    if let Some((_, why)) = left_out.first() {
        let names: Vec<&str> = left_out.iter().map(|(name, _)| name.as_str()).collect();
        terminal::note(&format!("note: {} left out: {why:#}", names.join(", ")));
    }
    match args.json {
        true => output::json(&question, &candidates)?,
        false => output::table(&question, &candidates, args.memory.is_some())?,
    }
    if !candidates.iter().any(|c| c.fits) {
        bail!("{}", output::nothing_fits(&question, &candidates));
    }
    if args.json { Ok(()) } else { terminal::print_line(&output::advice(&question, &candidates)) }
}

/// The drafter that a file holds.
fn drafter(args: &FitArgs, model: &Model) -> Result<Option<DraftModel>> {
    let DraftArg::Model(path) = &args.draft else { return Ok(None) };
    // The tokens of a checkpoint are not read.
    Ok(Some(DraftModel::read(path, model, None).context("--draft")?))
}

/// Whether a backend has no kernel for something.
fn is_unsupported(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(EngineError::Backend(hf2q_plan::BackendError::Unsupported { .. })))
}

/// Those that are asked for, or those of [`FORMATS`] that the model's heads can be stored in.
fn formats(args: &FitArgs, model: &Model) -> Result<Vec<RecordOptions>> {
    if !args.kv.is_empty() {
        return Ok(args.kv.clone());
    }
    let all = FORMATS.iter().map(|text| text.parse()).collect::<Result<Vec<RecordOptions>, _>>()?;
    Ok(all.into_iter().filter(|kv| model.record(kv).is_ok()).collect())
}

impl Question {
    /// Where the model would be run, in the best of the formats.
    fn backend(&self, args: &FitArgs, model: &Model, formats: &[RecordOptions]) -> Result<Arc<dyn Backend>> {
        let best = formats.first().context("the heads of this model can be stored in none of the formats")?;
        let plan = Plan::compile(model.record(best)?, Passes::ALL);
        let wish = Wish { device: args.device, threads: args.threads, isa: None };
        Ok(wish.backend(model, &[(&plan, self.sizes(self.context))])?.backend)
    }

    fn candidate(&self, backend: &dyn Backend, model: &Model, kv: RecordOptions) -> Result<Candidate> {
        let all_rows = self.drafter.is_some() || kv.all_rows;
        let recording = model.record(&RecordOptions { all_rows, ..kv })?;
        let weights = model.weights_for(&recording);
        let plan = Plan::compile(recording, Passes::ALL);
        let subject = Subject { plan, weights, drafter: self.drafter.as_ref(), target: (model, &kv) };
        let (needs, drafter) = subject.needs(backend, self.sizes(self.context))?;
        let fits = self.fits(&needs, drafter.as_ref());
        let largest = self.largest(backend, &subject)?;
        Ok(Candidate { kv, needs, drafter, fits, largest })
    }

    /// As conversations are opened.
    fn sizes(&self, context: usize) -> EngineOptions {
        let windows = WindowPolicy::Drop { ends: ENDS };
        let rows = self.chunk.max(1 + self.draft_rows).min(context);
        EngineOptions {
            context,
            sequences: self.sequences,
            rows,
            logit_rows: (self.sequences + self.draft_rows).min(rows),
            cache: CacheOptions { windows, ..CacheOptions::default() },
        }
    }

    fn fits(&self, needs: &Needs, drafter: Option<&Needs>) -> bool {
        total(needs, drafter) as u64 <= self.memory
    }

    /// The longest context that fits, in whole pages unless it is the model's own.
    fn largest(&self, backend: &dyn Backend, subject: &Subject<'_>) -> Result<Option<usize>> {
        let fits = |context: usize| -> Result<bool> {
            let (needs, drafter) = subject.needs(backend, self.sizes(context))?;
            Ok(self.fits(&needs, drafter.as_ref()))
        };
        if fits(self.longest)? {
            return Ok(Some(self.longest));
        }
        let (mut pages, mut too_many) = (0, self.longest.div_ceil(PAGE));
        while too_many - pages > 1 {
            let middle = pages + (too_many - pages) / 2;
            if fits(middle * PAGE)? { pages = middle } else { too_many = middle }
        }
        Ok((pages > 0).then_some(pages * PAGE))
    }
}
