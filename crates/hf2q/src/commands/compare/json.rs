//! The comparison for programs. Numbers that are not finite are null.

use hf2q_observe::{
    Bar, Compared, Comparison, Failure, Greedy, LayerCosine, Likelihood, Measured, PositionKl,
};
use serde_json::{Value, json};

use super::Setup;
use crate::args::CompareArgs;
use crate::terminal::merged;

pub(super) fn json(args: &CompareArgs, setup: &Setup, (found, failures): (&Comparison, &[Failure])) -> Value {
    let other = args.other.as_ref().unwrap_or(&args.model);
    let candidates = found.candidates.iter().zip(&setup.candidates);
    let candidates: Vec<Value> = candidates
        .map(|(c, kv)| {
            let failed = |f: &&Failure| f.name == c.measured.name;
            let failed: Vec<Value> = failures.iter().filter(failed).map(failure).collect();
            let about = json!({ "model": other.display().to_string(), "kv": kv.to_string() });
            merged([about, side(&c.measured), compared(c), json!({ "failed": failed })])
        })
        .collect();
    let about = json!({ "model": args.model.display().to_string(), "kv": args.a_kv.to_string() });
    json!({
        "text": args.text.display().to_string(),
        "context": setup.context,
        "chunks": found.chunks,
        "tokens": found.reference.likelihood.tokens,
        "ok": failures.is_empty(),
        "reference": merged([about, side(&found.reference)]),
        "candidates": candidates,
    })
}

fn side(side: &Measured) -> Value {
    let Likelihood { sum, tokens, .. } = side.likelihood;
    json!({
        "name": side.name,
        "bits_per_element": side.cache.bits_per_element,
        "marginal_bits_per_element": side.cache.marginal_bits,
        "bytes_per_token": side.cache.bytes_per_token,
        "fixed_bytes": side.cache.fixed_bytes,
        "perplexity": side.likelihood.perplexity(),
        "perplexity_error": side.likelihood.error(),
        "nll": sum,
        "tokens": tokens,
    })
}

fn compared(c: &Compared) -> Value {
    let kl = json!({
        "mean": c.kl.mean,
        "error": c.kl.error,
        "median": c.kl.median,
        "p99": c.kl.p99,
        "max": c.kl.max,
    });
    json!({
        "kl": kl,
        "top1": c.same_top,
        "ppl_ratio": c.ratio,
        "ppl_ratio_error": c.ratio_error,
        "not_finite": c.not_finite,
        "layers": c.layers.as_ref().map(|layers| layers.iter().map(layer).collect::<Vec<_>>()),
        "positions": c.positions.iter().map(position).collect::<Vec<_>>(),
        "histogram": c.histogram.iter().map(bar).collect::<Vec<_>>(),
        "greedy": c.greedy.as_ref().map(greedy),
    })
}

fn layer(l: &LayerCosine) -> Value {
    json!({ "op": l.op, "group": l.group, "cosine": l.mean, "cosine_min": l.least })
}

fn position(p: &PositionKl) -> Value {
    json!({ "from": p.from, "to": p.to, "kl": p.mean, "kl_max": p.max })
}

fn bar(b: &Bar) -> Value {
    json!({ "from": b.from, "to": b.to, "rows": b.rows })
}

/// Runs that never differ have null in place of the first token that does.
fn greedy(g: &Greedy) -> Value {
    json!({
        "lengths": g.lengths,
        "first_other": g.same,
        "median": g.median(),
        "least": g.least(),
        "never": g.never(),
    })
}

fn failure(f: &Failure) -> Value {
    json!({ "flag": f.flag, "limit": f.limit, "found": f.found, "text": f.to_string() })
}
