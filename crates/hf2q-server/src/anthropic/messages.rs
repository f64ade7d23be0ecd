//! `/v1/messages`: requests, brought into HuggingFace's form.

use serde_json::{Value as Json, json};

use crate::ask::{Ask, Drawing, Format, MOST_STOPS, Tool, ToolChoice};
use crate::error::ApiError;
use crate::fields::{Fields, items, wrong};
use crate::openai::chat::effort;
use crate::openai::messages::function_tool;

type Result<T> = std::result::Result<T, ApiError>;

/// All fields of a request. `seed` is this server's own.
pub(crate) const FIELDS: &[&str] = &[
    "model",
    "messages",
    "max_tokens",
    "system",
    "stop_sequences",
    "stream",
    "temperature",
    "top_p",
    "top_k",
    "tools",
    "tool_choice",
    "thinking",
    "metadata",
    "service_tier",
    "output_config",
    "output_format",
    "cache_control",
    "seed",
    "container",
    "mcp_servers",
    "context_management",
    "inference_geo",
];
/// All fields of a request to count tokens.
pub(crate) const COUNT_FIELDS: &[&str] = &[
    "model",
    "messages",
    "system",
    "tools",
    "tool_choice",
    "thinking",
    "output_config",
    "output_format",
    "cache_control",
    "mcp_servers",
    "context_management",
];

const REFUSED: &[(&str, &str)] = &[
    ("container", "this server runs no code"),
    ("mcp_servers", "this server fetches nothing from the network"),
    ("context_management", "conversations are not shortened"),
    ("inference_geo", "this server is where it is"),
];

/// A request.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) model: String,
    pub(crate) ask: Ask,
    pub(crate) stream: bool,
}

impl Request {
    pub(crate) fn read(body: &Json) -> Result<Self> {
        let fields = Fields::body(body, FIELDS)?;
        fields.need("max_tokens")?;
        let mut request = Self::conversation(&fields)?;
        if let Some(metadata) = fields.object("metadata", &["user_id"])? {
            metadata.notes(&["user_id"])?;
        }
        fields.word("service_tier", &["auto", "standard_only"])?;
        let drawing = &mut request.ask.drawing;
        drawing.max_tokens = fields.count("max_tokens", 1)?;
        drawing.temperature = fields.number("temperature", 0.0..=1.0)?;
        drawing.top_p = fields.number("top_p", 0.0..=1.0)?;
        drawing.top_k = fields.integer("top_k", 0..=i64::MAX)?;
        drawing.seed = fields.integer("seed", i64::MIN..=i64::MAX)?.map(i64::cast_unsigned);
        drawing.stops = fields.texts("stop_sequences", MOST_STOPS)?;
        request.stream = fields.flag("stream")?.unwrap_or(false);
        Ok(request)
    }

    /// A request whose tokens are to be counted.
    pub(crate) fn read_count(body: &Json) -> Result<Self> {
        Self::conversation(&Fields::body(body, COUNT_FIELDS)?)
    }

    /// What both kinds of requests have.
    fn conversation(fields: &Fields<'_>) -> Result<Self> {
        fields.without(REFUSED)?;
        cache_control(fields)?;
        let model = fields.need_text("model")?.to_owned();
        let (tool_choice, parallel) = tool_choice(fields)?;
        let (thinking, thinking_budget) = thinking(fields)?;
        let (format, effort) = output(fields)?;
        let ask = Ask {
            messages: messages(fields)?,
            tools: tools(fields)?,
            tool_choice,
            parallel,
            format,
            // Who does not ask for thoughts gets none.
            thinking: Some(thinking || effort.is_some_and(|e| e != "none")),
            thinking_budget,
            effort,
            thinking_param: if thinking { "thinking" } else { "output_config.effort" },
            drawing: Drawing { choices: 1, ..Drawing::default() },
            ..Ask::default()
        };
        Ok(Self { model, ask, stream: false })
    }
}

