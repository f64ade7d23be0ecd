//! Calls in tags, as Qwen 3 Coder writes them.

use hf2q_text::answer::{ToolSet, is_plain_text};
use serde_json::Value as Json;

use crate::error::GrammarError;
use crate::{lark, schema};

/// From behind the opening marker to the closing one.
pub(super) fn rules(tools: &ToolSet, close: &str) -> Result<String, GrammarError> {
    let mut out = String::new();
    let mut calls = Vec::new();
    for (i, tool) in tools.iter().enumerate() {
        let mut rules = Rules { root: &tool.parameters, prefix: format!("f{i}"), out: &mut out };
        let parts = rules
            .parameters()
            .map_err(|source| GrammarError::Tool { name: tool.name.clone(), source: Box::new(source) })?;
        calls.push(format!("f{i}"));
        let head = lark::literal(&format!("<function={}>\n", tool.name));
        out += &format!("f{i}: {head} {}\n", parts.join(" "));
    }
    let calls = calls.join(" | ");
    Ok(format!("rest: \"\\n\"? call \"</function>\" \"\\n\"? {close}\ncall: {calls}\n{out}"))
}

struct Rules<'a> {
    root: &'a Json,
    prefix: String,
    out: &'a mut String,
}

impl Rules<'_> {
    /// One rule for each parameter, in the order of the schema.
    fn parameters(&mut self) -> Result<Vec<String>, GrammarError> {
        let refused = |keyword: &str, why: &str| GrammarError::Keyword {
            path: "#".into(),
            keyword: keyword.into(),
            why: why.into(),
        };
        let combined = ["allOf", "anyOf", "oneOf", "$ref", "const", "enum", "minProperties"];
        if let Some(keyword) = combined.iter().find(|key| self.root.get(**key).is_some()) {
            return Err(refused(
                keyword,
                "this model writes arguments one by one; they must be in \"properties\"",
            ));
        }
        let empty = serde_json::Map::new();
        let root = self.root;
        let properties = root.get("properties").and_then(Json::as_object).unwrap_or(&empty);
        let required: Vec<&str> = root
            .get("required")
            .and_then(Json::as_array)
            .into_iter()
            .flatten()
            .filter_map(Json::as_str)
            .collect();
        if let Some(name) = required.iter().find(|name| !properties.contains_key(**name)) {
            return Err(refused("required", &format!("{name:?} is not in \"properties\"")));
        }
        let mut parts = Vec::new();
        for (i, (name, schema)) in properties.iter().enumerate() {
            let rule = format!("{}_{i}", self.prefix);
            let value = self.value(&rule, name, schema)?;
            let head = lark::literal(&format!("<parameter={name}>\n"));
            self.out.push_str(&format!("{rule}: {head} {value}\n"));
            parts.push(if required.contains(&name.as_str()) { rule } else { format!("{rule}?") });
        }
        Ok(parts)
    }

    /// A value and what closes it.
    fn value(&mut self, rule: &str, name: &str, schema: &Json) -> Result<String, GrammarError> {
        const END: &str = "\n</parameter>\n";
        let path = format!("#/properties/{name}");
        if name.contains(['>', '\n']) {
            let why = format!("{name:?} cannot be written in this model's calls");
            return Err(GrammarError::Keyword { path: "#".into(), keyword: "properties".into(), why });
        }
        if !is_plain_text(schema) {
            let whole = with_definitions(schema, self.root);
            return Ok(format!("{} {}", schema::inline(&whole)?, lark::literal(END)));
        }
        let texts = schema.get("enum").and_then(Json::as_array).cloned();
        let texts = texts.or_else(|| schema.get("const").map(|c| vec![c.clone()]));
        if let Some(texts) = texts {
            let text = |t: &Json| t.as_str().map_or_else(|| t.to_string(), str::to_owned);
            let texts = texts.iter().map(|t| lark::literal(&format!("{}{END}", text(t))));
            return Ok(format!("({})", texts.collect::<Vec<_>>().join(" | ")));
        }
        if let Some(keyword) =
            ["anyOf", "oneOf", "allOf", "$ref"].into_iter().find(|k| schema.get(*k).is_some())
        {
            let why = "it cannot be enforced beside a text in this model's calls".to_owned();
            return Err(GrammarError::Keyword { path, keyword: keyword.into(), why });
        }
        if let Some(keyword) = ["pattern", "format"].into_iter().find(|k| schema.get(*k).is_some()) {
            let why = "texts are not quoted in this model's calls, so it cannot be enforced".to_owned();
            return Err(GrammarError::Keyword { path, keyword: keyword.into(), why });
        }
        let length = super::gemma::length(schema);
        self.out.push_str(&format!("{rule}_text[lazy]: /(?s:.{length})\\n<\\/parameter>\\n/\n"));
        Ok(format!("{rule}_text"))
    }
}

/// A part of a schema that stands alone.
fn with_definitions(schema: &Json, root: &Json) -> Json {
    let mut schema = schema.clone();
    for key in ["$defs", "definitions"] {
        if let (Json::Object(fields), Some(definitions)) = (&mut schema, root.get(key)) {
            fields.insert(key.into(), definitions.clone());
        }
    }
    schema
}
