//! What a client wants, whatever dialect it speaks.

use std::collections::BTreeMap;

use hf2q_engine::{Sampler, Sampling};
use hf2q_text::answer::{self, ToolSet};
use serde_json::{Map, Value as Json};

use crate::error::ApiError;
use crate::fields::{Fields, wrong};
use crate::model::Model;

/// Most answers to one prompt.
pub(crate) const MOST_CHOICES: i64 = 32;
/// Most stop strings.
pub(crate) const MOST_STOPS: usize = 16;
/// Most likely tokens that can be asked for beside each token.
pub(crate) const MOST_LOGPROBS: i64 = 20;

/// A conversation to be answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ask {
    /// In HuggingFace's form.
    pub(crate) messages: Vec<Json>,
    pub(crate) tools: Vec<Tool>,
    pub(crate) tool_choice: ToolChoice,
    /// Several calls in one answer are welcome.
    pub(crate) parallel: bool,
    pub(crate) format: Format,
    /// Whether the model should think first; absent: as its template has it.
    pub(crate) thinking: Option<bool>,
    /// Most tokens of thought.
    pub(crate) thinking_budget: Option<usize>,
    /// How much it should think, for templates that read it.
    pub(crate) effort: Option<&'static str>,
    /// Further variables of the template.
    pub(crate) template_args: Map<String, Json>,
    /// How the fields are named by which the client said whether to think.
    pub(crate) thinking_param: &'static str,
    pub(crate) drawing: Drawing,
}

impl Ask {
    /// The tools that the answer may call.
    pub(crate) fn tool_set(&self) -> ToolSet {
        let mut set = ToolSet::default();
        if self.tool_choice != ToolChoice::None {
            for tool in &self.tools {
                let Tool { name, parameters, .. } = tool.clone();
                set.add(answer::Tool { name, description: None, parameters });
            }
        }
        set
    }
}

/// A function that the model may ask to be called.
#[derive(Clone, Debug)]
pub(crate) struct Tool {
    pub(crate) name: String,
    /// As templates expect it: `{"type": "function", "function": …}`.
    pub(crate) json: Json,
    /// The schema of its arguments.
    pub(crate) parameters: Json,
    /// Where the client wrote that schema.
    pub(crate) param: String,
}

/// Whether tools are called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ToolChoice {
    #[default]
    Auto,
    None,
    Required,
    Named(String),
}

/// What the text of an answer must be.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Format {
    #[default]
    Text,
    JsonObject,
    JsonSchema {
        schema: Json,
        param: String,
    },
    Regex(String),
    Choice(Vec<String>),
    Grammar(String),
}

/// How tokens are drawn and until when. What is absent is the model's to say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drawing {
    pub(crate) temperature: Option<f32>,
    pub(crate) top_k: Option<i64>,
    pub(crate) top_p: Option<f32>,
    pub(crate) min_p: Option<f32>,
    pub(crate) typical_p: Option<f32>,
    pub(crate) repetition_penalty: Option<f32>,
    pub(crate) presence_penalty: Option<f32>,
    pub(crate) frequency_penalty: Option<f32>,
    pub(crate) logit_bias: BTreeMap<u32, f32>,
    pub(crate) seed: Option<u64>,
    pub(crate) stops: Vec<String>,
    /// Tokens that end an answer are never drawn.
    pub(crate) endless: bool,
    pub(crate) max_tokens: Option<usize>,
    pub(crate) choices: usize,
    /// Probabilities of tokens, and of how many others.
    pub(crate) logprobs: Option<usize>,
}

/// Fields of [`Drawing`] that all of OpenAI's routes for texts share, and those of other servers beside them.
pub(crate) const DRAWING: &[&str] = &[
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "typical_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "seed",
    "stop",
    "ignore_eos",
    "n",
];

impl Drawing {
    /// Reads the fields in [`DRAWING`]; those that the route does not know are absent.
    pub(crate) fn read(fields: &Fields<'_>) -> Result<Self, ApiError> {
        Ok(Self {
            temperature: fields.number("temperature", 0.0..=2.0)?,
            top_k: fields.integer("top_k", -1..=i64::MAX)?,
            top_p: fields.number("top_p", 0.0..=1.0)?,
            min_p: fields.number("min_p", 0.0..=1.0)?,
            typical_p: fields.number("typical_p", 0.0..=1.0)?,
            repetition_penalty: fields.number("repetition_penalty", 1e-3..=1e3)?,
            presence_penalty: fields.number("presence_penalty", -2.0..=2.0)?,
            frequency_penalty: fields.number("frequency_penalty", -2.0..=2.0)?,
            logit_bias: logit_bias(fields)?,
            seed: fields.integer("seed", i64::MIN..=i64::MAX)?.map(i64::cast_unsigned),
            stops: fields.texts("stop", MOST_STOPS)?,
            endless: fields.flag("ignore_eos")?.unwrap_or(false),
            max_tokens: None,
            choices: fields.integer("n", 1..=MOST_CHOICES)?.unwrap_or(1) as usize,
            logprobs: None,
        })
    }

