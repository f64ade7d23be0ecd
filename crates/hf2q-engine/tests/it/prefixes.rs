//! What is kept of sequences serves others, within its budget.

use hf2q_engine::{Budget, CacheOptions, EngineError, EngineOptions, LogitRows, Sampling, WindowPolicy};
use hf2q_plan::PAGE;

use crate::support::{SIZES, answer, engine, logits, scheduler, tokens, windowed};

fn keeping(budget: Budget) -> EngineOptions {
    EngineOptions { cache: CacheOptions { budget, windows: WindowPolicy::Keep }, ..SIZES }
}

#[test]
fn sequences_at_the_same_time_share_full_pages() {
    let text = tokens(150, 1);
    let mut engine = engine(&windowed(), keeping(Budget::Sequences));
    let first = engine.add_sequence().unwrap();
    let cold = logits(&mut engine, first, &text, 40);
    let in_use = |engine: &hf2q_engine::Engine| -> Vec<usize> {
        engine.cache_stats().groups.iter().map(|g| g.in_use).collect()
    };
    let alone = in_use(&engine);
    // Two pages are full; what is partly filled is still the first one's.
    let (second, reused) = engine.add_sequence_with_prefix(&text).unwrap();
    assert_eq!(reused, 2 * PAGE);
    let width = engine.vocabulary();
    assert!(logits(&mut engine, second, &text[reused..], 7) == cold[reused * width..]);
    for (alone, both) in alone.iter().zip(in_use(&engine)) {
        assert!(both <= alone + 1, "{alone} {both}");
    }
    // One that computes the same without asking gives its pages back for those that are there.
    let third = engine.add_sequence().unwrap();
    assert!(logits(&mut engine, third, &text, 48) == cold);
    for (alone, all) in alone.iter().zip(in_use(&engine)) {
        assert!(all <= alone + 2, "{alone} {all}");
    }
}

#[test]
fn a_fork_goes_its_own_way() {
    let (text, other) = (tokens(90, 1), tokens(30, 2));
    let mut engine = engine(&windowed(), SIZES);
    let first = engine.add_sequence().unwrap();
    engine.extend(first, &text, LogitRows::None, |_| true).unwrap();
    let second = engine.fork(first).unwrap();
    assert_eq!(engine.len(second).unwrap(), 90);
    let forked = logits(&mut engine, second, &other, 30);
    let straight = logits(&mut engine, first, &other, 1);
    assert!(forked == straight);
    assert!(engine.fork(second).is_ok());
    assert!(matches!(engine.fork(first), Err(EngineError::TooManySequences { max: 3 })));
}

#[test]
fn what_was_of_no_use_for_longest_goes_first() {
    let mut engine = engine(&windowed(), keeping(Budget::Pages(6)));
    let texts = [tokens(128, 1), tokens(128, 2), tokens(128, 3)];
    let mut reused = |text: &[u32]| {
        let (id, reused) = engine.add_sequence_with_prefix(text).unwrap();
        engine.extend(id, &text[reused..], LogitRows::None, |_| true).unwrap();
        engine.remove_sequence(id).unwrap();
        reused
    };
    assert_eq!([reused(&texts[0]), reused(&texts[1]), reused(&texts[0])], [0, 0, 127]);
    // Each needs two pages of six: the third fits beside the others, a fourth takes the place of the second.
    assert_eq!([reused(&texts[2]), reused(&texts[0]), reused(&tokens(128, 4))], [0, 127, 0]);
    assert_eq!([reused(&texts[0]), reused(&texts[1])], [127, 0]);
    assert!(engine.cache_stats().evictions > 0);
    engine.forget();
    assert!(engine.cache_stats().groups.iter().all(|g| g.free == 6));
}

#[test]
fn pages_in_use_are_not_evicted() {
    let mut engine = engine(&windowed(), keeping(Budget::Pages(3)));
    let ids = [0; 2].map(|_| engine.add_sequence().unwrap());
    engine.extend(ids[0], &tokens(80, 1), LogitRows::None, |_| true).unwrap();
    let error = engine.extend(ids[1], &tokens(128, 2), LogitRows::None, |_| true).unwrap_err();
    assert!(matches!(error, EngineError::OutOfPages { pages: 3, .. }), "{error}");
    // What is in use can still be shared.
    let (third, reused) = engine.add_sequence_with_prefix(&tokens(128, 1)).unwrap();
    assert_eq!(reused, PAGE);
    engine.remove_sequence(third).unwrap();
    let held = engine.len(ids[1]).unwrap();
    engine.remove_sequence(ids[0]).unwrap();
    engine.extend(ids[1], &tokens(128, 2)[held..], LogitRows::None, |_| true).unwrap();
}

#[test]
fn another_answer_to_the_same_prompt_computes_one_token() {
    let sampling = Sampling { temperature: 0.0, ..Sampling::default() };
    let prompt = tokens(100, 3);
    let mut answers = Vec::new();
    // Two pages and a part; where window pages are dropped, the global page at the prompt's end is kept a second time
    // with the window there.
    for (windows, most) in [(WindowPolicy::Keep, 3), (WindowPolicy::Drop { ends: 2 }, 4)] {
        let options = EngineOptions { cache: CacheOptions { windows, ..CacheOptions::default() }, ..SIZES };
        let mut scheduler = scheduler(engine(&windowed(), options));
        for expected in [0, 99, 198, 297] {
            let (drawn, _) = answer(&mut scheduler, &prompt, sampling.clone(), (&[], Some(60)));
            answers.push(drawn);
            let stats = scheduler.stats();
            assert_eq!(stats.cached_tokens, expected, "{windows:?}");
            let groups = stats.cache.groups;
            assert!(groups.iter().all(|g| g.in_use == 0 && g.cached <= most), "{windows:?} {groups:?}");
        }
    }
    assert!(answers[0].len() == 60 && answers.iter().all(|a| *a == answers[0]));
}

#[test]
fn a_budget_of_bytes_is_kept() {
    let page: usize = {
        let stats = engine(&windowed(), SIZES).cache_stats();
        stats.groups.iter().map(|g| g.page_bytes).sum()
    };
    let stats = engine(&windowed(), keeping(Budget::Bytes(5 * page + page - 1))).cache_stats();
    assert!(stats.groups.len() == 2 && stats.groups.iter().all(|g| g.pages == 5), "{stats:?}");
}
