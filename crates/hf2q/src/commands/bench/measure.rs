//! How long a prompt and an answer take, and what they cost.

use std::time::{Duration, Instant};

use anyhow::Result;
use hf2q_engine::{Engine, LogitRows, SequenceId, Work};
use hf2q_observe::scattered_tokens;
use hf2q_plan::{Cost, Plan, Roofline, StepSize};

use crate::args::BenchArgs;
use crate::interrupt;

/// Tokens a second in each repetition, ascending, and the work behind them.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    /// Tokens of a sequence.
    pub(super) tokens: usize,
    pub(super) sequences: usize,
    pub(super) rates: Vec<f64>,
    /// Of one repetition.
    pub(super) cost: Cost,
    /// The least time that a repetition can take.
    pub(super) bound: Duration,
}

impl Measured {
    /// None yet; `tokens` are computed in steps of these sizes.
    pub(super) fn new(tokens: usize, sequences: usize, (cost, bound): (Cost, Duration)) -> Self {
        Self { tokens, sequences, rates: Vec::new(), cost, bound }
    }

    /// Notes a repetition that took so long.
    pub(super) fn add(&mut self, seconds: f64) {
        self.rates.push((self.tokens * self.sequences) as f64 / seconds);
    }

    /// Tokens a second.
    pub(super) fn median(&self) -> Option<f64> {
        median(&self.rates)
    }

    /// Repetitions a second.
    fn speed(&self) -> Option<f64> {
        Some(self.median()? / (self.tokens * self.sequences) as f64)
    }

    /// Bytes a second.
    pub(super) fn bytes(&self) -> Option<f64> {
        Some(self.speed()? * self.cost.bytes() as f64)
    }

    /// Multiplications and additions a second.
    pub(super) fn operations(&self) -> Option<f64> {
        Some(self.speed()? * self.cost.flops as f64)
    }

    /// The part of the time in which the machine could have done it at best.
    pub(super) fn of_roofline(&self) -> Option<f64> {
        Some(self.speed()? * self.bound.as_secs_f64())
    }
}

/// The middle one, or between the two in the middle.
pub(super) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// How likely an [`interval`] does not hold the median.
const DOUBT: f64 = 0.05;

/// Two of the values between which the median of all that could be measured in the same way lies, with a certainty of 95 % if they
/// do not depend on each other: of so many values as many lie below it as a coin shows heads, however they are distributed. Where
/// repetitions are the same answer it is about measuring that answer again, not about other answers. `None` of fewer than six.
pub(super) fn interval(values: &[f64]) -> Option<(f64, f64)> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    // The logarithm of the probability of `heads` heads, and that of at most as many.
    let (mut ln, mut at_most) = (n as f64 * -std::f64::consts::LN_2, 0.0);
    let mut outside = 0;
    for heads in 0..n / 2 {
        at_most += ln.exp();
        if 2.0 * at_most > DOUBT {
            break;
        }
        outside = heads + 1;
        ln += ((n - heads) as f64 / outside as f64).ln();
    }
    outside.checked_sub(1).map(|first| (sorted[first], sorted[n - outside]))
}

/// The steps in which a prompt of one sequence is computed.
pub(super) fn prompt_steps(count: usize, depth: usize, rows: usize) -> Vec<StepSize> {
    let step = |first: usize| {
        let rows = rows.min(count - first);
        StepSize { rows, logit_rows: usize::from(first + rows == count), held: depth + first }
    };
    (0..count).step_by(rows.max(1)).map(step).collect()
}

/// The steps in which a sequence is continued token by token.
pub(super) fn decode_steps(count: usize, depth: usize) -> Vec<StepSize> {
    (0..count).map(|i| StepSize { rows: 1, logit_rows: 1, held: depth + i }).collect()
}

/// What steps cost in which so many sequences do the same, and the least time they take.
pub(super) fn cost(
    plan: &Plan,
    roofline: &Roofline,
    (steps, sequences): (&[StepSize], usize),
) -> (Cost, Duration) {
    let recording = &plan.recording;
    let (mut sum, mut bound) = (Cost::default(), Duration::ZERO);
    for &size in steps {
        let StepSize { rows, logit_rows, held } = size;
        let together = StepSize { rows: rows * sequences, logit_rows: logit_rows * sequences, held };
        for op in &recording.ops {
            let alone = recording.cost(&op.op, size);
            let times = |n: u64| n * sequences as u64;
            // Weights are read once for all, what sequences hold by each.
            let cost = Cost {
                cache_bytes: times(alone.cache_bytes),
                flops: times(alone.flops),
                quantized_flops: times(alone.quantized_flops),
                ..recording.cost(&op.op, together)
            };
            sum += cost;
            bound += roofline.bound(&cost);
        }
    }
    (sum, bound)
}

