//! Values as Python prints them.

use std::fmt::Write;
use std::sync::LazyLock;

use minijinja::value::{Tuple, ValueKind};
use minijinja::{Error, Output, State, Value};

use super::json::float;
use crate::classes::BitSet;

/// Deepest nesting that is printed.
const MAX_DEPTH: usize = 256;

/// Characters that Python's `repr` escapes, besides quotes and backslashes.
static UNPRINTABLE: LazyLock<BitSet> = LazyLock::new(|| BitSet::property(r"[\p{C}\p{Z}--\x20]"));

/// Writes the value of `{{ … }}`.
pub(super) fn format(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    if !matches!(value.kind(), ValueKind::Number | ValueKind::Seq | ValueKind::Map) {
        return minijinja::escape_formatter(out, state, value);
    }
    let mut text = String::new();
    repr(state, value, 0, &mut text)?;
    out.write_str(&text).map_err(Error::from)
}

/// Appends a value as `repr` writes it.
fn repr(state: &State, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
    state.consume_fuel(1)?;
    match value.kind() {
        _ if depth > MAX_DEPTH => out.push_str("..."),
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::Number if !value.is_integer() => {
            out.push_str(&f64::try_from(value.clone()).map_or_else(|_| value.to_string(), float));
        }
        ValueKind::String => {
            let value = value.as_str().unwrap_or_default();
            state.consume_fuel(value.len() as u64 / 64)?;
            text(value, out);
        }
        ValueKind::Seq => {
            let is_tuple = value.downcast_object_ref::<Tuple>().is_some();
            let (open, close) = if is_tuple { ('(', ')') } else { ('[', ']') };
            out.push(open);
            let items: Vec<_> = value.try_iter()?.map(|item| (None, item)).collect();
            list(state, &items, depth, out)?;
            if is_tuple && items.len() == 1 {
                out.push(',');
            }
            out.push(close);
        }
        ValueKind::Map => {
            let items = value.try_iter()?.map(|key| value.get_item(&key).map(|item| (Some(key), item)));
            out.push('{');
            list(state, &items.collect::<Result<Vec<_>, _>>()?, depth, out)?;
            out.push('}');
        }
        _ => out.push_str(&value.to_string()),
    }
    Ok(())
}

/// Appends items, with their keys if they have some.
fn list(
    state: &State,
    items: &[(Option<Value>, Value)],
    depth: usize,
    out: &mut String,
) -> Result<(), Error> {
    for (i, (key, item)) in items.iter().enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        if let Some(key) = key {
            repr(state, key, depth + 1, out)?;
            out.push_str(": ");
        }
        repr(state, item, depth + 1, out)?;
    }
    Ok(())
}

/// Appends a text as `repr` quotes it.
fn text(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        let escaped = match c {
            '\n' => write!(out, "\\n"),
            '\r' => write!(out, "\\r"),
            '\t' => write!(out, "\\t"),
            '\\' => write!(out, "\\\\"),
            c if c == quote => write!(out, "\\{c}"),
            c if UNPRINTABLE.has(c) && c <= '\u{ff}' => write!(out, "\\x{:02x}", c as u32),
            c if UNPRINTABLE.has(c) && c <= '\u{ffff}' => write!(out, "\\u{:04x}", c as u32),
            c if UNPRINTABLE.has(c) => write!(out, "\\U{:08x}", c as u32),
            c => write!(out, "{c}"),
        };
        escaped.expect("writing to a string cannot fail");
    }
    out.push(quote);
}
