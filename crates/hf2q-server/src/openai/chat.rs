//! `/v1/chat/completions`.

use serde_json::{Map, Value as Json, json};

use super::messages;
use crate::ask::{Ask, DRAWING, Drawing, MOST_LOGPROBS};
use crate::error::ApiError;
use crate::fields::{Fields, wrong};

/// All fields of a request, beside those of [`DRAWING`].
pub(crate) const FIELDS: &[&str] = &[
    "model",
    "messages",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "logprobs",
    "top_logprobs",
    "response_format",
    "structured_outputs",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning_effort",
    "chat_template_kwargs",
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "modalities",
    "verbosity",
    "audio",
    "prediction",
    "functions",
    "function_call",
    "web_search_options",
];

/// What this server does not have, and why it matters to refuse it.
const REFUSED: &[(&str, &str)] = &[
    ("audio", "this server does not speak"),
    ("prediction", "predicted outputs are not used"),
    ("functions", "it is deprecated, use 'tools'"),
    ("function_call", "it is deprecated, use 'tool_choice'"),
    ("web_search_options", "this server fetches nothing from the network"),
];

/// A request to the chat route.
#[derive(Debug)]
pub(crate) struct Chat {
    pub(crate) model: String,
    pub(crate) ask: Ask,
    pub(crate) stream: Option<Streaming>,
}

/// How an answer is streamed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Streaming {
    /// The last chunk counts the tokens.
    pub(crate) usage: bool,
}

impl Chat {
    pub(crate) fn read(body: &Json) -> Result<Self, ApiError> {
        let known: Vec<&str> = [FIELDS, DRAWING].concat();
        let fields = Fields::body(body, &known)?;
        fields.without(REFUSED)?;
        check_notes(&fields)?;
        let model = fields.need_text("model")?.to_owned();
        let mut drawing = Drawing::read(&fields)?;
        drawing.max_tokens = max_tokens(&fields)?;
        drawing.logprobs = logprobs(&fields)?;
        let format = messages::structured_outputs(&fields, messages::response_format(&fields)?)?;
        let tools = messages::tools(&fields)?;
        if tools.is_empty() {
            for name in ["tool_choice", "parallel_tool_calls"] {
                if fields.get(name).is_some_and(|v| *v != json!("none")) {
                    return Err(ApiError::value(name, format!("'{name}' is only allowed with 'tools'.")));
                }
            }
        }
        let effort = effort(&fields, "reasoning_effort")?;
        let template_args = template_args(&fields)?;
        let ask = Ask {
            messages: messages::messages(&fields)?,
            tools,
            tool_choice: messages::tool_choice(&fields)?,
            parallel: fields.flag("parallel_tool_calls")?.unwrap_or(true),
            format,
            thinking: effort.map(|e| e != "none"),
            thinking_budget: None,
            effort,
            template_args,
            thinking_param: "reasoning_effort",
            drawing,
        };
        Ok(Self { model, ask, stream: streaming(&fields)? })
    }
}

/// Fields without effect by the API's own definition, and those that only have one value here.
pub(crate) fn check_notes(fields: &Fields<'_>) -> Result<(), ApiError> {
    fields.notes(&["user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"])?;
    fields.metadata()?;
    fields.flag("store")?;
    fields.word("service_tier", &["auto", "default"])?;
    fields.word("verbosity", &["medium"])?;
    match fields.get("modalities") {
        Some(value) if *value != json!(["text"]) => Err(ApiError::unsupported(
            "modalities",
            "This server answers in text: 'modalities' can only be [\"text\"].",
        )),
        _ => Ok(()),
    }
}

fn max_tokens(fields: &Fields<'_>) -> Result<Option<usize>, ApiError> {
    let old = fields.count("max_tokens", 1)?;
    let new = fields.count("max_completion_tokens", 1)?;
    match (old, new) {
        (Some(old), Some(new)) if old != new => {
            let message = "'max_tokens' and 'max_completion_tokens' differ; give one of them.";
            Err(ApiError::value("max_tokens", message))
        }
        _ => Ok(new.or(old)),
    }
}

