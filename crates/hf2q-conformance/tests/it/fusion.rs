//! Fused plans on the reference.

use hf2q_conformance::{Subject, fusion};
use hf2q_model::{RecordOptions, toy};
use hf2q_plan::KvFormat;
use hf2q_reference::ReferenceBackend;

#[test]
fn random_recordings_give_the_same_bits_fused_and_unfused() {
    let mut fused = 0;
    for seed in 0..40 {
        let subject = fusion::random_recording(seed).unwrap();
        let found = fusion::check(&ReferenceBackend, &subject, seed).unwrap();
        assert_eq!(found.difference, None, "seed {seed}");
        assert!(found.rows > 0);
        fused += found.fused;
    }
    assert!(fused > 40, "only {fused} operations were fused");
}

#[test]
fn toy_models_give_the_same_bits_fused_and_unfused() {
    for (name, model) in toy::all(3) {
        let subject = Subject::of_model(&model, &RecordOptions::uniform(KvFormat::F16)).unwrap();
        let found = fusion::check(&ReferenceBackend, &subject, 5).unwrap();
        assert_eq!(found.difference, None, "{name}");
        assert!(found.rows > 0, "{name}");
        let expected = name.starts_with("gemma") || name.starts_with("qwen");
        assert_eq!(found.fused > 0, expected, "{name}: {} operations were fused", found.fused);
    }
}
