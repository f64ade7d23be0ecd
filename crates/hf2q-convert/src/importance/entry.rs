//! What was measured of one weight.

use super::error::ImportanceError;

/// Sums over the rows that a matrix, or each matrix of a stack, was multiplied with.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// `Σ x²` of each column, `[matrices, columns]`.
    pub squares: Vec<f32>,
    /// `Σ x` of each column, where it is known; files need not have it.
    pub sums: Option<Vec<f32>>,
    /// Rows that each matrix was multiplied with. One number for a stack means that all its matrices share it.
    pub counts: Vec<u64>,
}

/// Above this, not every count is a number of its own.
pub(super) const MAX_COUNT: f32 = 9_007_199_254_740_992.0;

impl Entry {
    /// Columns that share a count.
    pub(super) fn columns(&self) -> usize {
        self.squares.len() / self.counts.len().max(1)
    }

    /// Sums fit the counts, and are such as data gives.
    pub(super) fn check(&self, tensor: &str) -> Result<(), ImportanceError> {
        let sums = |found: usize, expected: String| {
            Err(ImportanceError::Sums { tensor: tensor.to_owned(), found, expected })
        };
        let (values, matrices) = (self.squares.len(), self.counts.len());
        if values == 0 || matrices == 0 || !values.is_multiple_of(matrices) {
            return sums(values, format!("a multiple of {matrices}, the number of counts"));
        }
        let wrong = |what: &str, at: usize, found: f32, expected| {
            let what = format!("{what} {} of matrix {}", at % self.columns(), at / self.columns());
            Err(ImportanceError::Value { tensor: tensor.to_owned(), what, found, expected })
        };
        if let Some(at) = self.squares.iter().position(|v| !v.is_finite() || *v < 0.0) {
            return wrong(
                "the sum of squares of column",
                at,
                self.squares[at],
                "a finite number, not negative",
            );
        }
        let Some(means) = &self.sums else { return Ok(()) };
        if means.len() != values {
            return sums(means.len(), format!("{values}, one for each sum of squares"));
        }
        match means.iter().position(|v| !v.is_finite()) {
            Some(at) => wrong("the sum of column", at, means[at], "a finite number"),
            None => Ok(()),
        }
    }

    /// Adds what another text gave.
    pub(super) fn add(&mut self, other: &Self, tensor: &str) -> Result<(), ImportanceError> {
        let (mine, theirs) = (self.counts.len(), other.counts.len());
        if self.squares.len() != other.squares.len() || (mine != theirs && mine != 1 && theirs != 1) {
            return Err(ImportanceError::Merge {
                tensor: tensor.to_owned(),
                found: other.squares.len(),
                found_matrices: theirs,
                expected: self.squares.len(),
                expected_matrices: mine,
            });
        }
        if mine == 1 {
            self.counts = vec![self.counts[0]; theirs];
        }
        for (i, count) in self.counts.iter_mut().enumerate() {
            *count = count.saturating_add(other.counts[if theirs == 1 { 0 } else { i }]);
        }
        add_each(&mut self.squares, &other.squares);
        match (&mut self.sums, &other.sums) {
            (Some(sums), Some(more)) => add_each(sums, more),
            (sums, _) => *sums = None,
        }
        Ok(())
    }

    /// Multiplies sums and counts, which leaves every mean as it is.
    pub(super) fn repeat(&mut self, times: u64) {
        let factor = times as f32;
        self.squares.iter_mut().chain(self.sums.iter_mut().flatten()).for_each(|v| *v *= factor);
        self.counts.iter_mut().for_each(|n| *n = n.saturating_mul(times));
    }
}

fn add_each(to: &mut [f32], from: &[f32]) {
    for (a, b) in to.iter_mut().zip(from) {
        *a += b;
    }
}
