//! Calls that are JSON.

use hf2q_text::answer::{Tool, ToolSet};
use serde_json::{Map, Value as Json, json};

use super::CallGrammar;
use crate::schema::inline_checked;

/// `\n{"name": …, "arguments": …}\n` and the closing marker.
pub(super) fn hermes(tools: &ToolSet, close: &str) -> String {
    format!("rest: \"\\n\"? call \"\\n\"? {close}\ncall: {}\n", call(tools, "arguments"))
}

/// `{"name": …, "parameters": …}`.
pub(super) fn bare(tools: &ToolSet) -> String {
    format!("rest: {}\n", call(tools, "parameters"))
}

/// `[{"name": …, "arguments": …}, …]` behind the opening marker.
pub(super) fn mistral(tools: &ToolSet, open: &str, parallel: bool) -> CallGrammar {
    let more = if parallel { " (\",\" \" \"? call)*" } else { "" };
    let rules = format!("rest: \" \"? \"[\" call{more} \"]\"\ncall: {}\n", call(tools, "arguments"));
    CallGrammar { rest: format!("start: rest\n{rules}"), whole: format!("start: {open} rest\n{rules}") }
}

/// A call of one of the tools.
fn call(tools: &ToolSet, arguments: &str) -> String {
    let mut definitions = Map::new();
    let options: Vec<Json> = (0..)
        .zip(tools.iter())
        .map(|(i, tool): (usize, &Tool)| {
            let name = format!("tool{i}");
            definitions.insert(name.clone(), parameters(tool, &name));
            let properties = json!({ "name": { "const": tool.name }, arguments: { "$ref": format!("#/$defs/{name}") } });
            json!({ "type": "object", "properties": properties, "required": ["name", arguments], "additionalProperties": false })
        })
        .collect();
    inline_checked(json!({ "anyOf": options, "$defs": definitions }))
}

/// A tool's parameters as a definition: its references point into it.
fn parameters(tool: &Tool, name: &str) -> Json {
    let mut schema = closed(&tool.parameters);
    move_references(&mut schema, &format!("#/$defs/{name}"));
    schema
}

/// Arguments that are not declared are left out where the schema does not speak of them: that is always valid.
pub(super) fn closed(schema: &Json) -> Json {
    let mut schema = schema.clone();
    crate::schema::strip(&mut schema);
    let Json::Object(fields) = &mut schema else { return schema };
    fields.shift_remove("$schema");
    fields.shift_remove("$id");
    fields.entry("type").or_insert_with(|| json!("object"));
    let combined = ["allOf", "anyOf", "oneOf", "$ref", "patternProperties", "minProperties", "const", "enum"];
    if !combined.iter().any(|key| fields.contains_key(*key)) && !fields.contains_key("additionalProperties") {
        let names = fields.get("required").and_then(Json::as_array).cloned().unwrap_or_default();
        let declared = fields.get("properties").and_then(Json::as_object);
        let all = names.iter().filter_map(Json::as_str).all(|n| declared.is_some_and(|d| d.contains_key(n)));
        if all {
            fields.insert("additionalProperties".into(), Json::Bool(false));
        }
    }
    schema
}

fn move_references(value: &mut Json, to: &str) {
    match value {
        Json::Array(items) => items.iter_mut().for_each(|v| move_references(v, to)),
        Json::Object(fields) => {
            for (key, value) in fields.iter_mut() {
                match (key.as_str(), &mut *value) {
                    // Values, not schemas.
                    ("const" | "enum" | "default" | "examples", _) => {}
                    ("$ref", Json::String(target)) => {
                        let rest = target.trim_start_matches('#').trim_end_matches('/');
                        *target = format!("{to}{rest}");
                    }
                    _ => move_references(value, to),
                }
            }
        }
        _ => {}
    }
}
