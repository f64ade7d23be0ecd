//! `/v1/responses`: requests.

use serde_json::{Value as Json, json};

use super::chat::{check_notes, effort};
use super::messages::function_tool;
use crate::ask::{Ask, DRAWING, Drawing, Format, MOST_LOGPROBS, Tool, ToolChoice};
use crate::error::ApiError;
use crate::fields::{Fields, items, wrong};

type Result<T> = std::result::Result<T, ApiError>;

/// All fields of a request, beside those of [`DRAWING`].
pub(crate) const FIELDS: &[&str] = &[
    "model",
    "input",
    "instructions",
    "max_output_tokens",
    "stream",
    "stream_options",
    "text",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning",
    "top_logprobs",
    "include",
    "metadata",
    "store",
    "user",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "service_tier",
    "truncation",
    "background",
    "previous_response_id",
    "conversation",
    "prompt",
    "max_tool_calls",
    "context_management",
];

/// What needs a store of earlier responses, or tools of the server's own.
const REFUSED: &[(&str, &str)] = &[
    ("previous_response_id", "responses are not stored, send the whole conversation as 'input'"),
    ("conversation", "conversations are not stored, send them as 'input'"),
    ("prompt", "there are no stored prompts"),
    ("max_tool_calls", "this server calls no tools itself"),
    ("context_management", "conversations are not shortened"),
];

/// A request.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) model: String,
    pub(crate) ask: Ask,
    pub(crate) stream: bool,
    /// What the response says again of its request.
    pub(crate) echo: Json,
}

impl Request {
    pub(crate) fn read(body: &Json) -> Result<Self> {
        let known: Vec<&str> = [FIELDS, DRAWING].concat();
        let fields = Fields::body(body, &known)?;
        fields.without(REFUSED)?;
        check_notes(&fields)?;
        if fields.flag("background")? == Some(true) {
            return Err(ApiError::unsupported(
                "background",
                "Responses are not stored, so they cannot be fetched later.",
            ));
        }
        if fields.word("truncation", &["auto", "disabled"])? == Some("auto") {
            return Err(ApiError::unsupported(
                "truncation",
                "Conversations are not shortened; 'truncation' can only be 'disabled'.",
            ));
        }
        let model = fields.need_text("model")?.to_owned();
        let mut drawing = Drawing::read(&fields)?;
        if drawing.choices != 1 {
            return Err(ApiError::unsupported("n", "A response has one answer."));
        }
        drawing.max_tokens = fields.count("max_output_tokens", 1)?;
        drawing.logprobs = logprobs(&fields)?;
        let reasoning = fields.object("reasoning", &["effort", "summary", "generate_summary"])?;
        let effort = match &reasoning {
            Some(reasoning) => {
                reasoning.without(&[
                    ("summary", "thoughts are shown whole"),
                    ("generate_summary", "thoughts are shown whole"),
                ])?;
                effort(reasoning, "effort")?
            }
            None => None,
        };
        let ask = Ask {
            messages: conversation(&fields)?,
            tools: tools(&fields)?,
            tool_choice: tool_choice(&fields)?,
            parallel: fields.flag("parallel_tool_calls")?.unwrap_or(true),
            format: format(&fields)?,
            thinking: effort.map(|e| e != "none"),
            effort,
            thinking_param: "reasoning.effort",
            drawing,
            ..Ask::default()
        };
        let echo = echo(&fields, &ask)?;
        let stream = fields.flag("stream")?.unwrap_or(false);
        if let Some(options) = fields.object("stream_options", &["include_obfuscation"])?
            && options.flag("include_obfuscation")? == Some(true)
        {
            let message = "Obfuscation is not supported; without it nothing is added.";
            return Err(ApiError::unsupported("stream_options.include_obfuscation", message));
        }
        Ok(Self { model, ask, stream, echo })
    }
}

/// Probabilities are shown if they are asked for by either of the two fields.
fn logprobs(fields: &Fields<'_>) -> Result<Option<usize>> {
    let top = fields.integer("top_logprobs", 0..=MOST_LOGPROBS)?.map(|n| n as usize);
    let mut wanted = top;
    for (path, value) in fields.list("include")?.unwrap_or_default() {
        match value.as_str() {
            Some("message.output_text.logprobs") => wanted = Some(top.unwrap_or(0)),
            Some("reasoning.encrypted_content") => {
                return Err(ApiError::unsupported(
                    path,
                    "Thoughts are not encrypted; they are shown as they are.",
                ));
            }
            _ => {
                return Err(ApiError::unsupported(
                    path,
                    "Only 'message.output_text.logprobs' can be included.",
                ));
            }
        }
    }
    Ok(wanted)
}

/// Instructions and input as messages.
fn conversation(fields: &Fields<'_>) -> Result<Vec<Json>> {
    let mut messages = Vec::new();
    if let Some(instructions) = fields.text("instructions")? {
        messages.push(json!({ "role": "system", "content": instructions }));
    }
    let input = fields.need("input")?;
    if let Some(text) = input.as_str() {
        messages.push(json!({ "role": "user", "content": text }));
        return Ok(messages);
    }
    let list = items(input, "input").map_err(|_| wrong("input", "a string or a list of items", input))?;
    if list.is_empty() {
        return Err(ApiError::value("input", "'input' is empty."));
    }
    let mut turn = Turn { messages, known_calls: Vec::new() };
    for (path, value) in &list {
        turn.item(value, path)?;
    }
    Ok(turn.messages)
}

