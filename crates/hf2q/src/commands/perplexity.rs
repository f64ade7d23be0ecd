//! `hf2q perplexity`.

use anyhow::{Result, bail};
use hf2q_convert::report::plural;
use hf2q_observe::{Likelihood, Window, read_window, windows};
use hf2q_text::{Specials, Tokenizer};
use serde_json::json;

use super::texts;
use crate::args::PerplexityArgs;
use crate::progress::Progress;
use crate::{interrupt, load, terminal};

/// Rows whose logits are held at the same time.
const LOGIT_ROWS: usize = 64;

pub(crate) fn run(args: &PerplexityArgs) -> Result<()> {
    let stride = args.stride.unwrap_or(args.tokens);
    if stride > args.tokens {
        bail!(
            "--stride {stride} leaves out tokens between windows of --tokens {}; give a smaller one",
            args.tokens
        );
    }
    let text = texts::read(&args.file)?;
    let gguf = load::open(&args.model)?;
    let tokenizer = Tokenizer::from_metadata(gguf.metadata())?;
    let model = load::model(&gguf)?;
    let bos = tokenizer.bos();
    let ids = tokenizer.encode(&text, Specials::AsText);
    let windows = windows(ids.len(), args.tokens, stride);
    let longest = ids.len().min(args.tokens);
    // Without a beginning-of-text token the first token of a window is given, not predicted.
    if longest + usize::from(bos.is_some()) < 2 {
        bail!(
            "{}: nothing to predict: {} in windows of {}",
            args.file.display(),
            plural(ids.len(), "token"),
            args.tokens
        );
    }
    texts::note_length("--tokens", longest, &model);
    let engine_args = args.engine(longest);
    let (mut engine, _) = engine_args.engine(&model, engine_args.sizes(&model, LOGIT_ROWS)?)?;
    interrupt::install_once()?;
    let mut sum = Likelihood::default();
    let mut progress = Progress::new(windows.len());
    for Window { tokens, scored_from } in &windows {
        let skipped = scored_from - tokens.start;
        let part = (bos, &ids[tokens.clone()]);
        match read_window(&mut engine, part, skipped, &mut || !interrupt::pressed())? {
            Some(found) => sum.merge(&found),
            None => {
                progress.clear();
                bail!("stopped after {} of {} tokens", sum.tokens, ids.len())
            }
        }
        progress.advance(tokens.len(), &sum);
    }
    progress.clear();
    if args.json {
        return print_json(args, (&sum, stride), windows.len());
    }
    let error = sum.error().map(|e| format!(" +/- {e:.4}")).unwrap_or_default();
    let how = if stride < args.tokens { format!(", {stride} apart") } else { String::new() };
    terminal::print_line(&format!(
        "perplexity {:.4}{error} over {} in windows of {}{how}",
        sum.perplexity(),
        plural(sum.tokens, "token"),
        args.tokens
    ))
}

fn print_json(args: &PerplexityArgs, (sum, stride): (&Likelihood, usize), windows: usize) -> Result<()> {
    let json = json!({
        "model": args.model.display().to_string(),
        "file": args.file.display().to_string(),
        "kv": args.kv.to_string(),
        "perplexity": sum.perplexity(),
        "perplexity_error": sum.error(),
        "nll": sum.sum,
        "nll_mean": sum.mean(),
        "nll_error": sum.mean_error(),
        "bits_per_token": sum.mean() / std::f64::consts::LN_2,
        "tokens": sum.tokens,
        "window": args.tokens,
        "stride": stride,
        "windows": windows,
    });
    terminal::print_json(&json)
}
