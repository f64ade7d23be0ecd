//! What was measured, as tables or JSON.

use anyhow::{Context, Result};
use hf2q_plan::Roofline;
use serde_json::{Value, json};

use super::measure::{Measured, median};
use super::peer::{Peer, Speeds};
use crate::args::BenchArgs;
use crate::terminal::{self, merged};

/// Names of skipped operations that are printed; JSON has all.
const SHOWN: usize = 6;

/// A larger share of the roofline than this says that data came from caches.
const CACHED: f64 = 1.05;

pub(super) struct Report<'a> {
    pub(super) model: &'a str,
    pub(super) backend: &'a str,
    pub(super) skipped: &'a [String],
    pub(super) roofline: Roofline,
    pub(super) prompt: Measured,
    pub(super) decode: Measured,
    pub(super) against: Option<Against<'a>>,
}

/// What another program reached.
pub(super) struct Against<'a> {
    peer: &'a Peer,
    prompt: Pairs,
    decode: Pairs,
}

/// Runs of another program, each with the one of ours before it.
#[derive(Debug, Default)]
struct Pairs {
    rates: Vec<f64>,
    /// Ours over the other one's.
    ratios: Vec<f64>,
}

impl Pairs {
    fn add(&mut self, ours: &Measured, theirs: Option<f64>) -> Result<()> {
        if let Some(&rate) = ours.rates.last() {
            let other = theirs.context("--against: its output has no test of what was asked for")?;
            self.rates.push(other);
            self.ratios.push(rate / other);
        }
        Ok(())
    }

    fn json(&self) -> Value {
        json!({
            "median": median(&self.rates),
            "tokens_per_second": self.rates,
            "ratio": median(&self.ratios),
            "ratios": self.ratios,
        })
    }
}

impl<'a> Against<'a> {
    pub(super) fn new(peer: &'a Peer) -> Self {
        Self { peer, prompt: Pairs::default(), decode: Pairs::default() }
    }

    /// Lets the other program run, after ours has.
    pub(super) fn run(&mut self, (prompt, decode): (&Measured, &Measured)) -> Result<()> {
        let Speeds { prompt: their_prompt, decode: their_decode } = self.peer.run()?;
        self.prompt.add(prompt, their_prompt)?;
        self.decode.add(decode, their_decode)
    }
}

