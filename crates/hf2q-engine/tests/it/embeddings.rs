//! Vectors of prompts, against hidden states that are looked at from outside.

use hf2q_engine::{EngineError, EngineOptions, Event, Finish, Job, LogitRows, Pooling, Rejected, Scheduler};
use hf2q_engine::{SchedulerOptions, Task, Work};
use hf2q_plan::{KvFormat, NamedOp, Observer, Passes, Plan, Tensors};
use hf2q_reference::ReferenceBackend;

use crate::support::{Log, SIZES, engine, tokens, windowed};

const OPTIONS: SchedulerOptions = SchedulerOptions { queue: 8, busy_rows: 48 };

#[derive(Default)]
struct LastNorm(Vec<f32>);

impl Observer for LastNorm {
    fn wants(&mut self, op: &NamedOp) -> bool {
        op.name == "output_norm"
    }

    fn after(&mut self, op: &NamedOp, tensors: &dyn Tensors) {
        self.0 = tensors.values(op.op.access().writes[0]).unwrap();
    }
}

/// Hidden states of a prompt, one after the other.
fn hidden(prompt: &[u32]) -> Vec<Vec<f32>> {
    let mut engine = engine(&windowed(), SIZES);
    let sequence = engine.add_sequence().unwrap();
    let row = |token: &u32| {
        let mut seen = LastNorm::default();
        engine.step(&[Work::new(sequence, &[*token], LogitRows::Last)], Some(&mut seen)).unwrap();
        seen.0
    };
    prompt.iter().map(row).collect()
}

fn unit(vector: Vec<f64>) -> Vec<f64> {
    let length = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
    vector.into_iter().map(|x| x / length).collect()
}

#[test]
fn vectors_are_pooled_hidden_states_of_length_one() {
    let prompt = tokens(70, 4);
    let rows = hidden(&prompt);
    let width = rows[0].len();
    let mean = (0..width).map(|i| rows.iter().map(|r| f64::from(r[i])).sum()).collect();
    let last = rows[69].iter().map(|&x| f64::from(x)).collect();
    // Answers under way and prompts of others do not matter, nor how many rows have logits.
    for logit_rows in [3, 48] {
        let mut scheduler =
            Scheduler::new(engine(&windowed(), EngineOptions { logit_rows, ..SIZES }), OPTIONS).unwrap();
        let logs = [Pooling::Mean, Pooling::Last, Pooling::Mean].map(|pooling| {
            let log = Log::default();
            let job = Job { prompt: prompt.clone(), task: Task::Embed(pooling), deadline: None };
            scheduler.submit(job, log.sink()).unwrap();
            log
        });
        while scheduler.step() {}
        for (log, expected) in
            logs.iter().zip([unit(Vec::clone(&mean)), unit(Vec::clone(&last)), unit(Vec::clone(&mean))])
        {
            let events = log.events();
            let Some(Event::Embedding(vector)) = events.get(1) else { panic!("{events:?}") };
            assert_eq!(vector.len(), width);
            assert!(vector.iter().zip(expected).all(|(&got, want)| (f64::from(got) - want).abs() < 1e-6));
            assert_eq!(log.finish(), Some(Finish::Complete));
        }
    }
}

#[test]
fn a_plan_without_the_last_norm_has_none_to_give() {
    let model = windowed();
    let mut recording = model.record(&hf2q_model::RecordOptions::uniform(KvFormat::F16)).unwrap();
    let weights = model.weights_for(&recording);
    recording.ops.iter_mut().filter(|op| op.name == "output_norm").for_each(|op| op.name = "other".into());
    let plan = std::sync::Arc::new(Plan::compile(recording, Passes::ALL));
    let engine = hf2q_engine::Engine::open(&ReferenceBackend, plan, weights, SIZES).unwrap();
    let mut scheduler = Scheduler::new(engine, OPTIONS).unwrap();
    assert!(!scheduler.limits().embeddings);
    let job = Job { prompt: vec![1], task: Task::Embed(Pooling::Last), deadline: None };
    let error = scheduler.submit(job, Log::default().sink()).unwrap_err();
    assert!(matches!(error, Rejected::Invalid(EngineError::NoEmbedding { op: "output_norm" })), "{error}");
}
