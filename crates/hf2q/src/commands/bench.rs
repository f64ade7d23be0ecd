//! `hf2q bench`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use hf2q_engine::{Engine, LogitRows, SequenceId};
use hf2q_model::{Model, synthetic};
use hf2q_observe::scattered_tokens;
use hf2q_plan::{Backend, Passes, Plan};
use serde_json::json;

use crate::args::BenchArgs;
use crate::{interrupt, load, memory, session, terminal};

pub(crate) fn run(args: &BenchArgs) -> Result<()> {
    if args.timed.prompt + args.decode == 0 {
        bail!("nothing to measure: --prompt and --decode are both 0");
    }
    let Subject { name, model, .. } = subject(args.timed.model.as_deref(), args.timed.synthetic.as_deref())?;
    let mut engine_args = args.engine.clone();
    let needed = args.timed.depth + args.timed.prompt.max(args.decode) + 1;
    engine_args.context = Some(engine_args.context.unwrap_or(0).max(needed));
    let backend = engine_args.backend()?;
    let plan = Plan::compile(model.record(&engine_args.kv)?, Passes::ALL);
    let (plan, skipped) = plan.without(&args.skip).context("--skip")?;
    let sizes = engine_args.sizes(&model, 1)?;
    let mut engine = session::open(&model, Arc::new(plan), (&backend, sizes))?;
    interrupt::install_once()?;
    let prompt = measure(&mut engine, args, args.timed.prompt, prompt_time)?;
    let decode = measure(&mut engine, args, args.decode, decode_time)?;
    let backend = backend.describe();
    if args.json {
        return print_json(args, (&name, &backend, &skipped), (&prompt, &decode));
    }
    terminal::print_line(&format!("{name}\n{backend}"))?;
    if !skipped.is_empty() {
        terminal::print_line(&format!("without {}: only the time means anything", listed(&skipped)))?;
    }
    terminal::print_line("")?;
    print_row("prompt", args.timed.prompt, args.timed.depth, &prompt)?;
    print_row("decode", args.decode, args.timed.depth, &decode)
}

/// Names of skipped operations that are printed; JSON has all.
const SHOWN: usize = 6;

/// What is measured.
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) model: Model,
    /// None for random weights.
    pub(crate) files: Vec<PathBuf>,
}

/// The model of a file, or one of random weights, if there is memory for it.
pub(crate) fn subject(model: Option<&Path>, synthetic: Option<&str>) -> Result<Subject> {
    match (model, synthetic) {
        (Some(path), _) => {
            let gguf = load::open(path)?;
            let (name, model) = (path.display().to_string(), load::model(&gguf)?);
            Ok(Subject { name, model, files: gguf.paths().to_vec() })
        }
        (None, Some(spec)) => {
            memory::check(&format!("--synthetic {spec}"), synthetic::weight_bytes(spec)?)?;
            let (name, model) = (format!("{spec} (random)"), synthetic::model(spec)?);
            Ok(Subject { name, model, files: Vec::new() })
        }
        (None, None) => bail!("give MODEL or --synthetic"),
    }
}

type Phase = fn(&mut Engine, SequenceId, usize) -> Result<f64>;

/// Tokens per second of each repetition, ascending; one more run before them warms up.
fn measure(engine: &mut Engine, args: &BenchArgs, count: usize, phase: Phase) -> Result<Vec<f64>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let mut rates = Vec::new();
    for repetition in 0..=args.repetitions {
        let sequence = engine.add_sequence()?;
        if args.timed.depth > 0 {
            let before = scattered_tokens(args.timed.depth, engine.vocabulary());
            engine.extend(sequence, &before, LogitRows::None, |_| !interrupt::pressed())?;
        }
        let seconds = phase(engine, sequence, count)?;
        engine.remove_sequence(sequence)?;
        if interrupt::pressed() {
            bail!("stopped");
        }
        if repetition > 0 {
            rates.push(count as f64 / seconds);
        }
    }
    rates.sort_by(f64::total_cmp);
    Ok(rates)
}

fn prompt_time(engine: &mut Engine, sequence: SequenceId, count: usize) -> Result<f64> {
    let text = scattered_tokens(count, engine.vocabulary());
    let started = Instant::now();
    engine.extend(sequence, &text, LogitRows::Last, |_| !interrupt::pressed())?;
    Ok(started.elapsed().as_secs_f64())
}

fn decode_time(engine: &mut Engine, sequence: SequenceId, count: usize) -> Result<f64> {
    let text = scattered_tokens(count, engine.vocabulary());
    let started = Instant::now();
    for &token in &text {
        engine.extend(sequence, &[token], LogitRows::Last, |_| true)?;
        if interrupt::pressed() {
            break;
        }
    }
    Ok(started.elapsed().as_secs_f64())
}

/// Names of operations; of many the first.
fn listed(names: &[String]) -> String {
    let shown = names.len().min(SHOWN);
    match names.len() - shown {
        0 => names.join(", "),
        more => format!("{} operations ({}, and {more} more)", names.len(), names[..shown].join(", ")),
    }
}

fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

fn print_row(what: &str, tokens: usize, depth: usize, rates: &[f64]) -> Result<()> {
    let (Some(median), Some(low), Some(high)) = (median(rates), rates.first(), rates.last()) else {
        return Ok(());
    };
    let at = if depth > 0 { format!(" at depth {depth}") } else { String::new() };
    terminal::print_line(&format!(
        "{what} {tokens}{at}: {median:.1} tok/s  (median of {}; {low:.1} to {high:.1})",
        rates.len()
    ))
}

fn print_json(
    args: &BenchArgs,
    (model, backend, skipped): (&str, &str, &[String]),
    (prompt, decode): (&[f64], &[f64]),
) -> Result<()> {
    let row = |tokens: usize, rates: &[f64]| json!({ "tokens": tokens, "median": median(rates), "tokens_per_second": rates });
    let json = json!({
        "model": model,
        "backend": backend,
        "version": env!("CARGO_PKG_VERSION"),
        "depth": args.timed.depth,
        "skipped": skipped,
        "prompt": row(args.timed.prompt, prompt),
        "decode": row(args.decode, decode),
    });
    terminal::print_json(&json)
}