/// Sequences that hold what comes before what is measured.
fn sequences(engine: &mut Engine, depth: usize, count: usize) -> Result<Vec<SequenceId>> {
    let before = scattered_tokens(depth, engine.vocabulary());
    let mut ids = Vec::new();
    for i in 0..count {
        let id = engine.add_sequence()?;
        if depth > 0 {
            // Different for each sequence.
            let (end, start) = before.split_at(i % depth);
            engine.extend(id, &[start, end].concat(), LogitRows::None, |_| !interrupt::pressed())?;
        }
        ids.push(id);
    }
    Ok(ids)
}

/// Seconds in which a prompt is computed.
pub(super) fn prompt(engine: &mut Engine, args: &BenchArgs) -> Result<f64> {
    let ids = sequences(engine, args.timed.depth, 1)?;
    let text = scattered_tokens(args.timed.prompt, engine.vocabulary());
    let started = Instant::now();
    engine.extend(ids[0], &text, LogitRows::Last, |_| !interrupt::pressed())?;
    let seconds = started.elapsed().as_secs_f64();
    engine.remove_sequence(ids[0])?;
    Ok(seconds)
}

/// Seconds in which sequences are continued.
pub(super) fn decode(engine: &mut Engine, args: &BenchArgs) -> Result<f64> {
    let ids = sequences(engine, args.timed.depth, args.sequences)?;
    let text = scattered_tokens(args.decode, engine.vocabulary());
    let started = Instant::now();
    for token in text.chunks(1) {
        let work: Vec<Work<'_>> =
            ids.iter().map(|&sequence| Work::new(sequence, token, LogitRows::Last)).collect();
        engine.step(&work, None)?;
        if interrupt::pressed() {
            break;
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    for id in ids {
        engine.remove_sequence(id)?;
    }
    Ok(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_do_not_depend_on_the_order() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn the_median_lies_in_its_interval() {
        let upto = |n: i32| (1..=n).map(f64::from).rev().collect::<Vec<f64>>();
        assert_eq!(interval(&upto(5)), None);
        // From tables of the sign test.
        for (n, outside) in [(6, 1), (8, 1), (9, 2), (20, 6), (50, 18), (100, 40)] {
            assert_eq!(interval(&upto(n)), Some((f64::from(outside), f64::from(n + 1 - outside))), "{n}");
        }
        let (low, high) = interval(&upto(5000)).unwrap();
        assert!((2430.0..2440.0).contains(&low) && (2561.0..2571.0).contains(&high), "{low} {high}");
    }

    #[test]
    fn prompts_are_computed_in_chunks_and_answers_token_by_token() {
        let steps = prompt_steps(10, 100, 4);
        let sizes: Vec<_> = steps.iter().map(|s| (s.rows, s.logit_rows, s.held)).collect();
        assert_eq!(sizes, [(4, 0, 100), (4, 0, 104), (2, 1, 108)]);
        assert!(prompt_steps(0, 100, 4).is_empty());
        let sizes: Vec<_> = decode_steps(2, 7).iter().map(|s| (s.rows, s.logit_rows, s.held)).collect();
        assert_eq!(sizes, [(1, 1, 7), (1, 1, 8)]);
    }

    #[test]
    fn the_share_of_the_roofline_is_that_of_the_median() {
        let cost = Cost { weight_bytes: 1000, flops: 500, ..Cost::default() };
        let mut m = Measured::new(10, 2, (cost, Duration::from_millis(250)));
        for seconds in [0.5, 1.0, 4.0] {
            m.add(seconds);
        }
        assert_eq!((m.median(), m.bytes(), m.operations()), (Some(20.0), Some(1000.0), Some(500.0)));
        assert!((m.of_roofline().unwrap() - 0.25).abs() < 1e-9);
    }
}
