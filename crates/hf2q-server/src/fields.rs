//! Reads requests field by field, so that every refusal names its field and no field goes unseen.

use std::ops::RangeInclusive;

use serde_json::{Map, Value as Json};

use crate::error::ApiError;

type Result<T> = std::result::Result<T, ApiError>;

/// One object of a request. A field that is null counts as absent.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'a> {
    map: &'a Map<String, Json>,
    /// `""`, or the object's own path with a dot behind it.
    path: String,
}

impl<'a> Fields<'a> {
    /// The body of a request; `known` are the fields it may have.
    pub(crate) fn body(body: &'a Json, known: &[&str]) -> Result<Self> {
        let Json::Object(map) = body else {
            return Err(ApiError::body(format!("The body must be a JSON object, not {}.", kind(body))));
        };
        Self { map, path: String::new() }.only(known)
    }

    /// An object at `path`.
    pub(crate) fn of(value: &'a Json, path: &str, known: &[&str]) -> Result<Self> {
        Self::any(value, path)?.only(known)
    }

    /// An object at `path` that may have any fields.
    pub(crate) fn any(value: &'a Json, path: &str) -> Result<Self> {
        let Json::Object(map) = value else { return Err(wrong(path, "an object", value)) };
        Ok(Self { map, path: format!("{path}.") })
    }

    /// Refuses fields that are not `known`.
    pub(crate) fn only(self, known: &[&str]) -> Result<Self> {
        match self.map.keys().find(|k| !known.contains(&k.as_str())) {
            Some(unknown) => {
                let unknown: String = unknown.chars().take(100).collect();
                Err(ApiError::unknown_field(self.path(&unknown)))
            }
            None => Ok(self),
        }
    }

    /// The path of a field.
    pub(crate) fn path(&self, name: &str) -> String {
        format!("{}{name}", self.path)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&'a Json> {
        self.map.get(name).filter(|v| !v.is_null())
    }

    pub(crate) fn need(&self, name: &str) -> Result<&'a Json> {
        self.get(name).ok_or_else(|| ApiError::missing(self.path(name)))
    }

    pub(crate) fn flag(&self, name: &str) -> Result<Option<bool>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| wrong(&self.path(name), "true or false", value))
    }

    pub(crate) fn text(&self, name: &str) -> Result<Option<&'a str>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| wrong(&self.path(name), "a string", value))
    }

    pub(crate) fn need_text(&self, name: &str) -> Result<&'a str> {
        self.need(name)?;
        self.text(name).map(Option::unwrap_or_default)
    }

    pub(crate) fn integer(&self, name: &str, accepted: RangeInclusive<i64>) -> Result<Option<i64>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let whole = |n: f64| (n.fract() == 0.0 && n.abs() < 9e15).then_some(n as i64);
        let found = value.as_i64().or_else(|| value.as_f64().and_then(whole));
        match found {
            Some(n) if accepted.contains(&n) => Ok(Some(n)),
            Some(n) => {
                let (least, most) = (accepted.start(), accepted.end());
                let range = match *most {
                    i64::MAX => format!("{least} or more"),
                    _ => format!("{least} to {most}"),
                };
                Err(ApiError::value(self.path(name), format!("'{name}' is {n}; accepted: {range}.")))
            }
            None if value.is_u64() => {
                let message = format!("'{name}' is {value}; accepted: up to {}.", accepted.end());
                Err(ApiError::value(self.path(name), message))
            }
            None => Err(wrong(&self.path(name), "an integer", value)),
        }
    }

    /// A count: an integer of at least `least`.
    pub(crate) fn count(&self, name: &str, least: i64) -> Result<Option<usize>> {
        let found = self.integer(name, least..=i64::MAX)?;
        Ok(found.map(|n| usize::try_from(n).unwrap_or(usize::MAX)))
    }

    pub(crate) fn number(&self, name: &str, accepted: RangeInclusive<f64>) -> Result<Option<f32>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let Some(n) = value.as_f64() else { return Err(wrong(&self.path(name), "a number", value)) };
        if !accepted.contains(&n) {
            let (least, most) = (accepted.start(), accepted.end());
            let message = format!("'{name}' is {n}; accepted: {least} to {most}.");
            return Err(ApiError::value(self.path(name), message));
        }
        Ok(Some(n as f32))
    }

    pub(crate) fn object(&self, name: &str, known: &[&str]) -> Result<Option<Fields<'a>>> {
        self.get(name).map(|value| Fields::of(value, &self.path(name), known)).transpose()
    }

    /// Items with their paths.
    pub(crate) fn list(&self, name: &str) -> Result<Option<Vec<(String, &'a Json)>>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        items(value, &self.path(name)).map(Some)
    }

    /// One string or several.
    pub(crate) fn texts(&self, name: &str, most: usize) -> Result<Vec<String>> {
        let Some(value) = self.get(name) else { return Ok(Vec::new()) };
        let one = std::slice::from_ref(value);
        let list = value.as_array().map_or(one, Vec::as_slice);
        if list.len() > most {
            let message = format!("'{name}' has {} strings; accepted: up to {most}.", list.len());
            return Err(ApiError::value(self.path(name), message));
        }
        let text = |v: &Json| match v.as_str() {
            Some("") => Err(ApiError::value(self.path(name), format!("'{name}' holds an empty string."))),
            Some(text) => Ok(text.to_owned()),
            None => Err(wrong(&self.path(name), "a string or a list of strings", v)),
        };
        list.iter().map(text).collect()
    }

    /// One of some words.
    pub(crate) fn word(&self, name: &str, accepted: &[&'static str]) -> Result<Option<&'static str>> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        match accepted.iter().find(|a| **a == text) {
            Some(word) => Ok(Some(word)),
            None => {
                let text: String = text.chars().take(100).collect();
                let message = format!("'{name}' is '{text}'; accepted: {}.", accepted.join(", "));
                Err(ApiError::value(self.path(name), message))
            }
        }
    }

    /// Refuses fields of the API that this server does not have, unless they are null or, where that is the same as
    /// nothing, an empty list.
    pub(crate) fn without(&self, refused: &[(&str, &str)]) -> Result<()> {
        for (name, why) in refused {
            if self.get(name).is_some_and(|v| v.as_array().is_none_or(|a| !a.is_empty())) {
                let message = format!("'{name}' is not supported: {why}.");
                return Err(ApiError::unsupported(self.path(name), message));
            }
        }
        Ok(())
    }

    /// Fields that the API defines as notes of the client, without effect on the answer; their types are still checked.
    pub(crate) fn notes(&self, texts: &[&str]) -> Result<()> {
        texts.iter().try_for_each(|name| self.text(name).map(drop))
    }

    /// `metadata`: up to 16 short strings that the API hands back and does nothing else with.
    pub(crate) fn metadata(&self) -> Result<Json> {
        let Some(value) = self.get("metadata") else { return Ok(Json::Null) };
        let path = self.path("metadata");
        let Json::Object(map) = value else { return Err(wrong(&path, "an object", value)) };
        if map.len() > 16 {
            return Err(ApiError::value(path, "'metadata' has more than 16 entries."));
        }
        match map.iter().find(|(k, v)| k.len() > 64 || v.as_str().is_none_or(|v| v.chars().count() > 512)) {
            Some((key, _)) => {
                let key: String = key.chars().take(64).collect();
                let message =
                    "Keys of 'metadata' have up to 64 bytes, values are strings of up to 512 characters.";
                Err(ApiError::value(format!("{path}.{key}"), message))
            }
            None => Ok(value.clone()),
        }
    }
}

