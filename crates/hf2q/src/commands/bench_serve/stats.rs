//! Times of many answers.

use std::collections::BTreeMap;
use std::time::Duration;

use super::client::{Answer, Outcome, Trouble};
use crate::args::LimitArgs;

/// How a quantity is spread, in milliseconds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) count: usize,
    pub(super) mean: f64,
    /// Of [`PERCENTS`], in their order.
    pub(super) percentiles: [f64; PERCENTS.len()],
    pub(super) max: f64,
}

pub(super) const PERCENTS: [usize; 4] = [50, 90, 95, 99];

impl Spread {
    /// `None` if there is nothing.
    fn new(times: impl Iterator<Item = Duration>) -> Option<Self> {
        let mut times: Vec<f64> = times.map(|t| t.as_secs_f64() * 1e3).collect();
        times.sort_by(f64::total_cmp);
        let count = times.len();
        let max = *times.last()?;
        // The least value that so many percent do not exceed.
        let at = |percent: usize| times[(count * percent).div_ceil(100).max(1) - 1];
        Some(Self {
            count,
            mean: times.iter().sum::<f64>() / count as f64,
            percentiles: PERCENTS.map(at),
            max,
        })
    }
}

/// What a run shows.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) seconds: f64,
    pub(super) answers: usize,
    pub(super) errors: BTreeMap<Trouble, usize>,
    pub(super) prompt_tokens: usize,
    pub(super) cached_tokens: usize,
    pub(super) tokens: usize,
    /// Answers within the limits, if there are any.
    pub(super) good: Option<usize>,
    pub(super) first: Option<Spread>,
    pub(super) gap: Option<Spread>,
    pub(super) per_token: Option<Spread>,
    pub(super) whole: Option<Spread>,
}

impl Report {
    pub(super) fn new(outcomes: &[Outcome], took: Duration, limits: &LimitArgs) -> Self {
        let answered: Vec<(&Answer, Duration)> =
            outcomes.iter().filter_map(|o| Some((o.answer.as_ref().ok()?, o.took))).collect();
        let mut errors: BTreeMap<Trouble, usize> = BTreeMap::new();
        for trouble in outcomes.iter().filter_map(|o| o.answer.as_ref().err()) {
            match errors.iter_mut().find(|(known, _)| known.is_like(trouble)) {
                Some((_, count)) => *count += 1,
                None => drop(errors.insert(trouble.clone(), 1)),
            }
        }
        let answers = || answered.iter().map(|(answer, _)| *answer);
        let limited = limits.first_token.or(limits.per_token).or(limits.whole).is_some();
        Self {
            seconds: took.as_secs_f64(),
            answers: answered.len(),
            errors,
            prompt_tokens: answers().map(|a| a.prompt_tokens).sum(),
            cached_tokens: answers().map(|a| a.cached_tokens).sum(),
            tokens: answers().map(|a| a.tokens).sum(),
            good: limited.then(|| answered.iter().filter(|(a, took)| is_good(a, *took, limits)).count()),
            first: Spread::new(answers().filter_map(|a| a.first)),
            gap: Spread::new(answers().flat_map(|a| a.gaps.iter().copied())),
            per_token: Spread::new(answered.iter().filter_map(|(a, took)| per_token(a, *took))),
            whole: Spread::new(answered.iter().map(|(_, took)| *took)),
        }
    }

    /// A count for each second of the run.
    pub(super) fn rate(&self, count: usize) -> f64 {
        if self.seconds > 0.0 { count as f64 / self.seconds } else { 0.0 }
    }
}

/// Mean time of a token after the first.
fn per_token(answer: &Answer, took: Duration) -> Option<Duration> {
    let more = u32::try_from(answer.tokens.checked_sub(1)?).ok().filter(|n| *n > 0)?;
    Some(took.saturating_sub(answer.first?) / more)
}

fn is_good(answer: &Answer, took: Duration, limits: &LimitArgs) -> bool {
    let within = |limit: Option<f64>, time: Option<Duration>| {
        limit.is_none_or(|ms| time.is_none_or(|t| t.as_secs_f64() * 1e3 <= ms))
    };
    within(limits.first_token, answer.first)
        && within(limits.per_token, per_token(answer, took))
        && within(limits.whole, Some(took))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn outcome(first: u64, took: u64, tokens: usize) -> Outcome {
        let answer = Answer { first: Some(ms(first)), tokens, prompt_tokens: 10, ..Answer::default() };
        Outcome { took: ms(took), answer: Ok(answer) }
    }

    #[test]
    fn percentiles_are_values_that_were_seen() {
        let spread = Spread::new((1..=100).rev().map(ms)).unwrap();
        assert_eq!(spread.percentiles, [50.0, 90.0, 95.0, 99.0]);
        assert_eq!((spread.mean, spread.max, spread.count), (50.5, 100.0, 100));
        assert_eq!(Spread::new([ms(7)].into_iter()).unwrap().percentiles, [7.0; 4]);
        assert_eq!(Spread::new(std::iter::empty()), None);
    }

    #[test]
    fn answers_count_as_good_within_all_limits() {
        let failed = |trouble| Outcome { took: ms(1), answer: Err(trouble) };
        let outcomes = [
            outcome(10, 110, 11),
            outcome(60, 160, 11),
            outcome(10, 1010, 11),
            failed(Trouble::Timeout),
            failed(Trouble::Status(429, "8 wait".to_owned())),
            failed(Trouble::Status(429, "9 wait".to_owned())),
        ];
        let limits = LimitArgs { first_token: Some(50.0), per_token: Some(20.0), whole: None };
        let report = Report::new(&outcomes, ms(2000), &limits);
        assert_eq!(
            (report.answers, report.good, report.tokens, report.rate(report.tokens)),
            (3, Some(1), 33, 16.5)
        );
        assert_eq!(
            report.errors,
            BTreeMap::from([(Trouble::Timeout, 1), (Trouble::Status(429, "8 wait".to_owned()), 2)])
        );
        assert_eq!(report.per_token.unwrap().percentiles[0], 10.0);
        let none = LimitArgs { first_token: None, per_token: None, whole: None };
        assert_eq!(Report::new(&outcomes, ms(1), &none).good, None);
    }
}
