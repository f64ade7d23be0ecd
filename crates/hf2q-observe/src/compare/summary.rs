//! What a comparison found.

use crate::likelihood::Likelihood;

/// Rows of a chunk whose divergences share a point of a plot.
const POSITIONS: usize = 64;

/// The lowest bar of a histogram ends at ten to this; each power of ten has [`BARS`] bars.
const LOWEST: i32 = -7;
const HIGHEST: i32 = 2;
const BARS: i32 = 4;

/// What a comparison found.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// What the others were measured by.
    pub reference: Measured,
    /// In the order in which they were given.
    pub candidates: Vec<Compared>,
    /// Chunks that were read.
    pub chunks: usize,
}

/// One side by itself.
#[derive(Clone, Debug)]
pub struct Measured {
    /// What it was called.
    pub name: String,
    /// Its caches.
    pub cache: CacheSize,
    /// How well it predicts the scored tokens.
    pub likelihood: Likelihood,
}

/// A candidate beside the reference.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The candidate by itself.
    pub measured: Measured,
    /// Kullback-Leibler divergence of its next-token distributions from the reference's, in nats.
    pub kl: Spread,
    /// Share of the rows whose most likely token is that of the reference.
    pub same_top: f64,
    /// Rows with a logit that is not finite; their divergence is infinite.
    pub not_finite: usize,
    /// Its perplexity over that of the reference.
    pub ratio: f64,
    /// Standard error of the ratio, if tokens were independent; `None` for fewer than two.
    pub ratio_error: Option<f64>,
    /// Outputs of attention by layer; `None` where those of the two models differ in number or size.
    pub layers: Option<Vec<LayerCosine>>,
    /// Divergence by position in the chunk, ascending.
    pub positions: Vec<PositionKl>,
    /// How many rows have which divergence.
    pub histogram: Vec<Bar>,
    /// Greedy runs; `None` if there were none.
    pub greedy: Option<Greedy>,
}

/// What the caches of a model take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CacheSize {
    /// Bytes that each further token takes in all layers.
    pub bytes_per_token: f64,
    /// Bytes that a sequence takes for its last positions beside that, however long it is.
    pub fixed_bytes: usize,
    /// Bits of a stored component of the keys and values that a row at the end of a chunk sees, with the fixed bytes. Where
    /// a layer stores one vector for key and value, it counts once: f32 has 32 bits in every model, and what one vector
    /// saves is seen in the bytes.
    pub bits_per_element: f64,
    /// The same without the fixed bytes: what it comes near to as sequences get longer.
    pub marginal_bits: f64,
}

impl CacheSize {
    /// Bits of a stored component with and, where that differs, in brackets without the fixed bytes.
    pub fn bits(&self) -> String {
        match (format!("{:.2}", self.bits_per_element), format!("{:.2}", self.marginal_bits)) {
            (all, marginal) if all == marginal => all,
            (all, marginal) => format!("{all} ({marginal})"),
        }
    }
}

/// A distribution in a few numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// Their mean.
    pub mean: f64,
    /// Standard error of the mean, if they were independent; 0 for fewer than two.
    pub error: f64,
    /// The middle one.
    pub median: f64,
    /// The least that 99 in 100 do not exceed.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

/// How much the outputs of an attention operation point the same way on both sides.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerCosine {
    /// Name of the operation, for example `L07.attn.attend`.
    pub op: String,
    /// `global` or `sliding`.
    pub group: String,
    /// Mean over the scored rows.
    pub mean: f64,
    /// The least of them.
    pub least: f64,
}

/// Divergence at some positions of all chunks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PositionKl {
    /// First position.
    pub from: usize,
    /// The one after the last.
    pub to: usize,
    /// Mean divergence, in nats.
    pub mean: f64,
    /// The largest.
    pub max: f64,
}

/// Rows whose divergence lies between two numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bar {
    /// The least divergence that counts, in nats; 0 for the first bar.
    pub from: f64,
    /// The least that does not; infinite for the last bar.
    pub to: f64,
    /// How many rows.
    pub rows: usize,
}

/// Where greedy runs leave those of the reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greedy {
    /// Tokens of each of the reference's runs.
    pub lengths: Vec<usize>,
    /// How many of them the candidate's run has too before the first that differs; `None`: all.
    pub same: Vec<Option<usize>>,
}

impl Compared {
    /// The layer with the least mean cosine; `None` where there is none.
    pub fn least_cosine(&self) -> Option<&LayerCosine> {
        self.layers.as_ref()?.iter().min_by(|a, b| a.mean.total_cmp(&b.mean))
    }
}

impl Greedy {
    /// The middle of the numbers of equal tokens, the later of two; `None`: the run there never differs.
    pub fn median(&self) -> Option<usize> {
        let mut sorted = self.same.clone();
        sorted.sort_by_key(|n| n.unwrap_or(usize::MAX));
        sorted.get(sorted.len() / 2).copied().flatten()
    }

    /// The least number of equal tokens; `None`: no run differs.
    pub fn least(&self) -> Option<usize> {
        self.same.iter().flatten().min().copied()
    }

