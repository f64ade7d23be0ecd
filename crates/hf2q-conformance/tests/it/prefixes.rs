//! Sequences that begin with what the caches hold of others have the logits of a cold run, bit for bit: random
//! schedules on every toy model, and on a witness that needs no arithmetic and so can try many more.

use std::sync::Arc;

use hf2q_cpu::{CpuBackend, CpuOptions};
use hf2q_engine::{
    Budget, CacheOptions, CacheStats, Engine, EngineError, EngineOptions, LogitRows, SequenceId,
    WindowPolicy, Work,
};
use hf2q_model::{Model, RecordOptions, toy};
use hf2q_plan::{Backend, KvFormat, PAGE, Passes, Plan};

use crate::cpu::wide_toys;
use crate::support::Random;
use crate::witness::Witness;

/// Tokens of the longest text: three pages and a part.
const CONTEXT: usize = 3 * PAGE + 9;
const TEXTS: usize = 20;
const SEQUENCES: usize = 3;

/// Texts that begin like each other, and the bits of their logits, each computed from nothing.
struct Cold {
    texts: Vec<Vec<u32>>,
    /// By text: `[CONTEXT, vocabulary]`.
    logits: Vec<Vec<u32>>,
}

struct Subject<'a> {
    backend: &'a dyn Backend,
    model: &'a Model,
    formats: RecordOptions,
}

impl Subject<'_> {
    fn engine(&self, cache: CacheOptions) -> Engine {
        let recording = self.model.record(&self.formats).unwrap();
        let weights = self.model.weights_for(&recording);
        let plan = Arc::new(Plan::compile(recording, Passes::ALL));
        let options =
            EngineOptions { context: CONTEXT, sequences: SEQUENCES, rows: PAGE, logit_rows: PAGE, cache };
        Engine::open(self.backend, plan, weights, options).unwrap()
    }

    fn cold(&self, random: &mut Random) -> Cold {
        let mut engine = self.engine(CacheOptions::default());
        let texts = texts(random);
        let logits = texts.iter().map(|text| cold_run(&mut engine, text)).collect();
        Cold { texts, logits }
    }
}

/// Each but the first goes its own way from some position of an earlier one, often near a border of pages.
fn texts(random: &mut Random) -> Vec<Vec<u32>> {
    let mut texts: Vec<Vec<u32>> = vec![];
    for _ in 0..TEXTS {
        let near = random.pick(&[0, 1, 2, 3]) * PAGE + random.below(3);
        let any = random.below(CONTEXT);
        let from = random.pick(&[any, near.saturating_sub(1)]);
        let mut text = if texts.is_empty() { vec![] } else { random.pick_ref(&texts)[..from].to_vec() };
        text.extend((text.len()..CONTEXT).map(|_| random.below(150) as u32));
        texts.push(text);
    }
    texts
}

fn cold_run(engine: &mut Engine, text: &[u32]) -> Vec<u32> {
    engine.forget();
    let id = engine.add_sequence().unwrap();
    let bits = extend(engine, id, text);
    engine.remove_sequence(id).unwrap();
    bits
}

fn extend(engine: &mut Engine, id: SequenceId, tokens: &[u32]) -> Vec<u32> {
    let mut bits = vec![];
    let keep = |row: &[f32]| {
        bits.extend(row.iter().map(|x| x.to_bits()));
        true
    };
    engine.extend(id, tokens, LogitRows::All, keep).unwrap();
    bits
}

#[derive(Clone, Copy)]
struct Live {
    id: SequenceId,
    text: usize,
    len: usize,
}

/// An engine and the sequences that it should hold.
struct Schedules<'a> {
    cold: &'a Cold,
    engine: Engine,
    live: Vec<Live>,
    /// Whether steps can lack pages.
    tight: bool,
    random: Random,
    compared: usize,
}

