//! EAGLE-3 heads: they guess as the reference's chains do, answers are those without them, rows depend on their history alone.

use std::sync::{Arc, Mutex};

use hf2q_arch::Architecture;
use hf2q_conformance::invariance::{self, Options};
use hf2q_conformance::{Subject, outputs};
use hf2q_cpu::{CpuBackend, CpuOptions};
use hf2q_engine::draft::EagleDrafter;
use hf2q_engine::{
    Answer, CacheOptions, DraftDepth, DraftShape, Drafting, Engine, EngineOptions, Event, Job, Sampler,
    Sampling, Scheduler, SchedulerOptions, Task,
};
use hf2q_gguf::Gguf;
use hf2q_model::eagle3::Eagle3;
use hf2q_model::{Model, RecordOptions, toy};
use hf2q_plan::{Backend, KvFormat, Passes, Plan};
use hf2q_reference::ReferenceBackend;
use hf2q_text::{Specials, Tokenizer};
use serde_json::Value;

use crate::goldens::{converted, root};

fn cpu(threads: usize) -> CpuBackend {
    CpuBackend::new(CpuOptions { threads, isa: None }).unwrap()
}

/// What is drawn: a prompt and how.
type Wish = (Vec<u32>, Sampling);

/// A target with caches in some format, and perhaps a head.
struct Case<'a> {
    backend: &'a dyn Backend,
    target: &'a Model,
    format: KvFormat,
    context: usize,
    new: usize,
}

impl Case<'_> {
    fn sizes(&self) -> EngineOptions {
        let cache = CacheOptions::default();
        EngineOptions { context: self.context, sequences: 16, rows: 160, logit_rows: 160, cache }
    }

    fn scheduler(&self, head: Option<&Model>, depth: usize) -> Scheduler {
        let options = RecordOptions { all_rows: true, ..RecordOptions::uniform(self.format) };
        let mut recording = self.target.record(&options).unwrap();
        let drafter = head.map(|head| {
            let head = Eagle3::new(head.clone(), self.target).unwrap();
            recording.keep(head.taps()).unwrap();
            EagleDrafter::open(head, self.backend, (self.format, self.sizes())).unwrap()
        });
        let weights = self.target.weights_for(&recording);
        let plan = Arc::new(Plan::compile(recording, Passes::ALL));
        let engine = Engine::open(self.backend, plan, weights, self.sizes()).unwrap();
        let scheduler = Scheduler::new(engine, SchedulerOptions { queue: 64, busy_rows: 120 }).unwrap();
        match drafter {
            Some(drafter) => scheduler.with_drafts(Drafting {
                drafter: Box::new(drafter),
                depth: DraftDepth::Fixed(depth),
                shape: DraftShape::Auto,
                warn: Box::new(|error| panic!("{error}")),
            }),
            None => scheduler,
        }
    }

    /// All answers, computed at once.
    fn answers(&self, scheduler: &mut Scheduler, wishes: &[Wish]) -> Vec<Vec<u32>> {
        let answers: Vec<Arc<Mutex<Vec<u32>>>> = wishes.iter().map(|_| Arc::default()).collect();
        for ((prompt, sampling), answer) in wishes.iter().zip(&answers) {
            let mut wanted = Answer::new(Sampler::new(sampling.clone()).unwrap());
            wanted.max_tokens = Some(self.new);
            let job = Job { prompt: prompt.clone(), task: Task::Answer(Box::new(wanted)), deadline: None };
            let answer = Arc::clone(answer);
            let sink = Box::new(move |event| {
                match event {
                    Event::Token { id, .. } => answer.lock().unwrap().push(id),
                    Event::Failed(error) => panic!("{error}"),
                    _ => {}
                }
                true
            });
            scheduler.submit(job, sink).unwrap();
        }
        while scheduler.step() {}
        answers.into_iter().map(|answer| answer.lock().unwrap().clone()).collect()
    }
}

fn demo(name: &str) -> Gguf {
    converted(&root().join("models/demo").join(name), "f32")
}

/// How many tokens of a chain of four are right on average, as if none had been cut short, and how many drafts there were.
fn right(scheduler: &Scheduler) -> (f64, u64) {
    let stats = scheduler.stats().drafts;
    assert_eq!(stats.failures, 0);
    let of_level = |&(had, right): &(u64, u64)| right as f64 / had.max(1) as f64;
    (stats.levels.iter().map(of_level).sum(), stats.drafts)
}

