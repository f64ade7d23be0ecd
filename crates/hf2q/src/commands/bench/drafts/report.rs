//! What was measured, as text or JSON.

use std::path::Path;

use anyhow::Result;
use hf2q_engine::DraftStats;
use serde_json::{Value, json};

use super::turns::{Pairs, TURN};
use crate::args::BenchArgs;
use crate::commands::bench::measure::{interval, median};
use crate::commands::bench::output::ends;
use crate::commands::run::by_depth;
use crate::terminal;

/// All answers.
#[derive(Debug, Default)]
pub(super) struct Measured {
    /// Where they were computed.
    pub(super) backend: String,
    drafter: String,
    answers: Vec<Pairs>,
    /// By level: drafts that had it, and those whose token there was drawn.
    levels: Vec<(u64, u64)>,
    /// Seconds that the drafter took for each answer.
    drafting: Vec<f64>,
}

/// How many times as fast drafts make it, by some measure.
struct Ratio {
    all: Vec<f64>,
    /// `None` where nothing was measured.
    found: Option<Found>,
}

struct Found {
    median: f64,
    least: f64,
    most: f64,
    interval: Option<(f64, f64)>,
}

impl Ratio {
    fn new(all: Vec<f64>) -> Self {
        let (least, most) = ends(&all);
        let found = median(&all).map(|median| Found { median, least, most, interval: interval(&all) });
        Self { all, found }
    }

    fn json(&self) -> Value {
        let of = |value: fn(&Found) -> f64| self.found.as_ref().map(value);
        let interval = self.found.as_ref().and_then(|f| f.interval).map(|(low, high)| [low, high]);
        json!({
            "median": of(|f| f.median), "least": of(|f| f.least), "most": of(|f| f.most),
            "interval": interval, "count": self.all.len(),
        })
    }

    /// The median and between what it lies for all that could be measured; of nothing nothing.
    fn text(&self, what: &str, more: &str) -> String {
        let Some(Found { median, least, most, interval }) = &self.found else { return String::new() };
        let sure = interval.map_or(String::new(), |(low, high)| {
            format!(", of {more} with a certainty of 95 % between {low:.3} and {high:.3}")
        });
        format!(
            "\ntimes as fast, median of {} {what}: {median:.3}{sure}\n  (the least {least:.3}, the most {most:.3})",
            self.all.len()
        )
    }
}

impl Measured {
    pub(super) fn add(&mut self, answer: Pairs, stats: &DraftStats) {
        self.drafter.clone_from(&stats.drafter);
        self.drafting.push(stats.seconds);
        self.levels.resize(self.levels.len().max(stats.levels.len()), (0, 0));
        for (sum, level) in self.levels.iter_mut().zip(&stats.levels) {
            *sum = (sum.0 + level.0, sum.1 + level.1);
        }
        self.answers.push(answer);
    }

    fn of(&self, value: impl Fn(&Pairs) -> f64) -> Vec<f64> {
        self.answers.iter().map(value).collect()
    }

    fn sum(&self, value: impl Fn(&Pairs) -> usize) -> usize {
        self.answers.iter().map(value).sum()
    }

    pub(super) fn report(&self, args: &BenchArgs, model: &Path) -> Result<()> {
        let ratios = Ratio::new(self.of(|a| a.plain.seconds / a.drafted.seconds.max(1e-9)));
        let pairs = Ratio::new(self.answers.iter().flat_map(|a| a.ratios.iter().copied()).collect());
        if args.json { self.json(&ratios, &pairs, model) } else { self.text(&ratios, &pairs, (args, model)) }
    }

    /// Tokens that a step with drafts gives.
    fn per_step(&self) -> f64 {
        self.sum(|a| a.usage.answer_tokens) as f64 / self.sum(|a| a.drafts.steps).max(1) as f64
    }

    /// Seconds that drafts saved of an answer, the middle one.
    fn saved(&self) -> f64 {
        median(&self.of(|a| a.plain.seconds - a.drafted.seconds)).unwrap_or(0.0)
    }

    fn json(&self, ratios: &Ratio, pairs: &Ratio, model: &Path) -> Result<()> {
        let [plain, drafted] = [self.of(|a| a.plain.rate()), self.of(|a| a.drafted.rate())];
        let share = |&(had, right): &(u64, u64)| right as f64 / had.max(1) as f64;
        terminal::print_json(&json!({
            "model": model.display().to_string(),
            "backend": self.backend,
            "version": env!("CARGO_PKG_VERSION"),
            "drafter": self.drafter,
            "answers": self.answers.iter().map(|a| a.usage.answer_tokens).collect::<Vec<_>>(),
            "plain": { "median": median(&plain), "tokens_per_second": plain },
            "drafted": { "median": median(&drafted), "tokens_per_second": drafted },
            "ratio": ratios.json(),
            "ratios": ratios.all,
            "turn": TURN,
            "turn_ratio": pairs.json(),
            "tokens_per_step": self.per_step(),
            "guessed": self.sum(|a| a.usage.drafted_tokens),
            "right": self.sum(|a| a.usage.accepted_tokens),
            "right_by_depth": self.levels.iter().map(share).collect::<Vec<_>>(),
            "drafting_seconds": median(&self.drafting),
            "saved_seconds": self.saved(),
        }))
    }

    fn text(&self, ratios: &Ratio, pairs: &Ratio, (args, model): (&BenchArgs, &Path)) -> Result<()> {
        terminal::print_line(&format!("{}\n{}\n", model.display(), self.backend))?;
        let rate = |rates: Vec<f64>| format!("{:.1}", median(&rates).unwrap_or(0.0));
        let row = |name: &str, rate: String, step: f64| vec![name.to_owned(), rate, format!("{step:.2}")];
        let table = [
            ["", "tok/s", "tokens a step"].map(str::to_owned).to_vec(),
            row("without drafts", rate(self.of(|a| a.plain.rate())), 1.0),
            row(&format!("with {}", self.drafter), rate(self.of(|a| a.drafted.rate())), self.per_step()),
        ];
        terminal::print_table(&table, 1)?;
        let tokens = median(&self.of(|a| a.usage.answer_tokens as f64)).unwrap_or(0.0);
        // The same answer again says nothing of others.
        let drawn = args.draws.temperature.is_some_and(|t| t > 0.0);
        let more = if drawn { "answers drawn like these" } else { "this answer measured again" };
        let answers = ratios.text(&format!("answers of {tokens} tokens"), more);
        // Steps with drafts go beyond the ends of turns, which the other one's next turn catches up with.
        let turns = pairs.text(&format!("turns of about {TURN} tokens ({} at least)", TURN / 2), more);
        let saved = self.saved();
        terminal::print_line(&format!(
            "{answers}{turns}\n{} of {} guesses right, in percent by depth: {};\n{:.2} s of each answer {}",
            self.sum(|a| a.usage.accepted_tokens),
            self.sum(|a| a.usage.drafted_tokens),
            by_depth(&self.levels),
            saved.abs(),
            if saved < 0.0 { "lost" } else { "saved" }
        ))
    }
}