impl<'a> Schedules<'a> {
    fn new(subject: &Subject<'_>, cold: &'a Cold, mut random: Random) -> Self {
        let budget = match random.below(4) {
            0 => Budget::Sequences,
            // Not enough for three texts; enough for one.
            _ => Budget::Pages(4 + random.below(6)),
        };
        let drop = WindowPolicy::Drop { ends: random.below(4) };
        let windows = random.pick(&[WindowPolicy::Keep, drop]);
        let engine = subject.engine(CacheOptions { budget, windows });
        Self { cold, engine, live: vec![], tight: budget != Budget::Sequences, random, compared: 0 }
    }

    /// A few operations; at the end, often, nobody is left but what is kept.
    fn one(&mut self) {
        for _ in 0..4 + self.random.below(5) {
            match self.random.below(20) {
                0..5 => self.add(),
                5..7 => self.fork(),
                7..9 => self.remove(),
                9 => self.remember(),
                _ => self.step(),
            }
        }
        if self.random.chance(60) {
            while !self.live.is_empty() {
                self.remove();
            }
        }
        if self.random.chance(5) {
            self.engine.forget();
        }
        for g in self.engine.cache_stats().groups {
            assert_eq!(g.in_use + g.cached + g.free, g.pages, "{g:?}");
        }
    }

    fn add(&mut self) {
        let text = self.random.below(TEXTS);
        let wanted = 1 + self.random.below(CONTEXT);
        let tokens = &self.cold.texts[text][..wanted];
        let added = match self.random.below(5) {
            0 => self.engine.add_sequence().map(|id| (id, 0)),
            _ => self.engine.add_sequence_with_prefix(tokens),
        };
        if self.live.len() == SEQUENCES {
            assert!(matches!(added, Err(EngineError::TooManySequences { .. })));
            return;
        }
        let (id, len) = added.unwrap();
        assert!(len < wanted && self.engine.len(id).unwrap() == len);
        self.live.push(Live { id, text, len });
    }

    fn fork(&mut self) {
        if self.live.is_empty() || self.live.len() == SEQUENCES {
            return;
        }
        let Live { id, text, len } = self.random.pick(&self.live);
        let id = match self.engine.fork(id) {
            Err(EngineError::OutOfPages { .. }) if self.tight => return,
            id => id.unwrap(),
        };
        // It goes on as any text that begins so.
        let same = |&t: &usize| self.cold.texts[t][..len] == self.cold.texts[text][..len];
        let others: Vec<usize> = (0..TEXTS).filter(same).collect();
        self.live.push(Live { id, text: self.random.pick(&others), len });
    }

    fn remove(&mut self) {
        if !self.live.is_empty() {
            let gone = self.live.swap_remove(self.random.below(self.live.len()));
            self.engine.remove_sequence(gone.id).unwrap();
        }
    }

    fn remember(&mut self) {
        if !self.live.is_empty() {
            self.engine.remember(self.random.pick(&self.live).id).unwrap();
        }
    }

    /// Chunks of some sequences in one step.
    fn step(&mut self) {
        let mut room = PAGE;
        let mut parts = vec![];
        for i in 0..self.live.len() {
            let live = self.live[i];
            let left = room.min(CONTEXT - live.len);
            if left > 0 && self.random.chance(70) {
                let to_border = PAGE - live.len % PAGE;
                let any = 1 + self.random.below(40);
                let n = self.random.pick(&[1, 1, 3, any, to_border, to_border + 1]).min(left);
                let logits = self.random.pick(&[LogitRows::All, LogitRows::Last]);
                parts.push((i, n, logits));
                room -= n;
            }
        }
        if parts.is_empty() {
            return;
        }
        let text = |l: Live, n: usize| &self.cold.texts[l.text][l.len..l.len + n];
        let work: Vec<Work<'_>> = parts
            .iter()
            .map(|&(i, n, logits)| Work::new(self.live[i].id, text(self.live[i], n), logits))
            .collect();
        let width = self.engine.vocabulary();
        let found = match self.engine.step(&work, None) {
            // Somebody has to wait: the one who goes finds later what is kept of it.
            Err(EngineError::OutOfPages { .. }) if self.tight => return self.remove(),
            found => found.unwrap(),
        };
        let mut rows = found.chunks(width);
        for &(i, n, logits) in &parts {
            let Live { text, len, .. } = self.live[i];
            let first = if logits == LogitRows::All { len } else { len + n - 1 };
            for position in first..len + n {
                let cold = &self.cold.logits[text][position * width..(position + 1) * width];
                let row = rows.next().unwrap();
                let same = row.iter().zip(cold).all(|(x, y)| x.to_bits() == *y);
                assert!(same, "text {text} position {position} of a step from {len}");
                self.compared += 1;
            }
            self.live[i].len += n;
        }
    }

