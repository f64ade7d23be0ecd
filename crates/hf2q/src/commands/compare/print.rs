//! The comparison as a table.

use anyhow::Result;
use hf2q_observe::{Compared, Comparison, Greedy};

use super::Setup;
use crate::args::CompareArgs;
use crate::terminal;

/// Longest name that leaves the table room on a terminal; longer ones stand above it.
const NAME: usize = 8;

pub(super) fn print(args: &CompareArgs, setup: &Setup, found: &Comparison) -> Result<()> {
    let reference = &found.reference;
    let likelihood = reference.likelihood;
    let error = likelihood.error().map(|e| format!(" +/- {e:.4}")).unwrap_or_default();
    let name = terminal::safe(&reference.name);
    let chunks = if found.chunks == 1 { "1 chunk".to_owned() } else { format!("{} chunks", found.chunks) };
    terminal::print_line(&format!(
        "{name}: perplexity {:.4}{error}\n{}: {} tokens scored in {chunks} of {}\n",
        likelihood.perplexity(),
        args.text.display(),
        likelihood.tokens,
        setup.context
    ))?;
    // No wider than a terminal of 80 columns.
    let head = ["cache", "bits", "B/token", "KL mean", "KL p99", "KL max", "top-1", "ppl ratio"];
    let mut table = vec![head.map(str::to_owned).to_vec()];
    let names = names(found)?;
    table.extend(found.candidates.iter().zip(&names).map(|(c, name)| row(c, name)));
    terminal::print_table(&table, 1)?;
    print_cosines(found, &names)?;
    for c in &found.candidates {
        if c.not_finite > 0 {
            let name = terminal::safe(&c.measured.name);
            terminal::print_line(&format!(
                "{name}: {} tokens have logits that are not finite",
                c.not_finite
            ))?;
        }
    }
    print_runs(found, &names)?;
    terminal::print_line(
        "\nbits: of a stored component of a key or value (in brackets: without the exact copies of recent positions);\n\
         B/token: in all layers, a vector that serves as key and value once; KL: divergence from the reference in nats;\n\
         cosine: of attention outputs, mean in the layer where it is least",
    )
}

/// What tables call the candidates: their names, or numbers that are explained above.
fn names(found: &Comparison) -> Result<Vec<String>> {
    let names: Vec<String> = found.candidates.iter().map(|c| terminal::safe(&c.measured.name)).collect();
    if names.iter().all(|name| name.chars().count() <= NAME) {
        return Ok(names);
    }
    for (i, name) in names.iter().enumerate() {
        terminal::print_line(&format!("B{}: {name}", i + 1))?;
    }
    terminal::print_line("")?;
    Ok((1..=names.len()).map(|i| format!("B{i}")).collect())
}

/// Where attention differs most.
fn print_cosines(found: &Comparison, names: &[String]) -> Result<()> {
    let mut table = vec![["cache", "cosine", "in"].map(str::to_owned).to_vec()];
    for (c, name) in found.candidates.iter().zip(names) {
        if let Some(l) = c.least_cosine() {
            let layer = l.op.split('.').next().unwrap_or(&l.op).to_owned();
            table.push(vec![name.clone(), format!("{:.6}", l.mean), layer]);
        }
    }
    if table.len() > 1 {
        terminal::print_line("")?;
        terminal::print_table(&table, 1)?;
    }
    Ok(())
}

fn row(c: &Compared, name: &str) -> Vec<String> {
    vec![
        name.to_owned(),
        c.measured.cache.bits(),
        format!("{:.0}", c.measured.cache.bytes_per_token),
        divergence(c.kl.mean),
        divergence(c.kl.p99),
        divergence(c.kl.max),
        format!("{:.2} %", 100.0 * c.same_top),
        format!("{:.4}", c.ratio),
    ]
}

/// Four digits that count, down to what single precision leaves.
fn divergence(kl: f64) -> String {
    match kl {
        0.0 => "0".to_owned(),
        kl if kl < 1e-3 => format!("{kl:.2e}"),
        kl => format!("{kl:.5}"),
    }
}

fn print_runs(found: &Comparison, names: &[String]) -> Result<()> {
    let with_names = found.candidates.iter().zip(names);
    let with_runs: Vec<(&String, &Greedy)> =
        with_names.filter_map(|(c, name)| Some((name, c.greedy.as_ref()?))).collect();
    let Some((_, first)) = with_runs.first() else { return Ok(()) };
    let longest = first.lengths.iter().max().copied().unwrap_or(0);
    let count = first.lengths.len();
    terminal::print_line(&format!(
        "\ngreedy runs: {count} of at most {longest} tokens; tokens before the first other one"
    ))?;
    let head = ["cache", "median", "least", "never differs"];
    let mut table = vec![head.map(str::to_owned).to_vec()];
    let tokens = |n: Option<usize>| n.map_or("never".to_owned(), |n| n.to_string());
    table.extend(with_runs.iter().map(|(name, g)| {
        vec![(*name).clone(), tokens(g.median()), tokens(g.least()), format!("{:.0} %", 100.0 * g.never())]
    }));
    terminal::print_table(&table, 1)
}
