//! Typed access to a JSON object that remembers which keys were asked for.

use std::cell::RefCell;
use std::collections::HashSet;

use serde_json::{Map, Value};

use super::ignored::is_ignored;
use crate::error::{ArchError, Origin};
use crate::validate::{MAX_LAYERS, MAX_SIZE};

/// An object of `config.json`; `null` counts as absent everywhere.
pub(super) struct Object<'a> {
    map: &'a Map<String, Value>,
    path: String,
    asked: RefCell<HashSet<String>>,
}

impl<'a> Object<'a> {
    /// `path` leads to the object and ends in a dot; it is empty for the whole file.
    pub(super) fn new(value: &'a Value, path: &str) -> Result<Self, ArchError> {
        let Value::Object(map) = value else {
            let key = if path.is_empty() { "the file" } else { path.trim_end_matches('.') };
            return Err(ArchError::value(Origin::ConfigJson, key, short(value), "an object"));
        };
        Ok(Self { map, path: path.to_owned(), asked: RefCell::default() })
    }

    pub(super) fn object(&self, key: &str) -> Result<Option<Self>, ArchError> {
        let path = format!("{}{key}.", self.path);
        self.get(key).map(|value| Object::new(value, &path)).transpose()
    }

    /// The objects inside this one, by key.
    pub(super) fn objects(&self) -> Result<Vec<(&'a str, Self)>, ArchError> {
        let keys = self.map.keys().map(String::as_str);
        keys.filter_map(|key| self.object(key).map(|o| o.map(|o| (key, o))).transpose()).collect()
    }

    /// A size from 0 on, bounded so that arithmetic on sizes cannot overflow.
    pub(super) fn size(&self, key: &str) -> Result<Option<usize>, ArchError> {
        let fits = |v: &Value| {
            let whole =
                v.as_u64().or_else(|| v.as_f64().filter(|x| x.fract() == 0.0 && *x >= 0.0).map(|x| x as u64));
            whole.and_then(|n| usize::try_from(n).ok()).filter(|n| *n <= MAX_SIZE)
        };
        self.typed(key, fits, || format!("a whole number up to {MAX_SIZE}"))
    }

    pub(super) fn required_size(&self, key: &str) -> Result<usize, ArchError> {
        self.required(key, self.size(key)?)
    }

    pub(super) fn required_layers(&self, key: &str) -> Result<usize, ArchError> {
        match self.required_size(key)? {
            layers if layers > MAX_LAYERS => Err(self.error(key, layers, format!("at most {MAX_LAYERS}"))),
            layers => Ok(layers),
        }
    }

    pub(super) fn number(&self, key: &str) -> Result<Option<f32>, ArchError> {
        self.typed(key, |v| v.as_f64().map(|x| x as f32), || "a number".to_owned())
    }

    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, ArchError> {
        self.typed(key, Value::as_bool, || "true or false".to_owned())
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>, ArchError> {
        self.typed(key, Value::as_str, || "a string".to_owned())
    }

    /// A list of strings, empty where there is none.
    pub(super) fn texts(&self, key: &str) -> Result<Vec<&'a str>, ArchError> {
        let list = |v: &'a Value| v.as_array()?.iter().map(Value::as_str).collect::<Option<Vec<_>>>();
        Ok(self.typed(key, list, || "a list of strings".to_owned())?.unwrap_or_default())
    }