    /// Nothing is lost when all are gone.
    fn finish(mut self) -> CacheStats {
        while !self.live.is_empty() {
            self.remove();
        }
        let stats = self.engine.cache_stats();
        assert!(stats.groups.iter().all(|g| g.in_use == 0), "{stats:?}");
        self.engine.forget();
        assert!(self.engine.cache_stats().groups.iter().all(|g| g.free == g.pages));
        stats
    }
}

/// Runs `engines` times `each` schedules; returns how many rows were compared.
fn run(subject: &Subject<'_>, name: &str, engines: u64, each: usize) -> usize {
    let cold = subject.cold(&mut Random::new(name, 0));
    let (mut compared, mut hits, mut evictions, mut copies) = (0, 0, 0, 0);
    for seed in 1..=engines {
        let mut schedules = Schedules::new(subject, &cold, Random::new(name, seed));
        for _ in 0..each {
            schedules.one();
        }
        compared += schedules.compared;
        let stats = schedules.finish();
        assert!(stats.hits <= stats.lookups && stats.tokens_reused <= stats.tokens_wanted);
        hits += stats.hits;
        evictions += stats.evictions;
        copies += stats.copies;
    }
    assert!(hits > 0 && evictions > 0 && copies > 0, "{name}: {hits} {evictions} {copies}");
    compared
}

#[test]
fn toy_models_do_not_notice_what_is_shared() {
    let backend = CpuBackend::new(CpuOptions { threads: 1, isa: None }).unwrap();
    let models = toy::all(3);
    let (engines, each) = (20, 46);
    assert!(models.len() * engines as usize * each >= 10_000);
    for (name, model) in &models {
        let subject = Subject { backend: &backend, model, formats: RecordOptions::default() };
        let compared = run(&subject, name, engines, each);
        assert!(compared > 1000, "{name}: {compared}");
    }
}

#[test]
fn every_cache_format_can_be_shared() {
    let backend = CpuBackend::new(CpuOptions { threads: 1, isa: None }).unwrap();
    let toys = wide_toys();
    for (i, &k) in KvFormat::ALL.iter().enumerate() {
        let v = KvFormat::ALL[(i * 7 + 3) % KvFormat::ALL.len()];
        // Recent positions in half precision, in every other format, or nowhere else.
        let recent = [Some(KvFormat::F16), KvFormat::ALL.get(i + 1).copied()][i % 2];
        let (name, model) = &toys[i % toys.len()];
        let formats = RecordOptions { sliding: (k, v), global: (v, k), recent, all_rows: false };
        run(&Subject { backend: &backend, model, formats }, name, 4, 20);
    }
}

#[test]
fn no_slot_is_seen_that_is_not_of_the_history() {
    for (name, model) in toy::all(3) {
        if ["gemma4-moe", "gemma3", "llama", "llama-window"].contains(&name) {
            let formats = RecordOptions::default();
            run(&Subject { backend: &Witness, model: &model, formats }, name, 100, 100);
        }
    }
    for (name, model) in wide_toys() {
        if ["gemma4-moe", "gemma3", "llama", "llama-window"].contains(&name) {
            // What is kept of recent positions is in a group of its own.
            let formats = RecordOptions::uniform(KvFormat::Tq4);
            run(&Subject { backend: &Witness, model: &model, formats }, name, 100, 100);
        }
    }
}

