use std::collections::BTreeMap;

use safetensors::tensor::TensorView;
use serde_json::json;

use super::*;
use crate::checkpoint::Checkpoint;
use crate::folder::Folder;

fn tensor(dtype: Dtype, shape: &[usize], bytes: Vec<u8>) -> CheckpointTensor {
    assert_eq!(shape.iter().product::<usize>() * dtype.bitsize() / 8, bytes.len());
    CheckpointTensor { dtype, shape: shape.to_vec(), bytes: Bytes::from_vec(bytes), shard: "part".to_owned() }
}

fn weight(shape: &[usize]) -> CheckpointTensor {
    let count = shape.iter().product();
    tensor(Dtype::F8_E4M3, shape, (0..count).map(|i| (i % 127) as u8).collect())
}

/// Scales 1, 2, 3, ...
fn scale(shape: &[usize]) -> CheckpointTensor {
    let count: usize = shape.iter().product();
    tensor(Dtype::F32, shape, (1..=count).flat_map(|i| (i as f32).to_le_bytes()).collect())
}

fn settings(config: serde_json::Value) -> Quantization {
    let config = json!({ "quantization_config": config });
    Quantization::read(&Folder::new(std::path::Path::new("/model")), &config).unwrap()
}

fn find(
    weight: &CheckpointTensor,
    scales: &[(&str, CheckpointTensor)],
    settings: &Quantization,
) -> Result<Option<Scale>, QuantizedError> {
    let get = |name: &str| scales.iter().find(|(n, _)| *n == name).map(|(_, t)| t);
    Scale::find("a.q_proj.weight", weight, settings, get)
}

/// The scale of every element of a weight.
fn grid(shape: &[usize], scale: CheckpointTensor, settings: &Quantization) -> Vec<Vec<f32>> {
    let found = find(&weight(shape), &[("a.q_proj.weight_scale", scale)], settings).unwrap().unwrap();
    let columns = shape[shape.len() - 1];
    let row = |row| {
        let mut values = vec![1.0; columns];
        found.apply(row, &mut values);
        values
    };
    (0..shape.iter().product::<usize>() / columns).map(row).collect()
}

fn plain(shape: &[usize], scale_shape: &[usize]) -> Vec<Vec<f32>> {
    grid(shape, scale(scale_shape), &Quantization::default())
}

#[test]
fn one_for_the_tensor() {
    for shape in [&[][..], &[1], &[1, 1], &[1, 1, 1, 1]] {
        assert_eq!(plain(&[3, 4], shape), vec![vec![1.0; 4]; 3], "{shape:?}");
    }
    assert_eq!(plain(&[2, 2, 3], &[1]), vec![vec![1.0; 3]; 4]);
}

#[test]
fn one_for_each_row() {
    for shape in [&[3][..], &[3, 1]] {
        assert_eq!(plain(&[3, 2], shape), [[1.0; 2], [2.0; 2], [3.0; 2]], "{shape:?}");
    }
    assert_eq!(plain(&[4, 4], &[4])[1], [2.0; 4], "rows, also where there are as many columns");
    assert_eq!(plain(&[2, 3], &[1, 3]), [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]);
}

#[test]
fn one_for_each_block() {
    // 3 x 5 blocks, the last of each direction smaller.
    let (rows, columns) = (300, 576);
    let expected = |r: usize, c: usize| (r / 128 * 5 + c / 128 + 1) as f32;
    for shape in [&[3, 5][..], &[3, 1, 5, 1]] {
        let found = plain(&[rows, columns], shape);
        for (r, values) in found.iter().enumerate() {
            for (c, &value) in values.iter().enumerate() {
                assert_eq!(value, expected(r, c), "{shape:?}: {r} {c}");
            }
        }
    }
}

#[test]
fn groups_of_a_row_as_powers_of_two() {
    let scales = tensor(Dtype::U8, &[2, 3], vec![127, 128, 129, 126, 0, 254]);
    let found = grid(&[2, 96], scales, &Quantization::default());
    let row = |values: [f32; 3]| values.into_iter().flat_map(|v| [v; 32]).collect::<Vec<_>>();
    assert_eq!(found, [row([1.0, 2.0, 4.0]), row([0.5, 2f32.powi(-127), 2f32.powi(127)])]);
}

#[test]
fn configured_blocks_come_first() {
    // Two blocks of 200 rows: 128 + 72 by default, 100 + 100 as configured.
    let heights = |settings: &Quantization| {
        let found = grid(&[200, 60], scale(&[2, 2]), settings);
        let edge = found.iter().position(|values| values[0] != 1.0).unwrap();
        let across = found[0].iter().position(|&v| v != 1.0).unwrap();
        (edge, across)
    };
    assert_eq!(heights(&Quantization::default()), (128, 32));
    assert_eq!(heights(&settings(json!({"weight_block_size": [100, 50]}))), (100, 50));
    assert_eq!(
        heights(&settings(json!({"weight_block_size": [64, 64]}))),
        (128, 32),
        "does not fit the shape"
    );
}

