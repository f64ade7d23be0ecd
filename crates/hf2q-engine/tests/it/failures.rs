//! Sizes that cannot be, a backend that fails, prompts of nothing, pools that are used to the last page.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hf2q_engine::{Budget, CacheOptions, Engine, EngineError, EngineOptions, LogitRows, WindowPolicy, Work};
use hf2q_model::RecordOptions;
use hf2q_plan::{Backend, BackendError, KvFormat, Passes, Plan, Step};
use hf2q_reference::ReferenceBackend;

use crate::support::{SIZES, Watched, engine, logits, tokens, windowed};

/// The reference; its programs fail, after they have computed, while the flag is set.
fn fragile() -> (impl Backend, Arc<AtomicBool>) {
    let broken = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&broken);
    let watch = move |_: &Step| match asked.load(Ordering::SeqCst) {
        true => Err(BackendError::Failed { backend: "watched", why: "told to".to_owned() }),
        false => Ok(()),
    };
    (Watched(Arc::new(watch)), broken)
}

pub(crate) fn open(backend: &dyn Backend, options: EngineOptions) -> Result<Engine, EngineError> {
    let model = windowed();
    let recording = model.record(&RecordOptions::uniform(KvFormat::F16)).unwrap();
    let weights = model.weights_for(&recording);
    Engine::open(backend, Arc::new(Plan::compile(recording, Passes::ALL)), weights, options)
}

#[test]
fn a_failed_step_loses_neither_pages_nor_positions() {
    let text = tokens(SIZES.context, 3);
    let mut whole = engine(&windowed(), SIZES);
    let id = whole.add_sequence().unwrap();
    let expected = logits(&mut whole, id, &text, 48);
    let (backend, broken) = fragile();
    let mut engine = open(&backend, SIZES).unwrap();
    let ids = [0; 3].map(|_| engine.add_sequence().unwrap());
    let mut got = vec![Vec::new(); 3];
    for part in text.chunks(16) {
        for (&sequence, got) in ids.iter().zip(&mut got) {
            let held = engine.len(sequence).unwrap();
            let other = tokens((SIZES.context - held).min(SIZES.rows), 9);
            broken.store(true, Ordering::SeqCst);
            let failed = engine.step(&[Work::new(sequence, &other, LogitRows::All)], None);
            assert!(matches!(failed, Err(EngineError::Backend(_))));
            broken.store(false, Ordering::SeqCst);
            assert_eq!(engine.len(sequence).unwrap(), held);
            got.extend(logits(&mut engine, sequence, part, 16));
        }
    }
    assert!(got.iter().all(|g| *g == expected));
}

#[test]
fn what_failed_steps_reserved_of_recent_positions_is_there_for_others() {
    let mut config = hf2q_model::toy::configs().into_iter().find(|(name, _)| *name == "llama").unwrap().1;
    config.layers.iter_mut().for_each(|l| (l.head_dim, l.rope.dims) = (64, 64));
    let model = hf2q_model::toy::build(config, 3);
    let recording = model.record(&RecordOptions::uniform(KvFormat::Tq4)).unwrap();
    let weights = model.weights_for(&recording);
    let (backend, broken) = fragile();
    let (rows, sequences) = (256, 4);
    let options = EngineOptions { context: 300, sequences, rows, logit_rows: 1, ..SIZES };
    let plan = Arc::new(Plan::compile(recording, Passes::ALL));
    let mut engine = Engine::open(&backend, plan, weights, options).unwrap();
    // Two pages for each sequence and four for the rows of a step: not four for each sequence.
    let recent = engine.cache_stats().groups.into_iter().find(|g| g.name == "recent").unwrap();
    assert_eq!(recent.pages, 2 * sequences + 4);
    let ids = [0; 4].map(|_| engine.add_sequence().unwrap());
    let text = tokens(rows, 5);
    for fails in [true, false] {
        broken.store(fails, Ordering::SeqCst);
        for sequence in ids {
            let step = engine.step(&[Work::new(sequence, &text, LogitRows::None)], None);
            assert_eq!(matches!(step, Err(EngineError::Backend(_))), fails);
            assert_eq!(step.is_ok(), !fails);
        }
    }
}

#[test]
fn every_sequence_can_fill_its_context_whatever_the_chunk() {
    for rows in [5, 48, 200] {
        let mut engine = open(&ReferenceBackend, EngineOptions { rows, logit_rows: 1, ..SIZES }).unwrap();
        for _ in 0..2 {
            let ids = [0; 3].map(|_| engine.add_sequence().unwrap());
            for id in ids {
                engine.extend(id, &tokens(SIZES.context, 2), LogitRows::None, |_| true).unwrap();
            }
            ids.into_iter().for_each(|id| engine.remove_sequence(id).unwrap());
        }
    }
}

#[test]
fn impossible_sizes_are_refused_by_name() {
    let huge = usize::MAX;
    let with = |cache| EngineOptions { cache, ..SIZES };
    let budget = |budget| with(CacheOptions { budget, ..SIZES.cache });
    let drop_to = |ends| with(CacheOptions { windows: WindowPolicy::Drop { ends }, ..SIZES.cache });
    for (name, options) in [
        ("context", EngineOptions { context: 0, ..SIZES }),
        ("context", EngineOptions { context: huge, ..SIZES }),
        ("context", EngineOptions { context: 1 << 31, ..SIZES }),
        ("sequences", EngineOptions { sequences: 0, ..SIZES }),
        ("sequences", EngineOptions { sequences: huge, ..SIZES }),
        ("rows", EngineOptions { rows: 0, ..SIZES }),
        ("rows", EngineOptions { rows: huge, ..SIZES }),
        ("logit_rows", EngineOptions { logit_rows: 0, ..SIZES }),
        ("logit_rows", EngineOptions { logit_rows: 49, ..SIZES }),
        ("the cache's budget", budget(Budget::Pages(0))),
        ("the cache's budget", budget(Budget::Pages(huge))),
        ("the cache's budget", budget(Budget::Bytes(0))),
        ("ends", drop_to(huge)),
    ] {
        match open(&ReferenceBackend, options).map(|_| ()) {
            Err(EngineError::Size { what, .. }) => assert_eq!(what, name, "{options:?}"),
            other => panic!("{options:?}: {other:?}"),
        }
    }
}
