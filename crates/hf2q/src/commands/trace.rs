//! `hf2q trace`.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use hf2q_convert::report::plural;
use hf2q_engine::Engine;
use hf2q_gguf::{Gguf, write_file};
use hf2q_model::{Model, RecordOptions};
use hf2q_observe::{CodecStats, Histogram, Steps, TensorStats, TraceStep, Tracer, trace};
use hf2q_plan::{Passes, Plan};
use hf2q_quant::kv::Turbo;
use hf2q_text::{Specials, Tokenizer};
use serde_json::{Value, json};

use super::texts;
use crate::args::TraceArgs;
use crate::{interrupt, load, memory, output, session, terminal};

pub(crate) fn run(args: &TraceArgs) -> Result<()> {
    let gguf = load::open(&args.model)?;
    if let Some(output) = &args.output {
        check_output(args, output, &gguf)?;
    }
    let prompt = prompt(args, &gguf)?;
    let steps = args.steps.clone().unwrap_or_else(Steps::all);
    if steps.rows(prompt.len(), args.engine.chunk) == 0 {
        bail!("--steps {steps}: the text has no such steps");
    }
    let model = load::model(&gguf)?;
    // Rows whose logits nobody wants are looked at too.
    let options = RecordOptions { all_rows: true, ..args.engine.kv };
    let passes = if args.no_fusion { Passes::NONE } else { Passes::ALL };
    let plan = Arc::new(Plan::compile(model.record(&options)?, passes));
    let mut tracer = Tracer::new(Arc::clone(&plan), &args.select).context("--select")?;
    let mut engine = open(args, (&model, plan), (prompt.len(), &steps))?;
    check_memory(&tracer, &engine, (prompt.len(), &steps))?;
    interrupt::install_once()?;
    let traced = trace(&mut engine, &mut tracer, (&prompt, &steps), &mut || !interrupt::pressed())?;
    let Some(traced) = traced else { bail!("stopped; nothing was written") };
    if let Some(output) = &args.output {
        write(args, output, (&tracer, &traced))?;
    }
    match (args.stats, args.json) {
        (false, _) => Ok(()),
        (true, false) => terminal::print(&text(&tracer.stats())),
        (true, true) => print_json(args, &tracer.stats(), &traced),
    }
}

fn check_output(args: &TraceArgs, file: &Path, gguf: &Gguf) -> Result<()> {
    output::is_no_input("--output", file, gguf.paths().iter().chain(&args.file))?;
    output::check("--output", file, args.force)
}

fn prompt(args: &TraceArgs, gguf: &Gguf) -> Result<Vec<u32>> {
    let text = match (&args.prompt, &args.file) {
        (Some(text), _) => text.clone(),
        (None, Some(file)) => texts::read(file)?,
        (None, None) => bail!("give --prompt or --file"),
    };
    let tokenizer = Tokenizer::from_metadata(gguf.metadata())?;
    let ids = tokenizer.encode_prompt(&text, if args.special { Specials::Parse } else { Specials::AsText });
    if ids.is_empty() {
        bail!("the text has no tokens");
    }
    Ok(ids)
}

fn open(
    args: &TraceArgs,
    (model, plan): (&Model, Arc<Plan>),
    (prompt, steps): (usize, &Steps),
) -> Result<Engine> {
    let behind =
        steps.count(prompt.div_ceil(args.engine.chunk)).saturating_sub(prompt.div_ceil(args.engine.chunk));
    let (needed, most) = (prompt + behind, model.config().context_length);
    if needed > most {
        bail!(
            "the text and the steps behind it are {needed} tokens, and the model's context is {most}; give a shorter text or fewer --steps"
        );
    }
    let mut engine_args = args.engine.clone();
    engine_args.context = Some(engine_args.context.unwrap_or(0).max(needed));
    let sizes = engine_args.sizes(model, 1)?;
    let backend = engine_args.backend(model, &[(&plan, sizes)])?;
    session::open(model, plan, (&*backend, sizes))
}