#[test]
fn the_demos_head_is_right_as_often_as_the_references() {
    let golden: Value =
        serde_json::from_slice(&std::fs::read(root().join("fixtures/demo/eagle3.json")).unwrap()).unwrap();
    let gguf = demo("tiny-moe");
    let (target, head) = (Model::load(&gguf).unwrap(), Model::load(&demo("eagle3-tiny-moe")).unwrap());
    let tokenizer = Tokenizer::from_metadata(gguf.metadata()).unwrap();
    let text = std::fs::read_to_string(root().join("fixtures/demo/eval.txt")).unwrap();
    let ids = tokenizer.encode(&text, Specials::Parse);
    let ids: Vec<u32> = ids.into_iter().filter(|&id| id != 2).collect();
    let size = |key: &str| usize::try_from(golden[key].as_u64().unwrap()).unwrap();
    let (prompts, len) = (size("prompts"), size("prompt_tokens"));
    let prompt = |i: usize| [&[2], &ids[i * len..(i + 1) * len - 1]].concat();
    let wishes: Vec<Wish> = (0..prompts).map(|i| (prompt(i), Sampling::default())).collect();
    let backend = cpu(2);
    let new = size("new_tokens");
    let case = Case { backend: &backend, target: &target, format: KvFormat::F32, context: 512, new };
    let plain = case.answers(&mut case.scheduler(None, 0), &wishes);
    let mut drafted = case.scheduler(Some(&head), size("chain"));
    assert_eq!(case.answers(&mut drafted, &wishes), plain);
    let expected = golden["mean_accepted_draft_tokens"].as_f64().unwrap();
    let (found, drafts) = right(&drafted);
    assert!((found / expected - 1.0).abs() < 0.03, "{found} of {drafts} drafts, expected {expected}");
    // Steps with prompts have no room for drafts.
    let expected = golden["rounds"].as_u64().unwrap();
    assert!(drafts > expected * 8 / 10, "{drafts} drafts, expected {expected}");
}

/// A target whose layers a toy head fits, prompts of any length, and draws of any kind.
fn toys() -> (Model, Model, Vec<Wish>) {
    let config = toy::configs().into_iter().find(|(name, _)| *name == "gemma4-dense").unwrap().1;
    let (target, head) = (toy::build(config, 1), toy::model(Architecture::Eagle3, 2));
    let wish = |i: u32| {
        let prompt = (0..1 + i * i % 90).map(|n| (n * 7 + i) % 160).collect();
        let temperature = [0.0, 0.7, 1.0][i as usize % 3];
        (prompt, Sampling { temperature, seed: u64::from(i), ..Sampling::default() })
    };
    (target, head, (0..24).map(wish).collect())
}

#[test]
fn answers_are_those_without_a_head() {
    let (target, head, wishes) = toys();
    let cpu = cpu(3);
    let backends: [(&dyn Backend, &[KvFormat]); 2] = [
        (&ReferenceBackend, &[KvFormat::F16]),
        (&cpu, &[KvFormat::F32, KvFormat::F16, KvFormat::Bf16, KvFormat::Q8_0]),
    ];
    for (backend, formats) in backends {
        for &format in formats {
            let case = Case { backend, target: &target, format, context: 160, new: 24 };
            let plain = case.answers(&mut case.scheduler(None, 0), &wishes);
            for depth in [1, 3] {
                let mut drafted = case.scheduler(Some(&head), depth);
                assert_eq!(case.answers(&mut drafted, &wishes), plain, "{} {depth}", format.name());
                let (_, drafts) = right(&drafted);
                assert!(drafts > 200, "{drafts}");
                // A head that is not trained for its target guesses odd tokens only, and is hardly ever right.
                assert_eq!(drafted.stats().drafts.drafter, "eagle3 head of 3 taps");
            }
        }
    }
}

#[test]
fn rows_of_heads_depend_on_their_history_alone() {
    let (target, head, _) = toys();
    let head = Eagle3::new(head, &target).unwrap();
    let recording = head.record(KvFormat::F16).unwrap();
    let subject = Subject { weights: head.weights_for(&recording), recording };
    let (one, three) = (cpu(1), cpu(3));
    let options = Options { turns: 12, ..Options::default() };
    let found = invariance::check(&one, &[&three], &subject, options).unwrap();
    assert_eq!(found.violations, [""; 0]);
    assert!(found.rows > 100 && found.drafted > 0);
    for backend in [&ReferenceBackend as &dyn Backend, &one] {
        assert_eq!(outputs::check(backend, &subject, 3).unwrap().difference, None);
    }
}

#[test]
fn heads_of_other_models_are_refused_by_the_first_difference() {
    let (target, head, _) = toys();
    let refused = |head: &Model, target: &Model| Eagle3::new(head.clone(), target).unwrap_err().to_string();
    assert!(
        refused(&target, &target).contains("a gemma4 model is no drafter of this kind; accepted is eagle3")
    );
    let changed = |change: &dyn Fn(&mut hf2q_arch::Config)| {
        let mut config = head.config().clone();
        change(&mut config);
        toy::build(config, 2)
    };
    let other = changed(&|c| c.vocab = 170);
    assert!(
        refused(&other, &target).contains("vocabulary is 170 in the drafter's file and 160 in the model's")
    );
    let other = changed(&|c| c.eagle.as_mut().unwrap().target_hidden = 32);
    assert!(refused(&other, &target).contains("hidden size of the model is 32"));
    let other = changed(&|c| c.eagle.as_mut().unwrap().target_layers = vec![1, 2, 4]);
    assert!(refused(&other, &target).contains("layer whose input is read is 4"));
    let without: std::collections::HashMap<_, _> = head
        .config()
        .tensors()
        .into_iter()
        .filter(|row| row.gguf != "token_embd.weight")
        .filter_map(|row| Some((row.gguf.clone(), head.tensor(&row.gguf)?.clone())))
        .collect();
    let other = Model::new(head.config().clone(), without).unwrap();
    assert!(refused(&other, &target).contains("for it has no embedding of its own, is 32"));
}
