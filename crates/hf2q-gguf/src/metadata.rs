//! Metadata: an ordered map of keys to values with typed access.

use std::collections::HashMap;
use std::fmt;

use crate::error::GgufError;
use crate::value::{Array, Value};

/// The keys and values of a file, in the file's order.
///
/// Integer getters accept every integer type whose value fits, since files mix them. Each typed getter names the
/// key, what it expects and what it found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    entries: Vec<(String, Value)>,
    index: HashMap<String, usize>,
}

impl Metadata {
    /// No keys.
    pub fn new() -> Self {
        Self::default()
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.index.get(key).map(|&i| &self.entries[i].1)
    }

    /// Sets a key. A new key goes to the end; a known one keeps its place and its old value is returned.
    pub fn insert(&mut self, key: impl Into<String>, value: impl Into<Value>) -> Option<Value> {
        let (key, value) = (key.into(), value.into());
        if let Some(&i) = self.index.get(&key) {
            return Some(std::mem::replace(&mut self.entries[i].1, value));
        }
        self.index.insert(key.clone(), self.entries.len());
        self.entries.push((key, value));
        None
    }

    /// Removes a key and returns its value.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        let at = self.index.remove(key)?;
        for place in self.index.values_mut().filter(|place| **place > at) {
            *place -= 1;
        }
        Some(self.entries.remove(at).1)
    }

    /// Keys and values in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// An integer that fits 32 bits, unsigned.
    ///
    /// # Errors
    /// The key is missing, is no integer, or does not fit.
    pub fn u32(&self, key: &str) -> Result<u32, GgufError> {
        required(key, "an integer", self.opt_u32(key))
    }

    /// As [`Metadata::u32`], `None` without the key.
    ///
    /// # Errors
    /// The value is no integer or does not fit.
    pub fn opt_u32(&self, key: &str) -> Result<Option<u32>, GgufError> {
        self.opt_integer(key, "an integer from 0 to 4294967295")
    }

    /// An integer that fits 64 bits, unsigned.
    ///
    /// # Errors
    /// The key is missing, is no integer, or is negative.
    pub fn u64(&self, key: &str) -> Result<u64, GgufError> {
        required(key, "an integer", self.opt_u64(key))
    }

    /// As [`Metadata::u64`], `None` without the key.
    ///
    /// # Errors
    /// The value is no integer or is negative.
    pub fn opt_u64(&self, key: &str) -> Result<Option<u64>, GgufError> {
        self.opt_integer(key, "an integer that is not negative")
    }

    /// An integer that fits 64 bits, signed.
    ///
    /// # Errors
    /// The key is missing, is no integer, or does not fit.
    pub fn i64(&self, key: &str) -> Result<i64, GgufError> {
        required(key, "an integer", self.opt_i64(key))
    }

    /// As [`Metadata::i64`], `None` without the key.
    ///
    /// # Errors
    /// The value is no integer or does not fit.
    pub fn opt_i64(&self, key: &str) -> Result<Option<i64>, GgufError> {
        self.opt_integer(key, "an integer up to 9223372036854775807")
    }

    /// A float; double precision is rounded to single.
    ///
    /// # Errors
    /// The key is missing or is no float.
    pub fn f32(&self, key: &str) -> Result<f32, GgufError> {
        required(key, "a float", self.opt_f32(key))
    }

    /// As [`Metadata::f32`], `None` without the key.
    ///
    /// # Errors
    /// The value is no float.
    pub fn opt_f32(&self, key: &str) -> Result<Option<f32>, GgufError> {
        self.opt(key, "a float", |value| match *value {
            Value::F32(v) => Some(v),
            Value::F64(v) => Some(v as f32),
            _ => None,
        })
    }

    /// A truth value.
    ///
    /// # Errors
    /// The key is missing or is no bool.
    pub fn bool(&self, key: &str) -> Result<bool, GgufError> {
        required(key, "a bool", self.opt_bool(key))
    }

    /// As [`Metadata::bool`], `None` without the key.
    ///
    /// # Errors
    /// The value is no bool.
    pub fn opt_bool(&self, key: &str) -> Result<Option<bool>, GgufError> {
        self.opt(key, "a bool", |value| match *value {
            Value::Bool(v) => Some(v),
            _ => None,
        })
    }

    /// Text.
    ///
    /// # Errors
    /// The key is missing or is no string.
    pub fn str(&self, key: &str) -> Result<&str, GgufError> {
        required(key, "a string", self.opt_str(key))
    }

    /// As [`Metadata::str`], `None` without the key.
    ///
    /// # Errors
    /// The value is no string.
    pub fn opt_str(&self, key: &str) -> Result<Option<&str>, GgufError> {
        self.opt(key, "a string", |value| match value {
            Value::String(v) => Some(v.as_str()),
            _ => None,
        })
    }

    /// An array of strings.
    ///
    /// # Errors
    /// The key is missing or is something else.
    pub fn strings(&self, key: &str) -> Result<&[String], GgufError> {
        required(key, "an array of strings", self.opt_strings(key))
    }

    /// As [`Metadata::strings`], `None` without the key.
    ///
    /// # Errors
    /// The value is something else.
    pub fn opt_strings(&self, key: &str) -> Result<Option<&[String]>, GgufError> {
        self.opt(key, "an array of strings", |value| match value {
            Value::Array(Array::String(v)) => Some(v.as_slice()),
            _ => None,
        })
    }

    /// An array of single-precision floats.
    ///
    /// # Errors
    /// The key is missing or is something else.
    pub fn f32s(&self, key: &str) -> Result<&[f32], GgufError> {
        required(key, "an array of f32", self.opt_f32s(key))
    }

    /// As [`Metadata::f32s`], `None` without the key.
    ///
    /// # Errors
    /// The value is something else.
    pub fn opt_f32s(&self, key: &str) -> Result<Option<&[f32]>, GgufError> {
        self.opt(key, "an array of f32", |value| match value {
            Value::Array(Array::F32(v)) => Some(v.as_slice()),
            _ => None,
        })
    }

    /// An array of truth values.
    ///
    /// # Errors
    /// The key is missing or is something else.
    pub fn bools(&self, key: &str) -> Result<&[bool], GgufError> {
        required(key, "an array of bool", self.opt_bools(key))
    }

    /// As [`Metadata::bools`], `None` without the key.
    ///
    /// # Errors
    /// The value is something else.
    pub fn opt_bools(&self, key: &str) -> Result<Option<&[bool]>, GgufError> {
        self.opt(key, "an array of bool", |value| match value {
            Value::Array(Array::Bool(v)) => Some(v.as_slice()),
            _ => None,
        })
    }

    /// An array of any integer type, each value fitting 32 bits, signed.
    ///
    /// # Errors
    /// The key is missing, is no array of integers, or a value does not fit.
    pub fn i32s(&self, key: &str) -> Result<Vec<i32>, GgufError> {
        required(key, "an array of integers", self.opt_i32s(key))
    }

    /// As [`Metadata::i32s`], `None` without the key.
    ///
    /// # Errors
    /// The value is no array of integers, or one does not fit.
    pub fn opt_i32s(&self, key: &str) -> Result<Option<Vec<i32>>, GgufError> {
        self.opt_integers(key, "integers from -2147483648 to 2147483647")
    }

    /// An array of any integer type, each value fitting 32 bits, unsigned.
    ///
    /// # Errors
    /// The key is missing, is no array of integers, or a value does not fit.
    pub fn u32s(&self, key: &str) -> Result<Vec<u32>, GgufError> {
        required(key, "an array of integers", self.opt_u32s(key))
    }

    /// As [`Metadata::u32s`], `None` without the key.
    ///
    /// # Errors
    /// The value is no array of integers, or one does not fit.
    pub fn opt_u32s(&self, key: &str) -> Result<Option<Vec<u32>>, GgufError> {
        self.opt_integers(key, "integers from 0 to 4294967295")
    }

    /// The value of a key through `read`, which answers `None` for a type it does not take.
    fn opt<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, GgufError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match read(value) {
            Some(read) => Ok(Some(read)),
            None => Err(GgufError::KeyType { key: key.to_owned(), expected, found: value.type_name() }),
        }
    }

    fn opt_integer<T: TryFrom<i128>>(
        &self,
        key: &str,
        expected: &'static str,
    ) -> Result<Option<T>, GgufError> {
        let value = self.opt(key, "an integer", Value::as_integer)?;
        value.map(|v| fit(key, v, expected)).transpose()
    }

    fn opt_integers<T: TryFrom<i128>>(
        &self,
        key: &str,
        expected: &'static str,
    ) -> Result<Option<Vec<T>>, GgufError> {
        let values = self.opt(key, "an array of integers", |value| match value {
            Value::Array(array) => array.as_integers(),
            _ => None,
        })?;
        values.map(|values| values.into_iter().map(|v| fit(key, v, expected)).collect()).transpose()
    }
}

