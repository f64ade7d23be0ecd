//! What the recorded layers must have in common with the models they describe.

use hf2q_arch::Architecture;
use hf2q_model::{Model, RecordOptions, toy};
use hf2q_plan::{KvFormat, Op, Pairing, Recording, Renormalize, RowKind, Span};

fn named(name: &str) -> (Model, Recording) {
    let (_, model) = toy::all(3).into_iter().find(|(n, _)| *n == name).unwrap();
    let recording = model.record(&RecordOptions::default()).unwrap();
    (model, recording)
}

fn op<'a>(recording: &'a Recording, name: &str) -> &'a Op {
    let found = recording.ops.iter().find(|o| o.name == name);
    &found.unwrap_or_else(|| panic!("no operation {name}")).op
}

fn has(recording: &Recording, name: &str) -> bool {
    recording.ops.iter().any(|o| o.name == name)
}

fn writer(recording: &Recording, tensor: hf2q_plan::TensorId) -> &str {
    let found = recording.ops.iter().find(|o| o.op.access().writes.contains(&tensor));
    found.map_or("", |o| o.name.as_str())
}

#[test]
fn layers_of_a_kind_share_a_group_and_a_format() {
    let (sliding, global) = ((KvFormat::F32, KvFormat::F16), (KvFormat::F16, KvFormat::F32));
    let options = RecordOptions { sliding, global, ..RecordOptions::default() };
    let recording = toy::model(Architecture::Gemma4, 1).record(&options).unwrap();
    let groups: Vec<_> = recording.groups.iter().map(|g| (g.name.as_str(), g.span)).collect();
    assert_eq!(groups, [("sliding", Span::Last(20)), ("global", Span::All)]);
    let caches: Vec<_> = recording
        .caches
        .iter()
        .map(|c| (c.name.as_str(), c.group.index(), c.kv_heads, c.head_dim, c.k_format, c.v_format))
        .collect();
    let (h, s) = (KvFormat::F16, KvFormat::F32);
    assert_eq!(caches, [("L00.kv", 0, 2, 32, s, h), ("L01.kv", 0, 2, 32, s, h), ("L02.kv", 1, 1, 64, h, s)]);
}

#[test]
fn values_from_keys_are_taken_before_norm_and_rotation() {
    let (model, _) = named("gemma4-moe");
    let formats = (KvFormat::F32, KvFormat::F16);
    let options = RecordOptions { sliding: formats, global: formats, ..RecordOptions::default() };
    let r = model.record(&options).unwrap();
    let Op::RmsNorm(v) = op(&r, "L02.attn.v_norm") else { panic!() };
    assert_eq!((writer(&r, v.x.tensor), v.weight, v.group), ("L02.attn.k_proj", None, 64));
    let Op::KvStore(store) = op(&r, "L02.attn.kv_store") else { panic!() };
    assert_eq!(writer(&r, store.k.unwrap().tensor), "L02.attn.k_rope");
    assert_eq!(writer(&r, store.v.tensor), "L02.attn.v_norm");
    assert!(!has(&r, "L02.attn.v_proj") && has(&r, "L01.attn.v_proj"));
    assert!(r.caches.iter().all(|c| c.unit_values && c.formed_keys.is_none()));
}

#[test]
fn keys_are_formed_of_values_from_keys_where_both_have_one_format() {
    let (_, r) = named("gemma4-moe");
    let Op::KvStore(store) = op(&r, "L02.attn.kv_store") else { panic!() };
    assert_eq!((store.k, writer(&r, store.v.tensor)), (None, "L02.attn.v_norm"));
    assert!(!has(&r, "L02.attn.k_norm") && !has(&r, "L02.attn.k_rope"));
    let Op::Attention(attend) = op(&r, "L02.attn.attend") else { panic!() };
    let keys = attend.formed_keys.unwrap();
    assert_eq!(r.tensors[keys.weight.unwrap().index()].name, "blk.2.attn_k_norm.weight");
    let Op::Rope(queries) = op(&r, "L02.attn.q_rope") else { panic!() };
    assert_eq!(keys.rope, queries.rope);
    assert_eq!(r.caches.iter().map(|c| c.formed_keys).collect::<Vec<_>>(), [None, None, Some(keys)]);
    assert!(named("gemma3").1.caches.iter().all(|c| !c.unit_values && c.formed_keys.is_none()));
}

#[test]
fn router_and_experts_read_the_residual_stream() {
    let (model, r) = named("gemma4-moe");
    let Op::RmsNorm(router) = op(&r, "L01.moe.router_norm") else { panic!() };
    let Op::RmsNorm(experts) = op(&r, "L01.moe.norm") else { panic!() };
    let Op::RmsNorm(dense) = op(&r, "L01.ffn.norm") else { panic!() };
    assert_eq!(writer(&r, dense.x.tensor), "L01.attn.add");
    assert_eq!((router.x, experts.x), (dense.x, dense.x));
    assert_eq!(r.tensors[router.weight.unwrap().index()].name, "blk.1.ffn_gate_inp.scale");
    let Op::Scale(scale) = op(&r, "L01.moe.router_scale") else { panic!() };
    assert_eq!(scale.factor, 1.0 / 8.0);
    let Op::Route(route) = op(&r, "L01.moe.route") else { panic!() };
    assert_eq!((route.renormalize, route.experts.width), (Renormalize::Chosen, 2));
    assert_eq!(r.tensors[route.expert_scale.unwrap().index()].name, "blk.1.ffn_down_exps.scale");
    let Op::Add(sum) = op(&r, "L01.ffn.combine") else { panic!() };
    assert_eq!(
        (writer(&r, sum.a.tensor), writer(&r, sum.b.tensor)),
        ("L01.ffn.dense_norm", "L01.moe.post_norm")
    );
    assert_eq!(model.config().experts.as_ref().unwrap().top_k, 2);
}

