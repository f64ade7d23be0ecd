//! Observers see what operations read and write, and change nothing.

use hf2q_cpu::Isa;
use hf2q_gguf::TensorType;
use hf2q_plan::{NamedOp, Observer, Op, Tensors};

use crate::model::{VOCABULARY, backend, open, step};

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