    /// What draws the tokens.
    pub(crate) fn sampler(&self, model: &Model) -> Result<Sampler, ApiError> {
        if let Some(id) = self.logit_bias.keys().find(|id| **id as usize >= model.vocabulary) {
            let message =
                format!("The model has no token {id}: its {} tokens are counted from 0.", model.vocabulary);
            return Err(ApiError::value(format!("logit_bias.{id}"), message));
        }
        let mut logit_bias = self.logit_bias.clone();
        if self.endless {
            logit_bias.extend(model.tokenizer.stop_ids().iter().map(|&id| (id, f32::NEG_INFINITY)));
        }
        let d = &model.sampling;
        let sampling = Sampling {
            temperature: self.temperature.unwrap_or(d.temperature),
            top_k: self.top_k.unwrap_or(d.top_k),
            top_p: self.top_p.unwrap_or(d.top_p),
            min_p: self.min_p.unwrap_or(d.min_p),
            typical_p: self.typical_p.unwrap_or(d.typical_p),
            repetition_penalty: self.repetition_penalty.unwrap_or(d.repetition_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(d.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(d.frequency_penalty),
            // The API speaks of the text so far, without a limit.
            penalty_last_n: usize::MAX,
            logit_bias,
            seed: self.seed.unwrap_or_else(crate::ids::random),
        };
        Sampler::new(sampling).map_err(|e| ApiError::body(format!("{e}.")))
    }
}

/// Token ids as strings, and what is added to their logits. -100 is as good as never by the API's words, so it is never.
fn logit_bias(fields: &Fields<'_>) -> Result<BTreeMap<u32, f32>, ApiError> {
    let Some(value) = fields.get("logit_bias") else { return Ok(BTreeMap::new()) };
    let path = fields.path("logit_bias");
    let Json::Object(map) = value else { return Err(wrong(&path, "an object", value)) };
    let mut biases = BTreeMap::new();
    for (id, bias) in map {
        let Ok(id) = id.parse::<u32>() else {
            let id: String = id.chars().take(100).collect();
            return Err(ApiError::value(path, format!("'{id}' is no token id.")));
        };
        let at = format!("{path}.{id}");
        let Some(bias) = bias.as_f64() else { return Err(wrong(&at, "a number", bias)) };
        if !(-100.0..=100.0).contains(&bias) {
            return Err(ApiError::value(at, format!("The bias is {bias}; accepted: -100 to 100.")));
        }
        biases.insert(id, if bias == -100.0 { f32::NEG_INFINITY } else { bias as f32 });
    }
    Ok(biases)
}

/// A name that a tool may have.
pub(crate) fn check_tool_name(name: &str, param: String) -> Result<(), ApiError> {
    let ok = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.len() <= 64 && name.chars().all(ok) {
        return Ok(());
    }
    Err(ApiError::value(param, "The name of a tool has 1 to 64 of the characters a-z, A-Z, 0-9, _ and -."))
}

/// Refuses tools of the same name, and a choice of none of them.
pub(crate) fn check_tools(tools: &[Tool], choice: &ToolChoice) -> Result<(), ApiError> {
    for (i, tool) in tools.iter().enumerate() {
        if tools[..i].iter().any(|t| t.name == tool.name) {
            return Err(ApiError::value(
                format!("tools[{i}]"),
                format!("Two tools are named '{}'.", tool.name),
            ));
        }
    }
    match choice {
        ToolChoice::Named(name) if tools.iter().all(|t| t.name != *name) => {
            let name: String = name.chars().take(64).collect();
            Err(ApiError::value("tool_choice", format!("No tool is named '{name}'.")))
        }
        ToolChoice::Required | ToolChoice::Named(_) if tools.is_empty() => {
            Err(ApiError::value("tool_choice", "'tool_choice' needs 'tools'."))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn drawing(body: &Json) -> Result<Drawing, ApiError> {
        Drawing::read(&Fields::body(body, DRAWING)?)
    }

    #[test]
    fn values_out_of_range_are_refused_by_name() {
        for (body, param) in [
            (json!({ "temperature": 2.1 }), "temperature"),
            (json!({ "temperature": "hot" }), "temperature"),
            (json!({ "n": 0 }), "n"),
            (json!({ "n": 1_000_000 }), "n"),
            (json!({ "top_k": -2 }), "top_k"),
            (json!({ "stop": "" }), "stop"),
            (json!({ "stop": ["a", 1] }), "stop"),
            (json!({ "logit_bias": { "x": 1 } }), "logit_bias"),
            (json!({ "logit_bias": { "7": 101 } }), "logit_bias.7"),
            (json!({ "seed": 0.5 }), "seed"),
        ] {
            assert_eq!(drawing(&body).unwrap_err().param.as_deref(), Some(param), "{body}");
        }
    }

    #[test]
    fn what_is_said_is_kept() {
        let body = json!({ "seed": -1, "stop": "a", "logit_bias": { "3": -100, "4": 1.5 }, "n": 2 });
        let drawing = drawing(&body).unwrap();
        assert_eq!(drawing.seed, Some(u64::MAX));
        assert_eq!(drawing.stops, ["a"]);
        assert_eq!(drawing.logit_bias[&3], f32::NEG_INFINITY);
        assert_eq!(drawing.choices, 2);
        assert_eq!(drawing.temperature, None);
    }
}
