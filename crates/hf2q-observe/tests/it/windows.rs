//! Texts in windows.

use hf2q_engine::LogitRows;
use hf2q_model::toy;
use hf2q_observe::{Likelihood, read_window, windows};

use crate::support::{CHUNK, PLAIN, Setup, cpu, open, tokens};

#[test]
fn each_token_is_predicted_from_its_window_alone() {
    let model = toy::all(9).into_iter().find(|(name, _)| *name == "gemma3").unwrap().1;
    let text = tokens(2 * CHUNK + 5);
    for bos in [Some(2), None] {
        let length = CHUNK - usize::from(bos.is_some());
        for (rows, logit_rows, stride) in [(CHUNK, CHUNK, length), (7, 3, 11), (1, 1, 20)] {
            let (mut engine, _) = open(&model, &cpu(2), Setup { rows, logit_rows, ..PLAIN });
            let (mut found, mut expected) = (Likelihood::default(), Likelihood::default());
            for w in windows(text.len(), length, stride) {
                let (part, skipped) = (&text[w.tokens.clone()], w.scored_from - w.tokens.start);
                let read = read_window(&mut engine, (bos, part), skipped, &mut || true).unwrap().unwrap();
                found.merge(&read);
                // The plain way: all logits of the window.
                let given: Vec<u32> = bos.into_iter().chain(part.iter().copied()).collect();
                let sequence = engine.add_sequence().unwrap();
                let mut at = 0;
                let mut add = |row: &[f32]| {
                    at += 1;
                    if at < given.len() && at >= skipped + usize::from(bos.is_some()) {
                        expected.add(row, &given[at..=at]);
                    }
                    true
                };
                engine.extend(sequence, &given, LogitRows::All, &mut add).unwrap();
                engine.remove_sequence(sequence).unwrap();
            }
            let lost = if bos.is_some() { 0 } else { text.len().div_ceil(length) };
            let wanted =
                if stride == length { text.len() - lost } else { text.len() - usize::from(bos.is_none()) };
            assert_eq!((found.tokens, expected.tokens), (wanted, wanted), "{bos:?} {rows} {stride}");
            assert!((found.sum - expected.sum).abs() < 1e-9, "{bos:?} {rows} {stride}");
        }
    }
}

#[test]
fn reading_stops_when_told() {
    let model = toy::all(9).into_iter().find(|(name, _)| *name == "llama").unwrap().1;
    let (mut engine, _) = open(&model, &cpu(1), Setup { rows: 8, logit_rows: 8, ..PLAIN });
    let mut left = 3;
    let mut go_on = || {
        left -= 1;
        left > 0
    };
    assert!(read_window(&mut engine, (None, &tokens(CHUNK)), 0, &mut go_on).unwrap().is_none());
    assert!(read_window(&mut engine, (None, &tokens(CHUNK + 9)), 0, &mut || true).is_err());
    assert_eq!(read_window(&mut engine, (Some(2), &tokens(9)), 4, &mut || true).unwrap().unwrap().tokens, 5);
    assert_eq!(read_window(&mut engine, (None, &[]), 0, &mut || true).unwrap().unwrap().tokens, 0);
}
