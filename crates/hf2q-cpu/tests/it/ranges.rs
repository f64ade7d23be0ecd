//! Attention over so many positions that threads share a row.

use std::sync::Arc;

use hf2q_cpu::Isa;
use hf2q_gguf::{Bytes, TensorType};
use hf2q_plan::{
    AttentionParams, Backend, GroupStep, KvFormat, Limits, PAGE, Passes, Plan, Program, Recorder, Row, Span,
    Step, Weight,
};

use crate::model::backend;

const HEAD: usize = 64;
const HEADS: usize = 3;
const TOKENS: usize = 97;
const POSITIONS: usize = 1100;
const PAGES: usize = POSITIONS.div_ceil(PAGE);

/// Attention of three heads to one, over all positions and over a window; queries are what the token's row begins with,
/// keys and values its first head. With a copy of the last page, if there is a format for it.
fn plan(format: (KvFormat, KvFormat), recent: Option<KvFormat>) -> (Arc<Plan>, Vec<Bytes>) {
    let mut r = Recorder::default();
    let width = HEADS * HEAD;
    let table = r.weight("table", Weight { ty: TensorType::F32, cols: width, rows: TOKENS, experts: 1 });
    let x = r.embed("x", table, 1.0);
    let kv = x.columns(0, HEAD);
    let params = AttentionParams { heads: HEADS, scale: 0.2, softcap: None };
    let mut outs = Vec::new();
    let last = recent.map(|_| r.group("recent", Span::Pages(1)));
    for (name, span) in [("all", Span::All), ("window", Span::Last(300))] {
        r.prefix(name);
        let group = r.group(name, span);
        let cache = r.cache(group, 1, HEAD, format);
        r.kv_store("store", kv, kv, cache);
        if let Some((recent, last)) = recent.zip(last) {
            let last = r.recent_cache(cache, last, (recent, recent));
            r.kv_store("store_recent", kv, kv, last);
        }
        outs.push(r.attention("attention", x, cache, params));
    }
    r.prefix("");
    let sum = r.add("sum", outs[0], outs[1]);
    let logits = r.select_rows("logits", sum);
    let value = |i: usize| ((i * i) as f32 * 0.7).sin() * (1.0 + (i % 11) as f32 * 0.2);
    let values = (0..TOKENS * width).flat_map(|i| value(i).to_le_bytes()).collect();
    (Arc::new(Plan::compile(r.finish(logits).unwrap(), Passes::ALL)), vec![Bytes::from_vec(values)])
}

fn open(backend: &dyn Backend, (plan, weights): &(Arc<Plan>, Vec<Bytes>)) -> Box<dyn Program> {
    let groups = plan.recording.groups.len();
    let limits = Limits { max_rows: 512, max_logit_rows: 512, pages: vec![PAGES; groups] };
    backend.open(Arc::clone(plan), weights.clone(), &limits).unwrap()
}

/// Positions `first .. first + count` of one sequence.
fn step(plan: &Plan, first: usize, count: usize) -> Step {
    let row = |i: usize| Row {
        sequence: 0,
        token: ((first + i) * 31 % TOKENS) as u32,
        position: (first + i) as u32,
        parent: i.checked_sub(1).map(|p| p as u32),
    };
    let group = || GroupStep {
        slots: (first..first + count).map(|p| p as u32).collect(),
        page_tables: (0..PAGES as u32).collect(),
        pages_per_sequence: PAGES,
    };
    let groups = plan.recording.groups.iter().map(|_| group()).collect();
    Step::new((0..count).map(row).collect(), groups, (0..count as u32).collect()).unwrap()
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn rows_that_threads_share_have_the_bits_of_those_that_one_computes() {
    use KvFormat::{Bf16, F16, F32, Q8_0, Tq4, Tq6};
    let cases = [
        ((F16, F16), None),
        ((F32, Bf16), None),
        ((Q8_0, Q8_0), None),
        ((Tq6, Tq4), None),
        ((Tq4, Tq4), Some(F16)),
        ((F16, F16), Some(Tq6)),
    ];
    for (format, recent) in cases {
        let made = plan(format, recent);
        let mut alone = open(&backend(1, Isa::detect()), &made);
        let wanted: Vec<Vec<u32>> =
            (0..POSITIONS).map(|p| bits(alone.run(&step(&made.0, p, 1), None).unwrap())).collect();
        assert!(wanted.iter().flatten().all(|&b| f32::from_bits(b).is_finite()), "{format:?} {recent:?}");
        for (isa, threads) in Isa::available().into_iter().zip(2..) {
            let mut program = open(&backend(threads, isa), &made);
            // Many rows, rows that share a unit, and single ones, at borders of ranges and windows.
            let sizes = [
                250, 4, 1, 1, 1, 1, 41, 3, 200, 9, 1, 1, 1, 60, 200, 240, 5, 1, 1, 1, 1, 1, 1, 1, 1, 66, 3,
                1, 1, 1, 1,
            ];
            let mut first = 0;
            for size in sizes {
                let got = bits(program.run(&step(&made.0, first, size), None).unwrap());
                let want = wanted[first..first + size].concat();
                assert!(got == want, "{format:?} {recent:?} {}: {first} + {size}", isa.name());
                first += size;
            }
            assert_eq!(first, POSITIONS);
        }
    }
}
