//! An observer sees what the operations of the current wave touch, and nothing else.

use hf2q_plan::{NamedOp, Observer, TensorId, Tensors, Timed};

use crate::harness::{Toy, step};

struct Seen {
    hidden: TensorId,
    wanted: &'static str,
    values: Vec<(String, Option<Vec<f32>>)>,
}

impl Observer for Seen {
    fn wants(&mut self, op: &NamedOp) -> bool {
        op.name == self.wanted
    }

    fn after(&mut self, op: &NamedOp, tensors: &dyn Tensors) {
        assert!(tensors.values(self.hidden).is_none());
        let access = op.op.access();
        for id in access.reads.into_iter().chain(access.writes) {
            self.values.push((op.name.clone(), tensors.values(id)));
        }
    }
}

#[test]
fn an_observer_reads_the_wave_it_wants() {
    let mut t = Toy::default();
    let x = t.input("x", &[&[1.0, 2.0]]);
    let a = t.r.scale("a", x, 2.0, None);
    let b = t.r.scale("b", a, 2.0, None);
    let (recording, mut program) = t.open(b);
    let row = hf2q_plan::Row { sequence: 0, token: 0, position: 0, parent: None };
    let mut seen = Seen { hidden: b.tensor, wanted: "a", values: vec![] };
    program.run(&step(&recording, vec![row]), Some(&mut seen)).unwrap();
    let a = |v: [f32; 2]| ("a".to_owned(), Some(v.to_vec()));
    assert_eq!(seen.values, [a([1.0, 2.0]), a([2.0, 4.0])]);
}

#[derive(Default)]
struct Clock(Vec<String>);

impl Observer for Clock {
    fn wants(&mut self, _op: &NamedOp) -> bool {
        panic!("a timed step shows nothing")
    }

    fn after(&mut self, _op: &NamedOp, _tensors: &dyn Tensors) {}

    fn times(&mut self) -> bool {
        true
    }

    fn took(&mut self, part: &Timed<'_>) {
        assert!(part.preparation.is_none());
        self.0.push(part.op.name.clone());
    }
}

#[test]
fn operations_are_timed_one_by_one() {
    let mut t = Toy::default();
    let x = t.input("x", &[&[1.0, 2.0]]);
    let a = t.r.scale("a", x, 2.0, None);
    let b = t.r.scale("b", a, 2.0, None);
    let (recording, mut program) = t.open(b);
    let row = hf2q_plan::Row { sequence: 0, token: 0, position: 0, parent: None };
    let mut clock = Clock::default();
    program.run(&step(&recording, vec![row]), Some(&mut clock)).unwrap();
    assert!(clock.0.windows(2).any(|ops| ops == ["a", "b"]), "{:?}", clock.0);
    assert_eq!(clock.0.len(), recording.ops.len());
}
