//! Messages, tools and formats as OpenAI's clients write them, brought into HuggingFace's form.

use serde_json::{Map, Value as Json, json};

use crate::ask::{Format, Tool, ToolChoice, check_tool_name};
use crate::error::ApiError;
use crate::fields::{Fields, items, wrong};

type Result<T> = std::result::Result<T, ApiError>;

/// All messages of a conversation.
pub(crate) fn messages(fields: &Fields<'_>) -> Result<Vec<Json>> {
    let path = fields.path("messages");
    let list = items(fields.need("messages")?, &path)?;
    if list.is_empty() {
        return Err(ApiError::value(path, "'messages' is empty; at least one message is needed."));
    }
    let mut known_calls = Vec::new();
    list.iter().map(|(path, value)| message(value, path, &mut known_calls)).collect()
}

/// One message. `known_calls` are the ids of calls that tools may answer.
fn message(value: &Json, path: &str, known_calls: &mut Vec<String>) -> Result<Json> {
    let any = Fields::any(value, path)?;
    let role = any.need_text("role")?;
    match role {
        "system" | "developer" | "user" => {
            let fields = any.only(&["role", "content", "name"])?;
            // Templates know instructions as those of the system.
            let role = if role == "user" { "user" } else { "system" };
            named(&fields, json!({ "role": role, "content": content(&fields, true)? }))
        }
        "assistant" => assistant(any, known_calls),
        "tool" => {
            let fields = any.only(&["role", "content", "tool_call_id", "name"])?;
            let id = fields.need_text("tool_call_id")?;
            if !known_calls.iter().any(|known| known == id) {
                let message = "No earlier message of the assistant has a tool call with this id.";
                return Err(ApiError::value(fields.path("tool_call_id"), message));
            }
            let content = content(&fields, true)?;
            named(&fields, json!({ "role": "tool", "tool_call_id": id, "content": content }))
        }
        _ => {
            let role: String = role.chars().take(100).collect();
            let message = format!(
                "The role '{role}' is not known; accepted: system, developer, user, assistant, tool."
            );
            Err(ApiError::value(any.path("role"), message))
        }
    }
}

fn named(fields: &Fields<'_>, mut message: Json) -> Result<Json> {
    if let Some(name) = fields.text("name")? {
        message["name"] = json!(name);
    }
    Ok(message)
}

/// A turn of the model, also as the model's own answer is handed back.
fn assistant(fields: Fields<'_>, known_calls: &mut Vec<String>) -> Result<Json> {
    let fields = fields.only(&[
        "role",
        "content",
        "name",
        "tool_calls",
        "refusal",
        "annotations",
        "audio",
        "function_call",
        "reasoning_content",
        "reasoning",
    ])?;
    fields.without(&[
        ("audio", "this server neither hears nor speaks"),
        ("function_call", "it is deprecated, use 'tool_calls'"),
        ("annotations", "sources are not shown to the model"),
    ])?;
    let mut message = json!({ "role": "assistant" });
    let refusal = fields.text("refusal")?;
    let text = content(&fields, false)?;
    message["content"] = if text.is_null() { refusal.map_or(Json::Null, |r| json!(r)) } else { text };
    for name in ["reasoning_content", "reasoning"] {
        if let Some(text) = fields.text(name)? {
            message["reasoning_content"] = json!(text);
        }
    }
    let calls = fields.list("tool_calls")?.unwrap_or_default();
    if !calls.is_empty() {
        let calls: Vec<Json> =
            calls.iter().map(|(path, call)| tool_call(call, path, known_calls)).collect::<Result<_>>()?;
        message["tool_calls"] = Json::Array(calls);
    } else if message["content"].is_null() {
        message["content"] = json!("");
    }
    named(&fields, message)
}

fn tool_call(value: &Json, path: &str, known_calls: &mut Vec<String>) -> Result<Json> {
    let fields = Fields::of(value, path, &["id", "type", "function", "index"])?;
    fields.integer("index", 0..=i64::MAX)?;
    fields.word("type", &["function"])?;
    let id = fields.need_text("id")?;
    let function = Fields::of(fields.need("function")?, &fields.path("function"), &["name", "arguments"])?;
    let name = function.need_text("name")?;
    let arguments = function.need_text("arguments")?;
    if !arguments.trim().is_empty() && serde_json::from_str::<Map<String, Json>>(arguments).is_err() {
        let message = "The arguments of a call are a JSON object, written as a string.";
        return Err(ApiError::value(function.path("arguments"), message));
    }
    known_calls.push(id.to_owned());
    Ok(json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } }))
}

