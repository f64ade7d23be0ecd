//! `hf2q compare`.

mod json;
mod print;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, bail};
use hf2q_convert::report::plural;
use hf2q_engine::{CacheOptions, EngineOptions, WindowPolicy};
use hf2q_gguf::Gguf;
use hf2q_model::{Model, RecordOptions};
use hf2q_observe::report::{Page, html};
use hf2q_observe::{Comparer, Comparison, Failure, Likelihood, Side, Thresholds};
use hf2q_plan::{Backend, Passes, Plan};
use hf2q_text::{Specials, Tokenizer};

use super::texts::{self, start_of_text};
use crate::args::{CompareArgs, EngineArgs};
use crate::device::{Wanted, Wish};
use crate::progress::Progress;
use crate::{interrupt, load, output, session, terminal};

/// Chunk where the models have a longer context.
const CONTEXT: usize = 2048;

/// Tokens of greedy runs.
const GREEDY: usize = 32;

/// Logits that a program holds at the same time, at most [`LOGIT_ROWS`] rows of them.
const LOGITS: usize = 1 << 23;
const LOGIT_ROWS: usize = 64;

/// What is compared, and how it is read.
struct Setup {
    tokenizer: Tokenizer,
    model: Model,
    other: Option<Model>,
    context: usize,
    greedy: usize,
    candidates: Vec<RecordOptions>,
}

