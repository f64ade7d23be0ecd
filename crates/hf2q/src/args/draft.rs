//! How tokens are guessed ahead.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Result, bail};
use clap::Args;
use hf2q_engine::{DraftDepth, DraftShape};

/// The deepest drafts: each token takes a row of a step.
const MOST_DEPTH: usize = 32;

/// Who guesses the next tokens, and how far.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Speculation")]
pub(crate) struct DraftArgs {
    /// Let tokens be guessed, which the model then checks several at a time: answers are the same, and come sooner where guesses
    /// are right. `ngram` takes what followed the last words where they stood before; MODEL is a smaller model of the same
    /// vocabulary, or a head made for this model
    #[arg(long, value_name = "ngram|none|MODEL", default_value = DEFAULT)]
    pub(crate) draft: DraftArg,
    /// Tokens that are guessed at once, 1 to 32 [default: auto]
    #[arg(long, value_name = "N|auto", value_parser = depth, allow_negative_numbers = true)]
    pub(crate) draft_depth: Option<DraftDepth>,
    /// Whether several tokens are guessed for the same place. `ngram` knows such trees [default: auto]
    #[arg(long, value_name = "chain|tree|auto", value_parser = shape)]
    pub(crate) draft_shape: Option<DraftShape>,
}

/// Where nobody says.
const DEFAULT: &str = "none";

/// What guesses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DraftArg {
    None,
    Ngram,
    Model(PathBuf),
}

impl FromStr for DraftArg {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        Ok(match text {
            "none" => Self::None,
            "ngram" => Self::Ngram,
            "" => return Err("expected ngram, none or a model file"),
            name if ["ngram", "none"].iter().any(|known| name.eq_ignore_ascii_case(known)) => {
                return Err("expected ngram, none or a model file; a file of this name is ./NAME");
            }
            path => Self::Model(path.into()),
        })
    }
}

fn depth(text: &str) -> Result<DraftDepth, String> {
    match text.parse() {
        _ if text == "auto" => Ok(DraftDepth::Auto),
        Ok(n) if (1..=MOST_DEPTH).contains(&n) => Ok(DraftDepth::Fixed(n)),
        _ => Err(format!("expected auto or a number from 1 to {MOST_DEPTH}")),
    }
}

fn shape(text: &str) -> Result<DraftShape, &'static str> {
    Ok(match text {
        "auto" => DraftShape::Auto,
        "chain" => DraftShape::Chain,
        "tree" => DraftShape::Tree,
        _ => return Err("expected chain, tree or auto"),
    })
}

impl DraftArgs {
    /// No drafts.
    pub(crate) fn none() -> Self {
        Self { draft: DraftArg::None, draft_depth: None, draft_shape: None }
    }

    /// Refuses what says how to guess where nothing guesses.
    pub(crate) fn check(&self) -> Result<()> {
        let flags =
            [("--draft-depth", self.draft_depth.is_some()), ("--draft-shape", self.draft_shape.is_some())];
        match flags.iter().find(|(_, given)| *given && self.draft == DraftArg::None) {
            Some((flag, _)) => bail!("{flag} is for --draft: say what guesses"),
            None => Ok(()),
        }
    }

    /// How far to guess.
    pub(crate) fn depth(&self) -> DraftDepth {
        self.draft_depth.unwrap_or_default()
    }

    /// What guesses look like.
    pub(crate) fn shape(&self) -> DraftShape {
        self.draft_shape.unwrap_or_default()
    }

    /// Rows whose logits a step must have room for beside those of a job's last token.
    pub(crate) fn rows(&self) -> usize {
        match (&self.draft, self.depth(), self.shape()) {
            (DraftArg::None, ..) => 0,
            (_, DraftDepth::Auto, DraftShape::Tree) => 2 * DraftDepth::MOST,
            (_, DraftDepth::Auto, _) => DraftDepth::MOST,
            (_, DraftDepth::Fixed(depth), DraftShape::Chain) => depth,
            (_, DraftDepth::Fixed(depth), _) => 2 * depth,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drafters_and_depths() {
        let arg = |text: &str| text.parse::<DraftArg>().unwrap();
        assert_eq!((arg("none"), arg("ngram")), (DraftArg::None, DraftArg::Ngram));
        assert_eq!(arg("./ngram"), DraftArg::Model("./ngram".into()));
        assert_eq!((depth("auto"), depth("5")), (Ok(DraftDepth::Auto), Ok(DraftDepth::Fixed(5))));
        for wrong in ["", "NGRAM", "Ngram", "None"] {
            assert!(
                wrong.parse::<DraftArg>().unwrap_err().contains("ngram, none or a model file"),
                "{wrong}"
            );
        }
        assert_eq!((shape("tree"), shape("Tree").is_err()), (Ok(DraftShape::Tree), true));
        for bad in ["0", "33", "-1", "five", ""] {
            assert!(depth(bad).unwrap_err().contains("1 to 32"));
        }
    }
}