/// A hint about what will be asked for again. Prefixes are kept here without it.
fn cache_control(fields: &Fields<'_>) -> Result<()> {
    let Some(control) = fields.object("cache_control", &["type", "ttl"])? else { return Ok(()) };
    control.word("type", &["ephemeral"])?;
    control.word("ttl", &["5m", "1h"]).map(drop)
}

fn thinking(fields: &Fields<'_>) -> Result<(bool, Option<usize>)> {
    let Some(thinking) = fields.object("thinking", &["type", "budget_tokens", "display"])? else {
        return Ok((false, None));
    };
    thinking.need("type")?;
    thinking.word("display", &["summarized"])?;
    let kind = thinking.word("type", &["enabled", "disabled", "adaptive"])?;
    let budget = thinking.count("budget_tokens", 1)?;
    match kind {
        Some("enabled") if budget.is_none() => Err(ApiError::missing(thinking.path("budget_tokens"))),
        Some("disabled") | Some("adaptive") if budget.is_some() => {
            Err(ApiError::value(thinking.path("budget_tokens"), "A budget needs the type 'enabled'."))
        }
        _ => Ok((kind != Some("disabled"), budget)),
    }
}

/// The schema of the answer and how much thought it deserves.
fn output(fields: &Fields<'_>) -> Result<(Format, Option<&'static str>)> {
    let config = fields.object("output_config", &["format", "effort"])?;
    let level = config.as_ref().map(|c| effort(c, "effort")).transpose()?.flatten();
    let known = &["type", "schema"];
    let inner = config.as_ref().map(|c| c.object("format", known)).transpose()?.flatten();
    let Some(format) = inner.or(fields.object("output_format", known)?) else {
        return Ok((Format::Text, level));
    };
    format.need("type")?;
    format.word("type", &["json_schema"])?;
    let schema = format.need("schema")?.clone();
    Ok((Format::JsonSchema { schema, param: format.path("schema") }, level))
}

fn tools(fields: &Fields<'_>) -> Result<Vec<Tool>> {
    let list = fields.list("tools")?.unwrap_or_default();
    list.iter()
        .map(|(path, value)| {
            let any = Fields::any(value, path)?;
            if !matches!(any.text("type")?, None | Some("custom")) {
                let message =
                    "Only tools of type 'custom' are supported: this server has no tools of its own.";
                return Err(ApiError::unsupported(any.path("type"), message));
            }
            let known = &["type", "name", "description", "input_schema", "cache_control", "strict"];
            let tool = any.only(known)?;
            cache_control(&tool)?;
            tool.need("input_schema")?;
            function_tool(&tool, "input_schema")
        })
        .collect()
}

/// The choice, and whether several calls are welcome.
fn tool_choice(fields: &Fields<'_>) -> Result<(ToolChoice, bool)> {
    let known = &["type", "name", "disable_parallel_tool_use"];
    let Some(choice) = fields.object("tool_choice", known)? else { return Ok((ToolChoice::Auto, true)) };
    choice.need("type")?;
    let parallel = !choice.flag("disable_parallel_tool_use")?.unwrap_or(false);
    let kind = choice.word("type", &["auto", "any", "tool", "none"])?;
    Ok((
        match kind {
            Some("any") => ToolChoice::Required,
            Some("tool") => ToolChoice::Named(choice.need_text("name")?.to_owned()),
            Some("none") => ToolChoice::None,
            _ => ToolChoice::Auto,
        },
        parallel,
    ))
}