/// The items of a list with their paths.
pub(crate) fn items<'a>(value: &'a Json, path: &str) -> Result<Vec<(String, &'a Json)>> {
    let Json::Array(items) = value else { return Err(wrong(path, "a list", value)) };
    Ok(items.iter().enumerate().map(|(i, item)| (format!("{path}[{i}]"), item)).collect())
}

/// A value of the wrong type.
pub(crate) fn wrong(path: &str, expected: &str, found: &Json) -> ApiError {
    ApiError::value(path, format!("'{path}' must be {expected}, not {}.", kind(found)))
}

fn kind(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "a boolean",
        Json::Number(_) => "a number",
        Json::String(_) => "a string",
        Json::Array(_) => "a list",
        Json::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const KNOWN: &[&str] = &["a", "n", "o", "stop", "metadata"];

    fn param<T: std::fmt::Debug>(result: Result<T>) -> String {
        result.unwrap_err().param.unwrap()
    }

    #[test]
    fn refusals_name_the_field() {
        let body = json!({ "a": 1, "n": 2.5, "o": { "x": 1 }, "stop": ["a", ""] });
        let fields = Fields::body(&body, KNOWN).unwrap();
        assert_eq!(param(fields.text("a")), "a");
        assert_eq!(param(fields.integer("n", 0..=9)), "n");
        assert_eq!(param(fields.integer("a", 2..=9)), "a");
        assert_eq!(param(fields.object("o", &["y"])), "o.x");
        assert_eq!(param(fields.texts("stop", 4)), "stop");
        assert_eq!(param(fields.need("metadata")), "metadata");
        assert_eq!(param(Fields::body(&json!({ "b": 1 }), KNOWN)), "b");
        assert!(Fields::body(&json!([]), KNOWN).is_err());
    }

    #[test]
    fn whole_numbers_may_be_written_with_a_point() {
        let body = json!({ "n": 3.0, "a": null, "o": 1e300 });
        let fields = Fields::body(&body, KNOWN).unwrap();
        assert_eq!(fields.integer("n", 0..=9).unwrap(), Some(3));
        assert_eq!(fields.integer("a", 0..=9).unwrap(), None);
        assert!(fields.integer("o", 0..=i64::MAX).is_err());
    }

    #[test]
    fn metadata_is_small() {
        let check = |m: Json| Fields::body(&json!({ "metadata": m }), KNOWN).unwrap().metadata().is_ok();
        assert!(check(json!({ "k": "v" })));
        assert!(!check(json!({ "k": 1 })));
        assert!(!check(json!({ "k": "v".repeat(513) })));
        assert!(!check(json!("x")));
    }
}
