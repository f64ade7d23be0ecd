//! A model that is ready to answer.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use hf2q_engine::{
    CacheOptions, DraftStats, DraftUse, Engine, EngineError, EngineOptions, Event, Finish, Job, JobId, Needs,
    Sampler, Sampling, Scheduler, SchedulerOptions, Task, Times, Usage, WindowPolicy,
};
use hf2q_gguf::{Gguf, Metadata};
use hf2q_model::Model;
use hf2q_plan::{Backend, BackendError, Passes, Plan};
use hf2q_text::{ChatRequest, ChatTemplate, Controls, StopStrings, Tokenizer};

use crate::args::{DraftArgs, EngineArgs, SamplingArgs};
use crate::commands::texts;
use crate::device::{Wanted, Wish};
use crate::drafts::{Target, prepare};
use crate::{interrupt, load, memory, terminal};

/// Context where neither the user nor the model asks for less.
pub(crate) const DEFAULT_CONTEXT: usize = 8192;

/// Ends of prompts and answers from which a conversation can go on another way, in models with windows.
pub(crate) const ENDS: usize = 4;

/// Tokenizer, template and engine of one model, for one answer at a time. What was computed for one serves the next.
pub(crate) struct Session {
    scheduler: Scheduler,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) template: Option<ChatTemplate>,
    pub(crate) backend: String,
    defaults: Sampling,
}

/// What an answer took.
#[derive(Clone, Debug)]
pub(crate) struct Timing {
    pub(crate) prompt_tokens: usize,
    pub(crate) reused_tokens: usize,
    pub(crate) prompt_time: Duration,
    pub(crate) answer_tokens: usize,
    pub(crate) answer_time: Duration,
    /// Tokens that were guessed, and those of them that were right.
    pub(crate) drafted_tokens: usize,
    pub(crate) accepted_tokens: usize,
    pub(crate) drafts: DraftUse,
}

/// A finished answer.
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) finish: Finish,
    pub(crate) timing: Timing,
}

impl EngineArgs {
    /// Where and how to compute.
    pub(crate) fn wish(&self) -> Wish {
        Wish { device: self.device, threads: self.threads, isa: self.isa }
    }

    /// The backend for plans of a model; says which it is where that was left open.
    pub(crate) fn backend(&self, model: &Model, plans: &[Wanted<'_>]) -> Result<Arc<dyn Backend>> {
        let chosen = self.wish().backend(model, plans)?;
        if chosen.why.is_some() && !self.silent {
            terminal::note(&terminal::dim(&chosen.line()));
        }
        Ok(chosen.backend)
    }

    /// Sizes for one sequence.
    pub(crate) fn sizes(&self, model: &Model, logit_rows: usize) -> Result<EngineOptions> {
        let context = self.context.unwrap_or_else(|| model.config().context_length.min(DEFAULT_CONTEXT));
        let rows = self.chunk.min(context);
        let logit_rows = logit_rows.min(rows);
        Ok(EngineOptions { context, sequences: 1, rows, logit_rows, cache: CacheOptions::default() })
    }

    /// Records, compiles and opens a model.
    pub(crate) fn engine(&self, model: &Model, sizes: EngineOptions) -> Result<(Engine, String)> {
        let plan = Arc::new(Plan::compile(model.record(&self.kv)?, Passes::ALL));
        let backend = self.backend(model, &[(&plan, sizes)])?;
        Ok((open(model, plan, (&*backend, sizes))?, backend.describe()))
    }
}

/// Opens a plan of the model, if there is memory for it: on the machine for caches and activations, for weights are views of
/// the mapped file, on a device for all.
pub(crate) fn open(model: &Model, plan: Arc<Plan>, on: (&dyn Backend, EngineOptions)) -> Result<Engine> {
    open_with(model, plan, on, None)
}

/// The same with a drafter beside it, which is open already: on the machine it holds what its caches take when they are first used.
pub(crate) fn open_with(
    model: &Model,
    plan: Arc<Plan>,
    (backend, sizes): (&dyn Backend, EngineOptions),
    drafter: Option<&Needs>,
) -> Result<Engine> {
    let weights = model.weights_for(&plan.recording);
    let needs = Needs::new(backend, &plan, weights.clone(), sizes)?;
    let Some(free) = backend.free_memory()? else {
        let beside_weights = |n: &Needs| n.caches().saturating_add(n.work) as u64;
        let held = drafter.map_or(0, beside_weights);
        let needed = held.saturating_add(beside_weights(&needs));
        let with = if drafter.is_some() { " with a drafter" } else { "" };
        let what = format!("a context of {} tokens{with}", sizes.context);
        memory::check_more(&what, needed, held)?;
        // What one cache lacks says little of what is asked for.
        let whole = || format!("{what} needs {} in all", terminal::bytes(needed));
        let opened = Engine::open(backend, plan, weights, sizes);
        let is_full = matches!(&opened, Err(EngineError::Backend(BackendError::OutOfMemory { .. })));
        return if is_full { opened.with_context(whole) } else { Ok(opened?) };
    };
    let needed = (needs.total() as u64).saturating_sub(backend.held(&weights));
    if needed > free {
        let [weights, caches, work] =
            [needs.weights, needs.caches(), needs.work].map(|n| terminal::bytes(n as u64));
        bail!(
            "the model and a context of {} tokens need {} ({weights} of weights, {caches} of caches, {work} of activations), but only {} are free on {}; `hf2q fit MODEL --device cuda` shows which caches and contexts fit, --device cpu runs it on the processor",
            sizes.context,
            terminal::bytes(needed),
            terminal::bytes(free),
            backend.describe()
        );
    }
    Ok(Engine::open(backend, plan, weights, sizes)?)
}

impl Session {
    /// Loads everything. Nothing of the weights is copied.
    pub(crate) fn open(gguf: &Gguf, args: &EngineArgs, drafts: &DraftArgs) -> Result<Self> {
        Self::of_model(gguf, &load::model(gguf)?, (args, drafts))
    }

