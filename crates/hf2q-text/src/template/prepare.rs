//! Messages as clients send them, brought into the form that a template expects.

use std::collections::HashMap;

use serde_json::{Map, Value as Json, json};

use super::{ChatRequest, ChatTemplate};

/// What a template can read, found by trying.
#[derive(Clone, Copy, Debug)]
pub(super) struct Habits {
    /// Shows a content that is a list of parts.
    parts: bool,
    /// Shows a content that is text.
    text: bool,
    /// How a message with tool calls must look for the calls to be shown.
    calls: Calls,
}

/// A form of messages with tool calls.
#[derive(Clone, Copy, Debug)]
struct Calls {
    /// The content is `""`; else there is none.
    empty_content: bool,
    /// Arguments are an object; else its JSON text.
    objects: bool,
}

/// Forms to try, the usual one first.
const FORMS: [Calls; 4] = [
    Calls { empty_content: true, objects: true },
    Calls { empty_content: false, objects: true },
    Calls { empty_content: true, objects: false },
    Calls { empty_content: false, objects: false },
];

/// A text that no template contains.
const PROBE: &str = "qzprobeqz";

impl ChatTemplate {
    /// Brings messages of the OpenAI form into the form that this template expects:
    ///
    /// * content as one text where the template reads no lists of parts, and the other way round;
    /// * content that is absent or null as `""`; beside tool calls absent if the template shows them only then;
    /// * the name of the function in a tool's result, found by the call's id where the client leaves it out;
    /// * arguments of tool calls, which clients send as JSON text, as the object that they spell, unless the template
    ///   wants the text.
    ///
    /// Anything else stays as it is.
    pub fn prepare(&self, messages: &[Json]) -> Vec<Json> {
        let habits = *self.habits.get_or_init(|| self.probe());
        let mut names: HashMap<&str, &Json> = HashMap::new();
        let prepared = messages.iter().map(|message| {
            for call in message.get("tool_calls").and_then(Json::as_array).into_iter().flatten() {
                if let (Some(id), Some(name)) = (call["id"].as_str(), call["function"].get("name")) {
                    names.insert(id, name);
                }
            }
            let mut prepared = prepare(message, habits);
            let id = message.get("tool_call_id").and_then(Json::as_str);
            if let Some(name) = id.and_then(|id| names.get(id))
                && message.get("name").is_none_or(Json::is_null)
            {
                prepared["name"] = (*name).clone();
            }
            prepared
        });
        prepared.collect()
    }

    fn probe(&self) -> Habits {
        let render = |message: Json| {
            let user = json!({ "role": "user", "content": "a" });
            let messages = if message["role"] == "user" { vec![message] } else { vec![user, message] };
            let request = ChatRequest { messages: &messages, ..ChatRequest::default() };
            self.render(&request).unwrap_or_default()
        };
        let parts = render(json!({ "role": "user", "content": [{ "type": "text", "text": PROBE }] }));
        let shows_calls = |form: &Calls| {
            let arguments = if form.objects { json!({ "a": 1 }) } else { json!("{\"a\": 1}") };
            let content = if form.empty_content { json!("") } else { Json::Null };
            let function = json!({ "name": PROBE, "arguments": arguments });
            let calls = json!([{ "id": "000000000", "type": "function", "function": function }]);
            render(json!({ "role": "assistant", "content": content, "tool_calls": calls })).contains(PROBE)
        };
        Habits {
            // A list that is printed as a list is not read.
            parts: parts.contains(PROBE) && !parts.contains("'type'") && !parts.contains("\"type\""),
            text: render(json!({ "role": "user", "content": PROBE })).contains(PROBE),
            calls: FORMS.into_iter().find(shows_calls).unwrap_or(FORMS[0]),
        }
    }
}

/// Leaves out keys whose value is null, and gives reasoning under each name that templates read.
pub(super) fn as_transformers_does(messages: &Json) -> Json {
    let normalize = |message: &Json| {
        let Json::Object(fields) = message else { return message.clone() };
        let given = fields.iter().filter(|(_, value)| !value.is_null());
        let mut fields: Map<String, Json> = given.map(|(k, v)| (k.clone(), v.clone())).collect();
        let reasoning =
            ["reasoning_content", "thinking", "reasoning"].iter().find_map(|n| fields.get(*n)).cloned();
        if let Some(reasoning) = reasoning {
            fields.entry("thinking").or_insert_with(|| reasoning.clone());
            fields.insert("reasoning_content".into(), reasoning);
        }
        Json::Object(fields)
    };
    messages.as_array().map_or_else(|| messages.clone(), |list| list.iter().map(normalize).collect())
}

fn prepare(message: &Json, habits: Habits) -> Json {
    let Json::Object(fields) = message else { return message.clone() };
    let mut fields = fields.clone();
    let has_calls = fields.get("tool_calls").and_then(Json::as_array).is_some_and(|c| !c.is_empty());
    let content = match fields.get("content").unwrap_or(&Json::Null) {
        Json::Null => json!(""),
        Json::Array(parts) if !habits.parts => joined(parts).unwrap_or_else(|| json!(parts)),
        Json::String(text) if habits.parts && !habits.text => json!([{ "type": "text", "text": text }]),
        other => other.clone(),
    };
    if has_calls && !habits.calls.empty_content && content == json!("") {
        fields.shift_remove("content");
    } else {
        fields.insert("content".into(), content);
    }
    if let Some(Json::Array(calls)) = fields.get_mut("tool_calls").filter(|_| habits.calls.objects) {
        calls.iter_mut().for_each(parse_arguments);
    }
    Json::Object(fields)
}

/// Parts of text as one; `None` if there is another kind of part.
fn joined(parts: &[Json]) -> Option<Json> {
    let texts = parts.iter().map(|p| p.get("text").and_then(Json::as_str));
    texts.collect::<Option<String>>().map(Json::String)
}

fn parse_arguments(call: &mut Json) {
    let Some(arguments) = call.get_mut("function").and_then(|f| f.get_mut("arguments")) else { return };
    let Some(text) = arguments.as_str() else { return };
    let text = if text.trim().is_empty() { "{}" } else { text };
    if let Ok(object) = serde_json::from_str::<Map<String, Json>>(text) {
        *arguments = Json::Object(object);
    }
}