#[test]
fn experts_in_one_tensor() {
    let each = plain(&[2, 3, 4], &[2]);
    assert_eq!(each, [[1.0; 4], [1.0; 4], [1.0; 4], [2.0; 4], [2.0; 4], [2.0; 4]]);
    assert_eq!(plain(&[2, 3, 4], &[2, 1, 1]), each);
    let rows: Vec<f32> = plain(&[2, 3, 4], &[2, 3, 1]).iter().map(|values| values[3]).collect();
    assert_eq!(rows, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let blocks = plain(&[2, 256, 256], &[2, 2, 2]);
    let at = |expert: usize, r: usize, c: usize| blocks[expert * 256 + r][c];
    assert_eq!(
        [at(0, 0, 0), at(0, 127, 128), at(0, 128, 0), at(1, 0, 0), at(1, 255, 255)],
        [1.0, 2.0, 3.0, 5.0, 8.0]
    );
    assert!(
        find(&weight(&[6, 4, 4]), &[("a.q_proj.weight_scale", scale(&[3, 4, 1]))], &Quantization::default())
            .is_err()
    );
}

#[test]
fn every_type_of_scale() {
    let two = [
        (Dtype::F64, 2f64.to_le_bytes().to_vec()),
        (Dtype::F32, 2f32.to_le_bytes().to_vec()),
        (Dtype::F16, 0x4000u16.to_le_bytes().to_vec()),
        (Dtype::BF16, 0x4000u16.to_le_bytes().to_vec()),
        (Dtype::F8_E8M0, vec![128]),
        (Dtype::U8, vec![128]),
    ];
    for (dtype, bytes) in two {
        assert_eq!(
            grid(&[1, 2], tensor(dtype, &[1], bytes), &Quantization::default()),
            [[2.0; 2]],
            "{dtype:?}"
        );
    }
    for dtype in [Dtype::F8_E4M3, Dtype::I8] {
        let scale = tensor(dtype, &[1], vec![1]);
        let error = find(&weight(&[2, 2]), &[("a.q_proj.weight_scale", scale)], &Quantization::default())
            .unwrap_err();
        assert!(
            matches!(&error, QuantizedError::Dtype { scale, .. } if scale == "a.q_proj.weight_scale"),
            "{error}"
        );
    }
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    for shape in
        [&[2][..], &[5], &[4, 3], &[3, 0], &[0], &[2, 4], &[3, 7, 1], &[3, 1, 4], &[1, 1, 2], &[4, 1, 3, 1]]
    {
        let error =
            find(&weight(&[3, 7]), &[("a.q_proj.weight_scale", scale(shape))], &Quantization::default());
        let error = error.unwrap_err().to_string();
        assert!(error.contains("a.q_proj.weight_scale in part has shape"), "{error}");
        assert!(
            error
                .contains("shape [3, 7]; accepted are [1] (the whole tensor), [3, 1] (rows), [1, 1] (blocks"),
            "{error}"
        );
    }
}

#[test]
fn names_of_every_writer() {
    let settings = Quantization::default();
    for name in ["weight_scale_inv", "weight_scale", "qscale_weight", "scale_weight", "scale"] {
        let name = format!("a.q_proj.{name}");
        let found = find(&weight(&[2, 2]), &[(&name, scale(&[1]))], &settings).unwrap().unwrap();
        assert_eq!(found.name(), name);
    }
    let experts = weight(&[2, 2, 2]);
    let scales = scale(&[2, 1, 1]);
    for name in ["a.experts.down_proj_scale_inv", "a.experts.down_proj_scale"] {
        let get = |n: &str| (n == name).then_some(&scales);
        assert_eq!(
            Scale::find("a.experts.down_proj", &experts, &settings, get).unwrap().unwrap().name(),
            name
        );
    }
}

#[test]
fn a_missing_or_second_scale_is_refused() {
    let settings = Quantization::default();
    let error = find(&weight(&[2, 2]), &[("b.q_proj.weight_scale", scale(&[1]))], &settings).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("tensor a.q_proj.weight in part is F8_E4M3 but"), "{text}");
    assert!(text.contains("none of a.q_proj.weight_scale_inv, a.q_proj.weight_scale, "), "{text}");
    let both = [("a.q_proj.weight_scale", scale(&[1])), ("a.q_proj.weight_scale_inv", scale(&[1]))];
    let error = find(&weight(&[2, 2]), &both, &settings).unwrap_err();
    assert!(matches!(error, QuantizedError::Several { ref names, .. } if names.len() == 2), "{error}");
}