pub(crate) fn run(args: &CompareArgs) -> Result<()> {
    let started = Instant::now();
    let a = load::open(&args.model)?;
    let b = args.other.as_deref().map(load::open).transpose()?;
    check_page(args, &a, b.as_ref())?;
    let text = texts::read(&args.text)?;
    let setup = Setup::new(args, &a, b.as_ref())?;
    let ids = setup.tokenizer.encode_prompt(text.strip_suffix('\n').unwrap_or(&text), Specials::AsText);
    let chunks: Vec<&[u32]> =
        ids.chunks_exact(setup.context).take(args.chunks.unwrap_or(usize::MAX)).collect();
    if chunks.is_empty() {
        bail!(
            "{} has {} tokens, less than a chunk of {}; give a longer text or a smaller --context",
            args.text.display(),
            ids.len(),
            setup.context
        );
    }
    let comparer = setup.comparer(args)?;
    interrupt::install_once()?;
    let comparison = read(args, &setup, comparer, &chunks)?;
    let limits = thresholds(args);
    let failures: Vec<Failure> = comparison.candidates.iter().flat_map(|c| limits.failures(c)).collect();
    if let Some(page) = &args.html {
        let facts = facts(args, &setup);
        let seconds = started.elapsed().as_secs_f64();
        let page_text = html(&Page { facts: &facts, comparison: &comparison, failures: &failures, seconds });
        interrupt::tidily(|| hf2q_gguf::write_file(page, page_text.as_bytes()))?;
    }
    if args.json {
        terminal::print_json(&json::json(args, &setup, (&comparison, &failures)))?;
    } else {
        print::print(args, &setup, &comparison)?;
    }
    match &failures[..] {
        [] => Ok(()),
        failures => bail!("{}", failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")),
    }
}

fn thresholds(args: &CompareArgs) -> Thresholds {
    let limits = &args.limits;
    Thresholds {
        max_kl: limits.max_kl,
        max_kl_p99: limits.max_kl_p99,
        min_top1: limits.min_top1,
        max_ppl_ratio: limits.max_ppl_ratio,
        min_cosine: limits.min_cosine,
    }
}

fn check_page(args: &CompareArgs, a: &Gguf, b: Option<&Gguf>) -> Result<()> {
    let Some(page) = &args.html else { return Ok(()) };
    let inputs = a.paths().iter().chain(b.into_iter().flat_map(Gguf::paths)).chain([&args.text]);
    output::is_no_input("--html", page, inputs)?;
    output::check("--html", page, args.force)
}

impl Setup {
    fn new(args: &CompareArgs, a: &Gguf, b: Option<&Gguf>) -> Result<Self> {
        let same = args.b_threads.is_none() && args.b_isa.is_none() && args.b_device.is_none();
        if b.is_none() && args.b_kv.is_empty() && same {
            bail!(
                "there is nothing to compare: give a second model, --b-kv, --b-device, --b-threads or --b-isa"
            );
        }
        if let Some((_, kv)) = args.b_kv.iter().enumerate().find(|(i, kv)| args.b_kv[..*i].contains(kv)) {
            bail!("--b-kv {kv} is given twice");
        }
        let tokenizer = Tokenizer::from_metadata(a.metadata())?;
        let (model, other) = (load::model(a)?, b.map(load::model).transpose()?);
        if let Some(b) = b {
            same_tokens(&tokenizer, &Tokenizer::from_metadata(b.metadata())?)?;
        }
        let models = || [Some(&model), other.as_ref()].into_iter().flatten();
        let own = models().map(|m| m.config().context_length).fold(CONTEXT, usize::min);
        let context = args.context.unwrap_or(own);
        models().for_each(|m| texts::note_length("--context", context, m));
        let (half, room) = (context / 2, context - context / 2);
        let greedy = args.greedy.unwrap_or(GREEDY.min(room));
        if greedy > room {
            bail!(
                "--greedy {greedy} after {half} tokens is more than a context of {context}; at most {room} fit"
            );
        }
        let candidates = if args.b_kv.is_empty() { vec![args.a_kv] } else { args.b_kv.clone() };
        Ok(Self { tokenizer, model, other, context, greedy, candidates })
    }

    fn comparer(&self, args: &CompareArgs) -> Result<Comparer> {
        let engine_args = |wish: Wish, kv| EngineArgs {
            device: wish.device,
            threads: wish.threads,
            context: Some(self.context),
            chunk: args.chunk,
            kv,
            isa: wish.isa,
            silent: false,
        };
        let wish = Wish { device: args.a_device, threads: args.a_threads, isa: args.a_isa };
        let other_wish =
            Wish { device: args.b_device.unwrap_or(args.a_device), threads: args.b_threads, isa: args.b_isa };
        let model = self.other.as_ref().unwrap_or(&self.model);
        let name = format!("{}, cache {}", file_name(&args.model), args.a_kv);
        let reference = Ready::new(&self.model, &engine_args(wish, args.a_kv))?;
        let candidates = self.candidates.iter().map(|&kv| Ready::new(model, &engine_args(other_wish, kv)));
        let candidates = candidates.collect::<Result<Vec<_>>>()?;
        let wanted: Vec<_> = candidates.iter().map(Ready::wanted).collect();
        // What runs one model in one way shares a backend, so on a GPU the weights.
        let shared = (wish == other_wish && self.other.is_none())
            .then(|| chosen("A and B", wish, (model, &[&[reference.wanted()], &wanted[..]].concat())))
            .transpose()?;
        let backend = match &shared {
            Some(shared) => Arc::clone(shared),
            None => chosen("A", wish, (&self.model, &[reference.wanted()]))?,
        };
        let reference = reference.open(name, &*backend)?;
        // Chosen when A is open: it has what A leaves.
        let backend = match shared {
            Some(shared) => shared,
            None => chosen("B", other_wish, (model, &wanted))?,
        };
        let names = self.candidates.iter().map(|&kv| candidate_name(args, kv));
        let candidates = candidates.into_iter().zip(names).map(|(c, name)| c.open(name, &*backend));
        Ok(Comparer::new(reference, candidates.collect::<Result<_>>()?)?)
    }
}

/// What tells a candidate from the others and from the reference.
fn candidate_name(args: &CompareArgs, kv: RecordOptions) -> String {
    let mut parts: Vec<String> = args.other.iter().map(|path| file_name(path)).collect();
    parts.push(kv.to_string());
    parts.extend(args.b_device.map(|device| device.to_string()));
    parts.extend(args.b_threads.map(|n| plural(n, "thread")));
    parts.extend(args.b_isa.map(|isa| format!("{isa:?}").to_lowercase()));
    parts.join(", ")
}

fn file_name(path: &Path) -> String {
    let name =
        path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned());
    terminal::safe(&name)
}

