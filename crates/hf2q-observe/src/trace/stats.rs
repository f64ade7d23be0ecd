//! What the values of a tensor are like.

use hf2q_plan::KvFormat;
use hf2q_quant::kv::{Turbo, rotate};

/// Bins of a [`Histogram`]: half a standard deviation each from 4 below the mean to 4 above it, and one for the rest on
/// either side.
pub const HISTOGRAM: usize = 18;

/// How many values lie how many standard deviations from the mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram(pub [u64; HISTOGRAM]);

impl Histogram {
    fn add(&mut self, deviations: f64) {
        let bin = (deviations * 2.0 + 9.0).floor().clamp(0.0, (HISTOGRAM - 1) as f64);
        self.0[bin as usize] += 1;
    }

    /// Borders between the bins, in standard deviations from the mean.
    pub fn borders() -> [f64; HISTOGRAM - 1] {
        std::array::from_fn(|i| i as f64 / 2.0 - 4.0)
    }

    /// The bins as a row of bars. Heights are logarithmic: outliers are few, and to see them is the point.
    pub fn bars(&self) -> String {
        const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let most = self.0.iter().copied().max().unwrap_or(0).max(1) as f64;
        let bar = |&n: &u64| match n {
            0 => ' ',
            n => BARS[((BARS.len() - 1) as f64 * ((n + 1) as f64).ln() / (most + 1.0).ln()).round() as usize],
        };
        self.0.iter().map(bar).collect()
    }
}

/// Of the values of one tensor in all traced steps.
#[derive(Clone, Debug)]
pub struct TensorStats {
    /// See [`super::Traced::name`].
    pub name: String,
    /// How many there are.
    pub count: usize,
    /// How many of them are NaN or infinite; all else is about the others.
    pub not_finite: usize,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation.
    pub std: f64,
    /// Mean of `((x - mean) / std)^4`: 3 for normal values.
    pub kurtosis: f64,
    /// Largest magnitude.
    pub max_abs: f32,
    /// Around the mean.
    pub histogram: Histogram,
    /// For keys and values whose heads TurboQuant takes.
    pub codec: Option<CodecStats>,
}

/// Keys or values as TurboQuant sees them: rotated, and each block divided by its root mean square.
#[derive(Clone, Debug)]
pub struct CodecStats {
    /// Values of a block.
    pub block: usize,
    /// Mean of `x^4` over the square of the mean of `x^2`: 3 for normal values.
    pub kurtosis: f64,
    /// Largest magnitude.
    pub max_abs: f32,
    /// Around 0.
    pub histogram: Histogram,
    /// For each format the share of values beyond its outermost level: those are cut to it.
    pub clipped: Vec<(Turbo, f64)>,
}

impl TensorStats {
    /// `head_dim` is given for what is stored in a cache.
    pub(super) fn new(name: &str, values: &[f32], head_dim: Option<usize>) -> Self {
        let finite = || values.iter().copied().filter(|x| x.is_finite());
        let n = finite().count().max(1) as f64;
        let mean = finite().map(f64::from).sum::<f64>() / n;
        let moment = |power| finite().map(|x| (f64::from(x) - mean).powi(power)).sum::<f64>() / n;
        let variance = moment(2);
        let std = variance.sqrt();
        let mut histogram = Histogram::default();
        finite().for_each(|x| histogram.add((f64::from(x) - mean) / std.max(f64::MIN_POSITIVE)));
        Self {
            name: name.to_owned(),
            count: values.len(),
            not_finite: values.len() - finite().count(),
            mean,
            std,
            kurtosis: if variance > 0.0 { moment(4) / (variance * variance) } else { 0.0 },
            max_abs: finite().fold(0.0, |m, x| m.max(x.abs())),
            histogram,
            codec: head_dim.and_then(|n| CodecStats::new(values, n)),
        }
    }
}

impl CodecStats {
    /// `None` for heads that are not rotated.
    fn new(values: &[f32], head_dim: usize) -> Option<Self> {
        let format = KvFormat::Tq4;
        let block = format.block(head_dim).filter(|_| format.accepts(head_dim))?;
        let mut unit = Vec::with_capacity(values.len());
        for x in values.chunks_exact(block) {
            let mut x = x.to_vec();
            rotate(&mut x);
            let square = x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / block as f64;
            if square > 0.0 && square.is_finite() {
                unit.extend(x.iter().map(|&x| f64::from(x) / square.sqrt()));
            }
        }
        let n = unit.len().max(1) as f64;
        let mut histogram = Histogram::default();
        unit.iter().for_each(|&x| histogram.add(x));
        let clipped = Turbo::ALL.map(|turbo| {
            let outermost = f64::from(turbo.levels().last().copied().unwrap_or(0.0));
            (turbo, unit.iter().filter(|x| x.abs() > outermost).count() as f64 / n)
        });
        Some(Self {
            block,
            kurtosis: unit.iter().map(|x| x.powi(4)).sum::<f64>() / n,
            max_abs: unit.iter().fold(0.0_f64, |m, x| m.max(x.abs())) as f32,
            histogram,
            clipped: clipped.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_values() {
        let s = TensorStats::new("x", &[1.0, 3.0, 1.0, 3.0, f32::NAN, f32::INFINITY], None);
        assert_eq!((s.count, s.not_finite, s.mean, s.std, s.kurtosis, s.max_abs), (6, 2, 2.0, 1.0, 1.0, 3.0));
        // One deviation below and one above the mean.
        assert_eq!((s.histogram.0[7], s.histogram.0[11], s.histogram.0.iter().sum()), (2, 2, 4_u64));
        assert_eq!(Histogram::borders()[6], -1.0);
        let same = TensorStats::new("x", &[2.0; 5], None);
        assert_eq!((same.std, same.kurtosis, same.histogram.0[9]), (0.0, 0.0, 5));
        assert_eq!(TensorStats::new("x", &[], Some(64)).count, 0);
    }

    #[test]
    fn outliers_are_in_the_outer_bins() {
        let mut values = [0.1_f32, -0.1].repeat(500);
        values.extend([50.0, -50.0]);
        let s = TensorStats::new("x", &values, None);
        assert_eq!((s.histogram.0[0], s.histogram.0[HISTOGRAM - 1]), (1, 1));
        assert!(s.kurtosis > 100.0);
        let bars: Vec<char> = s.histogram.bars().chars().collect();
        assert_eq!((bars.len(), bars[0] != ' ', bars[3]), (HISTOGRAM, true, ' '));
    }

    #[test]
    fn a_rotation_spreads_an_outlier() {
        let mut values = vec![0.01_f32; 128];
        values[5] = 40.0;
        let s = TensorStats::new("k", &values, Some(128));
        let codec = s.codec.unwrap();
        assert!(s.kurtosis > 100.0 && codec.kurtosis < 1.1, "{} and {}", s.kurtosis, codec.kurtosis);
        assert!(codec.clipped.iter().all(|(_, share)| *share == 0.0));
        assert!(TensorStats::new("k", &values, Some(32)).codec.is_none());
    }

    #[test]
    fn what_lies_beyond_the_outermost_level_is_clipped() {
        // In the rotated basis all but one value are 0: that one is 8 times the root mean square.
        let mut values = vec![0.0_f32; 64];
        values[0] = 1.0;
        hf2q_quant::kv::rotate_back(&mut values);
        let codec = TensorStats::new("k", &values, Some(64)).codec.unwrap();
        assert!(codec.clipped.iter().all(|&(_, share)| share == 1.0 / 64.0), "{:?}", codec.clipped);
        assert!((codec.max_abs - 8.0).abs() < 1e-4);
    }
}