    /// The same, where the model of the file is there already.
    pub(crate) fn of_model(
        gguf: &Gguf,
        model: &Model,
        (args, drafts): (&EngineArgs, &DraftArgs),
    ) -> Result<Self> {
        let tokenizer = Tokenizer::from_metadata(gguf.metadata())?;
        let template = ChatTemplate::from_metadata(gguf.metadata(), &tokenizer)?;
        if let Some(context) = args.context.filter(|_| !args.silent) {
            texts::note_length("--context", context, model);
        }
        let windows = WindowPolicy::Drop { ends: ENDS };
        let base = args.sizes(model, 1)?;
        // A step holds a whole draft, however small the chunks of prompts are to be.
        let rows = base.rows.max(1 + drafts.rows()).min(base.context);
        let logit_rows = (1 + drafts.rows()).min(rows);
        let cache = CacheOptions { windows, ..CacheOptions::default() };
        let sizes = EngineOptions { rows, logit_rows, cache, ..base };
        let target = Target { model, tokenizer: &tokenizer, engine: args, sizes };
        let prepared = prepare(&target, drafts, &|_, _, (sizes, _)| Ok(sizes))?;
        let on = (&*prepared.backend, sizes);
        let engine = open_with(model, prepared.plan, on, prepared.drafter.as_ref())?;
        let mut scheduler = Scheduler::new(engine, SchedulerOptions { queue: 1, busy_rows: sizes.rows })?;
        if let Some(drafting) = prepared.drafting {
            scheduler = scheduler.with_drafts(drafting);
        }
        let defaults = default_sampling(gguf.metadata())?;
        Ok(Self { scheduler, tokenizer, template, backend: prepared.backend.describe(), defaults })
    }

    /// Flags first, then the model's recommendation, then what llama.cpp does.
    pub(crate) fn sampler(&self, args: &SamplingArgs) -> Result<Sampler> {
        let d = &self.defaults;
        let vocabulary = self.scheduler.limits().vocabulary;
        if let Some((id, _)) = args.logit_bias.iter().find(|(id, _)| *id as usize >= vocabulary) {
            bail!("--logit-bias names token {id}, but the model has {vocabulary}");
        }
        let sampling = Sampling {
            temperature: args.temperature.unwrap_or(d.temperature),
            top_k: args.top_k.unwrap_or(d.top_k),
            top_p: args.top_p.unwrap_or(d.top_p),
            min_p: args.min_p.unwrap_or(d.min_p),
            typical_p: args.typical,
            repetition_penalty: args.repetition_penalty,
            presence_penalty: args.presence_penalty,
            frequency_penalty: args.frequency_penalty,
            penalty_last_n: args.penalty_last_n,
            logit_bias: args.logit_bias.iter().copied().collect(),
            seed: args.seed.unwrap_or_else(random_seed),
        };
        Ok(Sampler::new(sampling)?)
    }

    /// What drafts were good for so far.
    pub(crate) fn draft_stats(&self) -> DraftStats {
        self.scheduler.stats().drafts
    }

    /// The tokens of a conversation up to where the answer starts.
    pub(crate) fn chat_prompt(&self, messages: &[serde_json::Value]) -> Result<Vec<u32>> {
        let template = self.template.as_ref().context("the model has no chat template")?;
        let request = ChatRequest { messages, add_generation_prompt: true, ..ChatRequest::default() };
        Ok(template.encode_chat(&self.tokenizer, &request)?)
    }

    /// Begins an answer, whose events come as [steps](Self::step) are computed.
    pub(crate) fn begin(
        &mut self,
        prompt: &[u32],
        sampler: &Sampler,
        max_tokens: Option<usize>,
    ) -> Result<(JobId, mpsc::Receiver<Event>)> {
        let stop = self.tokenizer.stop_ids().to_vec();
        let answer = hf2q_engine::Answer { stop, max_tokens, ..hf2q_engine::Answer::new(sampler.clone()) };
        let job = Job { prompt: prompt.to_vec(), task: Task::Answer(Box::new(answer)), deadline: None };
        let (sender, events) = mpsc::channel();
        let id = self.scheduler.submit(job, Box::new(move |event| sender.send(event).is_ok()))?;
        Ok((id, events))
    }

