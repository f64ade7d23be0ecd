//! What drafts are good for: the same answer with and without them, some tokens of each in turn.

mod report;
mod turns;

use std::path::Path;

use anyhow::{Result, bail};
use hf2q_engine::DraftStats;
use hf2q_gguf::Gguf;
use hf2q_model::Model;
use hf2q_text::Specials;
use serde_json::json;

use self::report::Measured;
use self::turns::Side;
use crate::args::{BenchArgs, DraftArgs, EngineArgs, SamplingArgs};
use crate::commands::texts;
use crate::session::Session;
use crate::{interrupt, load};

/// Tokens of the shortest answer that has a time.
const LEAST: usize = 2;

/// Answers the text of a file. Every repetition begins with new engines, so that nothing is known of the answer before.
pub(super) fn run(args: &BenchArgs, path: &Path, text: &Path) -> Result<()> {
    if args.decode < LEAST {
        bail!(
            "-n {}: an answer of at least {LEAST} tokens is timed, since the first one comes with the prompt",
            args.decode
        );
    }
    let words = texts::read(text)?;
    if words.trim().is_empty() {
        bail!("--text {}: the file is empty; give a message to answer", text.display());
    }
    let gguf = load::open(path)?;
    let model = load::model(&gguf)?;
    interrupt::install_once()?;
    let mut measured = Measured::default();
    for repetition in 0..=args.repetitions {
        let answer = Answer { args, words: &words, repetition };
        let (pairs, stats) = answer.measure(&gguf, &model, &mut measured)?;
        // The first one warms up.
        if repetition > 0 {
            measured.add(pairs, &stats);
        }
    }
    measured.report(args, path)
}

/// An answer that is measured.
struct Answer<'a> {
    args: &'a BenchArgs,
    words: &'a str,
    /// From 0, which is not counted.
    repetition: usize,
}

impl Answer<'_> {
    fn measure(
        &self,
        gguf: &Gguf,
        model: &Model,
        measured: &mut Measured,
    ) -> Result<(turns::Pairs, DraftStats)> {
        // Where it is computed is said once.
        let engine = EngineArgs { silent: self.repetition > 0, ..self.args.engine.clone() };
        let mut drafted = Session::of_model(gguf, model, (&engine, &self.args.drafts))?;
        let engine = EngineArgs { silent: true, ..engine };
        let mut plain = Session::of_model(gguf, model, (&engine, &DraftArgs::none()))?;
        measured.backend.clone_from(&drafted.backend);
        let prompt = match plain.template {
            Some(_) => plain.chat_prompt(&[json!({ "role": "user", "content": self.words })])?,
            None => plain.tokenizer.encode_prompt(self.words, Specials::AsText),
        };
        let draws = &self.args.draws;
        // Run 0 draws as the first one that counts.
        let further = self.repetition.saturating_sub(1) as u64;
        let sampler = plain.sampler(&SamplingArgs {
            temperature: Some(draws.temperature.unwrap_or(0.0)),
            seed: Some(draws.seed.unwrap_or(0).wrapping_add(further)),
            ..SamplingArgs::for_demo(self.args.decode)
        })?;
        let begin = |session| Side::begin(session, &prompt, (&sampler, self.args.decode));
        let sides = (begin(&mut plain)?, begin(&mut drafted)?);
        let pairs = turns::take(sides, self.repetition.is_multiple_of(2))?;
        Ok((pairs, drafted.draft_stats()))
    }
}
