//! Configurations side by side.

use std::sync::Arc;

use hf2q_engine::{CacheOptions, Engine, EngineOptions, LogitRows, WindowPolicy};
use hf2q_model::{Model, RecordOptions, toy};
use hf2q_observe::{Compared, Comparer, Comparison, ObserveError, Reading, Side, read_chunk};
use hf2q_plan::{KvFormat, Passes, Plan};

use crate::support::{CHUNK, PLAIN, cpu, open, tokens};

const ROWS: (usize, usize) = (CHUNK, CHUNK);

fn toy(name: &str) -> Model {
    toy::all(9).into_iter().find(|(n, _)| *n == name).unwrap().1
}

fn side(name: &str, model: &Model, format: KvFormat, (rows, logit_rows): (usize, usize)) -> Side {
    let recording = model.record(&RecordOptions::uniform(format)).unwrap();
    let weights = model.weights_for(&recording);
    let plan = Arc::new(Plan::compile(recording, Passes::ALL));
    let cache = CacheOptions { windows: WindowPolicy::Drop { ends: 2 }, ..CacheOptions::default() };
    let options = EngineOptions { context: CHUNK, sequences: 1, rows, logit_rows, cache };
    let engine = Engine::open(&cpu(2), Arc::clone(&plan), weights, options).unwrap();
    Side { name: name.to_owned(), engine, plan }
}

/// Two chunks and a greedy run after each.
fn compare(reference: Side, candidates: Vec<Side>) -> Comparison {
    let mut comparer = Comparer::new(reference, candidates).unwrap();
    for chunk in tokens(2 * CHUNK).chunks(CHUNK) {
        assert!(comparer.chunk(chunk, Some(2), &mut || true).unwrap());
        assert!(comparer.greedy((chunk, Some(2)), (CHUNK / 2, &[]), &mut || true).unwrap());
    }
    comparer.finish()
}

#[test]
fn the_same_configuration_has_no_distance() {
    for (name, model) in toy::all(9) {
        let [a, b] = [(CHUNK, CHUNK), (7, 5)].map(|rows| side(name, &model, KvFormat::F32, rows));
        let found = compare(a, vec![b]);
        let c = &found.candidates[0];
        assert_eq!((c.kl.mean, c.kl.max, c.same_top, c.ratio), (0.0, 0.0, 1.0, 1.0), "{name}");
        let layers = c.layers.as_ref().unwrap();
        assert_eq!(layers.len(), model.config().layers.len(), "{name}");
        assert!(layers.iter().all(|l| l.mean == 1.0 && l.least == 1.0), "{name}: {layers:?}");
        let greedy = c.greedy.as_ref().unwrap();
        assert_eq!((greedy.never(), greedy.least(), &greedy.lengths[..]), (1.0, None, &[CHUNK / 2; 2][..]));
        assert_eq!(c.histogram[0].rows, 2 * (CHUNK / 2 - 1), "{name}");
    }
}

#[test]
fn the_second_half_of_each_chunk_is_scored() {
    let model = toy("gemma3");
    let sides = [KvFormat::F32, KvFormat::Q8_0].map(|f| side("a", &model, f, ROWS));
    let [a, b] = sides;
    let found = compare(a, vec![b]);
    assert_eq!((found.chunks, found.reference.likelihood.tokens), (2, 2 * (CHUNK / 2 - 1)));
    let (mut engine, mut observer) = open(&model, &cpu(2), PLAIN);
    let how = Reading { bos: Some(2), all_logits: false, score: true };
    let mut nll = 0.0;
    for chunk in tokens(2 * CHUNK).chunks(CHUNK) {
        nll += read_chunk(&mut engine, chunk, how, &mut observer, &mut || true).unwrap().unwrap().sum;
    }
    assert!((found.reference.likelihood.sum - nll).abs() < 1e-9);
    let positions = &found.candidates[0].positions;
    assert_eq!((positions[0].from, positions.last().unwrap().to), (CHUNK / 2, CHUNK - 1));
    let mean = positions.iter().map(|p| p.mean).sum::<f64>() / positions.len() as f64;
    assert!((mean - found.candidates[0].kl.mean).abs() < 1e-12 && mean > 0.0);
}