/// Text, or a list of texts. Null if it is absent and need not be there.
fn content(fields: &Fields<'_>, needed: bool) -> Result<Json> {
    let value = match fields.get("content") {
        Some(value) => value,
        None if needed => return Err(ApiError::missing(fields.path("content"))),
        None => return Ok(Json::Null),
    };
    let path = fields.path("content");
    match value {
        Json::String(_) => Ok(value.clone()),
        Json::Array(_) => items(value, &path)?.iter().map(|(path, part)| content_part(part, path)).collect(),
        _ => Err(wrong(&path, "a string or a list of parts", value)),
    }
}

fn content_part(value: &Json, path: &str) -> Result<Json> {
    let any = Fields::any(value, path)?;
    let text = match any.need_text("type")? {
        "text" => any.only(&["type", "text"])?.need_text("text")?,
        "refusal" => any.only(&["type", "refusal"])?.need_text("refusal")?,
        other => return Err(ApiError::no_part(any.path("type"), other)),
    };
    Ok(json!({ "type": "text", "text": text }))
}

/// The tools of a request to the chat route.
pub(crate) fn tools(fields: &Fields<'_>) -> Result<Vec<Tool>> {
    let list = fields.list("tools")?.unwrap_or_default();
    list.iter()
        .map(|(path, value)| {
            let any = Fields::any(value, path)?;
            let kind = any.need_text("type")?;
            if kind != "function" {
                let message = "Only tools of type 'function' are supported.";
                return Err(ApiError::unsupported(any.path("type"), message));
            }
            let tool = any.only(&["type", "function"])?;
            let known = &["name", "description", "parameters", "strict"];
            let function = Fields::of(tool.need("function")?, &tool.path("function"), known)?;
            function_tool(&function, "parameters")
        })
        .collect()
}

/// A function by its description; `schema` is the field of its arguments.
pub(crate) fn function_tool(function: &Fields<'_>, schema: &str) -> Result<Tool> {
    let name = function.need_text("name")?;
    check_tool_name(name, function.path("name"))?;
    let description = function.text("description")?.unwrap_or_default();
    function.flag("strict")?;
    let param = function.path(schema);
    let empty = || json!({ "type": "object", "properties": {} });
    let parameters = match function.get(schema) {
        None => empty(),
        Some(Json::Object(map)) if map.is_empty() => empty(),
        Some(object @ Json::Object(_)) => object.clone(),
        Some(other) => return Err(wrong(&param, "an object: a JSON schema", other)),
    };
    let description = json!({ "name": name, "description": description, "parameters": parameters });
    let json = json!({ "type": "function", "function": description });
    Ok(Tool { name: name.to_owned(), json, parameters, param })
}

/// `tool_choice` of the chat route.
pub(crate) fn tool_choice(fields: &Fields<'_>) -> Result<ToolChoice> {
    let Some(value) = fields.get("tool_choice") else { return Ok(ToolChoice::Auto) };
    if value.is_string() {
        return Ok(match fields.word("tool_choice", &["none", "auto", "required"])? {
            Some("none") => ToolChoice::None,
            Some("required") => ToolChoice::Required,
            _ => ToolChoice::Auto,
        });
    }
    let choice = Fields::any(value, &fields.path("tool_choice"))?;
    choice.word("type", &["function"])?;
    let choice = choice.only(&["type", "function"])?;
    let function = Fields::of(choice.need("function")?, &choice.path("function"), &["name"])?;
    Ok(ToolChoice::Named(function.need_text("name")?.to_owned()))
}

/// `response_format` of the chat route. The schema may lie in either of the places that clients put it.
pub(crate) fn response_format(fields: &Fields<'_>) -> Result<Format> {
    let Some(value) = fields.get("response_format") else { return Ok(Format::Text) };
    let format = Fields::of(value, &fields.path("response_format"), &["type", "json_schema", "schema"])?;
    format.need("type")?;
    let kind = format.word("type", &["text", "json_object", "json_schema"])?.unwrap_or_default();
    let schema = |at: &Fields<'_>| -> Result<Format> {
        let (value, param) = (at.need("schema")?, at.path("schema"));
        match value {
            Json::Object(_) | Json::Bool(_) => Ok(Format::JsonSchema { schema: value.clone(), param }),
            other => Err(wrong(&param, "a JSON schema", other)),
        }
    };
    let inner = format.object("json_schema", &["name", "description", "schema", "strict"])?;
    match (kind, &inner) {
        ("json_schema", Some(inner)) => {
            inner.notes(&["name", "description"])?;
            inner.flag("strict")?;
            schema(inner)
        }
        ("json_schema", None) if format.get("schema").is_none() => {
            Err(ApiError::missing(format.path("json_schema")))
        }
        ("text", _) => match format.get("schema").is_some() || inner.is_some() {
            true => Err(ApiError::value(format.path("type"), "A schema needs the type 'json_schema'.")),
            false => Ok(Format::Text),
        },
        (_, Some(_)) => Err(ApiError::value(format.path("type"), "A schema needs the type 'json_schema'.")),
        _ if format.get("schema").is_some() => schema(&format),
        _ => Ok(Format::JsonObject),
    }
}

