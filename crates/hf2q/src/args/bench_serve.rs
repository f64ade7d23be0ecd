//! Arguments of `hf2q bench-serve`.

use std::num::NonZeroUsize;
use std::str::FromStr;

use clap::{Args, ValueEnum};

/// Load a server that speaks OpenAI's protocol and show how fast it answers.
#[derive(Debug, Args)]
pub(crate) struct BenchServeArgs {
    /// Where the server is, e.g. http://127.0.0.1:8080
    pub(crate) url: String,
    /// The model to ask [default: the first that the server lists]
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// Key to show the server
    #[arg(long, value_name = "KEY")]
    pub(crate) api_key: Option<String>,
    /// What is asked
    #[arg(long, value_enum, default_value_t = Endpoint::Chat)]
    pub(crate) endpoint: Endpoint,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Endpoint {
    /// /v1/chat/completions
    Chat,
    /// /v1/completions
    Completions,
}

/// What the server is asked, and how often.
#[derive(Debug, Args)]
#[command(next_help_heading = "Load")]
pub(crate) struct LoadArgs {
    /// How many requests
    #[arg(short = 'n', long, default_value = "100")]
    pub(crate) requests: NonZeroUsize,
    /// Requests before them that are not counted
    #[arg(long, default_value_t = 0)]
    pub(crate) warmup: usize,
    /// Requests at the same time: the next one starts when one ends
    #[arg(short, long, default_value = "8")]
    pub(crate) concurrency: NonZeroUsize,
    /// Requests a second instead, at random moments, however many are being answered
    #[arg(long, value_name = "PER_SECOND", conflicts_with = "concurrency", value_parser = positive)]
    pub(crate) rate: Option<f64>,
    /// Words of a prompt, about one token each: N, LEAST..MOST, or exp:MEAN
    #[arg(short, long, default_value = "256")]
    pub(crate) prompt: Length,
    /// Most tokens of an answer: N, LEAST..MOST, or exp:MEAN
    #[arg(short, long, default_value = "64")]
    pub(crate) answer: Length,
    /// Words with which prompts begin alike
    #[arg(long, value_name = "WORDS", default_value_t = 0)]
    pub(crate) shared_prefix: usize,
    /// How many such beginnings there are
    #[arg(long, default_value = "1", requires = "shared_prefix")]
    pub(crate) prefixes: NonZeroUsize,
    /// Take answers whole instead of streaming them: there is no time to the first token then
    #[arg(long)]
    pub(crate) no_stream: bool,
    /// Further fields of each request, e.g. '{"temperature": 0}'
    #[arg(long, value_name = "JSON", value_parser = fields)]
    pub(crate) body: Option<serde_json::Map<String, serde_json::Value>>,
    /// Seed of prompts, lengths and moments
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Seconds after which a request counts as failed
    #[arg(long, default_value_t = 600.0, value_parser = positive)]
    pub(crate) timeout: f64,
}

/// What counts as good.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// Milliseconds to the first token within which an answer counts as good
    #[arg(long, value_name = "MS", value_parser = positive)]
    pub(crate) first_token: Option<f64>,
    /// Mean milliseconds between tokens within which an answer counts as good
    #[arg(long, value_name = "MS", value_parser = positive)]
    pub(crate) per_token: Option<f64>,
    /// Milliseconds for the whole answer within which it counts as good
    #[arg(long, value_name = "MS", value_parser = positive)]
    pub(crate) whole: Option<f64>,
}

/// A length, or how lengths are spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Length {
    Fixed(usize),
    /// Evenly from the first to the last.
    Even(usize, usize),
    /// Exponentially with this mean, at least 1 and at most ten times the mean.
    Exponential(f64),
}

/// Longer prompts and answers than any context.
const MOST: usize = 1 << 22;

impl FromStr for Length {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |n: &str| match n.trim().parse::<usize>() {
            Ok(n) if (1..=MOST).contains(&n) => Ok(n),
            _ => Err(format!("{n:?} is no length from 1 to {MOST}; a length is N, LEAST..MOST or exp:MEAN")),
        };
        if let Some(mean) = text.strip_prefix("exp:") {
            return Ok(Self::Exponential(number(mean)? as f64));
        }
        match text.split_once("..") {
            None => Ok(Self::Fixed(number(text)?)),
            Some((least, most)) => {
                let (least, most) = (number(least)?, number(most.trim_start_matches('='))?);
                if least > most {
                    return Err(format!("{least} is more than {most}"));
                }
                Ok(Self::Even(least, most))
            }
        }
    }
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(n) if n.is_finite() && n > 0.0 => Ok(n),
        _ => Err("expected a number above 0".into()),
    }
}

fn fields(text: &str) -> Result<serde_json::Map<String, serde_json::Value>, String> {
    serde_json::from_str(text).map_err(|error| format!("expected a JSON object: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths() {
        assert_eq!("5".parse(), Ok(Length::Fixed(5)));
        assert_eq!("5..9".parse(), Ok(Length::Even(5, 9)));
        assert_eq!("exp:20".parse(), Ok(Length::Exponential(20.0)));
        for bad in ["", "0", "9..5", "exp:", "exp:0", "-1", "1.5", "5000000"] {
            assert!(bad.parse::<Length>().is_err(), "{bad}");
        }
    }
}
