//! Drafted rows have the logits of their path alone; what is accepted goes on as if it had come token by token, and nothing
//! stays of the rest.

use hf2q_cpu::{CpuBackend, CpuOptions};
use hf2q_engine::{
    Budget, CacheOptions, DraftTree, Engine, EngineError, EngineOptions, LogitRows, SequenceId, WindowPolicy,
    Work,
};
use hf2q_model::{Model, RecordOptions};
use hf2q_plan::{Backend, KvFormat, PAGE};
use hf2q_reference::ReferenceBackend;
use proptest::prelude::*;

use crate::support::{Random, SIZES, engine, engine_with, logits, tokens, wide, windowed};

/// A random tree: chains as often as forks, and several roots.
fn tree(random: &mut Random, nodes: usize) -> DraftTree {
    let mut tree = DraftTree::new();
    for i in 0..nodes {
        let parent = match random.below(5) {
            0 => None,
            1 if i > 0 => Some(random.below(i)),
            _ => i.checked_sub(1),
        };
        tree.push(random.below(150) as u32, parent);
    }
    tree
}

fn part(tree: &DraftTree, nodes: usize) -> DraftTree {
    DraftTree { tokens: tree.tokens[..nodes].to_vec(), parents: tree.parents[..nodes].to_vec() }
}

/// Nodes from the root to `node`.
fn line(tree: &DraftTree, node: usize) -> Vec<usize> {
    let mut line: Vec<usize> = std::iter::successors(Some(node), |&n| tree.parents[n]).collect();
    line.reverse();
    line
}

fn bits(rows: &[f32]) -> Vec<u32> {
    rows.iter().map(|x| x.to_bits()).collect()
}

/// Two engines with the same text: one computes trees, the other each of their paths alone.
struct Pair {
    engine: Engine,
    id: SequenceId,
    other: SequenceId,
    oracle: Engine,
    plain: SequenceId,
    text: Vec<u32>,
}

impl Pair {
    fn new(mut engine: Engine, mut oracle: Engine) -> Self {
        let [id, other] = [0; 2].map(|_| engine.add_sequence().unwrap());
        let plain = oracle.add_sequence().unwrap();
        Self { engine, id, other, oracle, plain, text: Vec::new() }
    }

    fn extend(&mut self, more: &[u32]) {
        let got = logits(&mut self.engine, self.id, more, 40);
        let expected = logits(&mut self.oracle, self.plain, more, 7);
        assert!(got == expected, "{} tokens behind {}", more.len(), self.text.len());
        self.text.extend_from_slice(more);
    }

    /// Computes `last` and `tree` behind it, in so many steps, another sequence beside it.
    fn draft(&mut self, last: u32, tree: &DraftTree, parts: &[usize]) {
        let vocabulary = self.engine.vocabulary();
        let mut got = Vec::new();
        let first = part(tree, parts[0]);
        for (i, &nodes) in parts.iter().enumerate() {
            let here = part(tree, nodes);
            let beside = [3, 4];
            let tokens = [last];
            let work = match i {
                0 => Work::new(self.id, &tokens, LogitRows::Last).with_tree(&first),
                _ => Work::new(self.id, &[], LogitRows::Last).with_tree(&here),
            };
            let others = Work::new(self.other, &beside, LogitRows::None);
            got.extend(bits(self.engine.step(&[others, work], None).unwrap()));
        }
        self.text.push(last);
        let expected = logits(&mut self.oracle, self.plain, &[last], 1);
        assert!(got[..vocabulary] == expected, "the row before the tree");
        for node in 0..tree.len() {
            let line: Vec<u32> = line(tree, node).into_iter().map(|n| tree.tokens[n]).collect();
            let fork = self.oracle.fork(self.plain).unwrap();
            let alone = logits(&mut self.oracle, fork, &line, 3);
            self.oracle.remove_sequence(fork).unwrap();
            let row = &got[(1 + node) * vocabulary..][..vocabulary];
            let same = row == &alone[alone.len() - vocabulary..];
            assert!(same, "node {node} of {tree:?} in parts {parts:?} behind {}", self.text.len());
        }
    }

