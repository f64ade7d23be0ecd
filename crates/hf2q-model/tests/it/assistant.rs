//! Assistants and the models that they draft for.

use hf2q_arch::{Architecture, Config};
use hf2q_gguf::Bytes;
use hf2q_model::assistant::{Assistant, KvTap, Taps};
use hf2q_model::{Model, RecordOptions, toy};
use hf2q_plan::{KvFormat, Passes, Plan, Span};

fn target(name: &str) -> Config {
    toy::configs().into_iter().find(|(n, _)| *n == name).unwrap().1
}

fn join(drafter: Config, target: Config) -> Result<Assistant, String> {
    Assistant::new(toy::build(drafter, 1), &toy::build(target, 1)).map_err(|error| error.to_string())
}

fn drafter() -> Config {
    toy::config(Architecture::Gemma4Assistant)
}

#[test]
fn an_assistant_is_recorded_with_what_it_is_given() {
    let assistant = join(drafter(), target("gemma4-dense")).unwrap();
    let recording = assistant.record(KvFormat::F16).unwrap();
    // The state, then keys and values of windowed and of global layers.
    assert_eq!(recording.inputs, [128, 64, 64, 128, 128]);
    assert_eq!(assistant.kv_widths().collect::<Vec<_>>(), [64, 128]);
    let spans: Vec<Span> = recording.groups.iter().map(|g| g.span).collect();
    assert_eq!(spans, [Span::Last(21), Span::All]);
    assert_eq!((recording.caches.len(), recording.outputs.len()), (2, 2));
    // Three groups of eight tokens, of twenty.
    assert_eq!((recording.logits.width, assistant.groups()), (24, Some(20)));
    assert_eq!(assistant.weights_for(&recording).len(), recording.weights.len());
    let plan = Plan::compile(recording, Passes::ALL);
    assert_eq!(plan.recording.check(), Ok(()));
}

#[test]
fn logits_of_groups_are_those_of_their_tokens() {
    let assistant = join(drafter(), target("gemma4-dense")).unwrap();
    let mut scores = vec![0.0; 20];
    (scores[7], scores[19], scores[0]) = (3.0, 2.0, 1.0);
    let logits: Vec<f32> = (0..24_u8).map(f32::from).collect();
    let all = assistant.of_all_tokens(&scores, &logits);
    // The toy lists its 160 tokens backwards: group 7 begins with token 159 - 56.
    let expected = |token: usize| match 159 - token {
        at @ 56..64 => (at - 56) as f32,
        at @ 152..160 => (at - 152 + 8) as f32,
        at @ 0..8 => (at + 16) as f32,
        _ => f32::NEG_INFINITY,
    };
    assert_eq!(*all, (0..160).map(expected).collect::<Vec<_>>());
}

#[test]
fn the_first_difference_is_named() {
    let target_of = |edit: &dyn Fn(&mut Config)| {
        let mut config = target("gemma4-dense");
        edit(&mut config);
        join(drafter(), config).unwrap_err()
    };
    for (parts, error) in [
        (["vocabulary is 160", "120 in the model"], target_of(&|c| c.vocab = 120)),
        (["hidden size of the model is 64", "96 in"], target_of(&|c| c.hidden = 96)),
        (["key and value heads of windowed layers is 2", "4 in"], target_of(&|c| c.layers[1].kv_heads = 4)),
        (
            ["head size of global layers is 64", "32 in"],
            target_of(&|c| {
                c.layers[2].head_dim = 32;
                c.layers[2].rope.dims = 32;
                c.rope_factors = Some(hf2q_arch::RopeFactors::Proportional { rotated: 4, pairs: 16 });
            }),
        ),
        (
            ["rotation of windowed layers", "base: 500.0"],
            target_of(&|c| {
                c.layers.iter_mut().filter(|l| l.window.is_some()).for_each(|l| l.rope.base = 500.0);
            }),
        ),
        (
            ["global layers is some", "none in the model"],
            target_of(&|c| {
                let (window, like) = (c.layers[0].window, c.layers[0].clone());
                c.layers[2] = like;
                c.layers[2].window = window;
                c.rope_factors = None;
            }),
        ),
    ] {
        assert!(parts.iter().all(|part| error.contains(part)), "{parts:?}: {error}");
    }
    let error = join(drafter(), target("gemma3")).unwrap_err();
    assert!(error.contains("is gemma4 in the drafter's file and gemma3 in the model's"), "{error}");
    let error = join(target("gemma4-dense"), target("gemma4-dense")).unwrap_err();
    assert!(error.contains("a gemma4 model is no drafter") && error.contains("gemma4-assistant"), "{error}");
    let error = toy::build(drafter(), 1).record(&RecordOptions::default()).unwrap_err().to_string();
    assert!(error.contains("only drafts") && error.contains("--draft"), "{error}");
}

#[test]
fn tokens_that_do_not_exist_are_refused() {
    let good = toy::build(drafter(), 1);
    let mut weights: std::collections::HashMap<_, _> = good
        .config()
        .tensors()
        .iter()
        .filter_map(|row| Some((row.gguf.clone(), good.tensor(&row.gguf)?.clone())))
        .collect();
    let list = weights.get_mut("masked_embd_ordering").unwrap();
    let mut bytes = list.data.to_vec();
    bytes[12..16].copy_from_slice(&(-1_i32).to_le_bytes());
    list.data = Bytes::from_vec(bytes);
    let drafter = Model::new(good.config().clone(), weights).unwrap();
    let target = toy::build(target("gemma4-dense"), 1);
    let error = Assistant::new(drafter, &target).unwrap_err().to_string();
    assert!(error.contains("masked_embd_ordering lists 4294967295 at place 3"), "{error}");
    assert!(error.contains("below 160"), "{error}");
}

#[test]
fn taps_are_found_by_what_is_stored() {
    let usual = RecordOptions::default();
    let taps = |name: &str, options: &RecordOptions| {
        let model = toy::build(target(name), 1);
        let mut drafter = drafter();
        for (ours, theirs) in drafter.layers.iter_mut().zip(&model.config().layers) {
            ours.kv_heads = theirs.kv_heads;
        }
        let assistant = Assistant::new(toy::build(drafter, 1), &model).unwrap();
        assistant.taps(&model.record(options).unwrap()).map_err(|error| error.to_string())
    };
    let tap = |k: Option<&str>, v: &str| KvTap { k: k.map(str::to_owned), v: v.to_owned() };
    let windowed = tap(Some("L01.attn.k_rope"), "L01.attn.v_norm");
    let all = |global: KvTap| Taps { hidden: "output_norm".to_owned(), kv: vec![windowed.clone(), global] };
    let global = tap(Some("L02.attn.k_rope"), "L02.attn.v_norm");
    assert_eq!(taps("gemma4-dense", &usual), Ok(all(global.clone())));
    // Where keys are formed of values there are none to be seen; where both are kept apart there are.
    assert_eq!(taps("gemma4-moe", &usual), Ok(all(tap(None, "L02.attn.v_norm"))));
    let apart = RecordOptions { global: (KvFormat::F16, KvFormat::Q8_0), ..usual };
    assert_eq!(taps("gemma4-moe", &apart), Ok(all(global)));
    let assistant = join(drafter(), target("gemma4-dense")).unwrap();
    let other = toy::model(Architecture::Gemma3, 1).record(&usual).unwrap();
    let shorter = hf2q_plan::Recording { ops: other.ops[..3].to_vec(), ..other };
    let error = assistant.taps(&shorter).unwrap_err().to_string();
    assert!(error.contains("output_norm") && error.contains("joined to"), "{error}");
}
