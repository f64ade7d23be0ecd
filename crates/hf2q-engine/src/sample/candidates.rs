//! The tokens that may be drawn, and the filters that thin them out. Every filter keeps at least one.

use std::cmp::Ordering;

/// The most likely token; of equals the lowest id. `None` if no logit is finite.
pub(super) fn arg_max(logits: &[f32]) -> Option<u32> {
    let mut best: Option<(u32, f32)> = None;
    for (id, &logit) in (0..).zip(logits) {
        if logit.is_finite() && best.is_none_or(|(_, b)| logit > b) {
            best = Some((id, logit));
        }
    }
    best.map(|(id, _)| id)
}

/// Tokens that are looked at before the lowest of them are dropped.
const BUFFER: usize = 1024;

/// The `n` highest finite logits and their tokens, in the order of [`descending`].
pub(super) fn highest(logits: &[f32], n: usize) -> Vec<(u32, f32)> {
    let full = n.saturating_mul(2).max(BUFFER);
    let mut kept: Vec<(u32, f32)> = Vec::new();
    let mut least = f32::NEG_INFINITY;
    for (id, &logit) in (0..).zip(logits) {
        // Of equals the first stays, and tokens come by ascending id: what equals the least of n that are kept is not.
        if logit > least && logit < f32::INFINITY {
            kept.push((id, logit));
            if kept.len() == full {
                least = keep_highest(&mut kept, n);
            }
        }
    }
    keep_highest(&mut kept, n);
    kept.sort_unstable_by(descending);
    kept
}

/// Drops all but the `n` highest; returns the least of them, if there are as many.
fn keep_highest(kept: &mut Vec<(u32, f32)>, n: usize) -> f32 {
    if n == 0 {
        kept.clear();
        return f32::INFINITY;
    }
    if kept.len() < n {
        return f32::NEG_INFINITY;
    }
    let least = kept.select_nth_unstable_by(n - 1, descending).1.1;
    kept.truncate(n);
    least
}

/// Descending by logit, then ascending by id: a total order, so that equal logits give equal draws.
fn descending(a: &(u32, f32), b: &(u32, f32)) -> Ordering {
    b.1.partial_cmp(&a.1).unwrap_or(Ordering::Equal).then(a.0.cmp(&b.0))
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    id: u32,
    logit: f32,
    /// Not normalized: `exp(logit - max)`.
    weight: f64,
}

/// Descending by logit, then ascending by id: a total order, so that equal logits give equal draws.
fn order(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id))
}

/// Candidates in descending order.
#[derive(Debug)]
pub(super) struct Candidates {
    kept: Vec<Candidate>,
}

impl Candidates {
    /// The `k` most likely tokens (0 or less: all); `None` if no logit is finite.
    pub(super) fn top_k(logits: &[f32], k: i64) -> Option<Self> {
        let max = f64::from(logits[arg_max(logits)? as usize]);
        let finite = (0..).zip(logits).filter(|(_, l)| l.is_finite());
        let mut kept: Vec<Candidate> = finite
            .map(|(id, &logit)| Candidate { id, logit, weight: (f64::from(logit) - max).exp() })
            .collect();
        let k = usize::try_from(k).unwrap_or(0);
        if k > 0 && k < kept.len() {
            kept.select_nth_unstable_by(k - 1, order);
            kept.truncate(k);
        }
        kept.sort_unstable_by(order);
        Some(Self { kept })
    }

    /// Tokens nearest to the entropy, until their probability reaches `p`.
    pub(super) fn typical(&mut self, p: f32) {
        if p >= 1.0 {
            return;
        }
        let total = self.total();
        let information = |c: &Candidate| -(c.weight / total).max(f64::MIN_POSITIVE).ln();
        let entropy: f64 = self.kept.iter().map(|c| c.weight / total * information(c)).sum();
        let distance = |c: &Candidate| (information(c) - entropy).abs();
        self.kept.sort_by(|a, b| distance(a).total_cmp(&distance(b)).then(order(a, b)));
        self.keep_mass(f64::from(p) * total);
        self.kept.sort_unstable_by(order);
    }

    /// The most likely tokens, until their probability reaches `p`.
    pub(super) fn top_p(&mut self, p: f32) {
        if p < 1.0 {
            self.keep_mass(f64::from(p) * self.total());
        }
    }

    /// Tokens at least `p` times as likely as the most likely one.
    pub(super) fn min_p(&mut self, p: f32) {
        if p > 0.0 {
            let least = f64::from(p) * self.kept[0].weight;
            let n = self.kept.iter().take_while(|c| c.weight >= least).count();
            self.kept.truncate(n.max(1));
        }
    }

    /// Takes the token at `uniform` (in [0, 1)) of the cumulative probability after `temperature`.
    pub(super) fn draw(&self, temperature: f32, uniform: f64) -> u32 {
        let max = f64::from(self.kept[0].logit);
        let weight = |c: &Candidate| ((f64::from(c.logit) - max) / f64::from(temperature)).exp();
        let total: f64 = self.kept.iter().map(weight).sum();
        let mut left = uniform * total;
        for c in &self.kept {
            left -= weight(c);
            if left < 0.0 {
                return c.id;
            }
        }
        // Rounding can leave a remainder; it belongs to the most likely token.
        self.kept[0].id
    }

    fn total(&self) -> f64 {
        self.kept.iter().map(|c| c.weight).sum()
    }

    fn keep_mass(&mut self, mass: f64) {
        let mut sum = 0.0;
        let below = |c: &&Candidate| {
            let enough = sum >= mass;
            sum += c.weight;
            !enough
        };
        let n = self.kept.iter().take_while(below).count();
        self.kept.truncate(n.max(1));
    }
}
