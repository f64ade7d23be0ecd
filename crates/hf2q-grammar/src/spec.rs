//! What a client asks an answer to be.

use serde_json::{Value as Json, json};

use crate::error::GrammarError;
use crate::{gbnf, lark, schema};

/// The form of a whole answer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Spec {
    /// JSON that keeps to a schema (draft 2020-12, 2019-09, 7, 6 or 4).
    JsonSchema(Json),
    /// Any JSON object.
    JsonObject,
    /// A text that a regular expression matches from end to end.
    Regex(String),
    /// One of some texts.
    Choice(Vec<String>),
    /// A grammar in the Lark notation of llguidance, without references to tokens; it begins with the rule `start`.
    Lark(String),
    /// A grammar in the notation of llama.cpp; it begins with the rule `root`.
    Gbnf(String),
}

/// Longest text of a grammar or schema.
const MAX_TEXT: usize = 1 << 20;
/// Most texts to choose from.
const MAX_CHOICES: usize = 10_000;

impl Spec {
    /// The grammar as llguidance reads it, in Lark.
    pub(crate) fn lark(&self) -> Result<String, GrammarError> {
        let text = match self {
            Self::JsonSchema(schema) => format!("start: {}\n", schema::inline(schema)?),
            Self::JsonObject => format!("start: {}\n", schema::inline(&json!({ "type": "object" }))?),
            Self::Regex(pattern) => {
                let refused =
                    |why: &str| GrammarError::Grammar { kind: "regular expression", why: why.to_owned() };
                if pattern.is_empty() {
                    return Err(refused("it is empty"));
                }
                format!("start: {}\n", lark::regex(pattern, ""))
            }
            Self::Choice(texts) => choice(texts)?,
            Self::Lark(text) => {
                lark::check(text)?;
                text.clone()
            }
            Self::Gbnf(text) => gbnf::to_lark(text)?,
        };
        if text.len() > MAX_TEXT {
            let why = format!("it has {} bytes, accepted are up to {MAX_TEXT}", text.len());
            return Err(GrammarError::Grammar { kind: self.kind(), why });
        }
        Ok(text)
    }

    /// What it is, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::JsonSchema(_) | Self::JsonObject => "schema",
            Self::Regex(_) => "regular expression",
            Self::Choice(_) => "list of choices",
            Self::Lark(_) | Self::Gbnf(_) => "grammar",
        }
    }
}

fn choice(texts: &[String]) -> Result<String, GrammarError> {
    let refused = |why: String| Err(GrammarError::Grammar { kind: "list of choices", why });
    if texts.is_empty() || texts.len() > MAX_CHOICES {
        return refused(format!("it has {} texts, accepted are 1 to {MAX_CHOICES}", texts.len()));
    }
    if let Some(place) = texts.iter().position(String::is_empty) {
        return refused(format!("text {place} is empty"));
    }
    let texts: Vec<String> = texts.iter().map(|t| lark::literal(t)).collect();
    Ok(format!("start: CHOICE\nCHOICE: {}\n", texts.join(" | ")))
}
