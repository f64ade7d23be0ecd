//! Calls in Gemma 4's notation: a schema becomes rules that write it.
//!
//! Keys come in alphabetical order, as the model saw them in training. Where a schema leaves keys free that it does not
//! name, none are written: that is always valid.

use std::collections::HashMap;

use hf2q_text::answer::ToolSet;
use serde_json::{Map, Value as Json};

use crate::error::GrammarError;
use crate::{lark, schema};

/// Markers in Lark.
pub(super) struct Markers {
    pub(super) quote: String,
    pub(super) close: String,
}

/// A text that stands between quote markers, and any value. Keys of any object are words.
fn common(quote: &str) -> String {
    format!(
        "text: {quote} /(?s:.)*/ {quote}\n\
         number: %json {{\"type\": \"number\"}}\n\
         any: text | number | \"true\" | \"false\" | \"null\" | any_object | any_list\n\
         any_object: \"{{\" (any_entry (\",\" any_entry)*)? \"}}\"\n\
         any_entry: /[A-Za-z_][A-Za-z0-9_]{{0,63}}/ \":\" any\n\
         any_list: \"[\" (any (\",\" any)*)? \"]\"\n"
    )
}

/// From behind the opening marker to the closing one.
pub(super) fn rules(tools: &ToolSet, markers: &Markers) -> Result<String, GrammarError> {
    let mut out = common(&markers.quote);
    let mut calls = Vec::new();
    for (i, tool) in tools.iter().enumerate() {
        let mut rules = Rules {
            root: &tool.parameters,
            quote: &markers.quote,
            prefix: format!("f{i}"),
            out: String::new(),
            count: 0,
            references: HashMap::new(),
        };
        let arguments = rules
            .arguments()
            .map_err(|source| GrammarError::Tool { name: tool.name.clone(), source: Box::new(source) })?;
        calls.push(format!("{} {arguments}", lark::literal(&format!("call:{}", tool.name))));
        out += &rules.out;
    }
    Ok(format!("rest: call {}\ncall: {}\n{out}", markers.close, calls.join(" | ")))
}

/// Count of characters of a text, as a repetition; `*` if any.
pub(super) fn length(schema: &Json) -> String {
    let count = |key: &str| schema.get(key).and_then(Json::as_f64).map(|n| n as u64);
    match (count("minLength"), count("maxLength")) {
        (None, None) => "*".into(),
        (least, None) => format!("{{{},}}", least.unwrap_or(0)),
        (least, Some(most)) => format!("{{{},{most}}}", least.unwrap_or(0)),
    }
}

/// Rules of one tool.
struct Rules<'a> {
    root: &'a Json,
    quote: &'a str,
    prefix: String,
    out: String,
    count: usize,
    references: HashMap<String, String>,
}

const MAX_DEPTH: usize = 64;

fn refused(path: &str, keyword: &str, why: &str) -> GrammarError {
    GrammarError::Keyword { path: path.into(), keyword: keyword.into(), why: why.into() }
}

