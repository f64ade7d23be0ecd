//! What `hf2q fit` says.

use anyhow::Result;
use hf2q_convert::report::plural;
use hf2q_engine::{GroupNeeds, Needs};
use serde_json::json;

use super::{Candidate, Question};
use crate::terminal;

pub(super) fn table(q: &Question, candidates: &[Candidate], given: bool) -> Result<()> {
    let Some(first) = candidates.first() else { return Ok(()) };
    terminal::print_line(&format!(
        "{}: {} of weights; {} of {} tokens, prompts in chunks of {}",
        terminal::safe(&q.model),
        bytes(first.needs.weights),
        plural(q.sequences, "sequence"),
        q.context,
        q.chunk.min(q.context)
    ))?;
    let groups = groups(candidates);
    for g in &groups {
        let positions = match g.window {
            None => "all positions".to_owned(),
            Some(w) if g.fixed => format!("a page of {w} positions exactly, beside codes"),
            Some(w) => format!("a window of {w}"),
        };
        terminal::print_line(&format!(
            "{}: {} with a cache, {positions}",
            g.name,
            plural(g.layers, "layer")
        ))?;
    }
    let whose = if given { "given" } else { "free" };
    let device = q.device.as_ref().map(|device| format!(" on {device}")).unwrap_or_default();
    terminal::print_line(&format!("memory: {} {whose}{device}\n", terminal::bytes(q.memory)))?;
    let mut header: Vec<String> = vec!["--kv".into(), "per token".into()];
    header.extend(groups.iter().map(|g| g.name.clone()));
    header.extend(["caches", "activations"].map(str::to_owned));
    header.extend(first.drafter.as_ref().map(|_| "drafter".to_owned()));
    header.extend(["in all", "fits", "longest context"].map(str::to_owned));
    let rows = candidates.iter().map(|c| cells(c, &groups));
    terminal::print_table(&std::iter::once(header).chain(rows).collect::<Vec<_>>(), 1)?;
    terminal::print_line("")
}

/// Those of all candidates: some have none for recent positions.
fn groups(candidates: &[Candidate]) -> Vec<&GroupNeeds> {
    let mut groups: Vec<&GroupNeeds> = vec![];
    for g in candidates.iter().flat_map(|c| &c.needs.groups) {
        match groups.iter_mut().find(|known| known.name == g.name) {
            Some(known) if known.layers < g.layers => *known = g,
            Some(_) => {}
            None => groups.push(g),
        }
    }
    groups
}

fn cells(c: &Candidate, groups: &[&GroupNeeds]) -> Vec<String> {
    let n = &c.needs;
    let mut cells = vec![c.kv.to_string(), bytes(n.token_bytes())];
    let of = |name: &str| n.groups.iter().find(|g| g.name == name).map(|g| bytes(g.bytes()));
    cells.extend(groups.iter().map(|g| of(&g.name).unwrap_or_else(|| "-".to_owned())));
    cells.extend([n.caches(), n.work].map(bytes));
    cells.extend(c.drafter.as_ref().map(|drafter| bytes(drafter.total())));
    cells.push(bytes(c.total()));
    cells.push(if c.fits { "yes" } else { "no" }.to_owned());
    cells.push(c.largest.map_or_else(|| "-".to_owned(), |n| n.to_string()));
    cells
}

pub(super) fn json(q: &Question, candidates: &[Candidate]) -> Result<()> {
    let best = candidates.iter().find(|c| c.fits).map(|c| c.kv.to_string());
    let text = json!({
        "model": q.model,
        "memory": q.memory,
        "device": q.device,
        "context": q.context,
        "model_context": q.longest,
        "sequences": q.sequences,
        "chunk": q.chunk.min(q.context),
        "weights": candidates.first().map(|c| c.needs.weights),
        "candidates": candidates.iter().map(|c| candidate(q, c)).collect::<Vec<_>>(),
        "best": best,
    });
    terminal::print_json(&text)
}

fn candidate(q: &Question, c: &Candidate) -> serde_json::Value {
    let group = |g: &GroupNeeds| {
        json!({
            "name": g.name,
            "window": g.window,
            "layers": g.layers,
            "bytes_per_token": g.token_bytes(),
            "fixed_bytes_per_sequence": g.sequence_bytes(),
            "pages": g.pages,
            "bytes": g.bytes(),
        })
    };
    let Needs { groups, work, .. } = &c.needs;
    json!({
        "kv": c.kv.to_string(),
        "bytes_per_token": c.needs.token_bytes(),
        "fixed_bytes_per_sequence": c.needs.sequence_bytes(),
        "groups": groups.iter().map(group).collect::<Vec<_>>(),
        "caches": c.needs.caches(),
        "bytes_per_sequence": c.needs.caches() / q.sequences,
        "activations": work,
        "drafter": c.drafter.as_ref().map(|d| json!({
            "weights": d.weights, "caches": d.caches(), "activations": d.work,
        })),
        "total": c.total(),
        "fits": c.fits,
        "largest_context": c.largest,
    })
}

/// One line: what to do.
pub(super) fn advice(q: &Question, candidates: &[Candidate]) -> String {
    let Some(best) = candidates.iter().find(|c| c.fits) else { return nothing_fits(q, candidates) };
    let left = terminal::bytes(q.memory.saturating_sub(best.total() as u64));
    let flags = match best.kv == hf2q_model::RecordOptions::default() {
        true => "f16, the default, fits and".to_owned(),
        false => format!("take --kv '{}', which", best.kv),
    };
    match candidates.first().filter(|first| !first.fits) {
        Some(first) => {
            let over = terminal::bytes((first.total() as u64).saturating_sub(q.memory));
            format!("advice: {flags} leaves {left}; {} would need {over} more", first.kv)
        }
        None => format!("advice: {flags} leaves {left}"),
    }
}

/// What is missing, and what would fit.
pub(super) fn nothing_fits(q: &Question, candidates: &[Candidate]) -> String {
    let Some(least) = candidates.iter().min_by_key(|c| c.total()) else {
        return "the heads of this model can be stored in none of the formats".to_owned();
    };
    let what = format!(
        "{} is too little for {} of {} tokens: {} needs {}",
        terminal::bytes(q.memory),
        plural(q.sequences, "sequence"),
        q.context,
        least.kv,
        bytes(least.total())
    );
    let longest = candidates.iter().filter_map(|c| Some((c.largest?, c))).max_by_key(|(n, _)| *n);
    match longest {
        Some((context, c)) => format!("{what}; -c {context} fits with --kv '{}'", c.kv),
        None if least.needs.weights as u64 > q.memory => {
            format!(
                "{what}; the weights alone need {}: convert them to a smaller type",
                bytes(least.needs.weights)
            )
        }
        None => format!("{what}; fewer sequences, a smaller --chunk or a smaller type of weights may fit"),
    }
}

fn bytes(n: usize) -> String {
    terminal::bytes(n as u64)
}