fn required<T>(
    key: &str,
    expected: &'static str,
    value: Result<Option<T>, GgufError>,
) -> Result<T, GgufError> {
    value?.ok_or_else(|| GgufError::MissingKey { key: key.to_owned(), expected })
}

fn fit<T: TryFrom<i128>>(key: &str, found: i128, expected: &'static str) -> Result<T, GgufError> {
    T::try_from(found).map_err(|_| GgufError::KeyRange { key: key.to_owned(), expected, found })
}

impl<K: Into<String>, V: Into<Value>> FromIterator<(K, V)> for Metadata {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut metadata = Self::new();
        for (key, value) in pairs {
            metadata.insert(key, value);
        }
        metadata
    }
}

/// One `key = value` a line.
impl fmt::Display for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|(key, value)| writeln!(f, "{key} = {value}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_every_type_are_read_if_they_fit() {
        let mut m = Metadata::new();
        for value in [Value::U8(7), Value::I8(7), Value::U16(7), Value::I16(7), Value::U32(7), Value::I64(7)]
        {
            m.insert("n", value);
            assert_eq!((m.u32("n").unwrap(), m.u64("n").unwrap(), m.i64("n").unwrap()), (7, 7, 7));
        }
        m.insert("n", Value::I32(-1));
        let text = m.u32("n").unwrap_err().to_string();
        assert!(text.contains("`n`") && text.contains("-1") && text.contains("4294967295"), "{text}");
        m.insert("n", Value::U64(1 << 32));
        assert!(matches!(m.opt_u32("n"), Err(GgufError::KeyRange { .. })));
        assert_eq!(m.u64("n").unwrap(), 1 << 32);
    }

    #[test]
    fn a_wrong_type_names_key_and_both_types() {
        let m: Metadata = [("a.b", Value::from("text"))].into_iter().collect();
        let text = m.f32("a.b").unwrap_err().to_string();
        assert!(text.contains("a.b") && text.contains("a float") && text.contains("string"), "{text}");
        assert!(matches!(m.bools("a.b"), Err(GgufError::KeyType { .. })));
        assert!(matches!(m.u32("absent"), Err(GgufError::MissingKey { .. })));
        assert_eq!(m.opt_u32("absent").unwrap(), None);
    }

    #[test]
    fn integer_arrays_are_converted_with_a_range_check() {
        let mut m = Metadata::new();
        m.insert("a", Array::I64(vec![1, -2]));
        assert_eq!(m.i32s("a").unwrap(), [1, -2]);
        assert!(matches!(m.u32s("a"), Err(GgufError::KeyRange { found: -2, .. })));
        m.insert("a", Array::F32(vec![1.0]));
        assert!(matches!(m.u32s("a"), Err(GgufError::KeyType { .. })));
    }

    #[test]
    fn order_survives_insert_and_remove() {
        let mut m: Metadata = [("a", 1_u32), ("b", 2), ("c", 3)].into_iter().collect();
        assert_eq!(m.insert("a", 9_u32), Some(Value::U32(1)));
        assert_eq!(m.remove("b"), Some(Value::U32(2)));
        assert_eq!(m.remove("b"), None);
        m.insert("d", 4_u32);
        let keys: Vec<&str> = m.iter().map(|(k, _)| k).collect();
        assert_eq!(keys, ["a", "c", "d"]);
        assert_eq!((m.u32("a").unwrap(), m.u32("c").unwrap(), m.u32("d").unwrap()), (9, 3, 4));
    }
}
