//! Which steps: `0,2..4`.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Numbers of steps: items separated by commas, each a number, `FIRST..LAST` (both included), `FIRST..` or `..LAST`. A
/// range without an end ends with the last step of the prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps {
    /// `(first, last)`.
    items: Vec<(usize, Option<usize>)>,
}

/// A text that names no steps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{item:?} names no steps; expected are items like 3, 2..4 (2, 3 and 4), 2.. or ..4, separated by commas"
)]
pub struct StepsError {
    item: String,
}

/// More steps than any context has tokens.
const MOST: usize = 1 << 24;

impl Steps {
    /// Every step of the prompt.
    pub fn all() -> Self {
        Self { items: vec![(0, None)] }
    }

    /// Steps of which some are chosen and nothing behind them is, of a prompt that takes `prompt` of them.
    pub fn count(&self, prompt: usize) -> usize {
        self.items.iter().map(|&(_, last)| last.map_or(prompt, |last| last + 1)).max().unwrap_or(0)
    }

    /// Rows of all chosen steps, of a prompt of so many tokens that is read `chunk` at a time.
    pub fn rows(&self, tokens: usize, chunk: usize) -> usize {
        let prompt = tokens.div_ceil(chunk);
        let of = |step: usize| if step < prompt { chunk.min(tokens - step * chunk) } else { 1 };
        (0..self.count(prompt)).filter(|&step| self.has(step, prompt)).map(of).sum()
    }

    /// Whether a step is chosen, of a prompt that takes `prompt` steps.
    pub(super) fn has(&self, step: usize, prompt: usize) -> bool {
        let range = |&(first, last): &(usize, Option<usize>)| -> RangeInclusive<usize> {
            first..=last.unwrap_or(prompt.saturating_sub(1))
        };
        self.items.iter().any(|item| range(item).contains(&step))
    }
}

impl FromStr for Steps {
    type Err = StepsError;

    fn from_str(text: &str) -> Result<Self, StepsError> {
        let item = |item: &str| {
            let error = || StepsError { item: item.trim().to_owned() };
            let number = |text: &str| match text.trim().parse() {
                Ok(n) if n <= MOST => Ok(n),
                _ => Err(error()),
            };
            let Some((first, last)) = item.split_once("..") else {
                return number(item).map(|n| (n, Some(n)));
            };
            if first.trim().is_empty() && last.trim().is_empty() {
                return Err(error());
            }
            let first = if first.trim().is_empty() { 0 } else { number(first)? };
            let last = if last.trim().is_empty() { None } else { Some(number(last)?) };
            if last.is_some_and(|last| last < first) { Err(error()) } else { Ok((first, last)) }
        };
        Ok(Self { items: text.split(',').map(item).collect::<Result<_, _>>()? })
    }
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, &(first, last)) in self.items.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            match last {
                Some(last) if last == first => write!(f, "{comma}{first}")?,
                Some(last) => write!(f, "{comma}{first}..{last}")?,
                None => write!(f, "{comma}{first}..")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_include_both_ends() {
        let steps: Steps = "0, 2..4".parse().unwrap();
        let chosen: Vec<usize> = (0..9).filter(|&s| steps.has(s, 1)).collect();
        assert_eq!((chosen, steps.count(1)), (vec![0, 2, 3, 4], 5));
        assert_eq!(steps.to_string(), "0,2..4");
        // Step 2 is the short end of the prompt, steps 3 and 4 are behind it.
        assert_eq!(steps.rows(25, 10), 10 + 5 + 1 + 1);
    }

    #[test]
    fn open_ends_are_those_of_the_prompt() {
        let steps: Steps = "1..".parse().unwrap();
        assert_eq!(
            ((0..9).filter(|&s| steps.has(s, 3)).collect::<Vec<_>>(), steps.count(3)),
            (vec![1, 2], 3)
        );
        assert_eq!(Steps::all(), "0..".parse().unwrap());
        assert_eq!("..2".parse::<Steps>().unwrap().to_string(), "0..2");
    }

    #[test]
    fn mistakes_are_named() {
        for text in ["", "..", "a", "4..2", "1,,2", "-1", "99999999999", "1...3"] {
            assert!(text.parse::<Steps>().is_err(), "{text}");
        }
        assert!("1,x..2".parse::<Steps>().unwrap_err().to_string().contains("\"x..2\""));
    }
}
