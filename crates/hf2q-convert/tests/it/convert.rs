//! What comes out of sound checkpoints.

use hf2q_arch::Config;
use hf2q_convert::{Checkpoint, ConvertError, Folder, Options, Recipe};
use hf2q_gguf::TensorType;

use crate::support::{Silent, checkpoints, convert, root, try_convert};

#[test]
fn every_checkpoint_becomes_a_file_that_describes_it() {
    for folder in checkpoints() {
        let json = Folder::new(&folder).required_json("config.json").unwrap();
        let config = Config::from_hf(&json).unwrap();
        for ty in ["f32", "f16", "bf16", "q8_0", "q4_0"] {
            let (_dir, gguf, summary) = convert(&folder, ty);
            let read = Config::from_metadata(gguf.metadata(), &|name| gguf.tensor(name).is_some()).unwrap();
            assert_eq!(
                (read.layers.len(), read.hidden),
                (config.layers.len(), config.hidden),
                "{}",
                folder.display()
            );
            let bytes: u64 = gguf.tensors().iter().map(|t| t.bytes).sum();
            assert_eq!(summary.records.iter().map(|r| r.bytes).sum::<u64>(), bytes);
            for row in config.tensors().iter().filter(|r| !r.optional) {
                let tensor =
                    gguf.tensor(&row.gguf).unwrap_or_else(|| panic!("{} in {}", row.gguf, folder.display()));
                let shape: Vec<u64> = row.shape.iter().map(|&d| d as u64).collect();
                assert_eq!(tensor.shape, shape, "{}", row.gguf);
            }
        }
    }
}

#[test]
fn bf16_values_come_through_unchanged() {
    let folder = root().join("models/demo/tiny-dense");
    let (_dir, gguf, _) = convert(&folder, "bf16");
    let checkpoint = Checkpoint::open(&Folder::new(&folder)).unwrap();
    let pairs = [
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("blk.3.ffn_down.weight", "model.layers.3.mlp.down_proj.weight"),
    ];
    for (ours, theirs) in pairs {
        let tensor = gguf.tensor(ours).unwrap();
        assert_eq!(tensor.ty, TensorType::Bf16);
        assert!(gguf.data(tensor) == &*checkpoint.get(theirs).unwrap().bytes, "{ours}");
    }
}

#[test]
fn quantized_rows_are_those_of_the_encoder() {
    let folder = root().join("models/demo/tiny-moe");
    let (_dir, exact, _) = convert(&folder, "f32");
    let (_dir2, quantized, _) = convert(&folder, "q4_0");
    let tensor = quantized.tensor("blk.2.ffn_down_exps.weight").unwrap();
    let source = exact.data(exact.tensor(&tensor.name).unwrap());
    let values: Vec<f32> = source.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
    let mut expected = Vec::new();
    hf2q_quant::quantize(TensorType::Q4_0, &values, &mut expected).unwrap();
    assert_eq!(tensor.ty, TensorType::Q4_0);
    assert!(quantized.data(tensor) == expected);
}

#[test]
fn norms_and_routers_stay_exact() {
    let (_dir, gguf, _) = convert(&root().join("models/demo/tiny-moe"), "q4_0");
    for name in ["blk.0.attn_norm.weight", "blk.0.ffn_gate_inp.weight", "blk.0.layer_output_scale.weight"] {
        assert_eq!(gguf.tensor(name).unwrap().ty, TensorType::F32, "{name}");
    }
    assert_eq!(gguf.tensor("token_embd.weight").unwrap().ty, TensorType::Q6K);
}

#[test]
fn a_cancelled_conversion_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new(Recipe::from_name("f32").unwrap());
    let mut progress = Silent { stop_after: Some(1 << 20), ..Silent::default() };
    let folder = root().join("models/demo/tiny-dense");
    let result = hf2q_convert::convert(&folder, &dir.path().join("out.gguf"), options, &mut progress);
    assert!(matches!(result, Err(ConvertError::Cancelled)), "{result:?}");
    assert!(progress.done < progress.total);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn conversion_is_deterministic() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = |name: &str| {
        let path = dir.path().join(name);
        try_convert(&root().join("fixtures/tiny/llama"), &path, "q8_0").unwrap();
        std::fs::read(path).unwrap()
    };
    assert!(bytes("a.gguf") == bytes("b.gguf"));
}
