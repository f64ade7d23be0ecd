//! `hf2q imatrix`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, bail};
use hf2q_convert::Importance;
use hf2q_engine::Engine;
use hf2q_gguf::Gguf;
use hf2q_model::RecordOptions;
use hf2q_observe::{Collector, Likelihood, Reading, Scope, read_chunk};
use hf2q_plan::{Passes, Plan};
use hf2q_text::{Specials, Tokenizer};

use super::texts::{self, start_of_text};
use crate::args::ImatrixArgs;
use crate::progress::Progress;
use crate::{interrupt, load, output, session, terminal};

/// Rows whose logits are held at the same time.
const LOGIT_ROWS: usize = 64;

pub(crate) fn run(args: &ImatrixArgs) -> Result<()> {
    output::check("--output", &args.output, args.force)?;
    match &args.model {
        Some(model) => measure(args, model),
        None => merge(args),
    }
}

/// Adds up files.
fn merge(args: &ImatrixArgs) -> Result<()> {
    output::is_no_input("--output", &args.output, &args.merge)?;
    let importance = Importance::open(&args.merge)?;
    write(args, &importance, &args.merge, "")
}

fn measure(args: &ImatrixArgs, model: &Path) -> Result<()> {
    let gguf = load::open(model)?;
    let inputs: Vec<PathBuf> = gguf.paths().iter().chain(&args.texts).chain(&args.in_file).cloned().collect();
    output::is_no_input("--output", &args.output, &inputs)?;
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
        let text = texts::read(path)?;
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

fn open(args: &ImatrixArgs, gguf: &Gguf) -> Result<(Engine, Collector)> {
    let model = load::model(gguf)?;
    let engine_args = args.engine();
    let recording = model.record(&RecordOptions { all_rows: true, ..engine_args.kv })?;
    // As the model records it: every input of a product is an activation, whatever is fused elsewhere.
    let plan = Arc::new(Plan::compile(recording, Passes::NONE));
    let scope = if args.process_output { Scope::LayersAndOutput } else { Scope::Layers };
    let collector = Collector::new(Arc::clone(&plan), scope);
    let sizes = engine_args.sizes(&model, LOGIT_ROWS)?;
    let backend = engine_args.backend(&model, &[(&plan, sizes)])?;
    Ok((session::open(&model, plan, (&*backend, sizes))?, collector))
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
            progress.clear();
            bail!("stopped after {i} of {} chunks; nothing was written", chunks.len());
        };
        collector.check()?;
        likelihood.merge(&of_chunk);
        progress.advance(chunk.len(), &likelihood);
    }
    progress.clear();
    Ok(likelihood)
}