/// `structured_outputs`, as other servers name what goes beyond JSON.
pub(crate) fn structured_outputs(fields: &Fields<'_>, given: Format) -> Result<Format> {
    let Some(outputs) = fields.object("structured_outputs", &["json", "regex", "choice", "grammar"])? else {
        return Ok(given);
    };
    let mut found = Vec::new();
    if let Some(schema) = outputs.get("json") {
        found.push(Format::JsonSchema { schema: schema.clone(), param: outputs.path("json") });
    }
    found.extend(outputs.text("regex")?.map(|r| Format::Regex(r.to_owned())));
    let choice = outputs.texts("choice", 1000)?;
    if !choice.is_empty() {
        found.push(Format::Choice(choice));
    }
    found.extend(outputs.text("grammar")?.map(|g| Format::Grammar(g.to_owned())));
    match (found.pop(), found.is_empty(), given) {
        (Some(format), true, Format::Text) => Ok(format),
        _ => {
            let message = "Exactly one of 'json', 'regex', 'choice' and 'grammar' must be given, and no 'response_format'.";
            Err(ApiError::value(fields.path("structured_outputs"), message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(list: Json) -> Result<Vec<Json>> {
        let body = json!({ "messages": list });
        messages(&Fields::body(&body, &["messages"])?)
    }

    fn param(list: Json) -> String {
        read(list).unwrap_err().param.unwrap()
    }

    #[test]
    fn every_refusal_names_its_place() {
        let user = json!({ "role": "user", "content": "x" });
        for (list, expected) in [
            (json!([]), "messages"),
            (json!([{}]), "messages[0].role"),
            (json!([{ "role": "boss", "content": "x" }]), "messages[0].role"),
            (json!([{ "role": "user" }]), "messages[0].content"),
            (json!([user, { "role": "user", "content": 7 }]), "messages[1].content"),
            (json!([{ "role": "user", "content": "x", "extra": 1 }]), "messages[0].extra"),
            (
                json!([{ "role": "user", "content": [{ "type": "image_url" }] }]),
                "messages[0].content[0].type",
            ),
            (json!([{ "role": "tool", "content": "x", "tool_call_id": "c" }]), "messages[0].tool_call_id"),
            (
                json!([{ "role": "assistant", "tool_calls": [{ "id": "c", "function": { "name": "f", "arguments": "{" } }] }]),
                "messages[0].tool_calls[0].function.arguments",
            ),
        ] {
            assert_eq!(param(list.clone()), expected, "{list}");
        }
    }

    #[test]
    fn content_that_is_null_absent_or_empty_is_the_same_beside_calls() {
        let calls =
            json!([{ "id": "c", "type": "function", "function": { "name": "f", "arguments": "{}" } }]);
        let tool = json!({ "role": "tool", "tool_call_id": "c", "content": "1" });
        let turn = |m: Json| read(json!([m, tool])).unwrap().len();
        assert_eq!(turn(json!({ "role": "assistant", "tool_calls": calls })), 2);
        assert_eq!(turn(json!({ "role": "assistant", "content": null, "tool_calls": calls })), 2);
        assert_eq!(
            turn(json!({ "role": "assistant", "content": "", "tool_calls": calls, "refusal": null })),
            2
        );
    }

    #[test]
    fn formats_are_found_in_both_places_or_refused() {
        let read = |format: Json| {
            let body = json!({ "response_format": format });
            response_format(&Fields::body(&body, &["response_format"]).unwrap())
        };
        let schema = json!({ "type": "object" });
        let found = |f: Json| matches!(read(f).unwrap(), Format::JsonSchema { .. });
        assert!(found(json!({ "type": "json_schema", "json_schema": { "name": "a", "schema": schema } })));
        assert!(found(json!({ "type": "json_schema", "schema": schema })));
        assert!(found(json!({ "type": "json_object", "schema": schema })));
        assert_eq!(read(json!({ "type": "json_object" })).unwrap(), Format::JsonObject);
        assert_eq!(read(json!({ "type": "text" })).unwrap(), Format::Text);
        let param = |f: Json| read(f).unwrap_err().param.unwrap();
        assert_eq!(param(json!({ "type": "json_schema" })), "response_format.json_schema");
        assert_eq!(
            param(json!({ "type": "json_schema", "json_schema": {} })),
            "response_format.json_schema.schema"
        );
        assert_eq!(param(json!({ "type": "xml" })), "response_format.type");
        assert_eq!(param(json!({ "type": "text", "schema": schema })), "response_format.type");
    }
}