    /// A list of sizes.
    pub(super) fn sizes(&self, key: &str) -> Result<Option<Vec<usize>>, ArchError> {
        let size = |v: &Value| v.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| *n <= MAX_SIZE);
        let list = |v: &Value| v.as_array()?.iter().map(size).collect::<Option<Vec<_>>>();
        self.typed(key, list, || format!("a list of whole numbers up to {MAX_SIZE}"))
    }

    /// For each layer whether it has a window.
    pub(super) fn layer_types(&self, layers: usize) -> Result<Option<Vec<bool>>, ArchError> {
        const KEY: &str = "layer_types";
        let windowed = |v: &Value| match v.as_str() {
            Some("sliding_attention") => Some(true),
            Some("full_attention") => Some(false),
            _ => None,
        };
        let list = |v: &Value| v.as_array()?.iter().map(windowed).collect::<Option<Vec<bool>>>();
        let right_length = |v: &Value| list(v).filter(|l| l.len() == layers);
        self.typed(KEY, right_length, || {
            format!("sliding_attention or full_attention for each of the {layers} layers")
        })
    }

    pub(super) fn required<T>(&self, key: &str, value: Option<T>) -> Result<T, ArchError> {
        let key = || format!("{}{key}", self.path);
        value.ok_or_else(|| ArchError::Missing { origin: Origin::ConfigJson, key: key() })
    }

    /// The value must be absent or `accepted`.
    pub(super) fn refuse_text_unless(&self, key: &str, accepted: &str) -> Result<(), ArchError> {
        match self.text(key)? {
            Some(found) if found != accepted => Err(self.error(key, found, accepted)),
            _ => Ok(()),
        }
    }

    /// The value must be absent or false.
    pub(super) fn refuse_flag(&self, key: &str) -> Result<(), ArchError> {
        if self.flag(key)? == Some(true) { Err(self.error(key, true, "false")) } else { Ok(()) }
    }

    /// The value must be absent, or the number `accepted`.
    pub(super) fn refuse_number_unless(&self, key: &str, accepted: f32) -> Result<(), ArchError> {
        match self.number(key)? {
            Some(found) if found != accepted => Err(self.error(key, found, accepted.to_string())),
            _ => Ok(()),
        }
    }

    /// The value must be absent or say nothing (`null`, `false`, 0, empty).
    pub(super) fn refuse_unless_empty(&self, key: &str) -> Result<(), ArchError> {
        match self.get(key) {
            Some(found) if !says_nothing(found) => Err(self.error(key, short(found), "absent")),
            _ => Ok(()),
        }
    }

    /// Keys that were never asked for, say something and are not known to be harmless, each with its value.
    pub(super) fn unknown(&self) -> Vec<(String, String)> {
        let asked = self.asked.borrow();
        let unknown = |(key, value): &(&String, &Value)| {
            !asked.contains(*key) && !says_nothing(value) && !is_ignored(key)
        };
        self.map.iter().filter(unknown).map(|(k, v)| (format!("{}{k}", self.path), short(v))).collect()
    }

    /// Refuses the first of [`Object::unknown`].
    pub(super) fn refuse_unknown(&self) -> Result<(), ArchError> {
        match self.unknown().into_iter().next() {
            Some((key, found)) => Err(ArchError::value(Origin::ConfigJson, key, found, "absent")),
            None => Ok(()),
        }
    }

    pub(super) fn error(&self, key: &str, found: impl ToString, accepted: impl Into<String>) -> ArchError {
        ArchError::value(Origin::ConfigJson, format!("{}{key}", self.path), found, accepted)
    }

    /// Whether the key is there, be it with the value `null`.
    pub(super) fn names(&self, key: &str) -> bool {
        self.map.contains_key(key)
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.asked.borrow_mut().insert(key.to_owned());
        self.map.get(key).filter(|v| !v.is_null())
    }

    fn typed<T>(
        &self,
        key: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
        accepted: impl FnOnce() -> String,
    ) -> Result<Option<T>, ArchError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| self.error(key, short(value), accepted()))
    }
}

fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(b) => !b,
        Value::Number(n) => n.as_f64() == Some(0.0),
        Value::String(s) => s.is_empty(),
        Value::Array(a) => a.is_empty(),
        Value::Object(o) => o.is_empty(),
    }
}

/// A value for a message, cut where it is long.
fn short(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 60 { text } else { text.chars().take(60).chain("…".chars()).collect() }
}