/// Items become messages; calls join the message of the assistant that they belong to.
struct Turn {
    messages: Vec<Json>,
    known_calls: Vec<String>,
}

impl Turn {
    fn item(&mut self, value: &Json, path: &str) -> Result<()> {
        let any = Fields::any(value, path)?;
        match any.text("type")?.unwrap_or("message") {
            "message" => self.message(any),
            "function_call" => self.call(any),
            "function_call_output" => self.output(any),
            "reasoning" => self.reasoning(any),
            other => {
                let other: String = other.chars().take(100).collect();
                Err(ApiError::unsupported(
                    any.path("type"),
                    format!("Items of type '{other}' are not supported."),
                ))
            }
        }
    }

    fn message(&mut self, fields: Fields<'_>) -> Result<()> {
        let fields = fields.only(&["type", "role", "content", "id", "status", "phase"])?;
        fields.notes(&["id", "status", "phase"])?;
        fields.need("role")?;
        let role = fields.word("role", &["user", "assistant", "system", "developer"])?.unwrap_or_default();
        let role = if role == "developer" { "system" } else { role };
        let content = match fields.need("content")? {
            Json::String(text) => json!(text),
            list => {
                let parts = items(list, &fields.path("content"))?;
                parts.iter().map(|(path, part)| text_part(part, path)).collect::<Result<Json>>()?
            }
        };
        match self.open_answer().filter(|_| role == "assistant") {
            Some(last) => last["content"] = content,
            None => self.messages.push(json!({ "role": role, "content": content })),
        }
        Ok(())
    }

    /// A message of the assistant to which a thought belongs that went before.
    fn open_answer(&mut self) -> Option<&mut Json> {
        let open = |m: &&mut Json| {
            m["role"] == "assistant" && m["content"].is_null() && m.get("tool_calls").is_none()
        };
        self.messages.last_mut().filter(open)
    }

    fn call(&mut self, fields: Fields<'_>) -> Result<()> {
        let fields = fields.only(&["type", "call_id", "name", "arguments", "id", "status"])?;
        fields.notes(&["id", "status"])?;
        let (id, name) = (fields.need_text("call_id")?, fields.need_text("name")?);
        let arguments = fields.need_text("arguments")?;
        self.known_calls.push(id.to_owned());
        let call =
            json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } });
        match self.messages.last_mut().filter(|m| m["role"] == "assistant") {
            Some(last) => match last.get_mut("tool_calls").and_then(Json::as_array_mut) {
                Some(calls) => calls.push(call),
                None => last["tool_calls"] = json!([call]),
            },
            None => self.messages.push(json!({ "role": "assistant", "content": null, "tool_calls": [call] })),
        }
        Ok(())
    }

    fn output(&mut self, fields: Fields<'_>) -> Result<()> {
        let fields = fields.only(&["type", "call_id", "output", "id", "status"])?;
        fields.notes(&["id", "status"])?;
        let id = fields.need_text("call_id")?;
        if !self.known_calls.iter().any(|known| known == id) {
            return Err(ApiError::value(fields.path("call_id"), "No earlier item is a call with this id."));
        }
        let output = match fields.need("output")? {
            Json::String(text) => json!(text),
            list => {
                let parts = items(list, &fields.path("output"))?;
                parts.iter().map(|(path, part)| text_part(part, path)).collect::<Result<Json>>()?
            }
        };
        self.messages.push(json!({ "role": "tool", "tool_call_id": id, "content": output }));
        Ok(())
    }

    fn reasoning(&mut self, fields: Fields<'_>) -> Result<()> {
        let fields = fields.only(&["type", "id", "summary", "content", "status", "encrypted_content"])?;
        fields.notes(&["id", "status"])?;
        fields.without(&[("encrypted_content", "thoughts are not encrypted")])?;
        let mut text = String::new();
        for name in ["summary", "content"] {
            for (path, part) in fields.list(name)?.unwrap_or_default() {
                let part = Fields::of(part, &path, &["type", "text"])?;
                text.push_str(part.need_text("text")?);
            }
        }
        self.messages.push(json!({ "role": "assistant", "content": null, "reasoning_content": text }));
        Ok(())
    }
}

fn text_part(value: &Json, path: &str) -> Result<Json> {
    let any = Fields::any(value, path)?;
    let text = match any.need_text("type")? {
        "input_text" => any.only(&["type", "text"])?.need_text("text")?,
        "output_text" => any.only(&["type", "text", "annotations", "logprobs"])?.need_text("text")?,
        "refusal" => any.only(&["type", "refusal"])?.need_text("refusal")?,
        other => return Err(ApiError::no_part(any.path("type"), other)),
    };
    Ok(json!({ "type": "text", "text": text }))
}