#[test]
fn steps_change_nothing() {
    let model = toy("qwen3moe");
    let found = [(CHUNK, CHUNK), (9, 4), (1, 1)].map(|rows| {
        let sides = [KvFormat::F32, KvFormat::Bf16].map(|f| side("a", &model, f, rows));
        let [a, b] = sides;
        compare(a, vec![b]).candidates.remove(0)
    });
    let same = |a: &Compared, b: &Compared| {
        a.kl == b.kl
            && a.positions == b.positions
            && a.greedy == b.greedy
            && a.ratio == b.ratio
            && a.layers == b.layers
    };
    assert!(found[0].kl.mean > 0.0 && same(&found[0], &found[1]) && same(&found[0], &found[2]));
}

#[test]
fn candidates_do_not_see_each_other() {
    let model = toy("gemma3");
    let all = || [KvFormat::Q8_0, KvFormat::F16].map(|f| side(f.name(), &model, f, ROWS));
    let reference = || side("f32", &model, KvFormat::F32, ROWS);
    let together = compare(reference(), all().into());
    for (candidate, alone) in together.candidates.iter().zip(all()) {
        let alone = compare(reference(), vec![alone]);
        assert_eq!((candidate.kl, &candidate.layers), (alone.candidates[0].kl, &alone.candidates[0].layers));
    }
    let [coarse, fine] = &together.candidates[..] else { panic!() };
    assert!(coarse.kl.mean > fine.kl.mean && coarse.measured.cache.bits_per_element == 8.5);
    assert_eq!(fine.measured.cache.bytes_per_token * 2.0, together.reference.cache.bytes_per_token);
}

/// Greedy tokens one by one.
fn run(side: &mut Side, prompt: &[u32]) -> Vec<u32> {
    let sequence = side.engine.add_sequence().unwrap();
    let (mut run, mut given) = (Vec::new(), prompt.to_vec());
    while run.len() < CHUNK / 2 {
        let mut next = 0;
        side.engine
            .extend(sequence, &given, LogitRows::Last, |row| {
                let best = row.iter().copied().fold(f32::MIN, f32::max);
                next = row.iter().position(|&l| l == best).unwrap_or(0) as u32;
                true
            })
            .unwrap();
        run.push(next);
        given = vec![next];
    }
    side.engine.remove_sequence(sequence).unwrap();
    run
}

#[test]
fn runs_leave_where_runs_of_their_own_do() {
    let mut left = 0;
    let llama = |seed| toy::all(seed).into_iter().find(|(n, _)| *n == "llama").unwrap().1;
    for (seed, other, format) in [(0, 0, KvFormat::Q8_0), (1, 1, KvFormat::F32), (2, 3, KvFormat::F32)] {
        let mut sides =
            [side("a", &llama(seed), KvFormat::F32, ROWS), side("b", &llama(other), format, ROWS)];
        let prompt = tokens(CHUNK / 2);
        let runs = [0, 1].map(|i| run(&mut sides[i], &prompt));
        let expected = runs[0].iter().zip(&runs[1]).position(|(a, b)| a != b);
        let [a, b] = sides;
        let mut comparer = Comparer::new(a, vec![b]).unwrap();
        assert!(comparer.greedy((&tokens(CHUNK), None), (CHUNK / 2, &[]), &mut || true).unwrap());
        let found = comparer.finish();
        assert_eq!(found.candidates[0].greedy.as_ref().unwrap().same, [expected], "seed {seed}");
        left += usize::from(expected.is_some());
    }
    assert!(left > 0, "no run differs, nothing is tested");
}

#[test]
fn runs_end_with_a_stop_token() {
    let model = toy("llama");
    let mut alone = side("a", &model, KvFormat::F32, ROWS);
    let stop = run(&mut alone, &tokens(CHUNK / 2))[3];
    let sides = [(); 2].map(|()| side("a", &model, KvFormat::F32, ROWS));
    let [a, b] = sides;
    let mut comparer = Comparer::new(a, vec![b]).unwrap();
    comparer.greedy((&tokens(CHUNK), None), (CHUNK / 2, &[stop]), &mut || true).unwrap();
    assert!(comparer.finish().candidates[0].greedy.as_ref().unwrap().lengths[0] <= 4);
}