#[test]
fn weights_without_need_of_a_scale() {
    let bf16 = tensor(Dtype::BF16, &[1, 2], vec![0; 4]);
    let scales = [("a.q_proj.weight_scale", scale(&[1]))];
    assert!(find(&bf16, &scales, &Quantization::default()).unwrap().is_none());
    let listed = settings(json!({"modules_to_not_convert": ["a.q_proj"]}));
    assert!(find(&weight(&[2, 2]), &[], &listed).unwrap().is_none());
    assert!(find(&weight(&[2, 2]), &scales, &listed).unwrap().is_some(), "a scale that is there counts");
}

#[test]
fn scales_of_activations() {
    for name in [
        "model.layers.0.mlp.up_proj.input_scale",
        "model.layers.0.self_attn.k_scale",
        "model.layers.0.self_attn.v_proj.output_scale",
        "model.layers.0.mlp.down_proj.activation_scale",
        "model.layers.0.mlp.experts.gate_up_proj_activation_scale",
    ] {
        assert!(is_activation_scale(name), "{name}");
    }
    for name in [
        "model.layers.0.mlp.up_proj.weight_scale",
        "model.layers.0.router.scale",
        "model.layers.0.router.per_expert_scale",
        "model.layers.0.layer_scalar",
        "model.layers.0.self_attn.k_norm.weight",
    ] {
        assert!(!is_activation_scale(name), "{name}");
    }
}

#[test]
fn packed_weights_are_refused_by_name_or_type() {
    let refuse = |name: &str, dtype: Dtype| {
        let bits = dtype.bitsize();
        let tensor = tensor(dtype, &[8], vec![0; bits]);
        refuse_packed([("model.norm.weight", &weight(&[4])), (name, &tensor)].into_iter())
            .map_err(|e| e.to_string())
    };
    assert_eq!(refuse("a.weight", Dtype::F8_E4M3), Ok(()));
    assert_eq!(refuse("a.weight_scale", Dtype::F8_E8M0), Ok(()));
    for (name, dtype, expected) in [
        ("a.q_proj.qweight", Dtype::I32, "a.q_proj.qweight in part (I32) holds weights of GPTQ or AWQ"),
        ("a.q_proj.weight_packed", Dtype::U8, "compressed-tensors"),
        ("a.q_proj.weight_scale_2", Dtype::F32, "NVFP4"),
        ("a.experts.gate_up_proj_blocks", Dtype::U8, "MXFP4"),
        ("a.q_proj.weight", Dtype::F4, "floats of 4 bits"),
        ("a.q_proj.weight", Dtype::F8_E4M3FNUZ, "without negative zero"),
    ] {
        let error = refuse(name, dtype).unwrap_err();
        assert!(
            error.contains(expected) && error.contains("cannot be converted; take the unquantized"),
            "{error}"
        );
    }
}

/// From a file on disk: weights of two types, with their scales.
#[test]
fn a_checkpoint_gives_its_values_back() {
    let dir = tempfile::tempdir().unwrap();
    let codes: Vec<u8> = (0..4 * 256).map(|i| ((i * 37) % 127) as u8).collect();
    let blocks: Vec<u8> = [0.5f32, 3.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    let rows: Vec<u8> = [0x3f80u16, 0x4000, 0x3f00, 0x4040].iter().flat_map(|v| v.to_le_bytes()).collect();
    let tensors = BTreeMap::from([
        ("x.weight", TensorView::new(Dtype::F8_E4M3, vec![4, 256], &codes).unwrap()),
        ("x.weight_scale_inv", TensorView::new(Dtype::F32, vec![1, 2], &blocks).unwrap()),
        ("y.weight", TensorView::new(Dtype::F8_E5M2, vec![4, 256], &codes).unwrap()),
        ("y.weight_scale", TensorView::new(Dtype::BF16, vec![4, 1], &rows).unwrap()),
    ]);
    safetensors::serialize_to_file(tensors, None, &dir.path().join("model.safetensors")).unwrap();
    let checkpoint = Checkpoint::open(&Folder::new(dir.path())).unwrap();
    let read = |name: &str| {
        let weight = checkpoint.get(name).unwrap();
        let format = float8(weight.dtype).unwrap();
        let scale =
            Scale::find(name, weight, &Quantization::default(), |n| checkpoint.get(n)).unwrap().unwrap();
        let mut values = vec![0.0; 4 * 256];
        format.decode(&weight.bytes, &mut values);
        values.chunks_mut(256).enumerate().for_each(|(row, values)| scale.apply(row, values));
        values
    };
    for (i, (x, y)) in read("x.weight").into_iter().zip(read("y.weight")).enumerate() {
        let by_block = [0.5, 3.0][i % 256 / 128];
        let by_row = [1.0, 2.0, 0.5, 3.0][i / 256];
        assert_eq!(x, Float8::E4M3.value(codes[i]) * by_block, "{i}");
        let expected = Float8::E5M2.value(codes[i]) * by_row;
        assert!(y == expected || (y.is_nan() && expected.is_nan()), "{i}: {y} for {expected}");
    }
}