    fn accept(&mut self, tree: &DraftTree, node: Option<usize>) {
        let path = node.map(|n| line(tree, n)).unwrap_or_default();
        self.engine.accept(self.id, &path).unwrap();
        let tokens: Vec<u32> = path.into_iter().map(|n| tree.tokens[n]).collect();
        if !tokens.is_empty() {
            logits(&mut self.oracle, self.plain, &tokens, 5);
        }
        self.text.extend(tokens);
        assert_eq!(self.engine.len(self.id).unwrap(), self.text.len());
    }

    /// Cuts both, if pages allow it.
    fn rewind(&mut self, len: usize) {
        match self.engine.rewind(self.id, len) {
            Ok(()) => {
                self.text.truncate(len);
                self.oracle.remove_sequence(self.plain).unwrap();
                self.plain = self.oracle.add_sequence().unwrap();
                if len > 0 {
                    logits(&mut self.oracle, self.plain, &self.text, 40);
                }
            }
            Err(error) => assert!(matches!(error, EngineError::Rewind { .. }), "{error}"),
        }
    }

    /// Nothing is held when the sequences are gone.
    fn finish(mut self) {
        let pages =
            |engine: &Engine| engine.cache_stats().groups.iter().map(|g| g.in_use).collect::<Vec<_>>();
        let text = self.text.clone();
        self.engine.remove_sequence(self.other).unwrap();
        let with_trees = pages(&self.engine);
        // As many as a sequence that came token by token holds.
        let mut plain = self.engine.add_sequence_with_prefix(&text).map(|(id, _)| id).unwrap();
        let held = self.engine.len(plain).unwrap();
        assert!(held < text.len());
        self.engine.remove_sequence(plain).unwrap();
        self.engine.remove_sequence(self.id).unwrap();
        assert!(pages(&self.engine).iter().all(|&n| n == 0));
        self.engine.forget();
        plain = self.engine.add_sequence().unwrap();
        logits(&mut self.engine, plain, &text, 1);
        let alone = pages(&self.engine);
        assert!(with_trees.iter().zip(&alone).all(|(a, b)| a <= b), "{with_trees:?} {alone:?}");
        self.engine.remove_sequence(plain).unwrap();
        self.engine.forget();
        assert!(self.engine.cache_stats().groups.iter().all(|g| g.free == g.pages));
    }
}

fn check(seed: u64, backend: &dyn Backend, (model, formats): (&Model, &RecordOptions)) {
    let mut random = Random::new(seed);
    let windows = [WindowPolicy::Keep, WindowPolicy::Drop { ends: 1 }][random.below(2)];
    let cache = CacheOptions { windows, ..CacheOptions::default() };
    let options = EngineOptions { context: 260, cache, ..SIZES };
    let open = || engine_with(backend, (model, formats), options);
    let mut pair = Pair::new(open(), open());
    // Near the edge of a window of 20, near borders of pages, or anywhere.
    let near = [18, PAGE - 3, 2 * PAGE - 3][random.below(3)] + random.below(6);
    let len = [near, 1 + random.below(150)][random.below(2)];
    pair.extend(&tokens(len, seed as u32 % 7));
    for round in 0..4 {
        // A tree may be wider than the window.
        let nodes = 1 + random.below(30);
        let tree = tree(&mut random, nodes);
        let mut parts: Vec<usize> = (0..random.below(3)).map(|_| 1 + random.below(nodes)).collect();
        parts.push(nodes);
        parts.sort_unstable();
        parts.dedup();
        pair.draft(random.below(150) as u32, &tree, &parts);
        let stays = (random.below(5) > 0).then(|| random.below(nodes));
        pair.accept(&tree, stays);
        if random.below(3) == 0 {
            let text = pair.text.len();
            pair.rewind(text - random.below(12).min(text - 1));
        }
        if round == 1 {
            pair.extend(&tokens(1 + random.below(9), round));
        }
    }
    pair.extend(&tokens(3, 5));
    pair.finish();
}