fn messages(fields: &Fields<'_>) -> Result<Vec<Json>> {
    let mut turns = Turns { messages: Vec::new(), known_calls: Vec::new() };
    if let Some(system) = fields.get("system") {
        let text = match system {
            Json::String(text) => text.clone(),
            Json::Array(_) => texts(system, "system")?,
            other => return Err(wrong("system", "a string or a list of texts", other)),
        };
        turns.messages.push(json!({ "role": "system", "content": text }));
    }
    let list = items(fields.need("messages")?, "messages")?;
    let Some((_, last)) = list.last() else {
        return Err(ApiError::value("messages", "'messages' is empty; at least one message is needed."));
    };
    if last.get("role").is_some_and(|r| r == "assistant") {
        let message = "The last message must be the user's: answers that were begun are not continued.";
        return Err(ApiError::unsupported(format!("messages[{}].role", list.len() - 1), message));
    }
    for (path, value) in &list {
        let fields = Fields::of(value, path, &["role", "content"])?;
        fields.need("role")?;
        let user = fields.word("role", &["user", "assistant"])? == Some("user");
        let content = fields.need("content")?;
        let path = fields.path("content");
        match (content, user) {
            (Json::String(text), user) => {
                let role = if user { "user" } else { "assistant" };
                turns.messages.push(json!({ "role": role, "content": text }));
            }
            (list, true) => turns.user(&items(list, &path)?)?,
            (list, false) => turns.assistant(&items(list, &path)?)?,
        }
    }
    Ok(turns.messages)
}

/// The texts of a list of blocks, as one.
fn texts(list: &Json, path: &str) -> Result<String> {
    let blocks = items(list, path)?;
    let text = |(path, value): &(String, &Json)| {
        let any = Fields::any(value, path)?;
        if any.need_text("type")? != "text" {
            return Err(ApiError::unsupported(
                any.path("type"),
                "Only blocks of type 'text' are supported here.",
            ));
        }
        text_block(any).map(str::to_owned)
    };
    Ok(blocks.iter().map(text).collect::<Result<Vec<String>>>()?.join("\n"))
}

fn text_block(fields: Fields<'_>) -> Result<&str> {
    let fields = fields.only(&["type", "text", "cache_control", "citations"])?;
    cache_control(&fields)?;
    fields.without(&[("citations", "sources are not shown to the model")])?;
    fields.need_text("text")
}

struct Turns {
    messages: Vec<Json>,
    known_calls: Vec<String>,
}

impl Turns {
    /// Results of tools are messages of their own.
    fn user(&mut self, blocks: &[(String, &Json)]) -> Result<()> {
        let mut parts = Vec::new();
        for (path, value) in blocks {
            let any = Fields::any(value, path)?;
            match any.need_text("type")? {
                "text" => parts.push(json!({ "type": "text", "text": text_block(any)? })),
                "tool_result" => {
                    let result = self.tool_result(any)?;
                    self.messages.push(result);
                }
                other => return Err(unknown_block(&any, other)),
            }
        }
        if !parts.is_empty() {
            self.messages.push(json!({ "role": "user", "content": parts }));
        }
        Ok(())
    }

    fn tool_result(&self, fields: Fields<'_>) -> Result<Json> {
        let fields = fields.only(&["type", "tool_use_id", "content", "is_error", "cache_control"])?;
        cache_control(&fields)?;
        let id = fields.need_text("tool_use_id")?;
        if !self.known_calls.iter().any(|known| known == id) {
            let message = "No earlier block is a 'tool_use' with this id.";
            return Err(ApiError::value(fields.path("tool_use_id"), message));
        }
        let text = match fields.get("content") {
            None => String::new(),
            Some(Json::String(text)) => text.clone(),
            Some(list) => texts(list, &fields.path("content"))?,
        };
        // Templates know no failed results.
        let failed = fields.flag("is_error")?.unwrap_or(false);
        let text = if failed { format!("Error: {text}") } else { text };
        Ok(json!({ "role": "tool", "tool_call_id": id, "content": text }))
    }

    fn assistant(&mut self, blocks: &[(String, &Json)]) -> Result<()> {
        let mut parts = Vec::new();
        let mut calls = Vec::new();
        let mut thought = String::new();
        for (path, value) in blocks {
            let any = Fields::any(value, path)?;
            match any.need_text("type")? {
                "text" => parts.push(json!({ "type": "text", "text": text_block(any)? })),
                "thinking" => {
                    let block = any.only(&["type", "thinking", "signature"])?;
                    block.notes(&["signature"])?;
                    thought.push_str(block.need_text("thinking")?);
                }
                "tool_use" => calls.push(self.tool_use(any)?),
                other => return Err(unknown_block(&any, other)),
            }
        }
        let content = if parts.is_empty() { Json::Null } else { Json::Array(parts) };
        let mut message = json!({ "role": "assistant", "content": content });
        if !thought.is_empty() {
            message["reasoning_content"] = json!(thought);
        }
        if !calls.is_empty() {
            message["tool_calls"] = Json::Array(calls);
        }
        self.messages.push(message);
        Ok(())
    }

