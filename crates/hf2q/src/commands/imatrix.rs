//! `hf2q imatrix`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hf2q_convert::Importance;
use hf2q_engine::Engine;
use hf2q_gguf::{Gguf, same_file};
use hf2q_model::RecordOptions;
use hf2q_observe::{Collector, Likelihood, Reading, Scope, read_chunk};
use hf2q_plan::{Passes, Plan};
use hf2q_text::{Specials, Tokenizer};
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::ImatrixArgs;
use crate::{interrupt, load, terminal};

/// Rows whose logits are held at the same time.
const LOGIT_ROWS: usize = 64;

/// Where nobody looks at a bar, a line is printed this often.
const NOTE_EVERY: Duration = Duration::from_secs(10);

pub(crate) fn run(args: &ImatrixArgs) -> Result<()> {
    if args.output.exists() && !args.force {
        bail!("{} exists already; --force replaces it", args.output.display());
    }
    match &args.model {
        Some(model) => measure(args, model),
        None => merge(args),
    }
}

/// Adds up files.
fn merge(args: &ImatrixArgs) -> Result<()> {
    protect(args, &args.merge)?;
    let importance = Importance::open(&args.merge)?;
    write(args, &importance, &args.merge, "")
}

fn measure(args: &ImatrixArgs, model: &Path) -> Result<()> {
    let gguf = load::open(model)?;
    let inputs: Vec<PathBuf> = gguf.paths().iter().chain(&args.texts).chain(&args.in_file).cloned().collect();
    protect(args, &inputs)?;
    // Read before the long work, so that a damaged file is known at once.
    let earlier = if args.in_file.is_empty() { None } else { Some(Importance::open(&args.in_file)?) };
    let tokenizer = Tokenizer::from_metadata(gguf.metadata())?;
    let ids = tokens(args, &tokenizer)?;
    let chunks = chunks(args, &ids)?;
    let (mut engine, mut collector) = open(args, &gguf)?;
    interrupt::install_once()?;
    let how =
        Reading { bos: start_of_text(&tokenizer), all_logits: args.process_output, score: !args.no_ppl };
    let likelihood = read(&mut engine, &mut collector, &chunks, how)?;
    let datasets = args.texts.iter().map(|p| p.display().to_string()).collect();
    let measured = collector.finish(u32::try_from(args.context)?, datasets)?;
    let importance = match earlier {
        Some(mut earlier) => {
            earlier.merge(measured)?;
            earlier
        }
        None => measured,
    };
    let score = match likelihood.error() {
        Some(error) => format!(", perplexity {:.4} +/- {error:.4}", likelihood.perplexity()),
        None => String::new(),
    };
    write(args, &importance, &inputs, &score)
}

/// The output must be none of the inputs; said before the work begins.
fn protect(args: &ImatrixArgs, inputs: &[PathBuf]) -> Result<()> {
    match inputs.iter().find(|input| same_file(input, &args.output)) {
        Some(input) => bail!("{} is read and cannot be the output; give another --output", input.display()),
        None => Ok(()),
    }
}

fn write(args: &ImatrixArgs, importance: &Importance, inputs: &[PathBuf], score: &str) -> Result<()> {
    let inputs: Vec<&Path> = inputs.iter().map(PathBuf::as_path).collect();
    interrupt::install_once()?;
    interrupt::tidily(|| importance.write(&args.output, &inputs))?;
    for warning in importance.warnings().iter().chain(&importance.unrouted()) {
        terminal::note(&format!("note: {warning}"));
    }
    let (tensors, chunks) = (importance.names().len(), importance.chunk_count());
    let of = importance.chunk_size().map(|n| format!(" of {n} tokens")).unwrap_or_default();
    let output = args.output.display();
    terminal::print_line(&format!("Wrote {output}: {tensors} tensors, {chunks} chunks{of}{score}"))
}

/// The tokens of all texts, one after another.
fn tokens(args: &ImatrixArgs, tokenizer: &Tokenizer) -> Result<Vec<u32>> {
    let specials = if args.parse_special { Specials::Parse } else { Specials::AsText };
    let mut ids = Vec::new();
    for path in &args.texts {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        ids.extend(tokenizer.encode_prompt(text.strip_suffix('\n').unwrap_or(&text), specials));
    }
    Ok(ids)
}

