//! Sums over the inputs of matrix products, by weight.

use std::collections::HashMap;
use std::sync::Arc;

use hf2q_convert::{Entry, Importance};
use hf2q_plan::{ExpertInput, NamedOp, Observer, Plan, Product, TensorId, Tensors, View};

use crate::error::ObserveError;

/// Which weights are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those of the layers, named `blk.N.…`.
    Layers,
    /// Also the matrix that makes the logits.
    LayersAndOutput,
}

impl Scope {
    fn has(self, weight: &str) -> bool {
        let output = matches!(weight, "output.weight" | "token_embd.weight");
        weight.starts_with("blk.") || (output && self == Self::LayersAndOutput)
    }
}

/// Sums the inputs of each matrix, column by column; those of experts expert by expert.
///
/// The input of a product is an activation that the product's wave reads. No operation of that wave writes it or
/// memory it shares, so after the wave it is still what the product read, whatever is fused and reused elsewhere.
pub struct Collector {
    plan: Arc<Plan>,
    scope: Scope,
    sums: HashMap<TensorId, Sums>,
    hidden: Option<String>,
}

/// Of one weight. Sums of millions of squares need more than 24 bits.
struct Sums {
    columns: usize,
    /// `[matrices, columns]`.
    squares: Vec<f64>,
    /// `[matrices, columns]`.
    sums: Vec<f64>,
    /// Rows seen by each matrix.
    counts: Vec<u64>,
}

impl Collector {
    /// For programs of `plan`.
    pub fn new(plan: Arc<Plan>, scope: Scope) -> Self {
        Self { plan, scope, sums: HashMap::new(), hidden: None }
    }

    /// Whether all that was seen can be used.
    ///
    /// # Errors
    /// An input was not finite, or could not be read.
    pub fn check(&self) -> Result<(), ObserveError> {
        if let Some(op) = &self.hidden {
            return Err(ObserveError::Hidden { op: op.clone() });
        }
        let damaged = |s: &Sums| s.squares.iter().any(|v| !v.is_finite());
        match self.sums.iter().find(|(_, s)| damaged(s)) {
            Some((id, _)) => Err(ObserveError::NotFinite { tensor: self.name(*id).to_owned() }),
            None => Ok(()),
        }
    }

    /// What was measured, in chunks of `chunk_size` rows of the texts `datasets`.
    ///
    /// # Errors
    /// As [`Collector::check`]; a sum does not fit 32 bits.
    pub fn finish(self, chunk_size: u32, datasets: Vec<String>) -> Result<Importance, ObserveError> {
        self.check()?;
        let mut importance = Importance::new(chunk_size, datasets);
        for (id, sums) in &self.sums {
            let single = |values: &[f64]| values.iter().map(|v| *v as f32).collect();
            let entry = Entry {
                squares: single(&sums.squares),
                sums: Some(single(&sums.sums)),
                counts: sums.counts.clone(),
            };
            importance.add(self.name(*id), entry)?;
        }
        Ok(importance)
    }

    fn name(&self, id: TensorId) -> &str {
        &self.plan.recording.tensors[id.index()].name
    }

    /// Adds the input of a product; `None` if the backend does not show it.
    fn look(&mut self, product: &Product, tensors: &dyn Tensors) -> Option<()> {
        let recording = &self.plan.recording;
        let weight = recording.weight(product.weight);
        let values = tensors.values(product.x.tensor)?;
        let rows = rows(&values, recording.activation(product.x.tensor)?.1, product.x);
        let sums = self.sums.entry(product.weight).or_insert_with(|| Sums::new(weight.cols, weight.experts));
        let Some((experts, input)) = product.experts else {
            rows.for_each(|row| sums.add(0, row));
            return Some(());
        };
        let chosen = tensors.indices(experts.tensor)?;
        let width = recording.activation(experts.tensor)?.1;
        for (row, chosen) in rows.zip(self::rows(&chosen, width, experts)) {
            for (i, &expert) in chosen.iter().enumerate() {
                let read = match input {
                    ExpertInput::Shared => row,
                    ExpertInput::PerExpert => &row[i * weight.cols..][..weight.cols],
                };
                sums.add(usize::try_from(expert).ok()?, read);
            }
        }
        Some(())
    }
}

impl Observer for Collector {
    fn wants(&mut self, op: &NamedOp) -> bool {
        op.op.products().iter().any(|p| self.scope.has(self.name(p.weight)))
    }

    fn after(&mut self, op: &NamedOp, tensors: &dyn Tensors) {
        for product in op.op.products() {
            if self.scope.has(self.name(product.weight)) && self.look(&product, tensors).is_none() {
                self.hidden.get_or_insert_with(|| op.name.clone());
            }
        }
    }
}

/// The rows of a view into an activation `width` wide.
pub(crate) fn rows<T>(values: &[T], width: usize, view: View) -> impl Iterator<Item = &[T]> {
    values.chunks_exact(width.max(1)).map(move |row| &row[view.offset..view.offset + view.width])
}

impl Sums {
    fn new(columns: usize, matrices: usize) -> Self {
        let zeros = || vec![0.0; columns * matrices];
        Self { columns, squares: zeros(), sums: zeros(), counts: vec![0; matrices] }
    }

    fn add(&mut self, matrix: usize, row: &[f32]) {
        let range = matrix * self.columns..(matrix + 1) * self.columns;
        self.counts[matrix] += 1;
        for ((square, sum), &x) in self.squares[range.clone()].iter_mut().zip(&mut self.sums[range]).zip(row)
        {
            let x = f64::from(x);
            *square += x * x;
            *sum += x;
        }
    }
}
