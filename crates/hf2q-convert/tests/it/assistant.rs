//! Drafters of Gemma 4.

use hf2q_arch::{Config, RopeFactors};
use hf2q_convert::{Checkpoint, Folder};
use hf2q_gguf::{Gguf, TensorType};

use crate::support::{convert, root, try_convert};

#[test]
fn the_file_says_what_the_checkpoint_does() {
    for name in ["dense", "unified", "ordered"] {
        let folder = root().join("fixtures/assistant").join(name);
        let json = Folder::new(&folder).required_json("config.json").unwrap();
        let config = Config { rope_factors: Some(RopeFactors::Stored), ..Config::from_hf(&json).unwrap() };
        let (_dir, gguf, summary) = convert(&folder, "bf16");
        let read = Config::from_metadata(gguf.metadata(), &|name| gguf.tensor(name).is_some()).unwrap();
        assert_eq!(read, config, "{name}");
        assert_eq!(gguf.metadata().str("general.architecture").unwrap(), "gemma4-assistant");
        assert_eq!(gguf.metadata().u64("gemma4-assistant.embedding_length_out").unwrap(), 64);
        // It has no tokenizer, and needs none.
        assert!(gguf.metadata().get("tokenizer.ggml.model").is_none());
        assert_eq!(summary.warnings, Vec::<String>::new(), "{name}");
        assert!(gguf.tensors().iter().all(|t| !t.name.contains("attn_k") && !t.name.contains("attn_v")));
    }
}

#[test]
fn groups_of_tokens_come_through_unchanged() {
    let folder = root().join("fixtures/assistant/ordered");
    let checkpoint = Checkpoint::open(&Folder::new(&folder)).unwrap();
    let list = &checkpoint.get("masked_embedding.token_ordering").unwrap().bytes;
    let list: Vec<i64> = list.as_chunks().0.iter().map(|&b| i64::from_le_bytes(b)).collect();
    let check = |gguf: &Gguf, what: &str| {
        let tensor = gguf.tensor("masked_embd_ordering").unwrap();
        let found = gguf.data(tensor).as_chunks().0.iter().map(|&b| i64::from(i32::from_le_bytes(b)));
        assert_eq!((tensor.ty, tensor.shape.as_slice()), (TensorType::I32, &[384][..]), "{what}");
        assert_eq!(found.collect::<Vec<_>>(), list, "{what}");
        let centroids = gguf.tensor("masked_embd_centroids.weight").unwrap();
        assert_eq!((centroids.ty, centroids.shape.as_slice()), (TensorType::F32, &[32, 24][..]), "{what}");
    };
    for ty in ["f32", "bf16", "q8_0", "q4_0", "q4_k_m"] {
        let (dir, gguf, _) = convert(&folder, ty);
        check(&gguf, ty);
        // Once more from the file.
        let again = dir.path().join("again.gguf");
        try_convert(&dir.path().join("out.gguf"), &again, "q8_0").unwrap();
        check(&Gguf::open(&again).unwrap(), &format!("{ty}, then q8_0"));
    }
}
