//! The tokens that may be drawn, and the filters that thin them out. Every filter keeps at least one.
//!
//! Large vocabularies are rarely sorted: what is drawn lies nearly always among the few hundred most likely tokens. Those
//! are found in one pass, and more of them only if they are needed.

use super::exp::{exp, sum};
use super::order::{FEW, highest};

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
        // Distances are not negative: their bits ascend with them. Of equals the more likely token comes first.
        let ranked = self.kept.iter().enumerate();
        let mut nearest: Vec<(u64, usize)> = ranked.map(|(rank, c)| (distance(c).to_bits(), rank)).collect();
        nearest.sort_unstable();
        let all: Vec<(u32, f32)> = std::mem::take(&mut self.kept);
        self.kept = nearest.iter().map(|&(_, rank)| all[rank]).collect();
        self.keep_mass(f64::from(p) * total);
        nearest.truncate(self.kept.len());
        nearest.sort_unstable_by_key(|&(_, rank)| rank);
        self.kept = nearest.into_iter().map(|(_, rank)| all[rank]).collect();
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
        let mut weights = weigh(&self.kept, max, temperature);
        let total = if self.more { sum(self.logits, max, temperature) } else { add(&weights) };
        let mut left = uniform * total;
        let mut at = 0;
        loop {
            for (&(id, _), &weight) in self.kept[at..].iter().zip(&weights) {
                left -= f64::from(weight);
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
            weights = weigh(&self.kept[at..], max, temperature);
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
        add(&weigh(&self.kept, self.max, 1.0))
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
        let mut at = 0;
        loop {
            let weights = weigh(&self.kept[at..], self.max, 1.0);
            if let Some(n) = weights.iter().position(|&weight| !go_on(f64::from(weight))) {
                self.kept.truncate((at + n).max(1));
                self.more = false;
                return;
            }
            if !self.more {
                return;
            }
            at = self.kept.len();
            self.grow();
        }
    }

    /// Keeps more of those that are candidates, all of them where the next ones are not few.
    fn grow(&mut self) {
        let n = self.kept.len() * GROWTH;
        let n = if n > self.logits.len() / FEW { self.logits.len() } else { n };
        self.kept = highest(self.logits, n);
        self.more = n < self.logits.len() && self.kept.len() == n;
    }
}

/// `e^((logit - max) / divisor)` of each: apart from what is done with them, so that it is done for several at a time.
fn weigh(candidates: &[(u32, f32)], max: f32, divisor: f32) -> Vec<f32> {
    candidates.iter().map(|c| exp((c.1 - max) / divisor)).collect()
}

fn add(weights: &[f32]) -> f64 {
    weights.iter().map(|&weight| f64::from(weight)).sum()
}
