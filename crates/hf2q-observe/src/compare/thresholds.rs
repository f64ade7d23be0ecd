//! How far a candidate may be from the reference.

use std::fmt;

use super::summary::Compared;

/// Limits; what is `None` is not looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Thresholds {
    /// Of the mean divergence, in nats.
    pub max_kl: Option<f64>,
    /// Of the divergence that 99 rows in 100 do not exceed, in nats.
    pub max_kl_p99: Option<f64>,
    /// Of the share of rows with the same most likely token.
    pub min_top1: Option<f64>,
    /// Of the ratio of perplexities.
    pub max_ppl_ratio: Option<f64>,
    /// Of each layer's mean cosine.
    pub min_cosine: Option<f64>,
}

/// A limit that a candidate does not keep.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// The candidate.
    pub name: String,
    /// What was measured, for people.
    pub what: String,
    /// The number.
    pub found: f64,
    /// The flag that sets the limit.
    pub flag: &'static str,
    /// The limit.
    pub limit: f64,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, what, found, flag, limit } = self;
        if found.is_nan() {
            return write!(f, "{name}: {what} is unknown, so {flag} {limit} is not kept");
        }
        let side = if flag.starts_with("--max") { "above" } else { "below" };
        write!(f, "{name}: {what} is {found:.6}, {side} {flag} {limit}")
    }
}

impl Thresholds {
    /// The limits that a candidate does not keep. What is no number keeps none.
    pub fn failures(&self, c: &Compared) -> Vec<Failure> {
        let (cosine, layer) = match c.least_cosine() {
            Some(layer) => (layer.mean, format!("cosine of {}", layer.op)),
            None => (f64::NAN, "cosine (the models have different layers)".to_owned()),
        };
        let checks = [
            ("mean KL".to_owned(), c.kl.mean, "--max-kl", self.max_kl),
            ("99th percentile of KL".to_owned(), c.kl.p99, "--max-kl-p99", self.max_kl_p99),
            ("top-1 agreement".to_owned(), c.same_top, "--min-top1", self.min_top1),
            ("perplexity ratio".to_owned(), c.ratio, "--max-ppl-ratio", self.max_ppl_ratio),
            (layer, cosine, "--min-cosine", self.min_cosine),
        ];
        let failure = |(what, found, flag, limit): (String, f64, &'static str, Option<f64>)| {
            let limit = limit?;
            let kept = if flag.starts_with("--max") { found <= limit } else { found >= limit };
            (!kept).then(|| Failure { name: c.measured.name.clone(), what, found, flag, limit })
        };
        checks.into_iter().filter_map(failure).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::summary::{CacheSize, LayerCosine, Measured, Spread};
    use super::*;
    use crate::likelihood::Likelihood;

    fn compared() -> Compared {
        let cosine = |op: &str, mean| LayerCosine { op: op.into(), group: "global".into(), mean, least: 0.5 };
        Compared {
            measured: Measured {
                name: "tq4".into(),
                cache: CacheSize {
                    bytes_per_token: 1.0,
                    fixed_bytes: 0,
                    bits_per_element: 4.25,
                    marginal_bits: 4.25,
                },
                likelihood: Likelihood::default(),
            },
            kl: Spread { mean: 0.25, p99: 2.0, ..Spread::default() },
            same_top: 0.75,
            not_finite: 0,
            ratio: 1.5,
            ratio_error: None,
            layers: Some(vec![cosine("L00", 0.99), cosine("L01", 0.875)]),
            positions: Vec::new(),
            histogram: Vec::new(),
            greedy: None,
        }
    }

    #[test]
    fn limits_include_themselves() {
        let kept = Thresholds {
            max_kl: Some(0.25),
            max_kl_p99: Some(2.0),
            min_top1: Some(0.75),
            max_ppl_ratio: Some(1.5),
            min_cosine: Some(0.875),
        };
        assert_eq!(kept.failures(&compared()), []);
        assert_eq!(Thresholds::default().failures(&compared()), []);
    }

    #[test]
    fn each_limit_is_named_by_its_flag() {
        let none = Thresholds::default();
        for (limits, text) in [
            (Thresholds { max_kl: Some(0.2), ..none }, "tq4: mean KL is 0.250000, above --max-kl 0.2"),
            (
                Thresholds { max_kl_p99: Some(1.0), ..none },
                "percentile of KL is 2.000000, above --max-kl-p99 1",
            ),
            (Thresholds { min_top1: Some(0.8), ..none }, "agreement is 0.750000, below --min-top1 0.8"),
            (Thresholds { max_ppl_ratio: Some(1.1), ..none }, "ratio is 1.500000, above --max-ppl-ratio 1.1"),
            (
                Thresholds { min_cosine: Some(0.9), ..none },
                "cosine of L01 is 0.875000, below --min-cosine 0.9",
            ),
        ] {
            let failures = limits.failures(&compared());
            assert_eq!(failures.len(), 1);
            assert!(failures[0].to_string().ends_with(text), "{}", failures[0]);
        }
    }

    #[test]
    fn what_is_no_number_keeps_no_limit() {
        let limits = Thresholds { max_kl: Some(9.0), min_cosine: Some(-1.0), ..Thresholds::default() };
        let mut broken = Compared { layers: None, ..compared() };
        broken.kl.mean = f64::INFINITY;
        let failures = limits.failures(&broken);
        assert_eq!(failures.iter().map(|f| f.flag).collect::<Vec<_>>(), ["--max-kl", "--min-cosine"]);
        assert!(failures[1].to_string().contains("is unknown"), "{}", failures[1]);
    }
}
