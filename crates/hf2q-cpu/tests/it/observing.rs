//! Observers see what operations read and write, and change nothing.

use std::time::{Duration, Instant};

use hf2q_cpu::Isa;
use hf2q_gguf::TensorType;
use hf2q_plan::{NamedOp, Observer, Op, Passes, Plan, Tensors, Timed};

use crate::model::{VOCABULARY, backend, open, recording, step};

#[derive(Default)]
struct Eye {
    asked: Vec<String>,
    logits: Vec<f32>,
    experts: Vec<i32>,
    strange: bool,
}

impl Observer for Eye {
    fn wants(&mut self, op: &NamedOp) -> bool {
        self.asked.push(op.name.clone());
        matches!(op.op, Op::Route(_) | Op::SoftCap(_))
    }

    fn after(&mut self, op: &NamedOp, tensors: &dyn Tensors) {
        match &op.op {
            Op::SoftCap(o) => self.logits = tensors.values(o.out.tensor).unwrap(),
            Op::Route(o) => {
                self.experts = tensors.indices(o.experts.tensor).unwrap();
                self.strange =
                    tensors.values(o.experts.tensor).is_some() || tensors.indices(o.logits.tensor).is_some();
            }
            other => panic!("{other:?} was not wanted"),
        }
    }
}

#[test]
fn an_observer_sees_values_and_indices() {
    let backend = backend(2, Isa::detect());
    let mut program = open(TensorType::Q8_0, &backend, 16);
    let step = step(&[1, 2, 3, 4, 5], 0);
    let plain = program.run(&step, None).unwrap().to_vec();
    let mut eye = Eye::default();
    assert_eq!(program.run(&step, Some(&mut eye)).unwrap(), plain);
    assert_eq!(eye.logits, plain);
    assert_eq!(eye.logits.len(), 5 * VOCABULARY);
    assert_eq!(eye.experts.len(), 10);
    assert!(!eye.strange && eye.experts.iter().all(|&e| (0..5).contains(&e)));
    assert_eq!(eye.asked.first().map(String::as_str), Some("embed"));
    assert!(eye.asked.iter().any(|n| n == "L01.attention"));
}

#[derive(Default)]
struct Clock {
    ops: Vec<String>,
    preparations: Vec<(String, &'static str)>,
    total: Duration,
}

impl Observer for Clock {
    fn wants(&mut self, op: &NamedOp) -> bool {
        panic!("{} is shown in a timed step", op.name)
    }

    fn after(&mut self, op: &NamedOp, _tensors: &dyn Tensors) {
        panic!("{} is shown in a timed step", op.name)
    }

    fn times(&mut self) -> bool {
        true
    }

    fn took(&mut self, part: &Timed<'_>) {
        self.total += part.time;
        match part.preparation {
            Some(what) => self.preparations.push((part.op.name.clone(), what)),
            None => self.ops.push(part.op.name.clone()),
        }
    }
}

#[test]
fn every_operation_is_timed_once_and_gives_the_same() {
    let names: Vec<String> = {
        let plan = Plan::compile(recording(TensorType::Q8_0), Passes::ALL);
        plan.recording.ops.into_iter().map(|op| op.name).collect()
    };
    for threads in 1..4 {
        let backend = backend(threads, Isa::detect());
        let mut program = open(TensorType::Q8_0, &backend, 16);
        for tokens in [&[1, 2, 3, 4, 5][..], &[7]] {
            let step = step(tokens, 0);
            let plain = program.run(&step, None).unwrap().to_vec();
            let mut clock = Clock::default();
            let started = Instant::now();
            assert_eq!(program.run(&step, Some(&mut clock)).unwrap(), plain);
            assert!(clock.total <= started.elapsed());
            assert_eq!(clock.ops, names, "{threads} threads");
            // Operations that read the same rows share what was prepared for the first of them.
            let prepared = |what: &str| clock.preparations.iter().filter(|(_, w)| *w == what).count();
            assert_eq!(prepared("angles"), 1);
            assert_eq!(prepared("list_rows"), 1);
            assert!(clock.preparations.contains(&("L00.q".into(), "quantize")));
            assert!(!clock.preparations.contains(&("L00.k".into(), "quantize")));
            assert_eq!(program.run(&step, None).unwrap(), plain);
        }
    }
}