impl Rules<'_> {
    /// What writes all arguments: an object, whatever else the schema would allow.
    fn arguments(&mut self) -> Result<String, GrammarError> {
        let parameters = super::json::closed(self.root);
        let combined = ["$ref", "const", "enum", "anyOf", "oneOf", "allOf"];
        if let Some(key) = combined.into_iter().find(|key| parameters.get(*key).is_some()) {
            return Err(refused("#", key, "arguments are a plain object in this model's calls"));
        }
        match &parameters {
            Json::Object(fields) => self.object(fields, "#", 0),
            _ => self.value(&parameters, "#", 0),
        }
    }

    fn new_name(&mut self) -> String {
        self.count += 1;
        format!("{}_{}", self.prefix, self.count)
    }

    /// Adds a rule and returns its name.
    fn rule(&mut self, body: &str) -> String {
        let name = self.new_name();
        self.out += &format!("{name}: {body}\n");
        name
    }

    /// What writes a value: one name or literal.
    fn value(&mut self, schema: &Json, path: &str, depth: usize) -> Result<String, GrammarError> {
        if depth > MAX_DEPTH {
            return Err(GrammarError::Schema { why: format!("it is nested more than {MAX_DEPTH} deep") });
        }
        let Json::Object(fields) = schema else {
            let nothing = || GrammarError::Schema { why: format!("nothing fits {path}") };
            return if schema == true { Ok("any".into()) } else { Err(nothing()) };
        };
        let combined = ["$ref", "const", "enum", "anyOf", "oneOf", "allOf"];
        let Some(key) = combined.into_iter().find(|key| fields.contains_key(*key)) else {
            return self.plain(fields, path, depth);
        };
        // Beside these, keywords that restrict the value further would have to be joined with them.
        let other = fields.keys().find(|k| k.as_str() != key && k.as_str() != "type" && schema::restricts(k));
        if let Some(other) = other {
            return Err(refused(
                path,
                other,
                &format!("it cannot be enforced beside {key:?} in this model's calls"),
            ));
        }
        self.combined(key, &fields[key], path, depth)
    }

    fn combined(
        &mut self,
        key: &str,
        value: &Json,
        path: &str,
        depth: usize,
    ) -> Result<String, GrammarError> {
        match (key, value) {
            ("$ref", Json::String(target)) => self.reference(target, path, depth),
            ("const", _) => Ok(format!("({})", self.literal(value))),
            ("enum", Json::Array(values)) => {
                let literals: Vec<String> = values.iter().map(|v| self.literal(v)).collect();
                Ok(self.rule(&literals.join(" | ")))
            }
            ("oneOf", Json::Array(options)) if options.len() > 1 => {
                // It holds if the options exclude one another, which the compiler for JSON finds out.
                let names = self.options(options, key, path, depth)?;
                Ok(self.rule(&names.join(" | ")))
            }
            ("allOf", Json::Array(options)) if options.len() > 1 => {
                Err(refused(path, key, "schemas are not joined in this model's calls"))
            }
            ("anyOf" | "oneOf" | "allOf", Json::Array(options)) => {
                let names = self.options(options, key, path, depth)?;
                Ok(self.rule(&names.join(" | ")))
            }
            _ => Err(refused(path, key, "it has another form than it should")),
        }
    }

    fn options(
        &mut self,
        options: &[Json],
        key: &str,
        path: &str,
        depth: usize,
    ) -> Result<Vec<String>, GrammarError> {
        let place = |i: usize| format!("{path}/{key}/{i}");
        options.iter().enumerate().map(|(i, s)| self.value(s, &place(i), depth + 1)).collect()
    }

    fn reference(&mut self, target: &str, path: &str, depth: usize) -> Result<String, GrammarError> {
        if let Some(name) = self.references.get(target) {
            return Ok(name.clone());
        }
        let found = schema::resolve(self.root, target).map_err(|why| refused(path, "$ref", &why))?.clone();
        let name = self.new_name();
        self.references.insert(target.to_owned(), name.clone());
        let value = self.value(&found, target, depth + 1)?;
        self.out += &format!("{name}: {value}\n");
        Ok(name)
    }

    /// A schema without references and combinations.
    fn plain(
        &mut self,
        fields: &Map<String, Json>,
        path: &str,
        depth: usize,
    ) -> Result<String, GrammarError> {
        let types: Vec<&str> = match fields.get("type") {
            Some(Json::String(name)) => vec![name],
            Some(Json::Array(names)) => names.iter().filter_map(Json::as_str).collect(),
            _ if fields.contains_key("properties") => vec!["object"],
            _ if fields.contains_key("items") => vec!["array"],
            _ if fields.keys().any(|k| schema::restricts(k)) => {
                return Err(refused(path, "type", "it is needed in this model's calls"));
            }
            _ => return Ok("any".into()),
        };
        let mut options = Vec::new();
        for name in types {
            options.push(match name {
                "string" => self.text(fields, path)?,
                "null" => "\"null\"".into(),
                "boolean" => "(\"true\" | \"false\")".into(),
                "number" | "integer" => self.number(name, fields)?,
                "array" => self.list(fields, path, depth)?,
                "object" => self.object(fields, path, depth)?,
                other => return Err(refused(path, "type", &format!("{other:?} is no type"))),
            });
        }
        Ok(if options.len() == 1 { options.remove(0) } else { self.rule(&options.join(" | ")) })
    }

    /// A value as it is written.
    fn literal(&self, value: &Json) -> String {
        let quote = self.quote;
        match value {
            Json::String(text) if text.is_empty() => format!("{quote} {quote}"),
            Json::String(text) => format!("{quote} {} {quote}", lark::literal(text)),
            Json::Array(items) => {
                let items: Vec<String> = items.iter().map(|v| self.literal(v)).collect();
                format!("\"[\" {} \"]\"", items.join(" \",\" "))
            }
            Json::Object(fields) => {
                let entry = |(k, v): (&String, &Json)| {
                    format!("{} {}", lark::literal(&format!("{k}:")), self.literal(v))
                };
                let entries: Vec<String> = sorted(fields).into_iter().map(entry).collect();
                format!("\"{{\" {} \"}}\"", entries.join(" \",\" "))
            }
            other => lark::literal(&other.to_string()),
        }
    }

    fn text(&mut self, fields: &Map<String, Json>, path: &str) -> Result<String, GrammarError> {
        let whole = Json::Object(fields.clone());
        let pattern = match (fields.get("pattern"), fields.get("format")) {
            (None, None) => format!("/(?s:.){}/", length(&whole)),
            (Some(Json::String(pattern)), None) if length(&whole) == "*" => {
                let somewhere = search(pattern);
                let pattern =
                    somewhere.ok_or_else(|| refused(path, "pattern", "its anchors are not at its ends"))?;
                lark::regex(&pattern, "dw")
            }
            (None, Some(Json::String(name))) if length(&whole) == "*" => {
                let known =
                    format(name).ok_or_else(|| refused(path, "format", &format!("{name:?} is not known")))?;
                lark::regex(known, "")
            }
            _ => return Err(refused(path, "pattern", "it cannot be joined with a length or a format here")),
        };
        if pattern == "/(?s:.)*/" {
            return Ok("text".into());
        }
        let quote = self.quote.to_owned();
        Ok(self.rule(&format!("{quote} {pattern} {quote}")))
    }

    fn number(&mut self, name: &str, fields: &Map<String, Json>) -> Result<String, GrammarError> {
        let bounds = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"];
        let mut schema = Map::new();
        schema.insert("type".into(), name.into());
        for key in bounds {
            if let Some(value) = fields.get(key) {
                schema.insert(key.into(), value.clone());
            }
        }
        Ok(self.rule(&schema::inline(&Json::Object(schema))?))
    }

    fn list(&mut self, fields: &Map<String, Json>, path: &str, depth: usize) -> Result<String, GrammarError> {
        if let Some(key) = ["prefixItems", "additionalItems"].into_iter().find(|k| fields.contains_key(*k)) {
            return Err(refused(path, key, "it cannot be enforced in this model's calls"));
        }
        let any = Json::Bool(true);
        let item = self.value(fields.get("items").unwrap_or(&any), &format!("{path}/items"), depth + 1)?;
        let count = |key: &str| fields.get(key).and_then(Json::as_f64).map(|n| n as u64);
        let (least, most) = (count("minItems").unwrap_or(0), count("maxItems"));
        let more =
            repeated(&format!("(\",\" {item})"), least.saturating_sub(1), most.map(|m| m.saturating_sub(1)));
        let items = match (least, most) {
            (_, Some(0)) => String::new(),
            (0, _) => format!("({item} {more})?"),
            _ => format!("{item} {more}"),
        };
        Ok(self.rule(&format!("\"[\" {items} \"]\"")))
    }

    fn object(
        &mut self,
        fields: &Map<String, Json>,
        path: &str,
        depth: usize,
    ) -> Result<String, GrammarError> {
        let empty = Map::new();
        let properties = fields.get("properties").and_then(Json::as_object).unwrap_or(&empty);
        let names = fields.get("required").and_then(Json::as_array).into_iter().flatten();
        let required: Vec<&str> = names.filter_map(Json::as_str).collect();
        if let Some(name) = required.iter().find(|name| !properties.contains_key(**name)) {
            return Err(refused(path, "required", &format!("{name:?} is not in \"properties\"")));
        }
        let count = |key: &str| fields.get(key).and_then(Json::as_f64);
        if count("maxProperties").is_some_and(|n| n < properties.len() as f64) {
            return Err(refused(path, "maxProperties", "it is less than there are properties"));
        }
        if properties.is_empty() {
            return self.map(fields, path, depth);
        }
        if count("minProperties").is_some_and(|n| n > required.len() as f64) {
            return Err(refused(path, "minProperties", "it is more than there are required properties"));
        }
        self.members(properties, &required, path, depth)
    }

    /// An object of any keys.
    fn map(&mut self, fields: &Map<String, Json>, path: &str, depth: usize) -> Result<String, GrammarError> {
        let any = Json::Bool(true);
        let schema = fields.get("additionalProperties").unwrap_or(&any);
        if schema == false {
            return Ok(self.rule("\"{\" \"}\""));
        }
        let value = self.value(schema, &format!("{path}/additionalProperties"), depth + 1)?;
        let entry = self.rule(&format!("/[A-Za-z_][A-Za-z0-9_]{{0,63}}/ \":\" {value}"));
        let most = fields.get("maxProperties").and_then(Json::as_f64).map(|n| n as u64);
        let more = match most {
            Some(0) => return Ok(self.rule("\"{\" \"}\"")),
            most => repeated(&format!("(\",\" {entry})"), 0, most.map(|m| m - 1)),
        };
        let at_least_one = fields.get("minProperties").and_then(Json::as_f64).is_some_and(|n| n >= 1.0);
        let mark = if at_least_one { "" } else { "?" };
        Ok(self.rule(&format!("\"{{\" ({entry} {more}){mark} \"}}\"")))
    }

    /// An object of these keys. For each key there are two rules: what may come from it on if a key came before, and
    /// if none did.
    fn members(
        &mut self,
        properties: &Map<String, Json>,
        required: &[&str],
        path: &str,
        depth: usize,
    ) -> Result<String, GrammarError> {
        let (mut after, mut first) = ("\"\"".to_owned(), "\"\"".to_owned());
        for (name, schema) in sorted(properties).into_iter().rev() {
            let value = self.value(schema, &format!("{path}/properties/{name}"), depth + 1)?;
            let is_word = |c: char| c.is_alphanumeric() || "_-.$ ".contains(c);
            if name.is_empty() || !name.chars().all(is_word) {
                return Err(refused(
                    path,
                    "properties",
                    &format!("the name {name:?} cannot be written in this model's calls"),
                ));
            }
            let entry = self.rule(&format!("{} {value}", lark::literal(&format!("{name}:"))));
            if required.contains(&name.as_str()) {
                first = self.rule(&format!("{entry} {after}"));
                after = self.rule(&format!("\",\" {entry} {after}"));
            } else {
                first = self.rule(&format!("{entry} {after} | {first}"));
                after = self.rule(&format!("\",\" {entry} {after} | {after}"));
            }
        }
        Ok(self.rule(&format!("\"{{\" {first} \"}}\"")))
    }
}