fn tools(fields: &Fields<'_>) -> Result<Vec<Tool>> {
    let list = fields.list("tools")?.unwrap_or_default();
    list.iter()
        .map(|(path, value)| {
            let any = Fields::any(value, path)?;
            if any.need_text("type")? != "function" {
                let message =
                    "Only tools of type 'function' are supported: this server has no tools of its own.";
                return Err(ApiError::unsupported(any.path("type"), message));
            }
            function_tool(&any.only(&["type", "name", "description", "parameters", "strict"])?, "parameters")
        })
        .collect()
}

fn tool_choice(fields: &Fields<'_>) -> Result<ToolChoice> {
    let Some(value) = fields.get("tool_choice") else { return Ok(ToolChoice::Auto) };
    if value.is_string() {
        return Ok(match fields.word("tool_choice", &["none", "auto", "required"])? {
            Some("none") => ToolChoice::None,
            Some("required") => ToolChoice::Required,
            _ => ToolChoice::Auto,
        });
    }
    let choice = Fields::any(value, "tool_choice")?;
    choice.need("type")?;
    choice.word("type", &["function"])?;
    Ok(ToolChoice::Named(choice.only(&["type", "name"])?.need_text("name")?.to_owned()))
}

fn format(fields: &Fields<'_>) -> Result<Format> {
    let Some(text) = fields.object("text", &["format", "verbosity"])? else { return Ok(Format::Text) };
    text.word("verbosity", &["medium"])?;
    let known = &["type", "name", "description", "schema", "strict"];
    let Some(format) = text.object("format", known)? else { return Ok(Format::Text) };
    format.need("type")?;
    match format.word("type", &["text", "json_object", "json_schema"])? {
        Some("json_schema") => {
            format.notes(&["name", "description"])?;
            format.flag("strict")?;
            let schema = format.need("schema")?.clone();
            Ok(Format::JsonSchema { schema, param: format.path("schema") })
        }
        Some("json_object") => Ok(Format::JsonObject),
        _ => Ok(Format::Text),
    }
}

/// What a response says again of its request, with what was absent filled in.
fn echo(fields: &Fields<'_>, ask: &Ask) -> Result<Json> {
    let or = |name: &str, otherwise: Json| fields.get(name).cloned().unwrap_or(otherwise);
    let tools = or("tools", json!([]));
    let mut text = or("text", json!({}));
    if text.get("format").is_none_or(Json::is_null) {
        text["format"] = json!({ "type": "text" });
    }
    Ok(json!({
        "instructions": or("instructions", Json::Null),
        "max_output_tokens": ask.drawing.max_tokens,
        "metadata": or("metadata", json!({})),
        "parallel_tool_calls": ask.parallel,
        "previous_response_id": null,
        "reasoning": { "effort": ask.effort, "summary": null },
        "store": false,
        "temperature": ask.drawing.temperature,
        "text": text,
        "tool_choice": or("tool_choice", json!("auto")),
        "tools": tools,
        "top_p": ask.drawing.top_p,
        "top_logprobs": ask.drawing.logprobs.unwrap_or(0),
        "truncation": "disabled",
        "background": false,
        "service_tier": "default",
        "user": or("user", Json::Null),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(more: Json) -> Result<Request> {
        let mut body = json!({ "model": "m", "input": "x" });
        for (key, value) in more.as_object().unwrap() {
            body[key] = value.clone();
        }
        Request::read(&body)
    }

    #[test]
    fn what_needs_a_store_is_refused() {
        for (more, param) in [
            (json!({ "previous_response_id": "resp_1" }), "previous_response_id"),
            (json!({ "background": true }), "background"),
            (json!({ "truncation": "auto" }), "truncation"),
            (json!({ "tools": [{ "type": "web_search" }] }), "tools[0].type"),
            (json!({ "include": ["x"] }), "include[0]"),
            (json!({ "input": [] }), "input"),
            (json!({ "input": [{ "type": "item_reference", "id": "a" }] }), "input[0].type"),
            (
                json!({ "input": [{ "role": "user", "content": [{ "type": "input_image" }] }] }),
                "input[0].content[0].type",
            ),
            (json!({ "messages": [] }), "messages"),
            (json!({ "text": { "format": { "type": "json_schema" } } }), "text.format.schema"),
        ] {
            assert_eq!(read(more.clone()).unwrap_err().param.as_deref(), Some(param), "{more}");
        }
    }

    #[test]
    fn items_of_one_answer_are_one_message() {
        let request = read(json!({ "instructions": "be", "input": [
            { "role": "user", "content": "u" },
            { "type": "reasoning", "id": "r", "summary": [], "content": [{ "type": "reasoning_text", "text": "hm" }] },
            { "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "a", "annotations": [] }] },
            { "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}" },
            { "type": "function_call_output", "call_id": "c", "output": "1" },
        ] }));
        let messages = request.unwrap().ask.messages;
        assert_eq!(messages.len(), 4);
        assert_eq!(messages[2]["reasoning_content"], "hm");
        assert_eq!(messages[2]["content"][0]["text"], "a");
        assert_eq!(messages[2]["tool_calls"][0]["id"], "c");
        assert_eq!(messages[3]["role"], "tool");
    }
}
