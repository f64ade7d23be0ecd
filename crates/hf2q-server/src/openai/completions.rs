//! `/v1/completions`: texts are continued as they are.

use hf2q_engine::{Answer, Logprobs, Sampler, Task};
use hf2q_text::{Controls, Specials};
use serde_json::Value as Json;

use super::chat::{Streaming, check_notes, streaming};
use super::messages;
use crate::answers::Order;
use crate::ask::{Ask, DRAWING, Drawing};
use crate::constraint::Constraints;
use crate::conversation::check_length;
use crate::error::ApiError;
use crate::fields::{Fields, wrong};
use crate::model::Model;
use crate::settings::Settings;
use crate::tap::{Reader, Wanted};

/// All fields of a request, beside those of [`DRAWING`].
pub(crate) const FIELDS: &[&str] = &[
    "model",
    "prompt",
    "suffix",
    "max_tokens",
    "stream",
    "stream_options",
    "logprobs",
    "echo",
    "best_of",
    "user",
    "response_format",
    "structured_outputs",
];

/// As many tokens as OpenAI gives where nobody says.
const DEFAULT_TOKENS: usize = 16;

/// A request to continue texts.
#[derive(Debug)]
pub(crate) struct Completion {
    pub(crate) model: String,
    pub(crate) prompts: Vec<Prompt>,
    pub(crate) ask: Ask,
    /// The prompt is part of the answer.
    pub(crate) echo: bool,
    pub(crate) stream: Option<Streaming>,
}

/// A text, or its tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Prompt {
    Text(String),
    Ids(Vec<u32>),
}

impl Prompt {
    /// The tokens. What looks like a control token in a text is text; who wants control tokens sends ids.
    pub(crate) fn ids(&self, model: &Model) -> Vec<u32> {
        match self {
            Self::Text(text) => model.tokenizer.encode_prompt(text, Specials::AsText),
            Self::Ids(ids) => ids.clone(),
        }
    }

    fn text(&self, model: &Model) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Ids(ids) => model.tokenizer.decode(ids, Controls::Show),
        }
    }

    /// One text, several, the ids of one, or of several.
    pub(crate) fn read(fields: &Fields<'_>, name: &str, most: usize) -> Result<Vec<Self>, ApiError> {
        let value = fields.need(name)?;
        let path = fields.path(name);
        let prompts = match value {
            Json::String(text) => vec![Self::Text(text.clone())],
            Json::Array(items) if items.first().is_some_and(Json::is_number) => {
                vec![Self::Ids(ids(value, &path)?)]
            }
            Json::Array(items) if items.len() > most => {
                let message = format!("'{path}' has {} items; accepted: up to {most}.", items.len());
                return Err(ApiError::value(path, message));
            }
            Json::Array(items) => {
                let one = |(i, item): (usize, &Json)| match item {
                    Json::String(text) => Ok(Self::Text(text.clone())),
                    other => Ok(Self::Ids(ids(other, &format!("{path}[{i}]"))?)),
                };
                items.iter().enumerate().map(one).collect::<Result<_, ApiError>>()?
            }
            other => return Err(wrong(&path, "a string, or a list of strings or token ids", other)),
        };
        if prompts.is_empty() {
            return Err(ApiError::value(path.clone(), format!("'{path}' is empty.")));
        }
        Ok(prompts)
    }
}

/// A list of token ids.
pub(crate) fn ids(value: &Json, path: &str) -> Result<Vec<u32>, ApiError> {
    let Json::Array(items) = value else { return Err(wrong(path, "a list of token ids", value)) };
    let id = |(i, v): (usize, &Json)| {
        let id = v.as_u64().and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| {
            let at = format!("{path}[{i}]");
            let message = format!("'{at}' is no token id: those are integers from 0.");
            ApiError::value(at, message)
        })
    };
    items.iter().enumerate().map(id).collect()
}

/// Refuses ids that are no token of the model.
pub(crate) fn check_ids(model: &Model, ids: &[u32], param: &str) -> Result<(), ApiError> {
    let Some(id) = ids.iter().find(|id| **id as usize >= model.vocabulary) else { return Ok(()) };
    let message = format!("The model has no token {id}: its {} tokens are counted from 0.", model.vocabulary);
    Err(ApiError::value(param, message))
}

impl Completion {
    pub(crate) fn read(body: &Json, settings: &Settings) -> Result<Self, ApiError> {
        let known: Vec<&str> = [FIELDS, DRAWING].concat();
        let fields = Fields::body(body, &known)?;
        fields.without(&[("suffix", "texts are continued at their end only")])?;
        check_notes(&fields)?;
        let model = fields.need_text("model")?.to_owned();
        let mut drawing = Drawing::read(&fields)?;
        drawing.max_tokens = Some(fields.count("max_tokens", 0)?.unwrap_or(DEFAULT_TOKENS));
        drawing.logprobs = fields.integer("logprobs", 0..=20)?.map(|n| n as usize);
        if let Some(best) = fields.count("best_of", 1)?.filter(|b| *b != drawing.choices) {
            let message =
                format!("'best_of' is {best}: choosing among more answers than 'n' is not supported.");
            return Err(ApiError::unsupported("best_of", message));
        }
        let prompts = Prompt::read(&fields, "prompt", settings.max_inputs)?;
        let format = messages::structured_outputs(&fields, messages::response_format(&fields)?)?;
        let ask = Ask { format, drawing, ..Ask::default() };
        let echo = fields.flag("echo")?.unwrap_or(false);
        Ok(Self { model, prompts, ask, echo, stream: streaming(&fields)? })
    }

