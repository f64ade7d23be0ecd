//! Importance files of both forms: never a panic, and what is read can be asked for weights.

#![no_main]

use hf2q_convert::Importance;
use hf2q_gguf::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(importance) = Importance::parse(Bytes::from_vec(data.to_vec())) else { return };
    for name in importance.names() {
        let entry = importance.entry(name).expect("it was named");
        for experts in [1, entry.counts.len()] {
            let _ = importance.weights_for(name, entry.squares.len() / experts, experts);
        }
    }
    let mut twice = importance.clone();
    let _ = twice.merge(importance);
});