    /// Share of the runs that never differ.
    pub fn never(&self) -> f64 {
        self.same.iter().filter(|n| n.is_none()).count() as f64 / self.same.len().max(1) as f64
    }
}

impl Spread {
    /// That of some values, in any order.
    pub fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (Some(&max), n) = (sorted.last(), sorted.len()) else { return Self::default() };
        let mean = values.iter().sum::<f64>() / n as f64;
        let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
        let error = if n > 1 { (squares / (n - 1) as f64 / n as f64).sqrt() } else { 0.0 };
        // The nearest rank.
        let rank = |hundredths: usize| sorted[(n * hundredths).div_ceil(100).max(1) - 1];
        Self { mean, error, median: rank(50), p99: rank(99), max }
    }
}

/// Means over positions: `rows` has position and divergence, chunk by chunk.
pub(super) fn by_position(rows: &[(usize, f64)]) -> Vec<PositionKl> {
    let (Some(first), Some(last)) = (rows.iter().map(|r| r.0).min(), rows.iter().map(|r| r.0).max()) else {
        return Vec::new();
    };
    let step = (last + 1 - first).div_ceil(POSITIONS);
    let bin = |from: usize| {
        let to = (from + step).min(last + 1);
        let within = rows.iter().filter(|(position, _)| (from..to).contains(position)).map(|r| r.1);
        let (sum, max, count) =
            within.fold((0.0, 0.0_f64, 0), |(sum, max, count), kl| (sum + kl, max.max(kl), count + 1));
        PositionKl { from, to, mean: sum / f64::from(count.max(1)), max }
    };
    (first..=last).step_by(step).map(bin).collect()
}

/// Four bars for each power of ten.
pub(super) fn histogram(rows: &[(usize, f64)]) -> Vec<Bar> {
    let edge = |i: i32| 10_f64.powf(f64::from(i) / f64::from(BARS));
    let edges: Vec<f64> = (LOWEST * BARS..=HIGHEST * BARS).map(edge).collect();
    let mut bars: Vec<Bar> = Vec::new();
    let (mut from, ends) = (0.0, edges.into_iter().chain([f64::INFINITY]));
    for to in ends {
        bars.push(Bar { from, to, rows: 0 });
        from = to;
    }
    for (_, kl) in rows {
        let at = bars.partition_point(|bar| bar.to <= *kl).min(bars.len() - 1);
        bars[at].rows += 1;
    }
    bars
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_are_those_of_plain_numbers() {
        let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        let found = Spread::of(&values);
        assert_eq!((found.mean, found.median, found.p99, found.max), (100.5, 100.0, 198.0, 200.0));
        // Variance of 1 to n is n (n + 1) / 12.
        assert!((found.error - (200.0 * 201.0 / 12.0 / 200.0_f64).sqrt()).abs() < 1e-9, "{found:?}");
        assert_eq!(Spread::of(&[]), Spread::default());
        let one = Spread::of(&[3.0]);
        assert_eq!((one.mean, one.error, one.median, one.p99, one.max), (3.0, 0.0, 3.0, 3.0, 3.0));
        assert_eq!(Spread::of(&[1.0, f64::INFINITY]).max, f64::INFINITY);
    }

    #[test]
    fn positions_are_few_and_complete() {
        let rows: Vec<(usize, f64)> =
            (0..2).flat_map(|chunk| (100..1123).map(move |p| (p, (p + chunk) as f64))).collect();
        let bins = by_position(&rows);
        assert!(bins.len() <= POSITIONS && bins[0].from == 100 && bins.last().unwrap().to == 1123);
        assert!(bins.windows(2).all(|pair| pair[0].to == pair[1].from && pair[0].mean < pair[1].mean));
        // Two chunks, positions 100 to 115.
        assert_eq!((bins[0].mean, bins[0].max), (108.0, 116.0));
        assert!(by_position(&[]).is_empty());
    }

    #[test]
    fn every_row_has_one_bar() {
        let values = [0.0, 1e-9, 1e-7, 0.1, 0.100001, 99.0, 1e6, f64::INFINITY];
        let rows: Vec<(usize, f64)> = values.into_iter().map(|kl| (0, kl)).collect();
        let bars = histogram(&rows);
        assert_eq!(bars.iter().map(|b| b.rows).sum::<usize>(), values.len());
        assert_eq!((bars[0].rows, bars.last().unwrap().rows), (2, 2));
        for kl in &values[..6] {
            assert!(bars.iter().any(|b| (b.from..b.to).contains(kl) && b.rows > 0), "{kl}");
        }
    }

    #[test]
    fn runs_that_never_differ_are_the_longest() {
        let greedy = |same: &[Option<usize>]| Greedy { lengths: vec![9; same.len()], same: same.to_vec() };
        let some = greedy(&[Some(5), None, Some(2)]);
        assert_eq!((some.median(), some.least()), (Some(5), Some(2)));
        assert!((some.never() - 1.0 / 3.0).abs() < 1e-12);
        let most = greedy(&[None, None, Some(2)]);
        assert_eq!((most.median(), most.least()), (None, Some(2)));
        assert_eq!((greedy(&[None]).least(), greedy(&[]).never()), (None, 0.0));
    }
}
