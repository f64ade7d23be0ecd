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
use crate::args::FitArgs;
use crate::device::Wish;
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
}

/// A plan and its weights.
type Subject = (Arc<Plan>, Vec<Bytes>);

/// What caches of some formats take.
struct Candidate {
    kv: RecordOptions,
    needs: Needs,
    fits: bool,
    /// Tokens of the longest context that fits; `None`: none does.
    largest: Option<usize>,
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
        let smaller = |last: &Candidate| candidate.needs.total() < last.needs.total();
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
        let recording = model.record(&kv)?;
        let weights = model.weights_for(&recording);
        let subject = (Arc::new(Plan::compile(recording, Passes::ALL)), weights);
        let needs = self.needs(backend, &subject, self.context)?;
        let fits = self.fits(&needs);
        let largest = self.largest(backend, &subject)?;
        Ok(Candidate { kv, needs, fits, largest })
    }

    /// As conversations are opened.
    fn sizes(&self, context: usize) -> EngineOptions {
        let windows = WindowPolicy::Drop { ends: ENDS };
        EngineOptions {
            context,
            sequences: self.sequences,
            rows: self.chunk.min(context),
            logit_rows: self.sequences.min(self.chunk).min(context),
            cache: CacheOptions { windows, ..CacheOptions::default() },
        }
    }

    fn needs(&self, backend: &dyn Backend, subject: &Subject, context: usize) -> Result<Needs> {
        Ok(Needs::new(backend, &subject.0, subject.1.clone(), self.sizes(context))?)
    }

    fn fits(&self, needs: &Needs) -> bool {
        needs.total() as u64 <= self.memory
    }

    /// The longest context that fits, in whole pages unless it is the model's own.
    fn largest(&self, backend: &dyn Backend, subject: &Subject) -> Result<Option<usize>> {
        let fits =
            |context: usize| Ok::<bool, anyhow::Error>(self.fits(&self.needs(backend, subject, context)?));
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