/// All that is traced is held until it is written.
fn check_memory(tracer: &Tracer, engine: &Engine, (prompt, steps): (usize, &Steps)) -> Result<()> {
    let rows = steps.rows(prompt, engine.options().rows);
    // Once as it was traced, and once as it is written or counted.
    let needed = 2 * tracer.bytes(rows);
    let what = format!("a trace of {} tensors and {rows} rows", tracer.len());
    memory::check(&what, needed).context("select fewer tensors or steps")
}

fn write(args: &TraceArgs, output: &Path, (tracer, traced): (&Tracer, &[TraceStep])) -> Result<()> {
    let model = args.model.display().to_string();
    let metadata: [(&str, String); 3] =
        [("model", model), ("kv", args.engine.kv.to_string()), ("fused", (!args.no_fusion).to_string())];
    let metadata: HashMap<String, String> = metadata.map(|(key, value)| (key.to_owned(), value)).into();
    let bytes = tracer.safetensors(traced, metadata)?;
    interrupt::tidily(|| write_file(output, &bytes))?;
    terminal::print_line(&format!(
        "Wrote {}: {} of {}, {}",
        output.display(),
        plural(tracer.traced().len(), "tensor"),
        plural(traced.len(), "step"),
        terminal::bytes(bytes.len() as u64)
    ))
}

fn text(stats: &[TensorStats]) -> String {
    let width = stats.iter().map(|s| s.name.len()).max().unwrap_or(0).max(10);
    let mut text = format!(
        "{:<width$} {:>9} {:>10} {:>10} {:>9} {:>10}  {}\n",
        "tensor", "values", "mean", "std", "kurtosis", "max|x|", "-4σ      0      4σ"
    );
    for s in stats {
        text += &format!(
            "{:<width$} {:>9} {:>10.3e} {:>10.3e} {:>9.2} {:>10.3e}  {}\n",
            s.name,
            terminal::count(s.count as u64),
            s.mean,
            s.std,
            s.kurtosis,
            s.max_abs,
            s.histogram.bars().trim_end()
        );
        if s.not_finite > 0 {
            text += &format!("{:<width$} {} values are NaN or infinite\n", "", s.not_finite);
        }
        if let Some(codec) = &s.codec {
            text += &codec_text(codec, width);
        }
    }
    text
}

fn codec_text(codec: &CodecStats, width: usize) -> String {
    let rotated = format!("  rotated, blocks of {}", codec.block);
    // The columns of count, mean and deviation.
    let wide = width + 32;
    let share = |(turbo, share): &(Turbo, f64)| format!("tq{} {:.2} %", turbo.bits(), 100.0 * share);
    let clipped: Vec<String> = codec.clipped.iter().map(share).collect();
    format!(
        "{rotated:<wide$} {:>9.2} {:>10.3e}  {}\n  beyond the outermost level: {}\n",
        codec.kurtosis,
        codec.max_abs,
        codec.histogram.bars().trim_end(),
        clipped.join(", ")
    )
}

fn print_json(args: &TraceArgs, stats: &[TensorStats], traced: &[TraceStep]) -> Result<()> {
    let steps = traced.iter().map(|s| json!({ "step": s.step, "first": s.first, "tokens": s.tokens }));
    let json = json!({
        "model": args.model.display().to_string(),
        "kv": args.engine.kv.to_string(),
        "steps": steps.collect::<Vec<_>>(),
        "histogram_borders": Histogram::borders(),
        "tensors": stats.iter().map(stats_json).collect::<Vec<_>>(),
    });
    terminal::print_json(&json)
}

fn stats_json(s: &TensorStats) -> Value {
    json!({
        "name": s.name,
        "values": s.count,
        "not_finite": s.not_finite,
        "mean": s.mean,
        "std": s.std,
        "kurtosis": s.kurtosis,
        "max_abs": s.max_abs,
        "histogram": s.histogram.0,
        "rotated": s.codec.as_ref().map(codec_json),
    })
}

fn codec_json(codec: &CodecStats) -> Value {
    let clipped = codec.clipped.iter().map(|(turbo, share)| (format!("tq{}", turbo.bits()), json!(share)));
    json!({
        "block": codec.block,
        "kurtosis": codec.kurtosis,
        "max_abs": codec.max_abs,
        "histogram": codec.histogram.0,
        "clipped": clipped.collect::<serde_json::Map<_, _>>(),
    })
}
