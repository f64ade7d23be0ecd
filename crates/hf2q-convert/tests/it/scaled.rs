//! Whole checkpoints whose weights are floats of 8 bits with scales, against the same ones multiplied out.

use std::path::Path;

use hf2q_convert::ConvertError;
use hf2q_gguf::Gguf;
use hf2q_quant::float8::Float8;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::{Value, json};

use crate::support::{root, try_convert};

type Tensor = (String, Dtype, Vec<usize>, Vec<u8>);

/// How the scales of a checkpoint lie.
struct Layout {
    /// What takes the place of `weight` in the name, or is added to a name without it.
    suffix: &'static str,
    weights: Dtype,
    scales: Dtype,
    /// Rows and columns that share a scale; `usize::MAX`: all.
    block: [usize; 2],
    settings: Value,
}

fn layouts() -> [Layout; 5] {
    let all = usize::MAX;
    let compressed = json!({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {
        "num_bits": 8, "type": "float", "strategy": "channel", "group_size": null, "block_structure": null}}}});
    let fine = json!({"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [24, 48]});
    let layout =
        |suffix, weights, scales, block, settings| Layout { suffix, weights, scales, block, settings };
    [
        layout("scale", Dtype::F8_E4M3, Dtype::F32, [all, all], json!({"quant_method": "modelopt"})),
        layout("scale", Dtype::F8_E4M3, Dtype::BF16, [1, all], compressed),
        layout("scale_inv", Dtype::F8_E4M3, Dtype::F32, [24, 48], fine),
        layout("scale_inv", Dtype::F8_E4M3, Dtype::U8, [1, 32], json!({"scale_fmt": "ue8m0"})),
        layout("scale", Dtype::F8_E5M2, Dtype::F16, [16, 16], Value::Null),
    ]
}

/// The weight, its scale and the product.
fn quantized(layout: &Layout, (name, _, shape, _): &Tensor) -> [Tensor; 3] {
    let [before @ .., rows, columns] = &shape[..] else { panic!("{name} is no matrix") };
    let format = if layout.weights == Dtype::F8_E4M3 { Float8::E4M3 } else { Float8::E5M2 };
    let [down, across] = [layout.block[0].min(*rows), layout.block[1].min(*columns)];
    let [grid_rows, grid_columns] = [rows.div_ceil(down), columns.div_ceil(across)];
    let (mut codes, mut products) = (Vec::new(), Vec::new());
    for row in 0..before.iter().product::<usize>() * rows {
        for column in 0..*columns {
            let code = ((7 * row + 3 * column + name.len()) % 124) as u8 | ((column % 2) << 7) as u8;
            let at = (row / rows * grid_rows + row % rows / down) * grid_columns + column / across;
            let product = format.value(code) * 2f32.powi(at as i32 % 9 - 4);
            codes.push(code);
            products.extend(product.to_le_bytes());
        }
    }
    let grid = [before, &[grid_rows, grid_columns]].concat();
    let exponents = (0..grid.iter().product::<usize>()).map(|at| at as i32 % 9 - 4);
    let scales: Vec<u8> = match layout.scales {
        Dtype::F32 => exponents.flat_map(|e| 2f32.powi(e).to_le_bytes()).collect(),
        Dtype::BF16 => exponents.flat_map(|e| (((127 + e) << 7) as u16).to_le_bytes()).collect(),
        Dtype::F16 => exponents.flat_map(|e| (((15 + e) << 10) as u16).to_le_bytes()).collect(),
        _ => exponents.map(|e| (127 + e) as u8).collect(),
    };
    let whole = layout.block[0] == usize::MAX && before.is_empty();
    let scale = format!("{name}_{}", layout.suffix);
    [
        (name.clone(), layout.weights, shape.clone(), codes),
        (scale, layout.scales, if whole { vec![] } else { grid }, scales),
        (name.clone(), Dtype::F32, shape.clone(), products),
    ]
}

fn write(folder: &Path, model: &Path, settings: &Value, tensors: &[Tensor]) {
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(model.join(name), folder.join(name)).unwrap();
    }
    let mut config: Value =
        serde_json::from_slice(&std::fs::read(model.join("config.json")).unwrap()).unwrap();
    config["quantization_config"] = settings.clone();
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let views = tensors.iter().map(|(n, d, s, b)| (n.as_str(), TensorView::new(*d, s.clone(), b).unwrap()));
    std::fs::write(folder.join("model.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
}

fn tensors(model: &Path) -> Vec<Tensor> {
    let bytes = std::fs::read(model.join("model.safetensors")).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let own = |(name, t): (String, TensorView<'_>)| (name, t.dtype(), t.shape().to_vec(), t.data().to_vec());
    file.tensors().into_iter().map(own).collect()
}

fn file(folder: &Path) -> Result<(Gguf, Vec<String>), ConvertError> {
    let output = folder.join("out.gguf");
    let summary = try_convert(folder, &output, "f32")?;
    let sources = summary.records.into_iter().map(|r| r.source).collect();
    Ok((Gguf::open(&output).unwrap(), sources))
}

/// Rows in another order, one tensor for each expert, all experts in one, and longer names.
#[test]
fn scaled_weights_are_multiplied_out() {
    for model in ["llama", "qwen3-moe", "gemma4-moe", "gemma3-nested"] {
        let model = root().join("fixtures/tiny").join(model);
        for layout in layouts() {
            let (mut stored, mut plain) = (Vec::new(), Vec::new());
            for tensor in tensors(&model) {
                if !tensor.0.contains("_proj") || tensor.2.len() < 2 {
                    stored.push(tensor.clone());
                    plain.push(tensor);
                    continue;
                }
                let activation =
                    tensor.0.strip_suffix(".weight").map(|module| format!("{module}.input_scale"));
                stored.extend(activation.map(|name| (name, Dtype::F32, vec![], vec![0; 4])));
                let [weight, scale, product] = quantized(&layout, &tensor);
                stored.extend([weight, scale]);
                plain.push(product);
            }
            let (left, right) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            write(left.path(), &model, &layout.settings, &stored);
            write(right.path(), &model, &Value::Null, &plain);
            let context = format!("{} {:?} {:?}", model.display(), layout.block, layout.settings);
            let (found, sources) = file(left.path()).unwrap_or_else(|e| panic!("{context}: {e}"));
            let (expected, _) = file(right.path()).unwrap();
            assert_eq!(found.tensors().len(), expected.tensors().len(), "{context}");
            for tensor in expected.tensors() {
                let ours = found.data(found.tensor(&tensor.name).unwrap());
                assert!(ours == expected.data(tensor), "{context}: {}", tensor.name);
            }
            assert!(sources.iter().any(|s| s.starts_with("f8_") && s.ends_with(" + scales")), "{sources:?}");
        }
    }
}

#[test]
fn a_lost_or_wrong_scale_is_refused() {
    let model = root().join("fixtures/tiny/llama");
    let layout = &layouts()[1];
    let refusal = |edit: &dyn Fn(&mut Tensor) -> bool| {
        let mut stored = Vec::new();
        for tensor in tensors(&model) {
            if tensor.0.ends_with("q_proj.weight") {
                let [weight, mut scale, _] = quantized(layout, &tensor);
                stored.push(weight);
                if edit(&mut scale) {
                    stored.push(scale);
                }
            } else {
                stored.push(tensor);
            }
        }
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &model, &layout.settings, &stored);
        match file(folder.path()) {
            Ok(_) => panic!("not refused"),
            Err(error) => error.to_string(),
        }
    };
    let lost = refusal(&|_| false);
    assert!(lost.contains("self_attn.q_proj.weight") && lost.contains("q_proj.weight_scale_inv, "), "{lost}");
    let short = refusal(&|scale| {
        (scale.2, scale.3) = (vec![64, 1], scale.3[..128].to_vec());
        true
    });
    assert!(short.contains("has shape [64, 1], which does not fit its weight of shape [128, 64]"), "{short}");
    let renamed = refusal(&|scale| {
        scale.0.push_str("_of_old");
        true
    });
    assert!(renamed.contains("has no scale for it"), "{renamed}");
}
