//! Any bytes as a GGUF file: no panic, no large allocation, and what is accepted is sound and can be written again.
#![no_main]

use hf2q_gguf::{Bytes, Gguf, GgufBuilder};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let file = match Gguf::parse(Bytes::from_vec(input.to_vec())) {
        Ok(file) => file,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let mut again = GgufBuilder::new().metadata(file.metadata());
    for t in file.tensors() {
        assert_eq!(file.data(t).len() as u64, t.bytes);
        assert_eq!(t.elements(), t.rows() * t.cols());
        if !(1..64).contains(&t.name.len()) {
            return;
        }
        again = again.tensor(&t.name, t.ty, &t.shape, file.data(t).to_vec());
    }
    let again = again.open().expect("what was read can be written");
    assert_eq!(again.tensors().len(), file.tensors().len());
    for (a, b) in again.tensors().iter().zip(file.tensors()) {
        assert_eq!((&a.name, a.ty, &a.shape, again.data(a)), (&b.name, b.ty, &b.shape, file.data(b)));
    }
});
