//! A report for people and for programs.

use anyhow::Result;
use serde_json::{Value as Json, json};

use super::stats::{PERCENTS, Report, Spread};
use crate::args::{BenchServeArgs, Endpoint};
use crate::terminal;

pub(super) fn print(model: &str, report: &Report) -> Result<()> {
    let line = |text: String| terminal::print_line(&text);
    line(terminal::safe(model))?;
    let failed: usize = report.errors.values().sum();
    line(format!("{} answered, {failed} failed in {:.1} s", report.answers, report.seconds))?;
    for (trouble, count) in &report.errors {
        line(format!("  {count} x {}", terminal::safe(&trouble.to_string())))?;
    }
    line(format!(
        "{:.2} answers/s, {:.1} answer tok/s, {:.1} prompt tok/s ({} of {} prompt tokens cached)",
        report.rate(report.answers),
        report.rate(report.tokens),
        report.rate(report.prompt_tokens),
        report.cached_tokens,
        report.prompt_tokens
    ))?;
    if let Some(good) = report.good {
        line(format!(
            "{:.2} answers/s within the limits ({good} of {})",
            report.rate(good),
            report.answers + failed
        ))?;
    }
    line(String::new())?;
    let mut head = vec!["ms".to_owned(), "mean".to_owned()];
    head.extend(PERCENTS.map(|p| format!("p{p}")));
    head.push("max".into());
    let mut rows = vec![head];
    for (name, spread) in spreads(report) {
        rows.extend(spread.map(|s| row(name, s)));
    }
    terminal::print_table(&rows, 1)
}

/// The times with their names in the table.
fn spreads(report: &Report) -> [(&'static str, Option<&Spread>); 4] {
    [
        ("time to first token", report.first.as_ref()),
        ("between pieces of text", report.gap.as_ref()),
        ("a token after the first", report.per_token.as_ref()),
        ("whole answer", report.whole.as_ref()),
    ]
}

fn row(name: &str, spread: &Spread) -> Vec<String> {
    let mut row = vec![name.to_owned(), format!("{:.1}", spread.mean)];
    row.extend(spread.percentiles.iter().chain([&spread.max]).map(|t| format!("{t:.1}")));
    row
}

pub(super) fn json(args: &BenchServeArgs, model: &str, report: &Report) -> Json {
    let errors = report.errors.iter().map(|(trouble, count)| (trouble.to_string(), json!(count)));
    let spread = |spread: &Option<Spread>| spread.as_ref().map(spread_json);
    let endpoint = if args.endpoint == Endpoint::Chat { "chat" } else { "completions" };
    let concurrency = args.load.rate.is_none().then(|| args.load.concurrency.get());
    json!({
        "url": args.url,
        "model": model,
        "endpoint": endpoint,
        "version": env!("CARGO_PKG_VERSION"),
        "load": { "requests": args.load.requests.get(), "concurrency": concurrency, "rate": args.load.rate,
            "shared_prefix": args.load.shared_prefix, "stream": !args.load.no_stream, "seed": args.load.seed },
        "seconds": report.seconds,
        "answers": report.answers,
        "errors": errors.collect::<serde_json::Map<_, _>>(),
        "prompt_tokens": report.prompt_tokens,
        "cached_tokens": report.cached_tokens,
        "answer_tokens": report.tokens,
        "answers_per_second": report.rate(report.answers),
        "answer_tokens_per_second": report.rate(report.tokens),
        "prompt_tokens_per_second": report.rate(report.prompt_tokens),
        "good": report.good,
        "good_per_second": report.good.map(|n| report.rate(n)),
        "milliseconds": {
            "first_token": spread(&report.first),
            "between_pieces": spread(&report.gap),
            "per_token": spread(&report.per_token),
            "whole": spread(&report.whole),
        },
    })
}

fn spread_json(spread: &Spread) -> Json {
    let mut json = json!({ "count": spread.count, "mean": spread.mean, "max": spread.max });
    for (percent, time) in PERCENTS.iter().zip(&spread.percentiles) {
        json[format!("p{percent}")] = json!(time);
    }
    json
}
