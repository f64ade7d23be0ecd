//! The `tojson` filter as HuggingFace defines it: Python's `json.dumps`, without HTML escapes.

use minijinja::value::{Kwargs, Rest, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};

use super::filters::argument;

/// Deepest nesting that is written.
const MAX_DEPTH: usize = 256;

/// How a value is written.
struct Style {
    ascii: bool,
    /// Spaces or other text per level; none: one line.
    indent: Option<String>,
    item: String,
    key: String,
    sort: bool,
}

/// `tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
pub(super) fn filter(
    state: &State,
    value: &Value,
    given: Rest<Value>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let (ascii, indent, separators, sort): (Option<Value>, Option<Value>, Option<Value>, Option<Value>) =
        from_args(&given)?;
    let or_named =
        |given, name| Ok::<_, Error>(argument(given, &kwargs, name)?.unwrap_or_else(|| Value::from(())));
    let (ascii, indent) = (or_named(ascii, "ensure_ascii")?, or_named(indent, "indent")?);
    let (separators, sort) = (or_named(separators, "separators")?, or_named(sort, "sort_keys")?);
    kwargs.assert_all_used()?;
    let indent = if indent.is_none() { None } else { Some(indentation(state, &indent)?) };
    let (item, key) = if separators.is_none() {
        ((if indent.is_none() { ", " } else { "," }).to_owned(), ": ".to_owned())
    } else {
        let part = |i: usize| Ok::<_, Error>(separators.get_item_by_index(i)?.to_string());
        (part(0)?, part(1)?)
    };
    let style = Style { ascii: ascii.is_true(), indent, item, key, sort: sort.is_true() };
    let mut out = String::new();
    write(value, (&style, state), 0, &mut out)?;
    Ok(Value::from(out))
}

fn indentation(state: &State, indent: &Value) -> Result<String, Error> {
    if let Some(text) = indent.as_str() {
        return Ok(text.to_owned());
    }
    let spaces = i64::try_from(indent.clone())?.max(0) as u64;
    state.consume_fuel(spaces)?;
    Ok(" ".repeat(spaces as usize))
}

fn write(
    value: &Value,
    (style, state): (&Style, &State),
    depth: usize,
    out: &mut String,
) -> Result<(), Error> {
    state.consume_fuel(1)?;
    if depth > MAX_DEPTH {
        return Err(Error::new(ErrorKind::InvalidOperation, "tojson: the value is nested too deeply"));
    }
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&number(value)),
        ValueKind::String => string(value.as_str().unwrap_or_default(), style.ascii, out),
        ValueKind::Seq | ValueKind::Iterable => {
            let items = value.try_iter()?.checked();
            let items = items.map(|item| item.map(|v| (None, v))).collect::<Result<_, _>>()?;
            container(('[', ']'), items, (style, state), depth, out)?;
        }
        ValueKind::Map => {
            let keys = value.try_iter()?.checked();
            let mut items = keys
                .map(|k| k.and_then(|k| Ok((Some(key(&k)?), value.get_item(&k)?))))
                .collect::<Result<Vec<_>, Error>>()?;
            if style.sort {
                items.sort_by(|a, b| a.0.cmp(&b.0));
            }
            container(('{', '}'), items, (style, state), depth, out)?;
        }
        kind => {
            let message = format!("tojson: a value of type {kind} has no JSON form");
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
    }
    Ok(())
}

fn container(
    (open, close): (char, char),
    items: Vec<(Option<String>, Value)>,
    (style, state): (&Style, &State),
    depth: usize,
    out: &mut String,
) -> Result<(), Error> {
    out.push(open);
    let lines = style.indent.as_ref().filter(|_| !items.is_empty());
    let start_line = |depth: usize, out: &mut String| {
        if let Some(indent) = lines {
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
    };
    for (i, (key, item)) in items.iter().enumerate() {
        if i > 0 {
            out.push_str(&style.item);
        }
        let before = out.len();
        start_line(depth + 1, out);
        if let Some(key) = key {
            string(key, style.ascii, out);
            out.push_str(&style.key);
        }
        state.consume_fuel((out.len() - before) as u64 / 64)?;
        write(item, (style, state), depth + 1, out)?;
    }
    start_line(depth, out);
    out.push(close);
    Ok(())
}

/// A dictionary key as text; Python accepts these kinds.
fn key(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_owned()),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.into()),
        ValueKind::None => Ok("null".into()),
        ValueKind::Number => Ok(number(key)),
        kind => Err(Error::new(ErrorKind::InvalidOperation, format!("tojson: a {kind} cannot be a key"))),
    }
}

fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    f64::try_from(value.clone()).map_or_else(|_| value.to_string(), float)
}

/// A float as Python writes it: the shortest digits that read back the same.
pub(super) fn float(x: f64) -> String {
    if !x.is_finite() {
        return if x.is_nan() {
            "NaN"
        } else if x > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        }
        .into();
    }
    let scientific = format!("{x:e}");
    let (digits, exponent) = scientific.split_once('e').expect("the format has an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent is a number");
    if (-4..16).contains(&exponent) {
        let plain = x.to_string();
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

fn string(text: &str, ascii: bool, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' || (ascii && !(' '..='~').contains(&c)) => {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    #[test]
    fn floats_are_written_as_in_python() {
        let cases = [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e-5, "1.5e-05"),
            (0.0001, "0.0001"),
            (1e300, "1e+300"),
            (123_456_789.125, "123456789.125"),
        ];
        for (x, text) in cases {
            assert_eq!(super::float(x), text);
        }
    }
}