/// A prompt, a second turn behind it, the same with an edit in the middle, and the prompt with another end.
fn conversation(random: &mut Random) -> [Vec<u32>; 4] {
    let mut any = |n| (0..n).map(|_| random.below(150) as u32).collect::<Vec<u32>>();
    let prompt = any(180);
    let turn = [&prompt[..], &any(20)].concat();
    let mut edited = turn.clone();
    edited[100] ^= 1;
    let edit_at_turn = [&prompt[..170], &any(12)].concat();
    [prompt, turn, edited, edit_at_turn]
}

/// A conversation on a model with a window of 16: a second turn, another answer to the same prompt, an edit.
#[test]
fn turns_and_edits_compute_little_behind_a_window() {
    let mut config = toy::configs().into_iter().find(|(name, _)| *name == "llama-window").unwrap().1;
    config.layers.iter_mut().filter(|l| l.window.is_some()).for_each(|l| l.window = Some(16));
    let model = toy::build(config, 4);
    let formats = RecordOptions::uniform(KvFormat::F32);
    let subject = Subject { backend: &hf2q_reference::ReferenceBackend, model: &model, formats };
    let random = &mut Random::new("turns", 1);
    let [prompt, turn, edited, edit_at_turn] = conversation(random);
    let mut cold = subject.engine(CacheOptions::default());
    for (windows, asked) in [
        (
            WindowPolicy::Keep,
            [(&prompt, 0), (&turn, 180), (&prompt, 179), (&edited, 100), (&edit_at_turn, 170)],
        ),
        // An edit within a prompt finds no window there and begins anew.
        (
            WindowPolicy::Drop { ends: 3 },
            [(&prompt, 0), (&turn, 180), (&prompt, 179), (&edited, 0), (&edit_at_turn, 170)],
        ),
    ] {
        let cache = CacheOptions { budget: Budget::Sequences, windows };
        let mut engine = subject.engine(cache);
        for (tokens, expected) in asked {
            let (id, reused) = engine.add_sequence_with_prefix(tokens).unwrap();
            assert_eq!(reused, expected, "{windows:?}");
            let found = extend(&mut engine, id, &tokens[reused..]);
            assert!(found == cold_run(&mut cold, tokens)[reused * engine.vocabulary()..], "{windows:?}");
            engine.remember(id).unwrap();
            engine.remove_sequence(id).unwrap();
        }
    }
}

/// The same where rows see their own page in another format: a prefix can end at every border of pages, and within a page
/// where a sequence ended.
#[test]
fn turns_and_edits_begin_at_borders_where_recent_positions_are_exact() {
    let (_, model) = wide_toys().into_iter().find(|(name, _)| *name == "llama").unwrap();
    let backend = CpuBackend::new(CpuOptions { threads: 1, isa: None }).unwrap();
    let formats = RecordOptions::uniform(KvFormat::Tq3);
    let subject = Subject { backend: &backend, model: &model, formats };
    let random = &mut Random::new("recent turns", 1);
    let [prompt, turn, edited, edit_at_turn] = conversation(random);
    let mut cold = subject.engine(CacheOptions::default());
    for windows in [WindowPolicy::Keep, WindowPolicy::Drop { ends: 3 }] {
        let mut engine = subject.engine(CacheOptions { budget: Budget::Sequences, windows });
        let asked = [(&prompt, 0), (&turn, 180), (&prompt, 179), (&edited, 64), (&edit_at_turn, 170)];
        for (tokens, expected) in asked {
            let (id, reused) = engine.add_sequence_with_prefix(tokens).unwrap();
            assert_eq!(reused, expected, "{windows:?}");
            let found = extend(&mut engine, id, &tokens[reused..]);
            assert!(found == cold_run(&mut cold, tokens)[reused * engine.vocabulary()..], "{windows:?}");
            engine.remember(id).unwrap();
            engine.remove_sequence(id).unwrap();
        }
        let stats = engine.cache_stats();
        let recent = stats.groups.iter().find(|g| g.name == "recent").unwrap();
        assert!(recent.pages < 3 * 4 && recent.cached > 0, "{recent:?}");
    }
}
