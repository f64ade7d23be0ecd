//! Configurations side by side: each text goes through all of them in lockstep, and each row of logits is measured by
//! that of the reference before the next is computed. No logits are kept, and programs may share one mapped model.

mod attended;
mod divergence;
mod greedy;
mod side;
mod summary;
mod thresholds;

use hf2q_engine::LogitRows;

use crate::chunk::{begun, steps};
use crate::error::ObserveError;
use crate::likelihood::Likelihood;
use attended::Cosines;
use divergence::distances;
use greedy::Run;
use side::Opened;
pub use side::Side;
pub use summary::{Bar, CacheSize, Compared, Comparison, Greedy, LayerCosine, Measured, PositionKl, Spread};
pub use thresholds::{Failure, Thresholds};

/// Asked before each step whether to go on.
pub type GoOn<'a> = &'a mut dyn FnMut() -> bool;

/// Compares candidates with a reference, chunk by chunk.
pub struct Comparer {
    reference: Opened,
    likelihood: Likelihood,
    candidates: Vec<Candidate>,
    chunks: usize,
    /// Tokens of the longest chunk.
    context: usize,
    /// Rows of a step, and of a step whose logits are compared.
    sizes: (usize, usize),
}

/// A candidate and what is known of it so far.
struct Candidate {
    side: Opened,
    likelihood: Likelihood,
    /// Of the differences of log-likelihoods from the reference's.
    difference: Likelihood,
    /// Position and divergence of each row.
    rows: Vec<(usize, f64)>,
    same_top: usize,
    /// One for each layer, if the layers are those of the reference.
    cosines: Vec<Cosines>,
    runs: Vec<Run>,
}

impl Comparer {
    /// Compares each of `candidates` with `reference`.
    ///
    /// # Errors
    /// Their vocabularies have different sizes.
    pub fn new(reference: Side, candidates: Vec<Side>) -> Result<Self, ObserveError> {
        let expected = reference.engine.vocabulary();
        if let Some(other) = candidates.iter().find(|c| c.engine.vocabulary() != expected) {
            let found = other.engine.vocabulary();
            let (reference, candidate) = (reference.name, other.name.clone());
            return Err(ObserveError::Vocabulary { reference, expected, candidate, found });
        }
        let options = || std::iter::once(&reference).chain(&candidates).map(|s| s.engine.options());
        let rows = options().map(|o| o.rows).min().unwrap_or(1);
        let logit_rows = options().map(|o| o.logit_rows).min().unwrap_or(1);
        let reference = Opened::new(reference);
        let candidates = candidates.into_iter().map(|side| Candidate::new(side, &reference)).collect();
        let likelihood = Likelihood::default();
        Ok(Self { reference, likelihood, candidates, chunks: 0, context: 0, sizes: (rows, logit_rows) })
    }

    /// Reads a chunk, in a sequence of its own that starts with `bos` in place of the chunk's first token, and compares
    /// the rows of its second half, each of which predicts the token after it. Returns `false` if `go_on` did.
    ///
    /// # Errors
    /// The chunk does not fit a context, a backend fails, or the reference's logits are not finite.
    pub fn chunk(&mut self, ids: &[u32], bos: Option<u32>, go_on: GoOn<'_>) -> Result<bool, ObserveError> {
        self.context = self.context.max(ids.len());
        // What an earlier failure left is given up.
        self.sides().try_for_each(Opened::end)?;
        let result = self.read(&begun(ids, bos), go_on);
        let ended = self.sides().try_for_each(Opened::end);
        let whole = result?;
        ended?;
        self.chunks += usize::from(whole);
        Ok(whole)
    }

    /// What was found.
    pub fn finish(self) -> Comparison {
        let Self { reference, likelihood, candidates, chunks, context, .. } = self;
        let candidates = candidates.into_iter().map(|c| c.finish(&likelihood, context)).collect();
        let (name, cache) = (reference.name.clone(), reference.cache_size(context));
        Comparison { reference: Measured { name, cache, likelihood }, candidates, chunks }
    }

