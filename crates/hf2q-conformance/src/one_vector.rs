//! One vector for keys and values against two.
//!
//! The caches of one program store vectors from which keys are formed when they are read. Those of another hold in f32
//! what these vectors decode to, and the keys that the operations of a model make of that. Where the format stores
//! components as they are, rounded or not, both must give the same bits.

use std::sync::Arc;

use hf2q_plan::{
    AttentionParams, Backend, Cut, FormedKeys, KvFormat, KvVector, Pairing, Passes, Plan, RopeParams, RowKind,
};
use hf2q_quant::half::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use hf2q_quant::kv::{INT8_BLOCK, encode_int8, rotate_back};

use crate::builder::{Builder, Built, Values};
use crate::cases::plain_rope;
use crate::compare::{distance, first_difference, same_bits};
use crate::error::ConformanceError;
use crate::random::Random;
use crate::report::{CaseReport, Outcome, Report};
use crate::tolerance::Precision;
use crate::traffic::{Traffic, TrafficOptions};

const VOCABULARY: usize = 100;
const TURNS: usize = 6;
const TRAFFIC: TrafficOptions =
    TrafficOptions { vocabulary: VOCABULARY, sequences: 3, max_len: 180, max_rows: 70, max_nodes: 8 };
const HEADS: usize = 4;
const KV_HEADS: usize = 2;

/// Compares them in every format, with heads of 64 to 512 values, in both pairings, with a window and without.
pub fn check(backend: &dyn Backend) -> Report {
    let mut report = Report { backend: backend.describe(), cases: vec![] };
    for format in KvFormat::ALL {
        for (i, head_dim) in KvFormat::TURBO_HEADS.into_iter().enumerate() {
            let pairing = if i % 2 == 0 { Pairing::Halves } else { Pairing::Adjacent };
            let window = if i < 2 { Some(90) } else { None };
            let form =
                Form { vector: KvVector { format, head_dim, unit: false, cut: None }, pairing, window };
            let outcome = match compare(backend, form) {
                Ok(outcome) => outcome,
                Err(error) => Outcome::Failed { why: error.to_string() },
            };
            report.cases.push(CaseReport { op: "attention", case: format!("{form:?}"), outcome });
        }
    }
    report
}

#[derive(Clone, Copy, Debug)]
struct Form {
    vector: KvVector,
    pairing: Pairing,
    window: Option<u32>,
}

fn compare(backend: &dyn Backend, form: Form) -> Result<Outcome, ConformanceError> {
    let built = [record(form, true)?, record(form, false)?];
    let limits = Traffic::limits(&built[0].recording, TRAFFIC);
    let mut traffic = Traffic::new(&built[0].recording, TRAFFIC, Random::new("one vector", 1));
    let mut programs = vec![];
    for Built { recording, weights, .. } in built {
        programs.push(backend.open(Arc::new(Plan::compile(recording, Passes::ALL)), weights, &limits)?);
    }
    let plain = matches!(form.vector.format, KvFormat::F32 | KvFormat::F16 | KvFormat::Bf16);
    let mut worst = 0.0_f64;
    for turn_index in 0..TURNS {
        let turn = traffic.next()?;
        let [one, two] = [turn.run(&mut *programs[0], None)?, turn.run(&mut *programs[1], None)?];
        let d = distance(&one, &two, HEADS * form.vector.head_dim);
        worst = worst.max(d.total);
        if plain && !same_bits(&one, &two) || !Precision::Single.tolerance().accepts(d) {
            let why = format!("step {turn_index}: {}, error {:.1e}", first_difference(&one, &two), d.total);
            return Ok(Outcome::Failed { why });
        }
    }
    Ok(Outcome::Passed { nmse: worst })
}

fn record(form: Form, one: bool) -> Result<Built, ConformanceError> {
    let head_dim = form.vector.head_dim;
    let mut random = Random::new("one vector", head_dim as u64);
    let stored: Vec<f32> = (0..VOCABULARY * KV_HEADS * head_dim).map(|_| random.normal()).collect();
    let weights: Vec<f32> = (0..head_dim).map(|_| 1.0 + 0.3 * random.symmetric()).collect();
    let mut b = Builder::new(VOCABULARY, random);
    let q = b.input("q", HEADS * head_dim, Values::Normal(1.0));
    // Of a quarter of the pairs, as in Gemma 4, some turn often.
    let pairs = head_dim / 2;
    let factors: Vec<f32> = (0..pairs).map(|i| if i < pairs / 4 { 1.0 } else { 1e30 }).collect();
    let factors = Some(b.vector("factors", &factors));
    let rope = RopeParams { factors, base: 1e6, ..plain_rope(head_dim, form.pairing) };
    let group = b.r.group("g", form.window);
    let cache = if one {
        let v = b.rows("v", KV_HEADS * head_dim, &stored);
        let keys = FormedKeys { weight: Some(b.vector("norm", &weights)), rope, pairs: pairs / 4 };
        let cache = b.r.value_cache(group, KV_HEADS, head_dim, (form.vector.format, keys));
        b.r.value_store("store", v, cache);
        cache
    } else {
        let mut values = stored;
        let keys = FormedKeys { weight: None, rope, pairs: pairs / 4 };
        let cut = keys.cut(form.vector.format, head_dim);
        values.chunks_exact_mut(head_dim).for_each(|x| decode((form.vector, cut), x));
        let keys: Vec<f32> = values.iter().zip(weights.iter().cycle()).map(|(v, w)| v * w).collect();
        let k = b.rows("k", KV_HEADS * head_dim, &keys);
        let v = b.rows("v", KV_HEADS * head_dim, &values);
        let k = b.r.rope("k_rope", k, head_dim, rope);
        let cache = b.r.cache(group, KV_HEADS, head_dim, (KvFormat::F32, KvFormat::F32));
        b.r.kv_store("store", k, v, cache);
        cache
    };
    let scale = 3.0 / (head_dim as f32).sqrt();
    let out = b.r.attention("out", q, cache, AttentionParams { heads: HEADS, scale, softcap: None });
    Ok(b.finish(out, RowKind::Step, false)?)
}

/// What a format makes of a vector.
fn decode((vector, cut): (KvVector, Option<Cut>), x: &mut [f32]) {
    if let Some(cut) = cut {
        let mut sorted = vec![0.0; x.len()];
        cut.sort(x, &mut sorted);
        decode((KvVector { cut: Some(cut.block), ..vector }, None), &mut sorted);
        return cut.unsort(&sorted, x);
    }
    match (vector.format, vector.format.turbo()) {
        (_, Some(turbo)) => {
            for x in x.chunks_exact_mut(vector.block().unwrap_or(vector.head_dim)) {
                let mut codes = vec![0; x.len()];
                let scale = turbo.encode(x, &mut codes);
                turbo.decode_rotated(&codes, scale, x);
                rotate_back(x);
            }
        }
        (KvFormat::F16, _) => x.iter_mut().for_each(|x| *x = f16_to_f32(f32_to_f16(*x))),
        (KvFormat::Bf16, _) => x.iter_mut().for_each(|x| *x = bf16_to_f32(f32_to_bf16(*x))),
        (KvFormat::Q8_0, _) => {
            for x in x.as_chunks_mut::<INT8_BLOCK>().0 {
                let mut codes = [0; INT8_BLOCK];
                let scale = f16_to_f32(encode_int8(x, &mut codes));
                *x = codes.map(|code| scale * f32::from(code.cast_signed()));
            }
        }
        _ => {}
    }
}
