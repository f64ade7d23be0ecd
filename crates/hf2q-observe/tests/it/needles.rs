//! Planted facts.

use hf2q_engine::LogitRows;
use hf2q_model::toy;
use hf2q_observe::{Haystack, Likelihood, ObserveError, Recipe};

use crate::support::{CHUNK, PLAIN, Setup, cpu, open};

/// A token for each byte, of the toys' vocabulary.
fn encode(text: &str) -> Vec<u32> {
    text.bytes().map(|b| u32::from(b) % 128).collect()
}

const DEPTHS: [f64; 4] = [0.0, 0.3, 0.75, 1.0];

fn recipe(length: usize, lines: &[String]) -> Recipe<'_> {
    Recipe { length, depths: &DEPTHS, seed: 5, lines }
}

fn text(tokens: &[u32]) -> String {
    tokens.iter().map(|&t| char::from(t as u8)).collect()
}

#[test]
fn facts_lie_where_they_should() {
    let lines = ["one line of a text".to_owned(), "and another one".to_owned()];
    for (length, lines) in [(600, &[][..]), (3000, &[][..]), (1500, &lines[..])] {
        let found = Haystack::new(recipe(length, lines), &encode).unwrap();
        for (q, depth) in found.questions.iter().zip(DEPTHS) {
            let whole = text(&q.tokens);
            assert!(q.tokens.len() <= length && q.tokens.len() + 80 > length, "{length}: {}", q.tokens.len());
            let question = format!("The code of {} is", q.fact.key);
            assert!(whole.ends_with(&format!("{question} {}", q.fact.code)));
            assert_eq!(text(&q.tokens[q.answer..]), format!(" {}", q.fact.code));
            let at = whole.find(&question).unwrap() as f64 / length as f64;
            assert!((at - depth).abs() < 0.25 && whole.matches(&question).count() == 2, "{at} {depth}");
            assert_eq!(whole.matches("The code of").count(), DEPTHS.len() + 1);
            assert_eq!(lines.is_empty(), !whole.contains("and another one"));
        }
        let places = found.questions.iter().map(|q| text(&q.tokens).find(&q.fact.key).unwrap());
        assert!(places.collect::<Vec<_>>().is_sorted());
    }
    let error = Haystack::new(recipe(100, &[]), &encode).unwrap_err();
    assert!(
        matches!(error, ObserveError::Haystack { length: 100, facts: 4, least } if least > 100),
        "{error}"
    );
}

#[test]
fn there_is_something_between_the_facts_or_an_error() {
    let short = "a short line".to_owned();
    let lines = ["a line that is too long ".repeat(100), short.clone()];
    for seed in 0..8 {
        let found = Haystack::new(Recipe { seed, ..recipe(600, &lines) }, &encode).unwrap();
        assert!(text(&found.questions[0].tokens).contains(&short), "seed {seed}");
    }
    for (length, lines, needed) in [(600, &lines[..1], 2400), (190, &[][..], 191)] {
        let error = Haystack::new(recipe(length, lines), &encode).unwrap_err();
        assert!(matches!(error, ObserveError::Haystack { least, .. } if least >= needed), "{error}");
    }
}

#[test]
fn what_every_text_begins_with_counts_once() {
    // As a tokenizer that puts a hundred tokens before a text.
    let begun = |text: &str| [vec![1; 100], encode(text)].concat();
    let found = Haystack::new(recipe(1500, &[]), &begun).unwrap();
    let longest = found.questions.iter().map(|q| q.tokens.len()).max().unwrap();
    assert!((1420..=1500).contains(&longest), "{longest}");
}

#[test]
fn answers_are_those_of_a_plain_reading() {
    for name in ["gemma3", "llama"] {
        let model = toy::all(3).into_iter().find(|(n, _)| *n == name).unwrap().1;
        let encode = |text: &str| text.bytes().step_by(9).map(|b| u32::from(b) % 128).collect();
        let depths = [0.0, 1.0];
        let found =
            Haystack::new(Recipe { length: CHUNK, depths: &depths, seed: 1, lines: &[] }, &encode).unwrap();
        let (mut engine, _) = open(&model, &cpu(2), Setup { rows: 10, logit_rows: 3, ..PLAIN });
        let answers = found.ask(&mut engine, &mut || true).unwrap().unwrap();
        assert_eq!(
            answers,
            found.ask(&mut engine, &mut || true).unwrap().unwrap(),
            "what is cached changes nothing"
        );
        for (q, answer) in found.questions.iter().zip(answers) {
            let sequence = engine.add_sequence().unwrap();
            let (mut at, mut likelihood) = (0, Likelihood::default());
            let mut add = |row: &[f32]| {
                at += 1;
                if at >= q.answer && at < q.tokens.len() {
                    likelihood.add(row, &q.tokens[at..=at]);
                }
                true
            };
            engine.extend(sequence, &q.tokens, LogitRows::All, &mut add).unwrap();
            engine.remove_sequence(sequence).unwrap();
            assert!((answer.mean_log_likelihood + likelihood.mean()).abs() < 1e-12, "{name}");
        }
        assert!(found.ask(&mut engine, &mut || false).unwrap().is_none());
    }
}
