//! Importance is that of the inputs, whatever backend, fusion, threads and steps.

use hf2q_convert::Importance;
use hf2q_model::toy;
use hf2q_observe::{ObserveError, Scope};
use hf2q_plan::{NamedOp, Observer, Op, Passes, Tensors};
use hf2q_reference::ReferenceBackend;

use crate::support::{CHUNK, PLAIN, Setup, cpu, measure, open, tokens};

/// Counts are equal and each matrix's sums are within `limit` of its largest.
#[track_caller]
fn agree(what: &str, a: &Importance, b: &Importance, limit: f32) {
    assert_eq!(a.names().collect::<Vec<_>>(), b.names().collect::<Vec<_>>(), "{what}");
    for name in a.names() {
        let (x, y) = (a.entry(name).unwrap(), b.entry(name).unwrap());
        assert_eq!(x.counts, y.counts, "{what} {name}");
        let largest = x.squares.iter().copied().fold(0.0, f32::max);
        assert!(largest > 0.0, "{what} {name}");
        for (i, (p, q)) in x.squares.iter().zip(&y.squares).enumerate() {
            assert!((p - q).abs() <= limit * largest, "{what} {name} {i}: {p} and {q}");
        }
    }
}

#[test]
fn memory_that_is_reused_hides_no_input() {
    // The reference gives every activation memory of its own; the other places them in one arena by lifetime.
    for (name, model) in toy::all(3) {
        let expected = measure(&model, &ReferenceBackend, PLAIN);
        for (threads, rows) in [(1, CHUNK), (3, 17)] {
            let setup = Setup { rows, logit_rows: rows, ..PLAIN };
            agree(name, &expected, &measure(&model, &cpu(threads), setup), 1e-4);
        }
    }
}

#[test]
fn fusion_hides_no_input() {
    for (name, model) in toy::all(4) {
        let backend = cpu(2);
        let fused = Setup { passes: Passes::ALL, ..PLAIN };
        agree(name, &measure(&model, &backend, PLAIN), &measure(&model, &backend, fused), 1e-4);
    }
}

#[test]
fn every_row_is_counted() {
    for (name, model) in toy::all(5) {
        let all = measure(&model, &cpu(2), PLAIN);
        let top_k = model.config().experts.as_ref().map_or(0, |e| e.top_k);
        let stacked = all.names().filter(|n| n.contains("_exps")).count();
        assert_eq!(stacked > 0, top_k > 0, "{name}");
        for weight in all.names() {
            let entry = all.entry(weight).unwrap();
            let rows = entry.counts.iter().sum::<u64>() as usize;
            let each = if weight.contains("_exps") { top_k } else { 1 };
            assert_eq!(rows, 2 * CHUNK * each, "{name} {weight}");
        }
        assert_eq!(all.chunk_count(), 2);
    }
}

#[test]
fn the_output_matrix_is_left_out_unless_asked_for() {
    for (name, model) in toy::all(6) {
        let with = measure(&model, &cpu(1), PLAIN);
        let without = measure(&model, &cpu(1), Setup { scope: Scope::Layers, ..PLAIN });
        let output = if model.config().tied_output { "token_embd.weight" } else { "output.weight" };
        let expected: Vec<&str> = with.names().filter(|n| *n != output).collect();
        assert_eq!(without.names().collect::<Vec<_>>(), expected, "{name}");
        assert_eq!(with.names().len(), expected.len() + 1, "{name}");
        assert!(expected.iter().all(|n| n.starts_with("blk.")), "{name}");
    }
}

/// Sums what the collector must sum, from the outputs of the operations before.
#[derive(Default)]
struct Outputs {
    glu: Vec<f64>,
}

impl Observer for Outputs {
    fn wants(&mut self, op: &NamedOp) -> bool {
        op.name == "L01.ffn.glu"
    }

    fn after(&mut self, op: &NamedOp, tensors: &dyn Tensors) {
        let Op::Glu(o) = &op.op else { panic!("{op:?}") };
        let values = tensors.values(o.out.tensor).unwrap();
        self.glu.resize(o.out.width, 0.0);
        for row in values.chunks(o.out.width) {
            self.glu.iter_mut().zip(row).for_each(|(s, x)| *s += f64::from(*x) * f64::from(*x));
        }
    }
}

#[test]
fn the_input_of_a_product_is_the_output_of_the_operation_before() {
    let model = toy::all(7).into_iter().find(|(name, _)| *name == "llama").unwrap().1;
    let measured = measure(&model, &cpu(2), PLAIN);
    let (mut engine, _) = open(&model, &cpu(2), PLAIN);
    let mut outputs = Outputs::default();
    for chunk in tokens(2 * CHUNK).chunks(CHUNK) {
        let how = crate::support::ALL_LOGITS;
        hf2q_observe::read_chunk(&mut engine, chunk, how, &mut outputs, &mut || true).unwrap();
    }
    let expected: Vec<f32> = outputs.glu.iter().map(|s| *s as f32).collect();
    assert_eq!(measured.entry("blk.1.ffn_down.weight").unwrap().squares, expected);
}

/// Shows a collector values that no sound model has.
struct Broken<'a> {
    inner: &'a mut dyn Observer,
    value: Option<f32>,
}

struct Shown<'a> {
    inner: &'a dyn Tensors,
    value: Option<f32>,
}

impl Observer for Broken<'_> {
    fn wants(&mut self, op: &NamedOp) -> bool {
        self.inner.wants(op)
    }

    fn after(&mut self, op: &NamedOp, tensors: &dyn Tensors) {
        self.inner.after(op, &Shown { inner: tensors, value: self.value });
    }
}

impl Tensors for Shown<'_> {
    fn values(&self, id: hf2q_plan::TensorId) -> Option<Vec<f32>> {
        let values = self.inner.values(id)?;
        self.value.map(|v| vec![v; values.len()])
    }

    fn indices(&self, id: hf2q_plan::TensorId) -> Option<Vec<i32>> {
        self.inner.indices(id)
    }
}

#[test]
fn inputs_that_are_not_finite_or_not_shown_are_reported() {
    let model = toy::all(8).into_iter().find(|(name, _)| *name == "qwen3moe").unwrap().1;
    let (mut engine, mut collector) = open(&model, &cpu(1), PLAIN);
    let mut read = |value: Option<f32>| {
        let (_, mut fresh) = open(&model, &cpu(1), PLAIN);
        let mut broken = Broken { inner: &mut fresh, value };
        let how = crate::support::ALL_LOGITS;
        hf2q_observe::read_chunk(&mut engine, &tokens(20), how, &mut broken, &mut || true).unwrap();
        fresh.check()
    };
    for bad in [f32::NAN, f32::INFINITY] {
        assert!(
            matches!(read(Some(bad)), Err(ObserveError::NotFinite { tensor }) if tensor.contains("weight"))
        );
    }
    assert!(matches!(read(None), Err(ObserveError::Hidden { op }) if !op.is_empty()));
    assert!(read(Some(1.0)).is_ok());
    // Squares that fit sixty-four bits but not the file's thirty-two.
    let mut broken = Broken { inner: &mut collector, value: Some(1e30) };
    let how = crate::support::ALL_LOGITS;
    hf2q_observe::read_chunk(&mut engine, &tokens(20), how, &mut broken, &mut || true).unwrap();
    assert!(collector.check().is_ok());
    assert!(matches!(collector.finish(20, vec![]), Err(ObserveError::Importance(_))));
}
