//! The tokens that may be drawn, and the filters that thin them out. Every filter keeps at least one.
//!
//! Large vocabularies are not sorted: what is drawn lies nearly always among the few hundred most likely tokens. Those are
//! found in one pass, and more of them only if they are needed.

use std::cmp::Ordering;

use super::exp::{exp, sum};

/// The most likely token; of equals the lowest id. `None` if no logit is finite.
pub(super) fn arg_max(logits: &[f32]) -> Option<u32> {
    first_of(logits, scan(logits).max)
}

/// The first token whose logit is `max`.
pub(super) fn first_of(logits: &[f32], max: Option<f32>) -> Option<u32> {
    let at = logits.iter().position(|&logit| Some(logit) == max)?;
    u32::try_from(at).ok()
}

/// What one look at all logits tells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scan {
    /// The largest finite one.
    pub(super) max: Option<f32>,
    /// How many are NaN or infinite.
    pub(super) non_finite: usize,
}

/// Looks at all logits. Lanes side by side, without branches: it is nearly the whole work of a greedy draw.
pub(super) fn scan(logits: &[f32]) -> Scan {
    let mut max = [f32::NEG_INFINITY; LANES];
    let mut non_finite = 0;
    // Counts of a part fit into lanes that are as wide as logits.
    for part in logits.chunks(1 << 20) {
        let mut odd = [0_u32; LANES];
        let mut look = |lane: usize, x: f32| {
            max[lane] = if x > max[lane] && x < f32::INFINITY { x } else { max[lane] };
            odd[lane] = odd[lane].wrapping_add(u32::from(!x.is_finite()));
        };
        let (chunks, rest) = part.as_chunks::<LANES>();
        for chunk in chunks {
            for (lane, &x) in chunk.iter().enumerate() {
                look(lane, x);
            }
        }
        rest.iter().for_each(|&x| look(0, x));
        non_finite += odd.iter().map(|&n| n as usize).sum::<usize>();
    }
    let max = max.into_iter().fold(f32::NEG_INFINITY, f32::max);
    Scan { max: (max > f32::NEG_INFINITY).then_some(max), non_finite }
}

/// Logits that are looked at side by side.
const LANES: usize = 16;

/// Tokens that are looked at before the lowest of them are dropped.
const BUFFER: usize = 1024;

/// The `n` highest finite logits and their tokens, in the order of [`descending`].
pub(super) fn highest(logits: &[f32], n: usize) -> Vec<(u32, f32)> {
    let full = n.saturating_mul(2).max(BUFFER);
    let mut kept: Vec<(u32, f32)> = Vec::new();
    let mut least = f32::NEG_INFINITY;
    // Of equals the first stays, and tokens come by ascending id: what equals the least of n that are kept is not.
    let above = |logit: f32, least: f32| logit > least && logit < f32::INFINITY;
    for (first, part) in (0..).step_by(LANES).zip(logits.chunks(LANES)) {
        // Most parts have none.
        if !part.iter().fold(false, |any, &logit| any | above(logit, least)) {
            continue;
        }
        kept.extend((first..).zip(part.iter().copied()).filter(|&(_, logit)| above(logit, least)));
        if kept.len() >= full {
            least = keep_highest(&mut kept, n);
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

/// Descending by logit, then ascending by id: a total order of finite logits, so that equal logits give equal draws.
fn descending(a: &(u32, f32), b: &(u32, f32)) -> Ordering {
    b.1.partial_cmp(&a.1).unwrap_or(Ordering::Equal).then(a.0.cmp(&b.0))
}

/// Candidates that are looked at first where all tokens are, and by what their number grows.
const FIRST: usize = 256;
const GROWTH: usize = 16;

/// Candidates in descending order.
#[derive(Debug)]
pub(super) struct Candidates<'a> {
    logits: &'a [f32],
    max: f32,
    kept: Vec<(u32, f32)>,
    /// Whether the finite logits below those that are kept are candidates as well.
    more: bool,
}

impl<'a> Candidates<'a> {
    /// The `k` most likely tokens (0 or less: all); `None` if no logit is finite.
    pub(super) fn top_k(logits: &'a [f32], k: i64) -> Option<Self> {
        let k = usize::try_from(k).unwrap_or(0);
        let all = k == 0 || k >= logits.len();
        let kept = highest(logits, if all { FIRST } else { k });
        let &(_, max) = kept.first()?;
        let more = all && kept.len() == FIRST;
        Some(Self { logits, max, kept, more })
    }

    /// Tokens nearest to the entropy, until their probability reaches `p`.
    pub(super) fn typical(&mut self, p: f32) {
        if p >= 1.0 {
            return;
        }
        while self.more {
            self.grow();
        }
        let total = self.total();
        let information = |c: &(u32, f32)| -(self.weight(c) / total).max(f64::MIN_POSITIVE).ln();
        let entropy: f64 = self.kept.iter().map(|c| self.weight(c) / total * information(c)).sum();
        let distance = |c: &(u32, f32)| (information(c) - entropy).abs();
        let mut nearest = self.kept.clone();
        nearest.sort_by(|a, b| distance(a).total_cmp(&distance(b)).then(descending(a, b)));
        self.kept = nearest;
        self.keep_mass(f64::from(p) * total);
        self.kept.sort_unstable_by(descending);
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
            let least = f64::from(p) * self.weight(&self.kept[0]);
            self.keep_while(|weight| weight >= least);
        }
    }

    /// Takes the token at `uniform` (in [0, 1)) of the cumulative probability after `temperature`.
    pub(super) fn draw(&mut self, temperature: f32, uniform: f64) -> u32 {
        let max = self.kept[0].1;
        let weight = |logit: f32| f64::from(exp((logit - max) / temperature));
        let total = if self.more {
            sum(self.logits, max, temperature)
        } else {
            self.kept.iter().map(|c| weight(c.1)).sum()
        };
        let mut left = uniform * total;
        let mut at = 0;
        loop {
            for &(id, logit) in &self.kept[at..] {
                left -= weight(logit);
                if left < 0.0 {
                    return id;
                }
            }
            if !self.more {
                // Rounding can leave a remainder; it belongs to the most likely token.
                return self.kept[0].0;
            }
            at = self.kept.len();
            self.grow();
        }
    }

    /// Not normalized: `exp(logit - max)`.
    fn weight(&self, c: &(u32, f32)) -> f64 {
        f64::from(exp(c.1 - self.max))
    }

    fn total(&self) -> f64 {
        if self.more {
            return sum(self.logits, self.max, 1.0);
        }
        self.kept.iter().map(|c| self.weight(c)).sum()
    }

    fn keep_mass(&mut self, mass: f64) {
        let mut sum = 0.0;
        self.keep_while(|weight| {
            let enough = sum >= mass;
            sum += weight;
            !enough
        });
    }

    /// Drops the first candidate whose weight is refused and all behind it, but for the most likely one.
    fn keep_while(&mut self, mut go_on: impl FnMut(f64) -> bool) {
        let mut n = 0;
        loop {
            while n < self.kept.len() {
                if !go_on(self.weight(&self.kept[n])) {
                    self.kept.truncate(n.max(1));
                    self.more = false;
                    return;
                }
                n += 1;
            }
            if !self.more {
                return;
            }
            self.grow();
        }
    }

    /// Keeps more of those that are candidates.
    fn grow(&mut self) {
        let n = self.kept.len() * GROWTH;
        self.kept = highest(self.logits, n);
        self.more = self.kept.len() == n;
    }
}