    /// The jobs, and what must be known of each prompt to show it. Blocks.
    pub(crate) fn prepare(&self, model: &Model) -> Result<(Vec<Order>, Vec<Shape>), ApiError> {
        let sampler = self.ask.drawing.sampler(model)?;
        let constraints = Constraints::new(model, &self.ask, false)?;
        let mut orders = Vec::new();
        let mut shapes = Vec::new();
        for prompt in &self.prompts {
            let ids = prompt.ids(model);
            check_ids(model, &ids, "prompt")?;
            check_length(model, ids.len(), "prompt")?;
            for choice in 0..self.ask.drawing.choices {
                orders.push(self.order(model, &ids, (&sampler, &constraints, choice))?);
            }
            let text = if self.echo { prompt.text(model) } else { String::new() };
            shapes.push(Shape { text, ids });
        }
        Ok((orders, shapes))
    }

    fn order(
        &self,
        model: &Model,
        prompt: &[u32],
        (sampler, constraints, choice): (&Sampler, &Constraints, usize),
    ) -> Result<Order, ApiError> {
        let drawing = &self.ask.drawing;
        let mut answer = Answer::new(sampler.clone());
        answer.draws = choice as u64;
        answer.stop = model.tokenizer.stop_ids().to_vec();
        answer.max_tokens = drawing.max_tokens;
        answer.logprobs = drawing.logprobs;
        answer.prompt_logprobs = drawing.logprobs.filter(|_| self.echo);
        answer.constraint = constraints.one();
        let wanted = Wanted { stops: drawing.stops.clone(), reader: Reader::plain() };
        Ok(Order { prompt: prompt.to_vec(), task: Task::Answer(Box::new(answer)), wanted })
    }
}

/// A prompt as it is shown with `echo`.
pub(crate) struct Shape {
    /// Empty without `echo`.
    pub(crate) text: String,
    pub(crate) ids: Vec<u32>,
}

impl Shape {
    /// Adds the prompt's tokens to the lists of an answer. `logprobs` begin with the second token.
    pub(crate) fn list(&self, lists: &mut super::logprobs::Lists, model: &Model, logprobs: &[Logprobs]) {
        let mut offset = 0;
        let mut utf8 = hf2q_text::Utf8Stream::default();
        for (i, id) in self.ids.iter().enumerate() {
            let logprobs = i.checked_sub(1).and_then(|i| logprobs.get(i));
            lists.push(&model.tokenizer, *id, offset, logprobs);
            // A text's own beginning-of-text token is not in it.
            if !model.tokenizer.is_control(*id) {
                let mut text = String::new();
                utf8.push(model.tokenizer.token_bytes(*id), &mut text);
                offset += text.chars().count();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(more: Json) -> Result<Completion, ApiError> {
        let mut body = json!({ "model": "m", "prompt": "x" });
        for (key, value) in more.as_object().unwrap() {
            body[key] = value.clone();
        }
        Completion::read(&body, &Settings { max_inputs: 3, ..Settings::default() })
    }

    #[test]
    fn prompts_have_four_forms() {
        let prompts = |p: Json| read(json!({ "prompt": p })).unwrap().prompts;
        assert_eq!(prompts(json!("a")), [Prompt::Text("a".into())]);
        assert_eq!(prompts(json!(["a", "b"])).len(), 2);
        assert_eq!(prompts(json!([1, 2])), [Prompt::Ids(vec![1, 2])]);
        assert_eq!(prompts(json!([[1], [2]])), [Prompt::Ids(vec![1]), Prompt::Ids(vec![2])]);
        for bad in
            [json!([]), json!(7), json!([1, "a"]), json!([-1]), json!([[1.5]]), json!(["a", "b", "c", "d"])]
        {
            assert!(
                read(json!({ "prompt": bad })).unwrap_err().param.unwrap().starts_with("prompt"),
                "{bad}"
            );
        }
    }

    #[test]
    fn what_is_not_there_is_refused() {
        for (more, param) in [
            (json!({ "suffix": "x" }), "suffix"),
            (json!({ "best_of": 2 }), "best_of"),
            (json!({ "logprobs": true }), "logprobs"),
            (json!({ "logprobs": 21 }), "logprobs"),
            (json!({ "max_tokens": -1 }), "max_tokens"),
            (json!({ "messages": [] }), "messages"),
        ] {
            assert_eq!(read(more.clone()).unwrap_err().param.as_deref(), Some(param), "{more}");
        }
        assert_eq!(read(json!({})).unwrap().ask.drawing.max_tokens, Some(16));
        assert!(read(json!({ "best_of": 2, "n": 2 })).is_ok());
    }
}
