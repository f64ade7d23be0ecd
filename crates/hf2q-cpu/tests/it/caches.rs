//! Formats of caches.

use std::sync::Arc;

use hf2q_cpu::Isa;
use hf2q_gguf::{Bytes, TensorType};
use hf2q_plan::{
    AttentionParams, Backend, FormedKeys, GroupStep, KvFormat, Limits, Pairing, Passes, Plan, Recorder,
    RopeParams, Row, Step, Weight,
};

use crate::model::backend;

const HEAD: usize = 64;
const TOKENS: usize = 8;
/// Stored as NaN and as infinity.
const ODD: [u32; 2] = [6, 7];

/// What the cache of a test is like.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Plain,
    /// Values have no stored scale where keys have one.
    Unit,
    /// Keys are formed of values.
    Formed,
}

fn rope() -> RopeParams {
    let (pairing, factors, yarn) = (Pairing::Halves, None, None);
    RopeParams { dims: HEAD, pairing, base: 1e4, freq_scale: 1.0, factors, yarn, magnitude: 1.0 }
}

/// Attention of one head whose query, key and value are the token's row of a table.
fn attention(format: KvFormat, kind: Kind) -> (Plan, Vec<Bytes>) {
    let mut r = Recorder::default();
    let table = r.weight("table", Weight { ty: TensorType::F32, cols: HEAD, rows: TOKENS, experts: 1 });
    let x = r.embed("x", table, 1.0);
    let group = r.group("global", None);
    let cache = match kind {
        Kind::Plain => r.cache(group, 1, HEAD, (format, format)),
        Kind::Unit => r.unit_cache(group, 1, HEAD, (format, format)),
        Kind::Formed => {
            let keys = FormedKeys { weight: None, rope: rope(), pairs: HEAD / 2 };
            r.value_cache(group, 1, HEAD, (format, keys))
        }
    };
    match kind {
        Kind::Formed => r.value_store("store", x, cache),
        Kind::Plain | Kind::Unit => r.kv_store("store", x, x, cache),
    }
    let out = r.attention("out", x, cache, AttentionParams { heads: 1, scale: 0.1, softcap: None });
    let logits = r.select_rows("logits", out);
    let value = |i: usize| match (i / HEAD, i % HEAD) {
        (6, 5) => f32::NAN,
        (7, 5) => f32::INFINITY,
        _ => ((i * i) as f32 * 0.7).sin(),
    };
    let values = (0..TOKENS * HEAD).flat_map(|i| value(i).to_le_bytes()).collect();
    (Plan::compile(r.finish(logits).unwrap(), Passes::ALL), vec![Bytes::from_vec(values)])
}

/// Tokens at positions `0 ..` of one sequence.
fn step(tokens: &[u32]) -> Step {
    let row = |(i, &token): (usize, &u32)| Row {
        sequence: 0,
        token,
        position: i as u32,
        parent: i.checked_sub(1).map(|p| p as u32),
    };
    let slots = (0..tokens.len() as u32).collect();
    let group = GroupStep { slots, page_tables: vec![0], pages_per_sequence: 1 };
    Step::new(tokens.iter().enumerate().map(row).collect(), vec![group], (0..tokens.len() as u32).collect())
        .unwrap()
}

#[test]
fn values_that_are_not_finite_harm_only_rows_that_see_them() {
    let kinds = [Kind::Plain, Kind::Unit, Kind::Formed];
    for (format, kind) in KvFormat::ALL.into_iter().flat_map(|f| kinds.map(|kind| (f, kind))) {
        let (plan, weights) = attention(format, kind);
        let plan = Arc::new(plan);
        let limits = Limits { max_rows: 8, max_logit_rows: 8, pages: vec![1] };
        for (isa, threads) in Isa::available().into_iter().zip(1..) {
            let backend = backend(threads, isa);
            let mut program = backend.open(Arc::clone(&plan), weights.clone(), &limits).unwrap();
            let wanted = program.run(&step(&[0, 1, 2]), None).unwrap().to_vec();
            assert!(wanted.iter().all(|x| x.is_finite()), "{}", format.name());
            for odd in ODD {
                // Slots behind what a row sees hold the odd vector, those before it share bytes with it.
                let got = program.run(&step(&[0, 1, 2, odd, 3]), None).unwrap();
                let (seen, rest) = got.split_at(3 * HEAD);
                assert!(seen == wanted, "{} {kind:?} {}", format.name(), isa.name());
                assert!(rest.iter().any(|x| x.is_nan()), "{} {kind:?} {}", format.name(), isa.name());
                // And when it is overwritten it is gone.
                let again = program.run(&step(&[0, 1, 2, 3]), None).unwrap().to_vec();
                assert!(again.iter().all(|x| x.is_finite()), "{} {kind:?} {}", format.name(), isa.name());
            }
        }
    }
}
