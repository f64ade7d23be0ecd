//! Whole checkpoints whose weights were trained for `q4_0`.

use std::path::Path;

use hf2q_convert::{Options, Recipe, Summary, Why};
use hf2q_gguf::{Gguf, TensorInfo, TensorType};
use hf2q_quant::half::{bf16_bytes_to_f32, bf16_to_f32, f32_to_bf16, f32_to_bf16_bytes};
use safetensors::Dtype;
use safetensors::tensor::TensorView;

use crate::support::{Silent, root};

const BLOCK: usize = 32;

/// Codes -7..=7 over the largest magnitude, with a bf16 step: no block has the code that the ordinary encoder gives
/// its largest magnitude.
fn snap(block: &mut [f32]) {
    let most = block.iter().fold(0.0f32, |most, v| most.max(v.abs()));
    let step = bf16_to_f32(f32_to_bf16(most / 7.0));
    if step > 0.0 {
        block.iter_mut().for_each(|v| *v = bf16_to_f32(f32_to_bf16((*v / step).round() * step)));
    }
}

/// A copy of a model of bf16 weights with those of `chosen` matrices on lattices.
fn trained(model: &Path, folder: &Path, chosen: impl Fn(&str) -> bool) {
    for name in ["config.json", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(model.join(name), folder.join(name)).unwrap();
    }
    let bytes = std::fs::read(model.join("model.safetensors")).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors = Vec::new();
    for (name, tensor) in file.tensors() {
        let (shape, mut data) = (tensor.shape().to_vec(), tensor.data().to_vec());
        if tensor.dtype() == Dtype::BF16 && shape.len() > 1 && chosen(&name) {
            let mut values = vec![0.0; data.len() / 2];
            bf16_bytes_to_f32(&data, &mut values);
            values.chunks_mut(BLOCK).for_each(snap);
            f32_to_bf16_bytes(&values, &mut data);
        }
        tensors.push((name, tensor.dtype(), shape, data));
    }
    let views = tensors.iter().map(|(n, d, s, b)| (n.as_str(), TensorView::new(*d, s.clone(), b).unwrap()));
    std::fs::write(folder.join("model.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
}

fn write(folder: &Path, ty: &str, lattice: bool) -> (Gguf, Summary) {
    let output = folder.join(format!("{ty}-{lattice}.gguf"));
    let options = Options { lattice, ..Options::new(Recipe::from_name(ty).unwrap()) };
    let summary = hf2q_convert::convert(folder, &output, options, &mut Silent::default()).unwrap();
    (Gguf::open(&output).unwrap(), summary)
}

/// The values as bf16 would hold them.
fn values(file: &Gguf, tensor: &TensorInfo) -> Vec<u16> {
    let mut values = vec![0.0; tensor.shape.iter().product::<u64>() as usize];
    hf2q_quant::dequantize(tensor.ty, file.data(tensor), &mut values).unwrap();
    values.into_iter().map(f32_to_bf16).map(|bits| if bits == 0x8000 { 0 } else { bits }).collect()
}

#[test]
fn trained_weights_come_through_unchanged() {
    for model in ["models/demo/tiny-dense", "fixtures/tiny/gemma4-moe"] {
        let dir = tempfile::tempdir().unwrap();
        trained(&root().join(model), dir.path(), |_| true);
        let (exact, _) = write(dir.path(), "f32", true);
        let (file, summary) = write(dir.path(), "q4_0", true);
        let mut found = 0;
        for record in summary.records.iter().filter(|r| r.why == Why::Lattice) {
            let tensor = file.tensor(&record.name).unwrap();
            assert_eq!(tensor.ty, TensorType::Q4_0, "{}", record.name);
            let expected = values(&exact, exact.tensor(&record.name).unwrap());
            assert!(values(&file, tensor) == expected, "{model}: {}", record.name);
            found += 1;
        }
        assert!(summary.records.iter().any(|r| r.name == "token_embd.weight" && r.why == Why::Lattice));
        let quantized = file.tensors().iter().filter(|t| t.ty.block_len() > 1).count();
        assert!(found > 10 && found == quantized, "{model}: {found} of {quantized}");
        assert!(summary.warnings.iter().any(|w| w.contains("trained for q4_0")), "{:?}", summary.warnings);
    }
}

#[test]
fn only_trained_weights_are_encoded_so() {
    let dir = tempfile::tempdir().unwrap();
    trained(&root().join("models/demo/tiny-dense"), dir.path(), |name| name.contains("down_proj"));
    let (usual, summary) = write(dir.path(), "q4_0", false);
    assert!(summary.records.iter().all(|r| r.why != Why::Lattice) && summary.warnings.is_empty());
    let (file, summary) = write(dir.path(), "q4_0", true);
    for record in &summary.records {
        let is_trained = record.name.contains("ffn_down");
        assert_eq!(record.why == Why::Lattice, is_trained, "{}", record.name);
        let (ours, theirs) = (file.tensor(&record.name).unwrap(), usual.tensor(&record.name).unwrap());
        assert_eq!(file.data(ours) == usual.data(theirs), !is_trained, "{}", record.name);
    }
}
