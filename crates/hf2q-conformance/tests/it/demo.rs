//! The bundled checkpoints: goldens, perplexity in every type, the invariance rule.

use std::path::PathBuf;

use hf2q_conformance::goldens::{Golden, Runner};
use hf2q_conformance::invariance::{self, Options};
use hf2q_cpu::{CpuBackend, CpuOptions};
use hf2q_plan::Backend;
use hf2q_text::{Specials, Tokenizer};

use crate::goldens::{converted, root, subject};

fn cpu(threads: usize) -> CpuBackend {
    CpuBackend::new(CpuOptions { threads, isa: None }).unwrap()
}

fn checkpoint(name: &str) -> PathBuf {
    root().join("models/demo").join(name)
}

fn golden(name: &str) -> Golden {
    Golden::load(&root().join("fixtures/demo").join(format!("{name}.json"))).unwrap()
}

fn eval_text(tokenizer: &Tokenizer) -> Vec<u32> {
    let text = std::fs::read_to_string(root().join("fixtures/demo/eval.txt")).unwrap();
    tokenizer.encode(&text, Specials::Parse)
}

/// `chunks` of the perplexity text must come within `limit`; in f32 the prompts are compared too.
fn check(name: &str, recipe: &str, (chunks, limit): (usize, f64)) {
    let gguf = converted(&checkpoint(name), recipe);
    let tokenizer = Tokenizer::from_metadata(gguf.metadata()).unwrap();
    let text = eval_text(&tokenizer);
    let mut golden = golden(name);
    assert_eq!(golden.perplexity.chunks.iter().map(|c| c.tokens).sum::<usize>(), text.len());
    if recipe == "f32" {
        assert_eq!(golden.prompts.len(), 4);
    } else {
        golden.prompts.clear();
    }
    let mut runner = Runner::open(&cpu(2), subject(&gguf), (512, 128)).unwrap();
    let found = runner.compare(&golden, Some(&text), chunks).unwrap();
    assert_eq!(found.misses(1e-4, limit), [""; 0], "{name} {recipe}: {found:?}");
    for p in &found.prompts {
        assert!(!p.hidden.is_empty() && p.hidden.iter().all(|&off| off < 1e-4), "{name}: {p:?}");
    }
    assert!(found.perplexity.is_some());
}

#[test]
fn the_dense_model_gives_what_transformers_computes() {
    check("tiny-dense", "f32", (1, 5e-4));
}

#[test]
fn the_mixture_gives_what_transformers_computes() {
    check("tiny-moe", "f32", (1, 5e-4));
    check("tiny-moe", "bf16", (1, 5e-4));
    check("tiny-moe", "q8_0", (1, 5e-3));
}

#[test]
fn rows_of_the_mixture_depend_on_their_history_alone() {
    let subject = subject(&converted(&checkpoint("tiny-moe"), "q4_0"));
    let options = Options { turns: 8, sequences: 2, ..Options::default() };
    let others = [cpu(2), cpu(3)];
    let others: Vec<&dyn Backend> = others.iter().map(|b| b as &dyn Backend).collect();
    let found = invariance::check(&cpu(1), &others, &subject, options).unwrap();
    assert_eq!(found.violations, [""; 0]);
    assert!(found.rows > 50 && found.drafted > 0, "{found:?}");
}
