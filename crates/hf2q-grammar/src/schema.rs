//! JSON schemas: what can be enforced, and the rest named.

use std::collections::HashSet;

use serde_json::{Map, Value as Json, json};

use crate::error::GrammarError;

/// Deeper schemas are refused: compiling them takes stack.
const MAX_DEPTH: usize = 64;
/// Schemas within a schema.
const MAX_SCHEMAS: usize = 20_000;

/// White space between the parts of an answer: one space, or a line break and indentation. Without a bound a model
/// may never come to an end.
const WHITE_SPACE: &str = r" |\r?\n[ \t]{0,32}";

/// Keywords that are enforced.
const ENFORCED: [&str; 27] = [
    "anyOf",
    "oneOf",
    "allOf",
    "$ref",
    "const",
    "enum",
    "type",
    "items",
    "additionalItems",
    "prefixItems",
    "minItems",
    "maxItems",
    "properties",
    "additionalProperties",
    "patternProperties",
    "required",
    "minProperties",
    "maxProperties",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
];

/// Keywords that restrict a value and cannot be enforced token by token.
const REFUSED: [&str; 17] = [
    "not",
    "if",
    "then",
    "else",
    "contains",
    "minContains",
    "maxContains",
    "uniqueItems",
    "propertyNames",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedItems",
    "unevaluatedProperties",
    "$dynamicRef",
    "$recursiveRef",
    "extends",
];

/// A schema as a part of a Lark grammar.
pub(crate) fn inline(schema: &Json) -> Result<String, GrammarError> {
    check(schema)?;
    let mut schema = match schema {
        Json::Bool(true) => json!({}),
        Json::Bool(false) => {
            return Err(GrammarError::Schema { why: "nothing fits the schema false".into() });
        }
        other => other.clone(),
    };
    strip(&mut schema);
    Ok(inline_checked(schema))
}

/// Takes out keywords that restrict nothing but that llguidance does not know.
pub(crate) fn strip(schema: &mut Json) {
    let Json::Object(fields) = schema else { return };
    fields.retain(|key, value| !has_no_effect(key, value));
    for (key, value) in fields.iter_mut() {
        match (key.as_str(), value) {
            ("properties" | "patternProperties" | "$defs" | "definitions", Json::Object(schemas)) => {
                schemas.values_mut().for_each(strip);
            }
            ("anyOf" | "oneOf" | "allOf" | "prefixItems" | "items", Json::Array(schemas)) => {
                schemas.iter_mut().for_each(strip);
            }
            ("items" | "additionalItems" | "additionalProperties", schema) => strip(schema),
            _ => {}
        }
    }
}

/// As [`inline`], for an object that was checked.
pub(crate) fn inline_checked(mut schema: Json) -> String {
    schema["x-guidance"] = json!({ "whitespace_pattern": WHITE_SPACE });
    format!("%json {schema}")
}

/// Looks for keywords that cannot be enforced, and for what is no schema.
pub(crate) fn check(schema: &Json) -> Result<(), GrammarError> {
    if let Json::Object(fields) = schema
        && fields.get("$schema").is_some_and(|s| !is_known_draft(s))
    {
        let why = "it is none of the drafts 2020-12, 2019-09, 7, 6 and 4".to_owned();
        return Err(refused("#", "$schema", why));
    }
    Checker { root: schema, schemas: 0, seen: HashSet::new() }.schema(schema, "#", 0)
}

fn is_known_draft(schema: &Json) -> bool {
    let known = ["2020-12/schema", "2019-09/schema", "draft-07/schema", "draft-06/schema", "draft-04/schema"];
    let name = schema.as_str().unwrap_or_default().trim_end_matches('#');
    let name = name.strip_prefix("https://").or(name.strip_prefix("http://")).unwrap_or(name);
    let name = name.strip_prefix("json-schema.org/").unwrap_or("");
    known.contains(&name.strip_prefix("draft/").unwrap_or(name))
}

fn refused(path: &str, keyword: &str, why: String) -> GrammarError {
    GrammarError::Keyword { path: path.to_owned(), keyword: keyword.to_owned(), why }
}

struct Checker<'s> {
    root: &'s Json,
    schemas: usize,
    /// References that were followed. What nothing refers to is not looked at.
    seen: HashSet<String>,
}

