//! Sequences share steps and pools without changing each other.

use hf2q_engine::{EngineError, EngineOptions, LogitRows, Work};

use crate::support::{SIZES, engine, logits, tokens, windowed};

#[test]
fn chunks_do_not_change_logits() {
    let model = windowed();
    let text = tokens(150, 1);
    let mut engine = engine(&model, SIZES);
    let mut run = |chunk| {
        let id = engine.add_sequence().unwrap();
        let bits = logits(&mut engine, id, &text, chunk);
        engine.remove_sequence(id).unwrap();
        bits
    };
    let whole = run(48);
    for chunk in [1, 7, 33] {
        assert!(run(chunk) == whole, "chunks of {chunk}");
    }
}

#[test]
fn sequences_of_one_step_do_not_see_each_other() {
    let model = windowed();
    let texts = [tokens(90, 1), tokens(60, 2), tokens(75, 3)];
    let mut alone = Vec::new();
    for text in &texts {
        let mut engine = engine(&model, SIZES);
        let id = engine.add_sequence().unwrap();
        alone.push(logits(&mut engine, id, text, 15));
    }
    let mut engine = engine(&model, SIZES);
    let ids = [0; 3].map(|_| engine.add_sequence().unwrap());
    let mut together = vec![Vec::new(); 3];
    for i in 0..6 {
        let parts: Vec<(usize, &[u32])> =
            texts.iter().enumerate().filter_map(|(s, t)| Some((s, t.chunks(15).nth(i)?))).collect();
        let work: Vec<Work<'_>> = parts.iter().map(|&(s, t)| Work::new(ids[s], t, LogitRows::All)).collect();
        let width = engine.vocabulary();
        let rows = engine.step(&work, None).unwrap().to_vec();
        let mut rows = rows.chunks(width);
        for (s, part) in parts {
            let own = rows.by_ref().take(part.len()).flatten();
            together[s].extend(own.map(|x| x.to_bits()));
        }
    }
    assert!(together == alone);
}

#[test]
fn pages_come_back() {
    let model = windowed();
    let options = EngineOptions { context: 192, sequences: 1, rows: 32, logit_rows: 32, ..SIZES };
    let mut engine = engine(&model, options);
    let text = tokens(192, 4);
    for _ in 0..5 {
        let id = engine.add_sequence().unwrap();
        engine.extend(id, &text, LogitRows::None, |_| true).unwrap();
        assert_eq!(engine.len(id).unwrap(), 192);
        engine.remove_sequence(id).unwrap();
    }
}

#[test]
fn a_refused_step_changes_nothing() {
    let model = windowed();
    let text = tokens(100, 5);
    let mut engine = engine(&model, EngineOptions { context: 100, ..SIZES });
    let id = engine.add_sequence().unwrap();
    let before = logits(&mut engine, id, &text[..60], 20);
    let work = |tokens| [Work::new(id, tokens, LogitRows::Last)];
    let refusals = [
        engine.step(&[], None).err(),
        engine.step(&work(&[]), None).err(),
        engine.step(&work(&[1, 9999]), None).err(),
        engine.step(&work(&tokens(41, 0)), None).err(),
        engine.step(&[work(&[1])[0], work(&[2])[0]], None).err(),
        engine.step(&work(&tokens(49, 0)), None).err(),
    ];
    let messages: Vec<String> = refusals.into_iter().map(|e| e.unwrap().to_string()).collect();
    for (message, part) in messages.iter().zip(["rows", "rows", "9999", "context is full", "twice", "rows"]) {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
    assert_eq!(engine.len(id).unwrap(), 60);
    let after = logits(&mut engine, id, &text[60..], 20);
    engine.remove_sequence(id).unwrap();
    let id = engine.add_sequence().unwrap();
    assert!(logits(&mut engine, id, &text, 20) == [before, after].concat());
}

#[test]
fn the_context_can_be_filled_to_the_last_place() {
    let mut engine = engine(&windowed(), EngineOptions { context: 65, ..SIZES });
    let id = engine.add_sequence().unwrap();
    engine.extend(id, &tokens(65, 1), LogitRows::Last, |_| true).unwrap();
    let error = engine.extend(id, &[1], LogitRows::Last, |_| true).unwrap_err();
    assert!(matches!(error, EngineError::ContextFull { held: 65, wanted: 1, context: 65 }), "{error}");
}

#[test]
fn sequences_are_counted() {
    let mut engine = engine(&windowed(), SIZES);
    let ids = [0; 3].map(|_| engine.add_sequence().unwrap());
    assert!(matches!(engine.add_sequence(), Err(EngineError::TooManySequences { max: 3 })));
    engine.remove_sequence(ids[1]).unwrap();
    assert!(matches!(engine.len(ids[1]), Err(EngineError::UnknownSequence(1))));
    assert!(matches!(engine.remove_sequence(ids[1]), Err(EngineError::UnknownSequence(1))));
    assert_eq!(engine.add_sequence().unwrap(), ids[1]);
}