fn logprobs(fields: &Fields<'_>) -> Result<Option<usize>, ApiError> {
    let wanted = fields.flag("logprobs")?.unwrap_or(false);
    let top = fields.integer("top_logprobs", 0..=MOST_LOGPROBS)?;
    match (wanted, top) {
        (false, Some(_)) => Err(ApiError::value("top_logprobs", "'top_logprobs' needs 'logprobs': true.")),
        (false, None) => Ok(None),
        (true, top) => Ok(Some(top.unwrap_or(0) as usize)),
    }
}

/// How much the model should think.
pub(crate) fn effort(fields: &Fields<'_>, name: &str) -> Result<Option<&'static str>, ApiError> {
    fields.word(name, &["none", "minimal", "low", "medium", "high", "xhigh"])
}

fn template_args(fields: &Fields<'_>) -> Result<Map<String, Json>, ApiError> {
    match fields.get("chat_template_kwargs") {
        None => Ok(Map::new()),
        Some(Json::Object(map)) => Ok(map.clone()),
        Some(other) => Err(wrong("chat_template_kwargs", "an object", other)),
    }
}

/// `stream` and `stream_options`.
pub(crate) fn streaming(fields: &Fields<'_>) -> Result<Option<Streaming>, ApiError> {
    let stream = fields.flag("stream")?.unwrap_or(false);
    let options = fields.object("stream_options", &["include_usage", "include_obfuscation"])?;
    let Some(options) = options else { return Ok(stream.then_some(Streaming { usage: false })) };
    if !stream {
        return Err(ApiError::value("stream_options", "'stream_options' needs 'stream': true."));
    }
    if options.flag("include_obfuscation")? == Some(true) {
        let message = "Obfuscation is not supported; without it nothing is added.";
        return Err(ApiError::unsupported("stream_options.include_obfuscation", message));
    }
    Ok(Some(Streaming { usage: options.flag("include_usage")?.unwrap_or(false) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(more: Json) -> Result<Chat, ApiError> {
        let mut body = json!({ "model": "m", "messages": [{ "role": "user", "content": "x" }] });
        for (key, value) in more.as_object().unwrap() {
            body[key] = value.clone();
        }
        Chat::read(&body)
    }

    #[test]
    fn nothing_is_silently_ignored() {
        for (more, param) in [
            (json!({ "temprature": 1 }), "temprature"),
            (json!({ "audio": {} }), "audio"),
            (json!({ "functions": [{}] }), "functions"),
            (json!({ "modalities": ["audio"] }), "modalities"),
            (json!({ "service_tier": "flex" }), "service_tier"),
            (json!({ "max_tokens": 0 }), "max_tokens"),
            (json!({ "max_tokens": -1 }), "max_tokens"),
            (json!({ "max_tokens": 1, "max_completion_tokens": 2 }), "max_tokens"),
            (json!({ "top_logprobs": 2 }), "top_logprobs"),
            (json!({ "logprobs": true, "top_logprobs": 21 }), "top_logprobs"),
            (json!({ "logprobs": 1 }), "logprobs"),
            (json!({ "stream_options": {} }), "stream_options"),
            (json!({ "stream": true, "stream_options": { "x": 1 } }), "stream_options.x"),
            (json!({ "tool_choice": "auto" }), "tool_choice"),
            (json!({ "reasoning_effort": "all" }), "reasoning_effort"),
            (json!({ "model": null }), "model"),
            (json!({ "metadata": { "a": 1 } }), "metadata.a"),
        ] {
            assert_eq!(read(more.clone()).unwrap_err().param.as_deref(), Some(param), "{more}");
        }
    }

    #[test]
    fn what_clients_send_by_habit_is_taken() {
        let chat = read(json!({
            "n": null, "stop": null, "user": "u", "store": false, "service_tier": "auto", "functions": [],
            "modalities": ["text"], "max_completion_tokens": 3, "stream": true, "logprobs": true,
            "stream_options": { "include_usage": true },
        }));
        let chat = chat.unwrap();
        assert_eq!(chat.ask.drawing.max_tokens, Some(3));
        assert_eq!(chat.ask.drawing.logprobs, Some(0));
        assert!(chat.stream.unwrap().usage);
    }
}