/// The backend of A or B; says which it is where that was left open.
fn chosen(name: &str, wish: Wish, (model, wanted): (&Model, &[Wanted<'_>])) -> Result<Arc<dyn Backend>> {
    let chosen = wish.backend(model, wanted)?;
    if chosen.why.is_some() {
        terminal::note(&terminal::dim(&format!("{name} {}", chosen.line())));
    }
    Ok(chosen.backend)
}

/// A plan of a model that is to be opened.
struct Ready<'a> {
    model: &'a Model,
    plan: Arc<Plan>,
    sizes: EngineOptions,
}

impl<'a> Ready<'a> {
    fn new(model: &'a Model, args: &EngineArgs) -> Result<Self> {
        let plan = Arc::new(Plan::compile(model.record(&args.kv)?, Passes::ALL));
        let logit_rows = (LOGITS / plan.recording.logits.width.max(1)).clamp(1, LOGIT_ROWS);
        // The end of a chunk's first half, where greedy runs begin, and its own end.
        let cache = CacheOptions { windows: WindowPolicy::Drop { ends: 2 }, ..CacheOptions::default() };
        let sizes = EngineOptions { cache, ..args.sizes(model, logit_rows)? };
        Ok(Self { model, plan, sizes })
    }

    fn wanted(&self) -> Wanted<'_> {
        (&self.plan, self.sizes)
    }

    fn open(self, name: String, backend: &dyn Backend) -> Result<Side> {
        let engine = session::open(self.model, Arc::clone(&self.plan), (backend, self.sizes))?;
        Ok(Side { name, engine, plan: self.plan })
    }
}

/// Distributions can be compared only over the same tokens.
fn same_tokens(a: &Tokenizer, b: &Tokenizer) -> Result<()> {
    if a.vocab_len() != b.vocab_len() {
        bail!(
            "A has a vocabulary of {} tokens and B one of {}: only models with the same tokens can be compared",
            a.vocab_len(),
            b.vocab_len()
        );
    }
    let ids = 0..u32::try_from(a.vocab_len())?;
    match ids.into_iter().find(|&id| a.token_bytes(id) != b.token_bytes(id)) {
        None => Ok(()),
        Some(id) => bail!(
            "token {id} is {:?} in A and {:?} in B: only models with the same tokens can be compared",
            a.token_text(id),
            b.token_text(id)
        ),
    }
}

fn read(args: &CompareArgs, setup: &Setup, mut comparer: Comparer, chunks: &[&[u32]]) -> Result<Comparison> {
    let bos = start_of_text(&setup.tokenizer);
    let prompts = args.prompts.min(chunks.len());
    let with_run: Vec<usize> = (0..prompts).map(|i| i * chunks.len() / prompts).collect();
    let mut progress = Progress::new(chunks.len());
    let go_on = &mut || !interrupt::pressed();
    for (i, chunk) in chunks.iter().enumerate() {
        let mut whole = comparer.chunk(chunk, bos, go_on)?;
        if whole && with_run.contains(&i) {
            let run = (setup.greedy, setup.tokenizer.stop_ids());
            whole = comparer.greedy((chunk, bos), run, go_on)?;
        }
        if !whole {
            progress.clear();
            bail!("stopped after {i} of {} chunks", chunks.len());
        }
        progress.advance(chunk.len(), &Likelihood::default());
    }
    progress.clear();
    Ok(comparer.finish())
}

/// What was read, and how, for people.
fn facts(args: &CompareArgs, setup: &Setup) -> Vec<String> {
    let mut facts =
        vec![format!("text {}", args.text.display()), format!("chunks of {} tokens", setup.context)];
    facts.extend(args.other.as_ref().map(|other| format!("measured: {}", file_name(other))));
    facts
}