/// Whole chunks; what is left of the text is not read.
fn chunks<'a>(args: &ImatrixArgs, ids: &'a [u32]) -> Result<Vec<&'a [u32]>> {
    let all = ids.chunks_exact(args.context);
    let count = all.len();
    let chunks: Vec<&[u32]> = all.skip(args.from_chunk).take(args.chunks.unwrap_or(usize::MAX)).collect();
    if chunks.is_empty() {
        bail!(
            "the text has {} tokens, that is {count} chunks of {}, and {} are skipped: nothing to measure; give a longer text or a smaller --context",
            ids.len(),
            args.context,
            args.from_chunk.min(count)
        );
    }
    Ok(chunks)
}

/// The token that a text of this model starts with.
pub(super) fn start_of_text(tokenizer: &Tokenizer) -> Option<u32> {
    let ends = tokenizer.encode_prompt("", Specials::AsText);
    tokenizer.bos().filter(|bos| ends.first() == Some(bos))
}

fn open(args: &ImatrixArgs, gguf: &Gguf) -> Result<(Engine, Collector)> {
    let model = load::model(gguf)?;
    let engine_args = args.engine();
    let recording = model.record(&RecordOptions { all_rows: true, ..engine_args.kv })?;
    let weights = model.weights_for(&recording);
    // As the model records it: every input of a product is an activation, whatever is fused elsewhere.
    let plan = Arc::new(Plan::compile(recording, Passes::NONE));
    let scope = if args.process_output { Scope::LayersAndOutput } else { Scope::Layers };
    let collector = Collector::new(Arc::clone(&plan), scope);
    let sizes = engine_args.sizes(&model, LOGIT_ROWS)?;
    Ok((Engine::open(&engine_args.backend()?, plan, weights, sizes)?, collector))
}

fn read(
    engine: &mut Engine,
    collector: &mut Collector,
    chunks: &[&[u32]],
    how: Reading,
) -> Result<Likelihood> {
    let mut progress = Progress::new(chunks.len());
    let mut likelihood = Likelihood::default();
    for (i, chunk) in chunks.iter().enumerate() {
        let Some(of_chunk) = read_chunk(engine, chunk, how, collector, &mut || !interrupt::pressed())? else {
            progress.bar.finish_and_clear();
            bail!("stopped after {i} of {} chunks; nothing was written", chunks.len());
        };
        collector.check()?;
        likelihood.merge(&of_chunk);
        progress.advance(chunk.len(), &likelihood);
    }
    progress.bar.finish_and_clear();
    Ok(likelihood)
}

/// A bar where a person looks, else a line now and then.
pub(super) struct Progress {
    pub(super) bar: ProgressBar,
    started: Instant,
    noted: Instant,
    tokens: usize,
}

impl Progress {
    pub(super) fn new(chunks: usize) -> Self {
        let bar = ProgressBar::new(chunks as u64);
        if let Ok(style) = ProgressStyle::with_template("{bar:20} {pos}/{len} chunks  {wide_msg}") {
            bar.set_style(style);
        }
        bar.tick();
        Self { bar, started: Instant::now(), noted: Instant::now(), tokens: 0 }
    }

    pub(super) fn advance(&mut self, tokens: usize, likelihood: &Likelihood) {
        self.tokens += tokens;
        let (done, all) = (self.bar.position() + 1, self.bar.length().unwrap_or(0));
        let seconds = self.started.elapsed().as_secs_f64();
        let left = seconds / done as f64 * all.saturating_sub(done) as f64;
        let mut message =
            format!("{:.0} tokens/s  {} left", self.tokens as f64 / seconds.max(1e-9), clock(left));
        if likelihood.tokens > 0 {
            message += &format!("  perplexity {:.4}", likelihood.perplexity());
        }
        self.bar.set_position(done);
        if self.bar.is_hidden() && self.noted.elapsed() >= NOTE_EVERY {
            self.noted = Instant::now();
            terminal::note(&format!("{done} of {all} chunks  {message}"));
        }
        self.bar.set_message(message);
    }
}

/// Hours, minutes and seconds.
fn clock(seconds: f64) -> String {
    let s = seconds.round() as u64;
    let (h, m, s) = (s / 3600, s / 60 % 60, s % 60);
    if h > 0 { format!("{h}:{m:02}:{s:02}") } else { format!("{m}:{s:02}") }
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_are_read_as_on_a_clock() {
        assert_eq!([0.4, 61.0, 3600.0, 36_065.0].map(super::clock), ["0:00", "1:01", "1:00:00", "10:01:05"]);
    }
}
