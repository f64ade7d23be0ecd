//! Fused and unfused plans give the same bits on the reference.

use hf2q_gguf::TensorType;
use hf2q_plan::{AttentionParams, Backend, KvFormat, Norm, Pairing, Passes, Plan, RopeParams, RowKind, View};

use crate::builder::{Builder, Built, Values};
use crate::compare::{first_difference, same_bits};
use crate::error::ConformanceError;
use crate::random::Random;
use crate::subject::Subject;
use crate::traffic::{Traffic, TrafficOptions};

const WIDTH: usize = 32;
const HEAD: usize = 16;
const VOCABULARY: usize = 40;

/// What a comparison found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Operations that fusion took away.
    pub fused: usize,
    /// Logit rows that were compared.
    pub rows: usize,
    /// The first difference.
    pub difference: Option<String>,
}

/// Runs the same random traffic through the plan as recorded and through the fused one.
///
/// # Errors
/// If a program fails.
pub fn check(backend: &dyn Backend, subject: &Subject, seed: u64) -> Result<Comparison, ConformanceError> {
    let options = TrafficOptions {
        vocabulary: subject.vocabulary()?,
        sequences: 2,
        max_len: 90,
        max_rows: 40,
        max_nodes: 6,
    };
    let limits = Traffic::limits(&subject.recording, options);
    let mut plain = subject.open(backend, Passes::NONE, &limits)?;
    let mut fused = subject.open(backend, Passes::ALL, &limits)?;
    let left = Plan::compile(subject.recording.clone(), Passes::ALL).recording.ops.len();
    let mut found = Comparison { fused: subject.recording.ops.len() - left, ..Comparison::default() };
    let mut traffic = Traffic::new(&subject.recording, options, Random::new("fusion", seed));
    for turn_index in 0..8 {
        let turn = traffic.next()?;
        let (a, b) = (turn.run(&mut *plain, None)?, turn.run(&mut *fused, None)?);
        found.rows += turn.step.logit_rows.len();
        if !same_bits(&b, &a) && found.difference.is_none() {
            found.difference = Some(format!("step {turn_index}: {}", first_difference(&b, &a)));
        }
    }
    Ok(found)
}

/// A recording of random layers: norms before and after products, on either side of a sum, with one reader or
/// several; head norms before rotations; attention.
///
/// # Errors
/// If the generator has a mistake.
pub fn random_recording(seed: u64) -> Result<Subject, ConformanceError> {
    let mut b = Builder::new(VOCABULARY, Random::new("recording", seed));
    let mut x = b.input("x", WIDTH, Values::Normal(1.0));
    let group = b.r.group("global", if seed.is_multiple_of(2) { None } else { Some(20) });
    for layer in 0..3 + b.random.below(4) {
        b.r.prefix(format!("L{layer:02}"));
        x = match b.random.below(4) {
            0 => attention(&mut b, layer, x, group),
            1 => post_norm(&mut b, layer, x),
            2 => pre_norm(&mut b, layer, x),
            _ => shared_norm(&mut b, layer, x),
        };
    }
    b.r.prefix("");
    let Built { recording, weights, .. } = b.finish(x, RowKind::Step, false)?;
    Ok(Subject { recording, weights })
}

fn norm(b: &mut Builder, layer: usize, name: &str, len: usize) -> Norm {
    let weight = b.random.chance(70).then(|| b.near_one(&format!("{name}{layer}.w"), len));
    Norm { weight, eps: 1e-6 }
}

fn product(b: &mut Builder, layer: usize, x: View) -> View {
    let w = b.matrix(&format!("product{layer}.w"), TensorType::F32, WIDTH, WIDTH);
    let y = b.r.mat_mul("product", x, w);
    b.r.scale("shrunk", y, 0.2, None)
}

fn sum(b: &mut Builder, x: View, y: View) -> View {
    if b.random.chance(50) { b.r.add("sum", x, y) } else { b.r.add("sum", y, x) }
}

fn pre_norm(b: &mut Builder, layer: usize, x: View) -> View {
    let n = norm(b, layer, "pre", WIDTH);
    let y = b.r.rms_norm("pre", x, n);
    let y = product(b, layer, y);
    sum(b, x, y)
}

fn post_norm(b: &mut Builder, layer: usize, x: View) -> View {
    let y = product(b, layer, x);
    let n = norm(b, layer, "post", WIDTH);
    let y = b.r.rms_norm("post", y, n);
    sum(b, x, y)
}

/// A norm that a sum and something else read: fusing it would lose a value.
fn shared_norm(b: &mut Builder, layer: usize, x: View) -> View {
    let n = norm(b, layer, "shared", WIDTH);
    let y = b.r.rms_norm("shared", x, n);
    let z = sum(b, x, y);
    b.r.add("again", z, y)
}

fn attention(b: &mut Builder, layer: usize, x: View, group: hf2q_plan::GroupId) -> View {
    let rope = RopeParams {
        dims: HEAD,
        pairing: if b.random.chance(50) { Pairing::Halves } else { Pairing::Adjacent },
        base: 1000.0,
        freq_scale: 1.0,
        factors: None,
        yarn: None,
        magnitude: 1.0,
    };
    let (q_norm, k_norm) = (norm(b, layer, "q_norm", HEAD), norm(b, layer, "k_norm", HEAD));
    let q = b.r.head_norm("q_norm", x, q_norm, HEAD);
    let q = b.r.rope("q_rope", q, HEAD, rope);
    let k = b.r.head_norm("k_norm", x, k_norm, HEAD);
    let v = k;
    let k = b.r.rope("k_rope", k, HEAD, rope);
    // The values are the keys before their rotation in half of the layers, which then cannot be fused.
    let v = if b.random.chance(50) { v } else { x };
    let cache = b.r.cache(group, WIDTH / HEAD, HEAD, (KvFormat::F32, KvFormat::F16));
    b.r.kv_store("store", k, v, cache);
    let params = AttentionParams { heads: WIDTH / HEAD, scale: 0.3, softcap: None };
    let y = b.r.attention("attention", q, cache, params);
    sum(b, x, y)
}
