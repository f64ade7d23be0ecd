//! What drafts are good for: the same answer with and without them, in turn.

use std::path::Path;

use anyhow::{Result, bail};
use hf2q_engine::{DraftStats, Sampler, Sampling};
use hf2q_text::Specials;
use serde_json::json;

use super::measure::median;
use crate::args::{BenchArgs, DraftArgs, SamplingArgs};
use crate::commands::run::by_depth;
use crate::session::{Session, Timing};
use crate::{interrupt, load, terminal};

/// Answers the text of a file by the most likely tokens.
pub(super) fn run(args: &BenchArgs, model: &Path, text: &Path) -> Result<()> {
    let gguf = load::open(model)?;
    let mut plain = Session::open(&gguf, &args.engine, &DraftArgs::none())?;
    let mut drafted = Session::open(&gguf, &args.engine, &args.drafts)?;
    let text = std::fs::read_to_string(text)
        .map_err(|error| anyhow::anyhow!("--text {}: {error}", text.display()))?;
    let prompt = match plain.template {
        Some(_) => plain.chat_prompt(&[json!({ "role": "user", "content": text })])?,
        None => plain.tokenizer.encode_prompt(&text, Specials::AsText),
    };
    interrupt::install_once()?;
    let mut pairs = Pairs::default();
    for repetition in 0..=args.repetitions {
        let (a, b) = (answer(&mut plain, &prompt, args)?, answer(&mut drafted, &prompt, args)?);
        if a.0 != b.0 {
            bail!("the answers differ with and without drafts: this is a defect");
        }
        if repetition > 0 {
            pairs.add(&a.1, &b.1);
        }
    }
    pairs.report(args, (model, &drafted.backend), &drafted.draft_stats())
}

fn answer(session: &mut Session, prompt: &[u32], args: &BenchArgs) -> Result<(String, Timing)> {
    let sampler = Sampler::new(Sampling::default())?;
    let answer = session.answer(prompt, &sampler, &SamplingArgs::for_demo(args.decode), |_| Ok(()))?;
    if interrupt::pressed() {
        bail!("stopped");
    }
    if answer.timing.answer_tokens < 2 {
        bail!("the answer to --text has no two tokens; ask for something longer");
    }
    Ok((answer.text, answer.timing))
}

/// Tokens a second of each run.
#[derive(Default)]
struct Pairs {
    plain: Vec<f64>,
    drafted: Vec<f64>,
    ratios: Vec<f64>,
    /// Seconds that drafts saved of an answer.
    saved: Vec<f64>,
    tokens: usize,
}

impl Pairs {
    fn add(&mut self, plain: &Timing, drafted: &Timing) {
        // The first token comes with the prompt.
        let rate = |t: &Timing| (t.answer_tokens - 1) as f64 / t.answer_time.as_secs_f64().max(1e-9);
        self.plain.push(rate(plain));
        self.drafted.push(rate(drafted));
        self.saved.push(plain.answer_time.as_secs_f64() - drafted.answer_time.as_secs_f64());
        self.ratios.push(rate(drafted) / rate(plain));
        self.tokens = plain.answer_tokens;
    }

    fn report(&self, args: &BenchArgs, (model, backend): (&Path, &str), stats: &DraftStats) -> Result<()> {
        let [plain, drafted, ratio, saved] = [&self.plain, &self.drafted, &self.ratios, &self.saved]
            .map(|values| median(values).unwrap_or(0.0));
        // Of all runs, the first one included.
        let answers = (self.tokens - 1) as f64 * (args.repetitions + 1) as f64;
        let per_step = answers / (answers - stats.accepted as f64);
        let share = |&(had, right): &(u64, u64)| right as f64 / had.max(1) as f64;
        if args.json {
            return terminal::print_json(&json!({
                "model": model.display().to_string(),
                "backend": backend,
                "version": env!("CARGO_PKG_VERSION"),
                "drafter": stats.drafter,
                "answer": self.tokens,
                "plain": { "median": plain, "tokens_per_second": self.plain },
                "drafted": { "median": drafted, "tokens_per_second": self.drafted },
                "ratio": ratio,
                "ratios": self.ratios,
                "tokens_per_step": per_step,
                "guessed": stats.drafted,
                "right": stats.accepted,
                "right_by_depth": stats.levels.iter().map(share).collect::<Vec<_>>(),
                "drafting_seconds": stats.seconds,
                "saved_seconds": saved,
            }));
        }
        terminal::print_line(&format!("{}\n{backend}\n", model.display()))?;
        let head = ["", "tok/s", "tokens a step"];
        let mut table = vec![head.map(str::to_owned).to_vec()];
        for (name, rate, step) in
            [("without drafts", plain, 1.0), (&format!("with {}", stats.drafter), drafted, per_step)]
        {
            table.push(vec![name.to_owned(), format!("{rate:.1}"), format!("{step:.2}")]);
        }
        terminal::print_table(&table, 1)?;
        terminal::print_line(&format!(
            "\n{ratio:.2} times as fast (median of {} pairs, an answer of {} tokens); {} of {} guesses right,\nin percent by depth: {}; {:.2} s of each answer {}",
            args.repetitions,
            self.tokens,
            stats.accepted,
            stats.drafted,
            by_depth(&stats.levels),
            saved.abs(),
            if saved < 0.0 { "lost" } else { "saved" }
        ))
    }
}
