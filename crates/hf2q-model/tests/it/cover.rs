//! The tensor map and the recorded layers name the same tensors.

use std::collections::BTreeSet;

use hf2q_arch::Class;
use hf2q_model::{Model, RecordOptions, toy};
use hf2q_plan::{Passes, Plan, Recording};

fn recorded(recording: &Recording) -> BTreeSet<String> {
    recording.weights.iter().map(|id| recording.tensors[id.index()].name.clone()).collect()
}

/// Names of the map's tensors that a file of the model holds.
fn mapped(model: &Model) -> BTreeSet<String> {
    let rows = model.config().tensors().into_iter();
    rows.filter(|r| r.class != Class::Output || !model.config().tied_output).map(|r| r.gguf).collect()
}

#[test]
fn layers_read_every_tensor_of_the_map_and_no_other() {
    for (name, model) in toy::all(1) {
        let recording = model.record(&RecordOptions::default()).unwrap();
        assert_eq!(recorded(&recording), mapped(&model), "{name}");
        assert!(model.warnings().is_empty(), "{name}");
    }
}

#[test]
fn weights_come_in_the_order_of_the_recording() {
    for (name, model) in toy::all(1) {
        let recording = model.record(&RecordOptions::default()).unwrap();
        let bytes = model.weights_for(&recording);
        assert_eq!(bytes.len(), recording.weights.len());
        for (id, bytes) in recording.weights.iter().zip(&bytes) {
            let tensor = &recording.tensors[id.index()];
            let w = recording.weight(*id);
            assert_eq!(bytes.len(), w.cols * w.rows * w.experts * 4, "{name}: {}", tensor.name);
            assert_eq!(**bytes, *model.tensor(&tensor.name).unwrap().data, "{name}: {}", tensor.name);
        }
    }
}

#[test]
fn every_toy_compiles_with_and_without_fusion() {
    for (name, model) in toy::all(1) {
        let recording = model.record(&RecordOptions::default()).unwrap();
        let plain = Plan::compile(recording.clone(), Passes::NONE);
        let fused = Plan::compile(recording.clone(), Passes::ALL);
        assert_eq!(plain.recording.ops.len(), recording.ops.len());
        let gone = recording.ops.len() - fused.recording.ops.len();
        // Every layer has at least the two rotations after head norms, or the two residual adds after norms, that fuse; plain
        // Llama has neither.
        if !name.starts_with("llama") {
            assert!(gone >= 2 * model.config().layers.len(), "{name}: {gone} operations fused away");
        }
        assert_eq!(fused.recording.weights, recording.weights, "{name}");
    }
}

#[test]
fn toys_depend_on_their_seed_alone() {
    for ((name, a), ((_, b), (_, c))) in toy::all(5).into_iter().zip(toy::all(5).into_iter().zip(toy::all(6)))
    {
        let data = |m: &Model| m.tensor("token_embd.weight").unwrap().data.to_vec();
        assert_eq!(data(&a), data(&b), "{name}");
        assert_ne!(data(&a), data(&c), "{name}");
    }
}

#[test]
fn toy_values_are_the_same_on_every_machine() {
    let model = toy::model(hf2q_arch::Architecture::Llama, 0);
    let data = &model.tensor("token_embd.weight").unwrap().data;
    let first: Vec<f32> = data[..16].as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
    assert_eq!(first, [0.199_825_4, 0.583_574_65, -0.426_863_8, 0.083_097_7]);
}
