//! Runs small recordings. Inputs enter through embeddings of f32 tables.

use std::sync::Arc;

use hf2q_gguf::{Bytes, TensorType};
use hf2q_plan::{
    Backend, GroupStep, Limits, PAGE, Passes, Plan, Program, Recorder, Recording, Row, Step, TensorId, View,
    Weight,
};
use hf2q_reference::ReferenceBackend;

/// A recorder together with the bytes of its weights.
#[derive(Default)]
pub(crate) struct Toy {
    pub(crate) r: Recorder,
    weights: Vec<Bytes>,
}

impl Toy {
    pub(crate) fn weight(
        &mut self,
        name: &str,
        (cols, rows, experts): (usize, usize, usize),
        values: &[f32],
    ) -> TensorId {
        assert_eq!(values.len(), cols * rows * experts);
        self.weights.push(Bytes::from_vec(values.iter().flat_map(|x| x.to_le_bytes()).collect()));
        self.r.weight(name, Weight { ty: TensorType::F32, cols, rows, experts })
    }

    /// An activation whose row `r` is `rows[r]`, when row `r` carries token `r`.
    pub(crate) fn input(&mut self, name: &str, rows: &[&[f32]]) -> View {
        let table = self.weight(&format!("{name}.table"), (rows[0].len(), rows.len(), 1), &rows.concat());
        self.r.embed(name, table, 1.0)
    }

    /// The program of the recording whose result is `out`, with two pages for each group.
    pub(crate) fn open(self, out: View) -> (Recording, Box<dyn Program>) {
        let Self { mut r, weights } = self;
        let out = r.select_rows("result", out);
        let recording = r.finish(out).unwrap();
        let plan = Arc::new(Plan::compile(recording.clone(), Passes::NONE));
        let limits = Limits { max_rows: 256, max_logit_rows: 256, pages: vec![4; recording.groups.len()] };
        let program = ReferenceBackend.open(plan, weights, &limits).unwrap();
        (recording, program)
    }

    /// Runs one step of rows 0, 1, … at positions 0, 1, … and returns `out`.
    pub(crate) fn run(self, rows: u32, out: View) -> Vec<f32> {
        let (recording, mut program) = self.open(out);
        let rows: Vec<Row> =
            (0..rows).map(|p| Row { sequence: 0, token: p, position: p, parent: p.checked_sub(1) }).collect();
        program.run(&step(&recording, rows), None).unwrap().to_vec()
    }
}

/// A step whose sequences use pages `0, 1, …` in order; all rows want logits.
pub(crate) fn step(recording: &Recording, rows: Vec<Row>) -> Step {
    let pages: Vec<u32> = (0..4).collect();
    let group = GroupStep {
        slots: rows.iter().map(|r| r.position).collect(),
        page_tables: pages.clone(),
        pages_per_sequence: pages.len(),
    };
    assert!(rows.iter().all(|r| (r.position as usize) < PAGE * pages.len()));
    let all = (0..rows.len() as u32).collect();
    Step::new(rows, vec![group; recording.groups.len()], all).unwrap()
}

pub(crate) fn close(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (f, e) in found.iter().zip(expected) {
        assert!((f - e).abs() <= 1e-6 * e.abs().max(1.0), "found {found:?}, expected {expected:?}");
    }
}