impl Report<'_> {
    pub(super) fn print(&self, args: &BenchArgs) -> Result<()> {
        terminal::print_line(&format!("{}\n{}\n{}", self.model, self.backend, ceiling(&self.roofline)))?;
        if !self.skipped.is_empty() {
            terminal::print_line(&format!("without {}: only the time means anything", listed(self.skipped)))?;
        }
        terminal::print_line("")?;
        let phases = [("prompt", &self.prompt), ("decode", &self.decode)];
        let measured = || phases.into_iter().filter(|(_, m)| !m.rates.is_empty());
        let head = ["", "tok/s", "least", "most", "GB/s", "GFLOP/s", "roofline"];
        let mut table = vec![head.map(str::to_owned).to_vec()];
        table.extend(measured().map(|(what, m)| row(&name(what, m, args), m)));
        terminal::print_table(&table, 1)?;
        let runs = if args.repetitions == 1 {
            "1 run".to_owned()
        } else {
            format!("the median of {} runs", args.repetitions)
        };
        let mut notes = format!("\ntok/s: {runs}; roofline: the least time possible, of that taken");
        if measured().any(|(_, m)| m.of_roofline().is_some_and(|share| share > CACHED)) {
            notes += ";\nmore than 100 %: what is read comes from caches, not from memory";
        }
        terminal::print_line(&notes)?;
        self.against.as_ref().map_or(Ok(()), |against| self.print_against(args, against))
    }

    fn print_against(&self, args: &BenchArgs, against: &Against<'_>) -> Result<()> {
        let head = ["", "hf2q", "llama.cpp", "ratio", "least", "most"];
        let mut table = vec![head.map(str::to_owned).to_vec()];
        for (what, ours, theirs) in
            [("prompt", &self.prompt, &against.prompt), ("decode", &self.decode, &against.decode)]
        {
            if let (Some(our), Some(their), Some(ratio)) =
                (ours.median(), median(&theirs.rates), median(&theirs.ratios))
            {
                let (least, most) = ends(&theirs.ratios);
                let ratios = [ratio, least, most].map(|r| format!("{r:.2}"));
                let cells = [name(what, ours, args), rate(our), rate(their)];
                table.push(cells.into_iter().chain(ratios).collect());
            }
        }
        terminal::print_line("")?;
        terminal::print_table(&table, 1)?;
        let cache = against.peer.cache;
        let other = if args.engine.kv.to_string() == cache {
            String::new()
        } else {
            format!("; its cache is {cache}")
        };
        terminal::print_line(&format!("\nmedians in tok/s; ratio: median of the pairs' ratios{other}"))
    }

    pub(super) fn print_json(&self, args: &BenchArgs) -> Result<()> {
        let roofline = &self.roofline;
        let mut json = json!({
            "model": self.model,
            "backend": self.backend,
            "version": env!("CARGO_PKG_VERSION"),
            "depth": args.timed.depth,
            "kv": args.engine.kv.to_string(),
            "skipped": self.skipped,
            "roofline": {
                "bytes_per_second": roofline.bytes,
                "flops_per_second": roofline.flops,
                "int8_ops_per_second": roofline.int8_ops,
            },
            "prompt": phase_json(&self.prompt),
            "decode": phase_json(&self.decode),
        });
        if let Some(against) = &self.against {
            let peer = json!({
                "command": against.peer.command(),
                "prompt": against.prompt.json(),
                "decode": against.decode.json(),
            });
            json = merged([json, json!({ "against": peer })]);
        }
        terminal::print_json(&json)
    }
}

fn phase_json(m: &Measured) -> Value {
    let mut rates = m.rates.clone();
    rates.sort_by(f64::total_cmp);
    json!({
        "tokens": m.tokens,
        "sequences": m.sequences,
        "median": m.median(),
        "tokens_per_second": rates,
        "bytes_per_second": m.bytes(),
        "operations_per_second": m.operations(),
        "of_roofline": m.of_roofline(),
    })
}

/// What the machine can do, in one line.
fn ceiling(Roofline { bytes, flops, int8_ops }: &Roofline) -> String {
    let [bytes, flops, int8_ops] = [bytes, flops, int8_ops].map(|rate| rate / 1e9);
    format!("roofline: {bytes:.1} GB/s read, {flops:.0} GFLOP/s f32, {int8_ops:.0} GOP/s int8")
}

fn name(what: &str, m: &Measured, args: &BenchArgs) -> String {
    let at = if args.timed.depth > 0 { format!(" at depth {}", args.timed.depth) } else { String::new() };
    let times = if m.sequences > 1 { format!(" x {}", m.sequences) } else { String::new() };
    format!("{what} {}{times}{at}", m.tokens)
}

fn row(name: &str, m: &Measured) -> Vec<String> {
    let (least, most) = ends(&m.rates);
    let number = |value: Option<f64>| value.map(|v| rate(v / 1e9)).unwrap_or_default();
    let share = m.of_roofline().map(|share| format!("{:.0} %", 100.0 * share)).unwrap_or_default();
    let speeds = [m.median().unwrap_or(0.0), least, most].map(rate);
    let cells = [name.to_owned()].into_iter().chain(speeds);
    cells.chain([number(m.bytes()), number(m.operations()), share]).collect()
}

/// Four digits or so.
fn rate(value: f64) -> String {
    if value < 1000.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

/// The least and the largest value.
pub(super) fn ends(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, 0.0), |(least, most), &v| (least.min(v), most.max(v)))
}

/// Names of operations; of many the first.
fn listed(names: &[String]) -> String {
    let shown = names.len().min(SHOWN);
    match names.len() - shown {
        0 => names.join(", "),
        more => format!("{} operations ({}, and {more} more)", names.len(), names[..shown].join(", ")),
    }
}