impl Checker<'_> {
    fn schema(&mut self, schema: &Json, path: &str, depth: usize) -> Result<(), GrammarError> {
        self.schemas += 1;
        if depth > MAX_DEPTH || self.schemas > MAX_SCHEMAS {
            let why =
                format!("it is nested more than {MAX_DEPTH} deep or holds more than {MAX_SCHEMAS} schemas");
            return Err(GrammarError::Schema { why });
        }
        match schema {
            Json::Bool(_) => Ok(()),
            Json::Object(fields) => self.fields(fields, path, depth),
            _ => {
                let why = format!("{path} is no schema: a schema is an object, true or false");
                Err(GrammarError::Schema { why })
            }
        }
    }

    fn fields(&mut self, fields: &Map<String, Json>, path: &str, depth: usize) -> Result<(), GrammarError> {
        for (key, value) in fields {
            keyword(fields, (key, value), path)?;
            if key == "$ref" {
                self.reference(value, path, depth)?;
            }
            for (place, schema) in within(key, value) {
                self.schema(schema, &format!("{path}/{place}"), depth + 1)?;
            }
        }
        Ok(())
    }

    fn reference(&mut self, value: &Json, path: &str, depth: usize) -> Result<(), GrammarError> {
        let target = value.as_str().ok_or_else(|| refused(path, "$ref", "it is no text".into()))?;
        let found = resolve(self.root, target).map_err(|why| refused(path, "$ref", why))?;
        if self.seen.insert(target.to_owned()) {
            self.schema(found, target, depth + 1)?;
        }
        Ok(())
    }
}

/// The schema that a reference points at, or why there is none.
pub(crate) fn resolve<'s>(root: &'s Json, target: &str) -> Result<&'s Json, String> {
    let pointer = target.strip_prefix('#').filter(|p| p.is_empty() || p.starts_with('/'));
    let pointer = pointer.ok_or_else(|| {
        format!("{target:?} points elsewhere; accepted are places in the schema, such as #/$defs/x")
    })?;
    if pointer.contains(['~', '%']) {
        return Err(format!("{target:?} holds an escape"));
    }
    let pointer = if pointer == "/" { "" } else { pointer };
    root.pointer(pointer).ok_or_else(|| format!("there is nothing at {target:?}"))
}

/// Schemas that a keyword holds, with their places.
fn within<'s>(key: &str, value: &'s Json) -> Vec<(String, &'s Json)> {
    let list =
        |items: &'s Vec<Json>| (0..).zip(items).map(|(i, s): (usize, _)| (format!("{key}/{i}"), s)).collect();
    match (key, value) {
        ("properties" | "patternProperties", Json::Object(fields)) => {
            fields.iter().map(|(name, s)| (format!("{key}/{name}"), s)).collect()
        }
        ("anyOf" | "oneOf" | "allOf" | "prefixItems" | "items", Json::Array(items)) => list(items),
        ("items" | "additionalItems" | "additionalProperties", _) => vec![(key.to_owned(), value)],
        _ => Vec::new(),
    }
}

/// Checks one keyword.
fn keyword(fields: &Map<String, Json>, (key, value): (&str, &Json), path: &str) -> Result<(), GrammarError> {
    let fail = |why: &str| Err(refused(path, key, why.to_owned()));
    if REFUSED.contains(&key) && !has_no_effect(key, value) {
        return fail("it cannot be enforced");
    }
    let array_of_schemas = matches!(key, "anyOf" | "oneOf" | "allOf" | "prefixItems");
    if array_of_schemas && value.as_array().is_none_or(Vec::is_empty) {
        return fail("it is no list of schemas");
    }
    match key {
        "properties" | "patternProperties" if !value.is_object() => fail("it is no object of schemas"),
        "enum" if value.as_array().is_none_or(Vec::is_empty) => fail("it is no list of values"),
        "required" if !value.as_array().is_some_and(|l| l.iter().all(Json::is_string)) => {
            fail("it is no list of names")
        }
        "minProperties" if value.as_f64().is_some_and(|n| n > free_names(fields)) => {
            fail("more names are wanted than \"required\" has and one; others cannot be kept apart")
        }
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties"
            if !value.as_f64().is_some_and(|n| n >= 0.0 && n.fract() == 0.0) =>
        {
            fail("it is no count")
        }
        _ => Ok(()),
    }
}

fn has_no_effect(key: &str, value: &Json) -> bool {
    match key {
        "uniqueItems" => value == false,
        "unevaluatedItems" | "unevaluatedProperties" => value == true,
        _ => false,
    }
}

/// How many different names an object has for certain: those it must have, and one more.
fn free_names(fields: &Map<String, Json>) -> f64 {
    let required = fields.get("required").and_then(Json::as_array).map_or(0, Vec::len);
    required as f64 + 1.0
}

/// Whether a keyword is one of JSON schema's that restricts values.
pub(crate) fn restricts(key: &str) -> bool {
    ENFORCED.contains(&key)
}
