//! A model of two layers that uses most operations.

use std::sync::Arc;

use hf2q_cpu::{CpuBackend, CpuOptions, Isa};
use hf2q_gguf::{Bytes, TensorType};
use hf2q_plan::{
    Activation, AttentionParams, Backend, ExpertInput, GroupStep, KvFormat, Limits, Norm, PAGE, Pairing,
    Passes, Plan, Program, Recorder, Recording, Renormalize, RopeParams, Row, Step, TensorId, TensorKind,
    View, Weight,
};

pub(crate) const VOCABULARY: usize = 50;
pub(crate) const PAGES: usize = 4;
const WIDTH: usize = 64;
const HEADS: (usize, usize, usize) = (4, 2, 24);
const EXPERTS: usize = 5;

const ROPE: RopeParams = RopeParams {
    dims: 16,
    pairing: Pairing::Halves,
    base: 10_000.0,
    freq_scale: 1.0,
    factors: None,
    yarn: None,
    magnitude: 1.0,
};

fn matrix(r: &mut Recorder, name: &str, ty: TensorType, (rows, cols): (usize, usize)) -> TensorId {
    r.weight(name, Weight { ty, cols, rows, experts: 1 })
}

fn attention(r: &mut Recorder, x: View, ty: TensorType, window: Option<u32>) -> View {
    let (heads, kv_heads, head_dim) = HEADS;
    let name = if window.is_some() { "sliding" } else { "global" };
    let group = r.group(name, window);
    let cache = r.cache(group, kv_heads, head_dim, (KvFormat::F16, KvFormat::F32));
    let weights = [("q", heads), ("k", kv_heads), ("v", kv_heads)]
        .map(|(n, h)| matrix(r, &format!("{name}.{n}"), ty, (h * head_dim, WIDTH)));
    let [q, k, v] = [("q", 0), ("k", 1), ("v", 2)].map(|(n, i)| r.mat_mul(n, x, weights[i]));
    let q = r.head_norm("q_norm", q, Norm { weight: None, eps: 1e-6 }, head_dim);
    let q = r.rope("q_rope", q, head_dim, ROPE);
    let k = r.rope("k_rope", k, head_dim, ROPE);
    r.kv_store("store", k, v, cache);
    let params = AttentionParams { heads, scale: 0.25, softcap: window.map(|_| 20.0) };
    let out = r.attention("attention", q, cache, params);
    let w = matrix(r, &format!("{name}.o"), TensorType::F32, (WIDTH, heads * head_dim));
    r.mat_mul("o", out, w)
}

fn experts(r: &mut Recorder, x: View, ty: TensorType) -> View {
    let router = matrix(r, "router", TensorType::F32, (EXPERTS, WIDTH));
    let logits = r.mat_mul("router", x, router);
    let (chosen, weights) = r.route("route", logits, 2, (Renormalize::Chosen, None));
    let up = r.weight("experts.up", Weight { ty, cols: WIDTH, rows: 64, experts: EXPERTS });
    let down = r.weight("experts.down", Weight { ty, cols: 32, rows: WIDTH, experts: EXPERTS });
    let both = r.expert_mat_mul("experts.gate_up", x, chosen, (up, ExpertInput::Shared));
    let inner = r.packed_expert_glu("experts.glu", both, 2, Activation::Silu);
    let out = r.expert_mat_mul("experts.down", inner, chosen, (down, ExpertInput::PerExpert));
    r.expert_sum("experts.sum", out, weights)
}

/// Matrices of type `ty`.
pub(crate) fn recording(ty: TensorType) -> Recording {
    let mut r = Recorder::default();
    let table = matrix(&mut r, "embedding", ty, (VOCABULARY, WIDTH));
    let norm = Norm { weight: None, eps: 1e-6 };
    let mut x = r.embed("embed", table, 1.5);
    for (layer, window) in [(0, None), (1, Some(20))] {
        r.prefix(format!("L{layer:02}"));
        let h = r.rms_norm("norm", x, norm);
        let h = attention(&mut r, h, ty, window);
        let h = r.rms_norm("post_norm", h, norm);
        x = r.add("add", x, h);
    }
    let h = r.rms_norm("ffn_norm", x, norm);
    let h = experts(&mut r, h, ty);
    x = r.add("ffn_add", x, h);
    r.prefix("");
    let x = r.select_rows("select", x);
    let x = r.rms_norm("output_norm", x, norm);
    let logits = r.mat_mul("output", x, table);
    let logits = r.soft_cap("cap", logits, 30.0);
    r.finish(logits).unwrap()
}

pub(crate) fn weights(recording: &Recording) -> Vec<Bytes> {
    let mut state = 7_u32;
    let mut next = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 8) as f32 / (1 << 24) as f32 - 0.5) * 0.4
    };
    let encode = |id: &TensorId| {
        let TensorKind::Weight(w) = &recording.tensors[id.index()].kind else { panic!("a weight") };
        let values: Vec<f32> = (0..w.cols * w.rows * w.experts).map(|_| next()).collect();
        let mut bytes = Vec::new();
        hf2q_quant::quantize(w.ty, &values, &mut bytes).unwrap();
        Bytes::from_vec(bytes)
    };
    recording.weights.iter().map(encode).collect()
}

pub(crate) fn limits(max_rows: usize) -> Limits {
    Limits { max_rows, max_logit_rows: max_rows, pages: vec![PAGES, PAGES] }
}

pub(crate) fn backend(threads: usize, isa: Isa) -> CpuBackend {
    CpuBackend::new(CpuOptions { threads, isa: Some(isa) }).unwrap()
}

pub(crate) fn open(ty: TensorType, backend: &CpuBackend, max_rows: usize) -> Box<dyn Program> {
    let recording = recording(ty);
    let weights = weights(&recording);
    backend.open(Arc::new(Plan::compile(recording, Passes::ALL)), weights, &limits(max_rows)).unwrap()
}

/// A step of one sequence whose pages are not in order.
pub(crate) fn step(tokens: &[u32], first: usize) -> Step {
    let pages = [2_u32, 0, 3, 1];
    let position = |i: usize| (first + i) as u32;
    let rows: Vec<Row> = (0..tokens.len())
        .map(|i| Row {
            sequence: 0,
            token: tokens[i],
            position: position(i),
            parent: i.checked_sub(1).map(|p| p as u32),
        })
        .collect();
    let slot = |row: &Row| pages[row.position as usize / PAGE] * PAGE as u32 + row.position % PAGE as u32;
    let group = GroupStep {
        slots: rows.iter().map(slot).collect(),
        page_tables: pages.to_vec(),
        pages_per_sequence: pages.len(),
    };
    let all = (0..tokens.len() as u32).collect();
    Step::new(rows, vec![group.clone(), group], all).unwrap()
}
