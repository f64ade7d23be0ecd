//! Timings name every operation and its work; how fast it is, no test says.

use hf2q_conformance::perf::{Options, measure};
use hf2q_conformance::perf_attention::{AttentionOptions, Stored, measure_attention};
use hf2q_gguf::TensorType;
use hf2q_plan::KvFormat;
use hf2q_reference::ReferenceBackend;

#[test]
fn every_dominant_operation_is_timed() {
    let options =
        Options { width: 512, rows: vec![1, 3], types: vec![TensorType::Q4_0], context: 70, repeats: 1 };
    let timings = measure(&ReferenceBackend, &options).unwrap();
    for op in ["mat_mul", "expert_mat_mul", "rms_norm", "rope", "glu", "attention"] {
        let found: Vec<_> = timings.iter().filter(|t| t.op == op).collect();
        assert!(found.len() >= 2 && found.iter().all(|t| t.seconds > 0.0), "{op}: {found:?}");
        assert!(found.iter().all(|t| t.cost.activation_bytes > 0), "{op}: {found:?}");
    }
    let product = timings.iter().find(|t| t.op == "mat_mul" && t.rows == 3).unwrap();
    assert_eq!(product.cost.flops, 2 * 3 * 512 * 512);
    assert_eq!(product.cost.weight_bytes, 512 * 512 / 32 * 18);
}

#[test]
fn attention_is_timed_by_cache_format() {
    let formats = vec![Stored::Two(KvFormat::F16, KvFormat::F16), Stored::One(KvFormat::Tq4)];
    let options =
        AttentionOptions { heads: 2, kv_heads: 1, head_dim: 64, formats, context: 100, layers: 2, rounds: 2 };
    let timings = measure_attention(&ReferenceBackend, &options).unwrap();
    assert_eq!(timings.iter().map(|t| t.bytes).collect::<Vec<_>>(), [25_600, 3_400]);
    assert!(timings.iter().all(|t| t.seconds > 0.0 && t.ratio > 0.0));
}