#[test]
fn other_models_can_be_compared_if_their_tokens_are_as_many() {
    let (gemma, llama) = (toy("gemma3"), toy("llama"));
    let other = side("llama", &llama, KvFormat::F32, ROWS);
    let found = compare(side("gemma", &gemma, KvFormat::F32, ROWS), vec![other]);
    assert!(found.candidates[0].kl.mean > 0.0);
    let mut config = toy::configs().into_iter().find(|(n, _)| *n == "llama").unwrap().1;
    config.vocab += 8;
    let larger = side("larger", &toy::build(config, 1), KvFormat::F32, ROWS);
    let error = Comparer::new(side("llama", &llama, KvFormat::F32, ROWS), vec![larger]).err().unwrap();
    let ObserveError::Vocabulary { expected, found, .. } = &error else { panic!("{error}") };
    assert_eq!(expected + 8, *found);
    assert!(
        error.to_string().contains("llama has a vocabulary of")
            && error.to_string().contains("larger one of")
    );
}

#[test]
fn comparing_stops_when_told_and_can_go_on() {
    let model = toy("gemma3");
    let sides = [KvFormat::F32, KvFormat::F16].map(|f| side("a", &model, f, (8, 8)));
    let [a, b] = sides;
    let mut comparer = Comparer::new(a, vec![b]).unwrap();
    let mut left = 4;
    let mut go_on = || {
        left -= 1;
        left > 0
    };
    assert!(!comparer.chunk(&tokens(CHUNK), None, &mut go_on).unwrap());
    assert!(comparer.chunk(&tokens(CHUNK + 2), None, &mut || true).is_err());
    assert!(comparer.chunk(&tokens(CHUNK), None, &mut || true).unwrap());
    assert!(
        comparer.chunk(&[], None, &mut || true).unwrap() && comparer.chunk(&[1], None, &mut || true).unwrap()
    );
}

#[test]
fn bits_are_those_of_what_is_stored() {
    let mut once = 0;
    for (name, model) in toy::all(9) {
        let formats = [(KvFormat::F32, 32.0), (KvFormat::F16, 16.0), (KvFormat::Q8_0, 8.5)];
        for (format, bits) in formats {
            let side = side(name, &model, format, ROWS);
            once += side.plan.recording.caches.iter().filter(|c| c.formed_keys.is_some()).count();
            let cache = Comparer::new(side, Vec::new()).unwrap().finish().reference.cache;
            assert_eq!(
                (cache.bits_per_element, cache.marginal_bits),
                (bits, bits),
                "{name} {}",
                format.name()
            );
        }
    }
    assert!(once > 0, "no toy model has one vector for key and value, nothing is tested");
}

#[test]
fn caches_are_counted_with_what_is_kept_of_recent_positions() {
    let mut config = toy::configs().into_iter().find(|(name, _)| *name == "gemma3").unwrap().1;
    config.layers.iter_mut().for_each(|l| (l.head_dim, l.rope.dims) = (128, 128));
    let model = toy::build(config, 9);
    let sides = [KvFormat::F16, KvFormat::Tq4].map(|f| side("a", &model, f, ROWS));
    let [a, b] = sides;
    let found = compare(a, vec![b]);
    let layers = &model.config().layers;
    // Keys and values of all heads in a layer, and positions of all layers that the last row sees.
    let vectors: Vec<usize> = layers.iter().map(|l| 2 * l.kv_heads).collect();
    let held: Vec<usize> = layers.iter().map(|l| l.window.map_or(CHUNK, |w| CHUNK.min(w as usize))).collect();
    let all: usize = vectors.iter().sum();
    let seen: usize = vectors.iter().zip(&held).map(|(v, h)| v * h).sum();
    let (plain, coded) = (found.reference.cache, found.candidates[0].measured.cache);
    assert_eq!((plain.bytes_per_token, plain.fixed_bytes), ((all * 256) as f64, 0));
    assert_eq!((plain.bits_per_element, plain.marginal_bits), (16.0, 16.0));
    assert_eq!((coded.bytes_per_token, coded.fixed_bytes), ((all * 66) as f64, 64 * all * 256));
    let bits = 8.0 * (seen * 66 + 64 * all * 256) as f64 / (seen * 128) as f64;
    assert_eq!((coded.bits_per_element, coded.marginal_bits), (bits, 4.125));
    assert_eq!((plain.bits(), coded.bits()), ("16.00".to_owned(), format!("{bits:.2} (4.12)")));
}
