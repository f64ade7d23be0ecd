//! Chunks, threads and instruction sets do not change a bit.

use std::sync::Arc;

use hf2q_cpu::Isa;
use hf2q_gguf::{Bytes, TensorType};
use hf2q_plan::{Backend, GroupStep, Passes, Plan, Recording, Row, SlotMove, Step};
use proptest::prelude::*;

use crate::model::{VOCABULARY, backend, limits, open, recording, step, weights};

fn tokens(count: usize) -> Vec<u32> {
    (0..count).map(|i| (i * i + 3 * i) as u32 % VOCABULARY as u32).collect()
}

/// Logits of every token, computed in chunks of the given sizes.
fn in_chunks(ty: TensorType, (threads, isa): (usize, Isa), chunks: &[usize]) -> Vec<u32> {
    let backend = backend(threads, isa);
    let mut program = open(ty, &backend, 128);
    let tokens = tokens(chunks.iter().sum());
    let mut first = 0;
    let mut bits = Vec::new();
    for &size in chunks {
        let logits = program.run(&step(&tokens[first..first + size], first), None).unwrap();
        bits.extend(logits.iter().map(|x| x.to_bits()));
        first += size;
    }
    bits
}

#[test]
fn every_token_alone_gives_what_a_chunk_gives() {
    for ty in [TensorType::Q8_0, TensorType::Q4_0, TensorType::F32, TensorType::F16, TensorType::Bf16] {
        let alone = in_chunks(ty, (1, Isa::detect()), &[1; 100]);
        assert!(alone.iter().all(|&b| f32::from_bits(b).is_finite()));
        for (isa, threads) in Isa::available().into_iter().zip(1..) {
            let together = in_chunks(ty, (threads, isa), &[70, 30]);
            assert!(together == alone, "{ty}, {}, {threads} threads", isa.name());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn any_chunks_on_any_threads_give_the_same_bits(
        sizes in prop::collection::vec(1..60_usize, 1..5),
        threads in 1..5_usize,
    ) {
        let total = sizes.iter().sum();
        let isa = Isa::detect();
        let got = in_chunks(TensorType::Q4_0, (threads, isa), &sizes);
        prop_assert!(got == in_chunks(TensorType::Q4_0, (1, isa), &vec![1; total]));
    }
}

#[test]
fn values_that_are_not_finite_stay_in_their_row_and_those_that_see_it() {
    let recording = recording(TensorType::F32);
    let mut weights = weights(&recording);
    // The embedding comes first: token 1 is not a number, token 2 infinite.
    let mut table = weights[0].to_vec();
    let width = table.len() / VOCABULARY;
    table[width..width + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    table[2 * width..2 * width + 4].copy_from_slice(&f32::INFINITY.to_le_bytes());
    weights[0] = Bytes::from_vec(table);
    let plan = Arc::new(Plan::compile(recording, Passes::ALL));
    for (isa, threads) in Isa::available().into_iter().zip(1..) {
        let mut program = backend(threads, isa).open(Arc::clone(&plan), weights.clone(), &limits(8)).unwrap();
        let wanted = program.run(&step(&[5], 0), None).unwrap().to_vec();
        for odd in [1, 2] {
            let got = program.run(&step(&[5, odd, 6, odd], 0), None).unwrap();
            let (first, others) = got.split_at(VOCABULARY);
            // The last matrix is the table, so logits of tokens 1 and 2 are odd in every row.
            let same = |i: &usize| first[*i].to_bits() == wanted[*i].to_bits();
            assert!((3..VOCABULARY).all(|i| same(&i)), "{}", isa.name());
            assert!(others[3..VOCABULARY].iter().all(|x| x.is_nan()), "{}", isa.name());
        }
    }
}

/// A row at position `position` that stores at `slot`, in both groups.
fn draft(token: u32, position: u32, slot: u32, parent: Option<u32>) -> (Row, u32) {
    (Row { sequence: 0, token, position, parent }, slot)
}

#[test]
fn an_accepted_draft_continues_as_if_it_had_been_fed() {
    let backend = backend(2, Isa::detect());
    let prompt = tokens(70);
    let mut plain = open(TensorType::Q8_0, &backend, 128);
    plain.run(&step(&prompt, 0), None).unwrap();
    let wanted = plain.run(&step(&[9, 8, 7], 70), None).unwrap().to_vec();
    let next = plain.run(&step(&[6], 73), None).unwrap().to_vec();

    let mut drafted = open(TensorType::Q8_0, &backend, 128);
    drafted.run(&step(&prompt, 0), None).unwrap();
    // A wrong branch first, then the right one; both store behind the positions of the sequence, in its page 1 (slots 64..).
    let nodes = [
        draft(1, 70, 100, None),
        draft(9, 70, 101, None),
        draft(8, 71, 102, Some(1)),
        draft(7, 72, 103, Some(2)),
    ];
    let (rows, slots): (Vec<Row>, Vec<u32>) = nodes.into_iter().unzip();
    let table = step(&[0], 0).groups[0].clone();
    let group = GroupStep { slots: slots.iter().map(|s| s - 64).collect(), ..table };
    let tree = Step::new(rows, vec![group.clone(), group], vec![1, 2, 3]).unwrap();
    let got = drafted.run(&tree, None).unwrap().to_vec();
    assert_eq!(got, wanted);

    let recording: Recording = recording(TensorType::Q8_0);
    for group in recording.caches.iter().map(|c| c.group) {
        let moves: Vec<SlotMove> = (0..3).map(|i| SlotMove { from: 37 + i, to: 6 + i }).collect();
        drafted.move_slots(group, &moves).unwrap();
    }
    assert_eq!(drafted.run(&step(&[6], 73), None).unwrap(), next);
}
