//! Files in, models out; and what is said about files that do not fit.

use hf2q_arch::{Class, Config, RopeFactors};
use hf2q_gguf::{GgufBuilder, Metadata, TensorType, Value};
use hf2q_model::{Model, ModelError, Warning, toy};

/// The file of a toy, its tensors passed through `edit`.
fn file(model: &Model, edit: impl Fn(&str) -> Edit) -> GgufBuilder {
    let mut metadata = Metadata::default();
    model.config().to_metadata(&mut metadata);
    let mut builder = GgufBuilder::new().metadata(&metadata);
    for row in model.config().tensors() {
        let Some(stored) = model.tensor(&row.gguf) else { continue };
        let shape: Vec<u64> = stored.shape.iter().map(|&d| d as u64).collect();
        builder = match edit(&row.gguf) {
            Edit::Keep => builder.tensor(&row.gguf, stored.ty, &shape, stored.data.to_vec()),
            Edit::Drop => builder,
            Edit::Cut => builder.f32(&row.gguf, &[32], &[0.0; 32]),
            Edit::Half => builder.tensor(
                &row.gguf,
                TensorType::F16,
                &shape,
                vec![0; shape.iter().product::<u64>() as usize * 2],
            ),
        };
    }
    builder
}

enum Edit {
    Keep,
    Drop,
    Cut,
    Half,
}

fn named(name: &str) -> Model {
    toy::all(2).into_iter().find(|(n, _)| *n == name).unwrap().1
}

/// What a file's configuration reads as.
fn from_file(mut config: Config) -> Config {
    config.rope_factors = config.rope_factors.map(|_| RopeFactors::Stored);
    config
}

#[test]
fn every_toy_survives_a_file() {
    for (name, model) in toy::all(2) {
        let read = Model::load(&file(&model, |_| Edit::Keep).open().unwrap()).unwrap();
        assert_eq!(*read.config(), from_file(model.config().clone()), "{name}");
        assert_eq!(read.warnings(), [], "{name}");
        for row in model.config().tensors() {
            let data = |m: &Model| m.tensor(&row.gguf).map(|t| t.data.to_vec());
            assert_eq!(data(&read), data(&model), "{name}: {}", row.gguf);
        }
    }
}

#[test]
fn a_file_on_disk_is_named_in_errors() {
    let dir = std::env::temp_dir().join(format!("hf2q-model-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("broken.gguf");
    let broken =
        file(&named("qwen3"), |name| if name == "output_norm.weight" { Edit::Drop } else { Edit::Keep });
    broken.write(&path).unwrap();
    let message = Model::load(&hf2q_gguf::Gguf::open(&path).unwrap()).unwrap_err().to_string();
    std::fs::remove_dir_all(&dir).unwrap();
    assert!(message.contains("broken.gguf: ") && message.contains("output_norm.weight"), "{message}");
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    let edit = |name: &str| match name {
        "blk.0.attn_q.weight" | "blk.1.ffn_down.weight" => Edit::Drop,
        "blk.0.ffn_norm.weight" => Edit::Cut,
        "blk.1.attn_norm.weight" => Edit::Half,
        _ => Edit::Keep,
    };
    let gguf = file(&named("qwen3"), edit).f32("blk.0.attn_q.bias", &[1], &[0.0]).open().unwrap();
    let error = Model::load(&gguf).unwrap_err();
    let message = error.to_string();
    let ModelError::Tensors { missing, wrong, unsupported, .. } = error else { panic!("{message}") };
    assert_eq!(missing, ["blk.0.attn_q.weight", "blk.1.ffn_down.weight"]);
    let wrong: Vec<_> =
        wrong.iter().map(|w| (w.name.as_str(), w.found.as_str(), w.expected.as_str())).collect();
    assert_eq!(
        wrong,
        [("blk.0.ffn_norm.weight", "[32]", "[64]"), ("blk.1.attn_norm.weight", "of type f16", "f32")]
    );
    assert_eq!(unsupported, ["blk.0.attn_q.bias"]);
    for part in ["qwen3 model", "2 missing", "blk.1.ffn_down.weight", "[32], expected [64]", "attn_q.bias"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn tensors_that_nothing_reads_are_a_warning() {
    // Published E2B files hold the unused projections of layers that share keys and values.
    let model = named("gemma4-per-layer");
    let builder = file(&model, |_| Edit::Keep).f32("blk.3.attn_k.weight", &[64, 2], &[0.0; 128]);
    let read = Model::load(&builder.open().unwrap()).unwrap();
    let [Warning::UnusedTensors { names }] = read.warnings() else { panic!("{:?}", read.warnings()) };
    assert_eq!(names, &["blk.3.attn_k.weight"]);
    assert!(read.warnings()[0].to_string().contains("blk.3.attn_k.weight"));
}

#[test]
fn quantized_matrices_and_tied_outputs() {
    let model = named("llama");
    let rows = model.config().tensors();
    let mut builder = GgufBuilder::new();
    let mut metadata = Metadata::default();
    model.config().to_metadata(&mut metadata);
    builder = builder.metadata(&metadata);
    for row in rows.iter().filter(|r| r.class != Class::Output) {
        let shape: Vec<u64> = row.shape.iter().map(|&d| d as u64).collect();
        let ty = if row.shape.len() > 1 { TensorType::Q8_0 } else { TensorType::F32 };
        let bytes = ty.row_bytes(row.shape[0]).unwrap() * row.shape[1..].iter().product::<usize>();
        builder = builder.tensor(&row.gguf, ty, &shape, vec![0; bytes]);
    }
    let read = Model::load(&builder.open().unwrap()).unwrap();
    assert!(read.config().tied_output && !model.config().tied_output);
    let recording = read.record(&hf2q_model::RecordOptions::default()).unwrap();
    let types: Vec<TensorType> = recording.weights.iter().map(|id| recording.weight(*id).ty).collect();
    assert!(types.contains(&TensorType::Q8_0));
}

#[test]
fn metadata_that_describe_no_model_are_refused() {
    let builder =
        file(&named("llama"), |_| Edit::Keep).key("general.architecture", Value::String("rwkv".to_owned()));
    let message = Model::load(&builder.open().unwrap()).unwrap_err().to_string();
    assert!(message.contains("rwkv") && message.contains("llama"), "{message}");
}

#[test]
fn a_layer_scale_may_be_absent() {
    let model = named("gemma4-dense");
    let edit = |name: &str| if name.contains("layer_output_scale") { Edit::Drop } else { Edit::Keep };
    let read = Model::load(&file(&model, edit).open().unwrap()).unwrap();
    let recording = read.record(&hf2q_model::RecordOptions::default()).unwrap();
    assert!(!recording.ops.iter().any(|o| o.name == "L00.scale"));
    let recording = model.record(&hf2q_model::RecordOptions::default()).unwrap();
    assert!(recording.ops.iter().any(|o| o.name == "L00.scale"));
}