    /// Computes a step of what was begun.
    pub(crate) fn step(&mut self) {
        self.scheduler.step();
    }

    /// Answers `prompt`, the tokens of the whole conversation. What the cache holds of it already is not computed again.
    /// Text is given to `show` as soon as it is certain. Ctrl-C ends the answer.
    pub(crate) fn answer(
        &mut self,
        prompt: &[u32],
        sampler: &Sampler,
        args: &SamplingArgs,
        mut show: impl FnMut(&str) -> Result<()>,
    ) -> Result<Answer> {
        let (id, events) = self.begin(prompt, sampler, args.max_tokens)?;
        let mut output = Output::new(&self.tokenizer, &args.stop);
        let ended = follow(&mut self.scheduler, (id, &events), &mut output, &mut show);
        // Whatever has gone wrong, the next answer begins with nothing under way.
        self.scheduler.cancel(id);
        let (finish, mut timing) = ended?;
        timing.answer_tokens = output.tokens;
        Ok(Answer { text: output.text, finish: output.stopped.unwrap_or(finish), timing })
    }
}

/// Computes until the answer has ended, and shows it as it comes.
fn follow(
    scheduler: &mut Scheduler,
    (id, events): (JobId, &mpsc::Receiver<Event>),
    output: &mut Output<'_>,
    show: &mut impl FnMut(&str) -> Result<()>,
) -> Result<(Finish, Timing)> {
    loop {
        if output.stopped.is_some() || interrupt::pressed() {
            scheduler.cancel(id);
        } else {
            scheduler.step();
        }
        for event in events.try_iter() {
            match event {
                Event::Token { id, .. } if output.stopped.is_none() => show(&output.push(id))?,
                Event::Finished { reason, usage, times, drafts } => {
                    show(&output.finish())?;
                    if usage.non_finite > 0 {
                        let n = usage.non_finite;
                        terminal::note(&format!(
                            "warning: {n} logits were not finite; the model's weights may be damaged"
                        ));
                    }
                    return Ok((reason, Timing::new(&usage, &times, drafts)));
                }
                Event::Failed(error) => return Err(error.into()),
                Event::Token { .. } | Event::Started { .. } | Event::Prompt(_) | Event::Embedding(_) => {}
            }
        }
    }
}

impl Timing {
    fn new(usage: &Usage, times: &Times, drafts: DraftUse) -> Self {
        Self {
            prompt_tokens: usage.prompt_tokens,
            reused_tokens: usage.cached_tokens,
            prompt_time: times.prompt,
            answer_tokens: usage.answer_tokens,
            answer_time: times.answer,
            drafted_tokens: usage.drafted_tokens,
            accepted_tokens: usage.accepted_tokens,
            drafts,
        }
    }
}

/// Text on its way from tokens to the reader.
struct Output<'t> {
    detokenizer: Option<hf2q_text::Detokenizer<'t>>,
    stops: StopStrings,
    text: String,
    /// Tokens that were taken.
    tokens: usize,
    /// A stop string was found.
    stopped: Option<Finish>,
}

impl<'t> Output<'t> {
    fn new(tokenizer: &'t Tokenizer, stops: &[String]) -> Self {
        let detokenizer = Some(tokenizer.detokenizer(Controls::Skip).mid_text());
        let stops = StopStrings::new(stops.iter().cloned());
        Self { detokenizer, stops, text: String::new(), tokens: 0, stopped: None }
    }

    /// Text that became certain with this token.
    fn push(&mut self, token: u32) -> String {
        self.tokens += 1;
        let text = self.detokenizer.as_mut().map(|d| d.push(token)).unwrap_or_default();
        let text = self.keep(|stops| stops.push(&text));
        self.stopped = self.stops.is_stopped().then_some(Finish::Stop(token));
        text
    }

    /// Text that was held back.
    fn finish(&mut self) -> String {
        let rest = self.detokenizer.take().map(hf2q_text::Detokenizer::finish).unwrap_or_default();
        self.keep(|stops| stops.push(&rest) + &stops.finish())
    }

    fn keep(&mut self, step: impl FnOnce(&mut StopStrings) -> String) -> String {
        let text = step(&mut self.stops);
        self.text.push_str(&text);
        text
    }
}

pub(crate) fn default_sampling(metadata: &Metadata) -> Result<Sampling> {
    let number = |key: &str, otherwise: f32| -> Result<f32> {
        Ok(metadata.opt_f32(&format!("general.sampling.{key}"))?.unwrap_or(otherwise))
    };
    let top_k = metadata.get("general.sampling.top_k").is_some();
    let top_k = if top_k { metadata.i64("general.sampling.top_k").context("the model's top_k")? } else { 40 };
    let (temperature, top_p, min_p) = (number("temp", 0.8)?, number("top_p", 0.95)?, number("min_p", 0.05)?);
    Ok(Sampling { temperature, top_k, top_p, min_p, ..Sampling::default() })
}

/// From the clock: different each time, and printed nowhere, for a user who wants one gives one.
fn random_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos() & u128::from(u64::MAX)).unwrap_or_default()
}
