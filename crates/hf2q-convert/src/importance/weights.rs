//! Importance as a quantizer uses it: the mean square of each column's input.

use super::Importance;
use super::entry::Entry;
use super::error::ImportanceError;

/// Weights of the columns of one tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Weights {
    columns: usize,
    values: Vec<f32>,
    /// Matrices that no row was ever routed to: their columns weigh all the same.
    pub neutral: Vec<usize>,
}

impl Weights {
    /// Weights of the columns of matrix `expert`; 0 where there is no stack.
    ///
    /// # Panics
    /// The tensor has fewer matrices.
    pub fn expert(&self, expert: usize) -> &[f32] {
        &self.values[expert * self.columns..][..self.columns]
    }

    /// All of them, `[experts, columns]`.
    pub fn all(&self) -> &[f32] {
        &self.values
    }
}

/// What columns weigh that were never looked at.
const NEUTRAL: f32 = 1.0;

impl Importance {
    /// The weights of a tensor: for each of its `experts` matrices (1 where there is no stack) one for each of its
    /// `columns`. `None`: the file says nothing about it, and it is quantized without.
    ///
    /// # Errors
    /// The file was made for a tensor of another size. Embedding tables are then quantized without: they are looked up,
    /// not multiplied, and what a file holds of one may be about something else.
    pub fn weights_for(
        &self,
        tensor: &str,
        columns: usize,
        experts: usize,
    ) -> Result<Option<Weights>, ImportanceError> {
        let Some(entry) = self.entries.get(tensor) else { return self.stacked(tensor, columns, experts) };
        let found = entry.squares.len();
        if columns.checked_mul(experts) == Some(found) {
            return Ok(Some(means(entry, columns, experts)));
        }
        if matches!(tensor, "token_embd.weight" | "per_layer_token_embd.weight") {
            return Ok(None);
        }
        Err(ImportanceError::Columns { tensor: tensor.to_owned(), found, columns, experts })
    }

    /// Older files name each expert's matrix: `blk.7.ffn_up.3.weight` is matrix 3 of `blk.7.ffn_up_exps.weight`.
    fn stacked(
        &self,
        tensor: &str,
        columns: usize,
        experts: usize,
    ) -> Result<Option<Weights>, ImportanceError> {
        let Some(prefix) = tensor.strip_suffix("_exps.weight") else { return Ok(None) };
        let named = |expert: usize| format!("{prefix}.{expert}.weight");
        if !(0..experts).any(|e| self.entries.contains_key(&named(e))) {
            return Ok(None);
        }
        let mut stack = Weights { columns, values: Vec::new(), neutral: Vec::new() };
        for expert in 0..experts {
            let name = named(expert);
            let Some(entry) = self.entries.get(&name) else {
                stack.neutral.push(expert);
                stack.values.extend(std::iter::repeat_n(NEUTRAL, columns));
                continue;
            };
            let found = entry.squares.len();
            if found != columns {
                return Err(ImportanceError::Columns { tensor: name, found, columns, experts: 1 });
            }
            let one = means(entry, columns, 1);
            stack.neutral.extend(one.neutral.first().map(|_| expert));
            stack.values.extend(one.values);
        }
        Ok(Some(stack))
    }
}

/// Sums divided by counts. One count may be that of several matrices.
fn means(entry: &Entry, columns: usize, experts: usize) -> Weights {
    let each = entry.columns();
    let mut values = Vec::with_capacity(entry.squares.len());
    for (sums, &count) in entry.squares.chunks(each).zip(&entry.counts) {
        match count {
            0 => values.extend(std::iter::repeat_n(NEUTRAL, sums.len())),
            n => values.extend(sums.iter().map(|s| s / n as f32)),
        }
    }
    let untouched = |expert: &usize| entry.counts[(expert * columns / each).min(entry.counts.len() - 1)] == 0;
    Weights { columns, values, neutral: (0..experts).filter(untouched).collect() }
}