/// Something so many times.
fn repeated(what: &str, least: u64, most: Option<u64>) -> String {
    match most {
        Some(0) => String::new(),
        Some(most) => format!("{what}{{{least},{most}}}"),
        None => format!("{what}{{{least},}}"),
    }
}

/// A pattern that may match anywhere in a text, as one that matches all of it. `None` if anchors stand inside.
fn search(pattern: &str) -> Option<String> {
    let (body, start) = pattern.strip_prefix('^').map_or((pattern, "(?s:.*)"), |rest| (rest, ""));
    let escaped = body.ends_with("\\$");
    let (body, end) =
        body.strip_suffix('$').filter(|_| !escaped).map_or((body, "(?s:.*)"), |rest| (rest, ""));
    let mut depth = 0usize;
    let mut chars = body.chars();
    let mut previous = ' ';
    while let Some(c) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            '|' if depth == 0 && (start.is_empty() || end.is_empty()) => return None,
            '^' if previous != '[' => return None,
            '$' => return None,
            _ => {}
        }
        previous = c;
    }
    Some(format!("{start}(?:{body}){end}"))
}

/// Keys as templates sort them: without regard to case.
fn sorted(fields: &Map<String, Json>) -> Vec<(&String, &Json)> {
    let mut entries: Vec<_> = fields.iter().collect();
    entries.sort_by_key(|(key, _)| key.to_lowercase());
    entries
}

/// Formats of texts (RFC 3339, RFC 4122, RFC 791), in the parts that every reader agrees on.
fn format(name: &str) -> Option<&'static str> {
    Some(match name {
        "date" => "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])",
        "time" => {
            "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
        }
        "date-time" => {
            "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
        }
        "uuid" => "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        "email" => {
            "[A-Za-z0-9_+-]+(\\.[A-Za-z0-9_+-]+)*@[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)+"
        }
        "ipv4" => {
            "((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])\\.){3}(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
        }
        _ => return None,
    })
}