/// One of every format, in any layer, with and without recent positions.
fn formats(seed: u64) -> RecordOptions {
    let mut random = Random::new(seed ^ 77);
    let mut any = || KvFormat::ALL[random.below(KvFormat::ALL.len())];
    let (sliding, global, recent) = ((any(), any()), (any(), any()), any());
    RecordOptions {
        sliding,
        global,
        recent: (!seed.is_multiple_of(4)).then_some(recent),
        all_rows: seed.is_multiple_of(2),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn drafted_rows_have_the_logits_of_their_path(seed in any::<u64>()) {
        let toys = wide();
        let (_, model) = &toys[(seed % toys.len() as u64) as usize];
        let cpu = CpuBackend::new(CpuOptions { threads: 1 + (seed % 2) as usize, isa: None }).unwrap();
        let backend: &dyn Backend = if seed % 5 == 0 { &ReferenceBackend } else { &cpu };
        check(seed / 16, backend, (model, &formats(seed)));
    }
}

#[test]
fn what_is_no_tree_is_refused_and_changes_nothing() {
    let mut engine = engine(&windowed(), SIZES);
    let id = engine.add_sequence().unwrap();
    let tree = |tokens: &[u32], parents: &[Option<usize>]| DraftTree {
        tokens: tokens.to_vec(),
        parents: parents.to_vec(),
    };
    let good = tree(&[1, 2, 3], &[None, Some(0), None]);
    let refused = |engine: &mut Engine, tokens: &[u32], tree: &DraftTree| {
        let error = engine.step(&[Work::new(id, tokens, LogitRows::Last).with_tree(tree)], None).unwrap_err();
        error.to_string()
    };
    assert!(refused(&mut engine, &[], &good).contains("no token"));
    for (bad, part) in [
        (tree(&[1, 2], &[None]), "2 tokens and 1 parents"),
        (tree(&[1, 2], &[None, Some(1)]), "node 1 continues a later node"),
        (tree(&[1, 999], &[None, Some(0)]), "999"),
        (tree(&[1; 48], &[None; 48]), "rows"),
    ] {
        let message = refused(&mut engine, &[5], &bad);
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
    engine.step(&[Work::new(id, &[5], LogitRows::Last).with_tree(&good)], None).unwrap();
    for other in [tree(&[1, 2, 4, 5], &[None, Some(0), None, None]), good.clone(), DraftTree::new()] {
        assert!(refused(&mut engine, &[], &other).contains("begin"));
    }
    for path in [&[1][..], &[0, 2], &[0, 1, 1], &[7]] {
        assert!(matches!(engine.accept(id, path), Err(EngineError::Tree { .. })));
    }
    engine.accept(id, &[0, 1]).unwrap();
    assert_eq!(engine.len(id).unwrap(), 3);
    assert!(matches!(engine.accept(id, &[0]), Err(EngineError::Tree { .. })));
    engine.accept(id, &[]).unwrap();
    assert!(matches!(engine.rewind(id, 4), Err(EngineError::Rewind { held: 3, len: 4, .. })));
}

#[test]
fn a_tree_without_room_for_its_siblings_leaves_the_sequence_as_it_was() {
    let cache = CacheOptions { budget: Budget::Pages(1), windows: WindowPolicy::Keep };
    let options = EngineOptions { context: 64, sequences: 1, rows: 32, logit_rows: 32, cache };
    let mut engine = engine(&windowed(), options);
    let id = engine.add_sequence().unwrap();
    engine.extend(id, &tokens(10, 1), LogitRows::None, |_| true).unwrap();
    let mut fork = DraftTree::chain(vec![1, 2, 3]);
    let chain = fork.clone();
    fork.push(4, None);
    let error = engine.step(&[Work::new(id, &[5], LogitRows::Last).with_tree(&fork)], None).unwrap_err();
    assert!(matches!(error, EngineError::OutOfPages { .. }), "{error}");
    engine.step(&[Work::new(id, &[5], LogitRows::Last).with_tree(&chain)], None).unwrap();
    engine.accept(id, &[0]).unwrap();
    assert_eq!(engine.len(id).unwrap(), 12);
    engine.extend(id, &tokens(50, 2), LogitRows::None, |_| true).unwrap();
    let error = engine.step(&[Work::new(id, &[5], LogitRows::Last).with_tree(&chain)], None).unwrap_err();
    assert!(matches!(error, EngineError::ContextFull { held: 62, wanted: 4, context: 64 }), "{error}");
}
