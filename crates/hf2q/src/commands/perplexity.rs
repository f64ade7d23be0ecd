//! `hf2q perplexity`.

use anyhow::{Context, Result, bail};
use hf2q_engine::{Engine, LogitRows};
use hf2q_observe::Likelihood;
use hf2q_text::{Specials, Tokenizer};
use serde_json::json;

use crate::args::PerplexityArgs;
use crate::{interrupt, load, terminal};

/// Rows whose logits are held at the same time.
const LOGIT_ROWS: usize = 64;

pub(crate) fn run(args: &PerplexityArgs) -> Result<()> {
    let text = std::fs::read_to_string(&args.file).with_context(|| args.file.display().to_string())?;
    let gguf = load::open(&args.model)?;
    let tokenizer = Tokenizer::from_metadata(gguf.metadata())?;
    let model = load::model(&gguf)?;
    let bos = tokenizer.bos();
    let ids = tokenizer.encode(&text, Specials::AsText);
    // Without a beginning-of-text token the first token of a chunk is given, not predicted.
    if ids.len().min(args.tokens) + usize::from(bos.is_some()) < 2 {
        bail!(
            "{}: nothing to predict: {} tokens in chunks of {}",
            args.file.display(),
            ids.len(),
            args.tokens
        );
    }
    let mut engine_args = args.engine.clone();
    engine_args.context = Some(engine_args.context.unwrap_or(0).max(args.tokens + 1));
    let sizes = engine_args.sizes(&model, LOGIT_ROWS)?;
    let (mut engine, _) = engine_args.engine(&model, sizes)?;
    interrupt::install_once()?;
    let mut sum = Likelihood::default();
    for chunk in ids.chunks(args.tokens) {
        add(&mut sum, &mut engine, bos, chunk)?;
        terminal::note(&terminal::dim(&format!(
            "{} of {} tokens: {:.4}",
            sum.tokens,
            ids.len(),
            sum.perplexity()
        )));
        if interrupt::pressed() {
            bail!("stopped after {} of {} tokens", sum.tokens, ids.len());
        }
    }
    if args.json {
        let json = json!({ "perplexity": sum.perplexity(), "nll": sum.sum, "tokens": sum.tokens, "chunk": args.tokens });
        return terminal::print_line(&json.to_string());
    }
    terminal::print_line(&format!(
        "perplexity {:.4} over {} tokens in chunks of {}",
        sum.perplexity(),
        sum.tokens,
        args.tokens
    ))
}

/// Predicts each token of a chunk from those before it; without a beginning-of-text token the first is given.
fn add(found: &mut Likelihood, engine: &mut Engine, bos: Option<u32>, chunk: &[u32]) -> Result<()> {
    let given: Vec<u32> = bos.into_iter().chain(chunk.iter().copied()).collect();
    let mut wanted = given[1..].iter();
    let sequence = engine.add_sequence()?;
    let mut part = Likelihood::default();
    engine.extend(sequence, &given[..given.len() - 1], LogitRows::All, |logits| {
        if let Some(&token) = wanted.next() {
            part.add(logits, &[token]);
        }
        !interrupt::pressed()
    })?;
    engine.remove_sequence(sequence)?;
    found.merge(&part);
    Ok(())
}