    fn tool_use(&mut self, fields: Fields<'_>) -> Result<Json> {
        let fields = fields.only(&["type", "id", "name", "input", "cache_control", "caller"])?;
        cache_control(&fields)?;
        fields.without(&[("caller", "this server runs no code")])?;
        let (id, name) = (fields.need_text("id")?, fields.need_text("name")?);
        let input = fields.need("input")?;
        if !input.is_object() {
            return Err(wrong(&fields.path("input"), "an object", input));
        }
        self.known_calls.push(id.to_owned());
        let function = json!({ "name": name, "arguments": input.to_string() });
        Ok(json!({ "id": id, "type": "function", "function": function }))
    }
}

fn unknown_block(fields: &Fields<'_>, kind: &str) -> ApiError {
    let kind: String = kind.chars().take(100).collect();
    let message = format!("Blocks of type '{kind}' are not supported here: this server reads text.");
    ApiError::unsupported(fields.path("type"), message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(more: Json) -> Result<Request> {
        let mut body =
            json!({ "model": "m", "max_tokens": 9, "messages": [{ "role": "user", "content": "x" }] });
        for (key, value) in more.as_object().unwrap() {
            body[key] = value.clone();
        }
        Request::read(&body)
    }

    #[test]
    fn refusals_name_the_field() {
        for (more, param) in [
            (json!({ "max_tokens": null }), "max_tokens"),
            (json!({ "max_tokens": 0 }), "max_tokens"),
            (json!({ "temperature": 1.5 }), "temperature"),
            (json!({ "n": 2 }), "n"),
            (json!({ "mcp_servers": [{}] }), "mcp_servers"),
            (json!({ "thinking": { "type": "enabled" } }), "thinking.budget_tokens"),
            (json!({ "tools": [{ "type": "bash_20250124", "name": "bash" }] }), "tools[0].type"),
            (json!({ "tools": [{ "name": "a b", "input_schema": {} }] }), "tools[0].name"),
            (json!({ "messages": [] }), "messages"),
            (json!({ "messages": [{ "role": "system", "content": "x" }] }), "messages[0].role"),
            (json!({ "messages": [{ "role": "assistant", "content": "x" }] }), "messages[0].role"),
            (
                json!({ "messages": [{ "role": "user", "content": [{ "type": "image" }] }] }),
                "messages[0].content[0].type",
            ),
            (
                json!({ "messages": [{ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "t" }] }] }),
                "messages[0].content[0].tool_use_id",
            ),
        ] {
            assert_eq!(read(more.clone()).unwrap_err().param.as_deref(), Some(param), "{more}");
        }
    }

    #[test]
    fn calls_and_their_results_become_messages() {
        let request = read(
            json!({ "system": [{ "type": "text", "text": "s", "cache_control": { "type": "ephemeral" } }],
            "messages": [
                { "role": "user", "content": "u" },
                { "role": "assistant", "content": [
                    { "type": "thinking", "thinking": "hm", "signature": "" },
                    { "type": "tool_use", "id": "t", "name": "f", "input": { "a": 1 } } ] },
                { "role": "user", "content": [
                    { "type": "tool_result", "tool_use_id": "t", "content": "1", "is_error": true },
                    { "type": "text", "text": "go on" } ] },
            ] }),
        );
        let messages = request.unwrap().ask.messages;
        let roles: Vec<&str> = messages.iter().filter_map(|m| m["role"].as_str()).collect();
        assert_eq!(roles, ["system", "user", "assistant", "tool", "user"]);
        assert_eq!(messages[2]["tool_calls"][0]["function"]["arguments"], "{\"a\":1}");
        assert_eq!(messages[2]["reasoning_content"], "hm");
        assert_eq!(messages[3]["content"], "Error: 1");
    }
}
