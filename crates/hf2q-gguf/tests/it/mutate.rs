//! Valid files with damaged bytes: never a panic, and what is still accepted is sound.

use hf2q_gguf::{Gguf, GgufBuilder};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::craft::parse;
use crate::round_trip::{build, metadata, tensors};

/// Every promise of an opened file.
fn assert_sound(file: &Gguf, len: usize) {
    let mut ends = 0;
    let mut sorted: Vec<_> = file.tensors().iter().collect();
    sorted.sort_by_key(|t| t.offset);
    for t in sorted {
        assert!(t.offset >= ends && t.offset % file.alignment() == 0);
        ends = t.offset + t.bytes;
        assert_eq!(file.data(t).len() as u64, t.bytes);
        assert_eq!(file.bytes(t).len() as u64, t.bytes);
        assert_eq!(t.elements(), t.rows() * t.cols());
        assert_eq!(file.tensor(&t.name), Some(t));
    }
    assert!(ends <= len as u64);
}

fn check(bytes: Vec<u8>) {
    let len = bytes.len();
    match parse(bytes) {
        Ok(file) => {
            assert_sound(&file, len);
            // What was accepted can be written again, but for names that others refuse.
            let again = file.tensors().iter().fold(GgufBuilder::new().metadata(file.metadata()), |b, t| {
                b.tensor(&t.name, t.ty, &t.shape, file.data(t).to_vec())
            });
            if file.tensors().iter().all(|t| (1..64).contains(&t.name.len())) {
                assert_eq!(again.open().unwrap().tensors().len(), file.tensors().len());
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn random_damage(
        metadata in metadata(),
        tensors in tensors(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        let mut bytes = build(&metadata, &tensors).to_bytes().unwrap();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        check(bytes);
    }

    /// Numbers at the edges of their types, where the file has its counts, lengths, offsets.
    #[test]
    fn edge_numbers(
        metadata in metadata(),
        tensors in tensors(),
        at in any::<prop::sample::Index>(),
        number in prop::sample::select(vec![
            0, 1, 2, 31, 32, u64::MAX, u64::MAX - 1, u64::MAX - 31, 1 << 63, (1 << 63) - 1, 1 << 62, 1 << 32,
            u64::from(u32::MAX), 1 << 31,
        ]),
    ) {
        let mut bytes = build(&metadata, &tensors).to_bytes().unwrap();
        let at = at.index(bytes.len() - 7);
        bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        check(bytes);
    }

    #[test]
    fn noise_after_the_magic(noise in vec(any::<u8>(), 0..200)) {
        check([b"GGUF\x03\0\0\0", noise.as_slice()].concat());
    }
}

/// Every byte of a small file, set to values that matter.
#[test]
fn every_byte_changed() {
    let values = [1_u32, 2, 3];
    let whole = GgufBuilder::new()
        .key("k.a", "text")
        .key("k.b", values.to_vec())
        .f32("t.a", &[2, 2], &[0.0; 4])
        .f32("t.b", &[3], &[0.0; 3])
        .to_bytes()
        .unwrap();
    for at in 0..whole.len() {
        for byte in [0, 1, 7, 8, 9, 0x7f, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            check(bytes);
        }
    }
}
