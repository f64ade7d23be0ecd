//! Small recordings with random weights. Inputs enter through embeddings, so that a case is a real recording.

use hf2q_gguf::{Bytes, TensorType};
use hf2q_plan::{PlanError, Recorder, Recording, RowKind, TensorId, View, Weight};

use crate::blocks;
use crate::random::Random;

/// A recording with its weights.
pub(crate) struct Built {
    pub(crate) recording: Recording,
    pub(crate) weights: Vec<Bytes>,
    pub(crate) guards: Vec<Guard>,
}

/// An activation that lives while the operation runs and must come out unchanged.
pub(crate) struct Guard {
    /// The operation that reads it last.
    pub(crate) check: String,
    /// What that operation writes.
    pub(crate) out: TensorId,
    /// Which rows it has.
    pub(crate) kind: RowKind,
    pub(crate) width: usize,
    /// `[vocabulary, width]`: its row for each token.
    pub(crate) table: Vec<f32>,
}

/// What an input's values are like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Values {
    /// Normal, of this standard deviation.
    Normal(f32),
    /// See [`blocks::representable`].
    Representable,
    /// -1, 0 or 1: many ties.
    Ties,
    /// Normal, but the second half of the columns 100 lower: a router never chooses them.
    LowHalf,
    /// Zero in rows of even tokens.
    ZeroRows,
}

/// A recorder that makes up weights.
pub(crate) struct Builder {
    pub(crate) r: Recorder,
    weights: Vec<Bytes>,
    pub(crate) random: Random,
    vocabulary: usize,
}

impl Builder {
    pub(crate) fn new(vocabulary: usize, random: Random) -> Self {
        Self { r: Recorder::default(), weights: vec![], random, vocabulary }
    }

    /// A random weight.
    pub(crate) fn weight(&mut self, name: &str, w: Weight) -> TensorId {
        let data = blocks::random(w.ty, w.cols * w.rows * w.experts, &mut self.random);
        self.weights.push(Bytes::from_vec(data));
        self.r.weight(name, w)
    }

    pub(crate) fn matrix(&mut self, name: &str, ty: TensorType, cols: usize, rows: usize) -> TensorId {
        self.weight(name, Weight { ty, cols, rows, experts: 1 })
    }

    /// An f32 weight of one row.
    pub(crate) fn vector(&mut self, name: &str, values: &[f32]) -> TensorId {
        self.table(name, values.len(), values)
    }

    /// Values around 1, as the weights of norms are.
    pub(crate) fn near_one(&mut self, name: &str, len: usize) -> TensorId {
        let values: Vec<f32> = (0..len).map(|_| 1.0 + 0.3 * self.random.symmetric()).collect();
        self.vector(name, &values)
    }

    fn table(&mut self, name: &str, cols: usize, values: &[f32]) -> TensorId {
        self.weights.push(Bytes::from_vec(values.iter().flat_map(|x| x.to_le_bytes()).collect()));
        let w = Weight { ty: TensorType::F32, cols, rows: values.len() / cols, experts: 1 };
        self.r.weight(name, w)
    }

    /// An activation `[R, width]`, other for every token.
    pub(crate) fn input(&mut self, name: &str, width: usize, values: Values) -> View {
        let mut table = Vec::with_capacity(self.vocabulary * width);
        for token in 0..self.vocabulary {
            table.extend(self.row(token, width, values));
        }
        self.rows(name, width, &table)
    }

    /// An activation `[R, width]` with these rows `[vocabulary, width]` for the tokens.
    pub(crate) fn rows(&mut self, name: &str, width: usize, rows: &[f32]) -> View {
        let table = self.table(&format!("{name}.table"), width, rows);
        self.r.embed(name, table, 1.0)
    }

    fn row(&mut self, token: usize, width: usize, values: Values) -> Vec<f32> {
        let random = &mut self.random;
        match values {
            Values::Normal(deviation) => (0..width).map(|_| deviation * random.normal()).collect(),
            Values::Representable => blocks::representable(width, random),
            Values::Ties => (0..width).map(|_| random.below(3) as f32 - 1.0).collect(),
            Values::LowHalf => (0..width)
                .map(|i| random.normal() - if i >= width.div_ceil(2) { 100.0 } else { 0.0 })
                .collect(),
            Values::ZeroRows if token.is_multiple_of(2) => vec![0.0; width],
            Values::ZeroRows => (0..width).map(|_| random.normal()).collect(),
        }
    }

    /// Ends the recording; `out` is what is compared.
    pub(crate) fn finish(mut self, out: View, kind: RowKind, guarded: bool) -> Result<Built, PlanError> {
        let mut guards = vec![];
        if guarded {
            for width in [out.width, out.width.min(5)] {
                guards.push(self.guard(guards.len(), out.columns(0, width), kind));
            }
        }
        let logits = match kind {
            RowKind::Step => self.r.select_rows("result", out),
            RowKind::Logits => out,
        };
        Ok(Built { recording: self.r.finish(logits)?, weights: self.weights, guards })
    }

    /// Its last reader also reads something made from the operation's output, so that it lives until then.
    fn guard(&mut self, index: usize, out: View, kind: RowKind) -> Guard {
        let mut random = Random::new("guard", index as u64);
        let table: Vec<f32> = (0..self.vocabulary * out.width).map(|_| random.symmetric()).collect();
        let name = format!("guard{index}");
        let weight = self.table(&format!("{name}.table"), out.width, &table);
        let mut guard = self.r.embed(&name, weight, 1.0);
        if kind == RowKind::Logits {
            guard = self.r.select_rows(&format!("{name}.selected"), guard);
        }
        let zero = self.r.scale(&format!("{name}.zero"), out, 0.0, None);
        let check = format!("{name}.check");
        let sum = self.r.add(&check, guard, zero);
        Guard { check, out: sum.tensor, kind, width: out.width, table }
    }
}
