//! Tools for models whose chat template knows none: described in words, calls and results as messages.

use serde_json::{Map, Value as Json, json};

use super::ToolSyntax;
use super::gemma::json_string;

/// Rewrites a conversation with tools so that a template without them can show it: the tools become part of the
/// system's message, calls part of the assistant's text, and results messages of the user.
///
/// Messages and tools are in OpenAI's form. Neighbouring messages of the user are joined, since such templates often
/// want user and assistant to take turns.
pub fn tools_as_text(messages: &[Json], tools: &[Json], syntax: ToolSyntax) -> Vec<Json> {
    let mut out: Vec<Json> = Vec::with_capacity(messages.len() + 1);
    if !tools.is_empty() {
        out.push(message("system", description(tools, syntax)));
    }
    for given in messages {
        let role = given["role"].as_str().unwrap_or_default();
        let text = content(given);
        let (role, text) = match role {
            "developer" => ("system", text),
            "assistant" => (role, with_calls(given, text, syntax)),
            "tool" | "function" => ("user", result(messages, given, &text)),
            _ => (role, text),
        };
        let joins = role != "assistant" && out.last().is_some_and(|m| m["role"] == role);
        match out.last_mut().filter(|_| joins) {
            Some(last) => {
                let joined = format!("{}\n\n{text}", last["content"].as_str().unwrap_or_default());
                last["content"] = Json::from(joined);
            }
            None => out.push(other_fields(given, message(role, text))),
        }
    }
    out
}

fn message(role: &str, content: String) -> Json {
    json!({ "role": role, "content": content })
}

/// Fields that this rewriting does not touch, such as the reasoning.
fn other_fields(given: &Json, mut message: Json) -> Json {
    let fields = given.as_object().into_iter().flatten();
    for (key, value) in fields {
        if !matches!(key.as_str(), "role" | "content" | "tool_calls" | "tool_call_id" | "name") {
            message[key] = value.clone();
        }
    }
    message
}

/// The text of a message; parts that are no text are left out.
fn content(message: &Json) -> String {
    match &message["content"] {
        Json::String(text) => text.clone(),
        Json::Array(parts) => {
            let texts: Vec<&str> = parts.iter().filter_map(|p| p["text"].as_str()).collect();
            texts.join("\n")
        }
        _ => String::new(),
    }
}

fn description(tools: &[Json], syntax: ToolSyntax) -> String {
    let functions = tools.iter().map(|t| t.get("function").unwrap_or(t));
    let list: Vec<String> = functions.map(Json::to_string).collect();
    let form = match syntax {
        ToolSyntax::Gemma4 => "<|tool_call>call:NAME{KEY:VALUE,...}<tool_call|>",
        ToolSyntax::Hermes => "<tool_call>\n{\"name\": NAME, \"arguments\": {...}}\n</tool_call>",
        ToolSyntax::Xml => {
            "<tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n</function>\n</tool_call>"
        }
        ToolSyntax::Mistral => "[TOOL_CALLS][{\"name\": NAME, \"arguments\": {...}}]",
        ToolSyntax::Json => "{\"name\": NAME, \"parameters\": {...}}",
    };
    format!(
        "These functions can be called:\n{}\n\nTo call one, answer with nothing but\n{form}\n\
         Answer in words where no function helps.",
        list.join("\n")
    )
}

/// The text of an assistant's message with its calls in the model's notation.
fn with_calls(message: &Json, text: String, syntax: ToolSyntax) -> String {
    let calls = message["tool_calls"].as_array().into_iter().flatten();
    let written = calls.map(|call| {
        let function = &call["function"];
        let name = function["name"].as_str().unwrap_or_default();
        let arguments = match &function["arguments"] {
            Json::String(text) => serde_json::from_str(text).unwrap_or(Json::Null),
            other => other.clone(),
        };
        write_call(name, &arguments, syntax)
    });
    let mut parts: Vec<String> = Some(text).filter(|t| !t.is_empty()).into_iter().collect();
    parts.extend(written);
    parts.join("\n")
}

fn write_call(name: &str, arguments: &Json, syntax: ToolSyntax) -> String {
    let empty = Map::new();
    let fields = arguments.as_object().unwrap_or(&empty);
    let name_text = json_string(name);
    match syntax {
        ToolSyntax::Gemma4 => format!("<|tool_call>call:{name}{}<tool_call|>", gemma_object(fields)),
        ToolSyntax::Hermes => {
            let object = Json::from(fields.clone());
            format!("<tool_call>\n{{\"name\": {name_text}, \"arguments\": {object}}}\n</tool_call>")
        }
        ToolSyntax::Mistral => {
            let object = Json::from(fields.clone());
            format!("[TOOL_CALLS][{{\"name\": {name_text}, \"arguments\": {object}}}]")
        }
        ToolSyntax::Json => {
            format!("{{\"name\": {name_text}, \"parameters\": {}}}", Json::from(fields.clone()))
        }
        ToolSyntax::Xml => {
            let value = |v: &Json| v.as_str().map_or_else(|| v.to_string(), str::to_owned);
            let lines = fields.iter().map(|(k, v)| format!("<parameter={k}>\n{}\n</parameter>\n", value(v)));
            let lines: String = lines.collect();
            format!("<tool_call>\n<function={name}>\n{lines}</function>\n</tool_call>")
        }
    }
}

/// Keys in order, as the templates of Gemma 4 write them.
fn gemma_object(fields: &Map<String, Json>) -> String {
    let mut entries: Vec<_> = fields.iter().collect();
    entries.sort_by_key(|(key, _)| key.to_lowercase());
    let entries: Vec<String> = entries.into_iter().map(|(k, v)| format!("{k}:{}", gemma_value(v))).collect();
    format!("{{{}}}", entries.join(","))
}

fn gemma_value(value: &Json) -> String {
    match value {
        Json::String(text) => format!("<|\"|>{text}<|\"|>"),
        Json::Object(fields) => gemma_object(fields),
        Json::Array(items) => {
            let items: Vec<String> = items.iter().map(gemma_value).collect();
            format!("[{}]", items.join(","))
        }
        other => other.to_string(),
    }
}

/// A tool's result, with the name of the function whose call it answers.
fn result(messages: &[Json], given: &Json, text: &str) -> String {
    let calls = messages.iter().filter_map(|m| m["tool_calls"].as_array()).flatten();
    let mut called = calls.filter(|c| c["id"].is_string() && c["id"] == given["tool_call_id"]);
    let name = called.next_back().map_or(&given["name"], |c| &c["function"]["name"]);
    match name.as_str() {
        Some(name) => format!("Result of {name}:\n{text}"),
        None => format!("Result:\n{text}"),
    }
}