#[test]
fn late_layers_attend_to_the_cache_they_share() {
    let (_, r) = named("gemma4-per-layer");
    let cache = |layer: &str| match op(&r, &format!("{layer}.attn.attend")) {
        Op::Attention(a) => r.cache(a.cache).name.clone(),
        _ => panic!(),
    };
    let caches: Vec<String> = ["L00", "L01", "L02", "L03", "L04"].map(cache).to_vec();
    assert_eq!(caches, ["L00.kv", "L01.kv", "L02.kv", "L02.kv", "L01.kv"]);
    assert!(!has(&r, "L03.attn.k_proj") && !has(&r, "L03.attn.kv_store"));
    let Op::Glu(glu) = op(&r, "L03.per_layer.glu") else { panic!() };
    let writer_of_input = writer(&r, glu.up.tensor);
    // Behind layer 2, which is the last that stores, there are inputs of layers 2 to 4 only.
    assert_eq!((glu.up.offset, glu.up.width, writer_of_input), (32, 32, "L02.attn.select_per_layer"));
    let Op::Glu(glu) = op(&r, "L01.per_layer.glu") else { panic!() };
    assert_eq!((glu.up.offset, writer(&r, glu.up.tensor)), (32, "per_layer.scale"));
}

#[test]
fn rotation_is_that_of_the_family() {
    let rope = |name: &str, op_name: &str| {
        let (_, r) = named(name);
        let Op::Rope(o) = op(&r, op_name) else { panic!() };
        (o.rope, o.head_dim)
    };
    let (llama, _) = rope("llama", "L00.attn.q_rope");
    assert_eq!((llama.pairing, llama.dims, llama.factors), (Pairing::Adjacent, 32, None));
    let (yarn, _) = rope("llama-yarn", "L01.attn.k_rope");
    assert!((yarn.magnitude - 1.138_629_4).abs() < 1e-6 && yarn.freq_scale == 0.25);
    assert_eq!(yarn.yarn.unwrap().original_context, 64);
    assert!(rope("llama3", "L00.attn.q_rope").0.factors.is_some());
    let (local, _) = rope("gemma3", "L00.attn.q_rope");
    let (global, _) = rope("gemma3", "L02.attn.q_rope");
    assert_eq!((local.base, local.freq_scale, global.base, global.freq_scale), (1e4, 1.0, 1e6, 0.125));
    assert_eq!(local.pairing, Pairing::Halves);
    let (local, dim) = rope("gemma4-dense", "L00.attn.k_rope");
    assert_eq!((local.factors, local.dims, dim), (None, 32, 32));
    let (global, dim) = rope("gemma4-dense", "L02.attn.k_rope");
    assert_eq!((global.factors.is_some(), global.dims, dim), (true, 64, 64));
}

#[test]
fn only_wanted_rows_reach_the_output_matrix() {
    for (name, model) in toy::all(1) {
        let r = model.record(&RecordOptions::default()).unwrap();
        let Op::MatMul(output) = op(&r, "output") else { panic!() };
        assert_eq!(writer(&r, output.x.tensor), "output_norm", "{name}");
        let matrix = if model.config().tied_output { "token_embd.weight" } else { "output.weight" };
        assert_eq!(r.tensors[output.weight.index()].name, matrix, "{name}");
        assert_eq!(r.activation(r.logits.tensor), Some((RowKind::Logits, 160)), "{name}");
    }
}

#[test]
fn rows_end_behind_the_last_store() {
    for (name, model) in toy::all(1) {
        let owner = model.config().layers.iter().rposition(|l| l.kv_from.is_none()).unwrap();
        let all = model.record(&RecordOptions { all_rows: true, ..RecordOptions::default() }).unwrap();
        let r = model.record(&RecordOptions::default()).unwrap();
        let rows_of = |r: &Recording, op: &Op| {
            let writes = op.access().writes;
            writes.iter().find_map(|&t| r.activation(t)).map(|(rows, _)| rows)
        };
        let last = format!("L{owner:02}.attn");
        let selected = r.ops.iter().position(|o| o.name == format!("{last}.select_residual")).unwrap();
        for (i, o) in r.ops.iter().enumerate() {
            let keys = ["k_proj", "v_proj", "k_norm", "k_rope", "v_norm"];
            let stored = keys.iter().any(|k| o.name == format!("{last}.{k}"));
            let expected = if i < selected || stored { RowKind::Step } else { RowKind::Logits };
            assert!(rows_of(&r, &o.op).is_none_or(|rows| rows == expected), "{name}: {}", o.name);
        }
        for o in &all.ops {
            let behind = ["select_rows", "output_norm", "output", "soft_cap"].contains(&o.name.as_str());
            let expected = if behind { RowKind::Logits } else { RowKind::Step };
            assert!(rows_of(&all, &o.op).is_none_or(|rows| rows == expected), "{name}: {}", o.name);
        }
    }
}