    fn sides(&mut self) -> impl Iterator<Item = &mut Opened> {
        std::iter::once(&mut self.reference).chain(self.candidates.iter_mut().map(|c| &mut c.side))
    }

    fn read(&mut self, ids: &[u32], go_on: GoOn<'_>) -> Result<bool, ObserveError> {
        // The last token is predicted, not given.
        let end = ids.len().saturating_sub(1);
        let half = (ids.len() / 2).min(end);
        for (step, logits) in steps(end, half, self.sizes) {
            if !go_on() {
                return Ok(false);
            }
            if logits == LogitRows::All {
                self.score(step.start, &ids[step.start..=step.end])?;
                continue;
            }
            for side in self.sides() {
                side.add(&ids[step.clone()])?;
                if step.end == half {
                    side.remember()?;
                }
            }
        }
        Ok(true)
    }

    /// One step of rows at `position`: all but the last of `ids` are given, all but the first predicted.
    fn score(&mut self, position: usize, ids: &[u32]) -> Result<(), ObserveError> {
        let (given, targets) = (&ids[..ids.len() - 1], &ids[1..]);
        let logits = self.reference.observed(given)?;
        let known = divergence::rows(logits.values, targets).map_err(|row| ObserveError::Logits {
            name: logits.name.to_owned(),
            position: position + row + 1,
        })?;
        for row in &known {
            self.likelihood.push(row.nll);
        }
        for candidate in &mut self.candidates {
            let found = candidate.side.observed(given)?;
            let distances = distances(&known, (logits.values, found.values), targets);
            attended::add(&mut candidate.cosines, logits.layers, (logits.attended, found.attended));
            candidate.add(position, &distances, &known);
        }
        Ok(())
    }
}

impl Candidate {
    fn new(side: Side, reference: &Opened) -> Self {
        let side = Opened::new(side);
        let alike = side.shape() == reference.shape();
        let cosines = if alike { vec![Cosines::default(); reference.layers.len()] } else { Vec::new() };
        let (likelihood, difference) = Default::default();
        Self { side, likelihood, difference, rows: Vec::new(), same_top: 0, cosines, runs: Vec::new() }
    }

    fn add(&mut self, position: usize, distances: &[divergence::Distance], known: &[divergence::Row]) {
        for ((i, distance), row) in distances.iter().enumerate().zip(known) {
            self.likelihood.push(distance.nll);
            self.difference.push(distance.nll - row.nll);
            self.rows.push((position + i, distance.kl));
            self.same_top += usize::from(distance.same_best);
        }
    }

    fn finish(self, reference: &Likelihood, context: usize) -> Compared {
        let values: Vec<f64> = self.rows.iter().map(|r| r.1).collect();
        let ratio = (self.likelihood.mean() - reference.mean()).exp();
        let layer = |(layer, c): (&attended::Layer, &Cosines)| LayerCosine {
            op: layer.op.clone(),
            group: layer.group.clone(),
            mean: c.sum / c.rows.max(1) as f64,
            least: c.least,
        };
        let layers: Vec<LayerCosine> = self.side.layers.iter().zip(&self.cosines).map(layer).collect();
        let greedy = (!self.runs.is_empty()).then(|| Greedy {
            lengths: self.runs.iter().map(|r| r.length).collect(),
            same: self.runs.iter().map(|r| r.same).collect(),
        });
        Compared {
            kl: Spread::of(&values),
            same_top: self.same_top as f64 / values.len().max(1) as f64,
            not_finite: values.iter().filter(|kl| kl.is_infinite()).count(),
            ratio,
            ratio_error: self.difference.mean_error().map(|e| e * ratio),
            layers: (!self.cosines.is_empty()).then_some(layers),
            positions: summary::by_position(&self.rows),
            histogram: summary::histogram(&self.rows),
            greedy,
            measured: Measured {
                name: self.side.name.clone(),
                cache: self.side.cache_size(context),
                likelihood: self.likelihood,
            },
        }
    }
}
