//! Python's methods on strings, lists and dictionaries where templates use them.
//!
//! Most come from `minijinja-contrib`; here are those that it lacks or that differ from Python.

use minijinja::value::{Kwargs, StringInput, Tuple, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};

/// What Python's `str.isspace` accepts.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Which end of a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Left,
    Right,
    Both,
}

/// `str.strip` and its one-sided forms: without characters, whitespace is stripped.
fn strip<'t>(text: &'t str, chars: Option<&str>, end: End) -> &'t str {
    let drop = |c: char| chars.map_or_else(|| is_space(c), |chars| chars.contains(c));
    let text = if end == End::Right { text } else { text.trim_start_matches(drop) };
    if end == End::Left { text } else { text.trim_end_matches(drop) }
}

/// The `trim` filter.
pub(super) fn trim(value: StringInput<'_>, chars: Option<&str>) -> String {
    strip(value.as_str(), chars, End::Both).to_owned()
}

/// `str.title`: every letter after a character that is none becomes a capital.
fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut inside = false;
    for c in text.chars() {
        if inside {
            out.extend(c.to_lowercase())
        } else {
            out.extend(c.to_uppercase())
        }
        inside = c.is_alphabetic();
    }
    out
}

fn swap_case(text: &str) -> String {
    let swap =
        |c: char| if c.is_uppercase() { c.to_lowercase().to_string() } else { c.to_uppercase().to_string() };
    text.chars().map(swap).collect()
}

/// `expandtabs(tabsize=8)`.
fn expand_tabs(state: &State, text: &str, args: &[Value]) -> Result<Value, Error> {
    let (size,): (Option<usize>,) = from_args(args)?;
    let size = size.unwrap_or(8);
    let mut out = String::new();
    let mut column = 0;
    for c in text.chars() {
        if c == '\t' {
            let spaces = if size == 0 { 0 } else { size - column % size };
            state.consume_fuel(spaces as u64)?;
            out.extend(std::iter::repeat_n(' ', spaces));
            column += spaces;
        } else {
            out.push(c);
            column = if matches!(c, '\n' | '\r') { 0 } else { column + 1 };
        }
    }
    Ok(out.into())
}

/// Called for methods that the engine does not know.
pub(super) fn method(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let own = match value.kind() {
        ValueKind::String => text_method(state, value.as_str().unwrap_or_default(), method, args)?,
        ValueKind::Map if method == "copy" => Some(value.clone()),
        ValueKind::Seq if method == "index" => Some(index(value, args)?),
        ValueKind::Seq if method == "copy" => Some(value.clone()),
        _ => None,
    };
    match own {
        Some(result) => Ok(result),
        None => minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args),
    }
}

fn text_method(state: &State, text: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let value = match method {
        "strip" | "lstrip" | "rstrip" => {
            let (chars,): (Option<&str>,) = from_args(args)?;
            let end = match method {
                "lstrip" => End::Left,
                "rstrip" => End::Right,
                _ => End::Both,
            };
            strip(text, chars, end).into()
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            text.strip_prefix(prefix).unwrap_or(text).into()
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            text.strip_suffix(suffix).unwrap_or(text).into()
        }
        "split" | "rsplit" => return split(text, method, args).map(Some),
        "partition" | "rpartition" => {
            let (sep,): (&str,) = from_args(args)?;
            let first = method == "partition";
            let cut = if first { text.split_once(sep) } else { text.rsplit_once(sep) };
            let parts = match cut {
                Some((left, right)) => [left, sep, right],
                None if first => [text, "", ""],
                None => ["", "", text],
            };
            Value::from(Tuple::from(parts.map(Value::from)))
        }
        "splitlines" => return split_lines(text, args).map(Some),
        "index" | "rindex" => {
            let (part,): (&str,) = from_args(args)?;
            let at = if method == "index" { text.find(part) } else { text.rfind(part) };
            let at = at.ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "substring not found"))?;
            text[..at].chars().count().into()
        }
        "ljust" | "rjust" | "center" | "zfill" => return pad(state, text, method, args).map(Some),
        "title" => title(text).into(),
        "swapcase" => swap_case(text).into(),
        "casefold" => text.to_lowercase().replace('ß', "ss").into(),
        "expandtabs" => return expand_tabs(state, text, args).map(Some),
        "encode" => Value::from_bytes(text.as_bytes().to_vec()),
        "isspace" => (!text.is_empty() && text.chars().all(is_space)).into(),
        _ => return Ok(None),
    };
    Ok(Some(value))
}

/// `split(sep=None, maxsplit=-1)` and `rsplit`.
fn split(text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (sep, max, kwargs): (Option<Value>, Option<i64>, Kwargs) = from_args(args)?;
    let sep = match sep {
        Some(sep) => Some(sep),
        None => kwargs.get::<Option<Value>>("sep")?,
    };
    let max = max.map_or_else(|| kwargs.get::<Option<i64>>("maxsplit"), |m| Ok(Some(m)))?;
    kwargs.assert_all_used()?;
    let limit = max.and_then(|m| usize::try_from(m).ok()).map_or(usize::MAX, |m| m.saturating_add(1));
    let left = method == "split";
    let Some(sep) = sep.filter(|s| !s.is_none()) else {
        return Ok(list(split_spaces(text, limit, left)));
    };
    let sep = sep.as_str().filter(|s| !s.is_empty());
    let sep = sep.ok_or_else(|| {
        Error::new(ErrorKind::InvalidOperation, "the separator must be a text that is not empty")
    })?;
    if left {
        return Ok(list(text.splitn(limit, sep)));
    }
    let mut parts: Vec<&str> = text.rsplitn(limit, sep).collect();
    parts.reverse();
    Ok(list(parts))
}

/// A list of texts.
fn list<'t>(items: impl IntoIterator<Item = &'t str>) -> Value {
    Value::from(items.into_iter().map(Value::from).collect::<Vec<_>>())
}

/// Splits at runs of whitespace, into at most `limit` parts.
fn split_spaces(text: &str, limit: usize, left: bool) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = strip(text, None, if left { End::Left } else { End::Right });
    while !rest.is_empty() && parts.len() + 1 < limit {
        let cut =
            if left { rest.split_once(is_space) } else { rest.rsplit_once(is_space).map(|(a, b)| (b, a)) };
        let Some((part, tail)) = cut else { break };
        parts.push(part);
        rest = strip(tail, None, if left { End::Left } else { End::Right });
    }
    if !rest.is_empty() {
        parts.push(rest);
    }
    if !left {
        parts.reverse();
    }
    parts
}

/// `splitlines(keepends=False)` with Python's line boundaries.
fn split_lines(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (keep, kwargs): (Option<bool>, Kwargs) = from_args(args)?;
    let keep = keep.map_or_else(|| kwargs.get::<Option<bool>>("keepends"), |k| Ok(Some(k)))?.unwrap_or(false);
    kwargs.assert_all_used()?;
    let is_break =
        |c: char| matches!(c, '\n'..='\r' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(is_break).unwrap_or(rest.len());
        let mut next = end + rest[end..].chars().next().map_or(0, char::len_utf8);
        if rest[end..].starts_with("\r\n") {
            next = end + 2;
        }
        lines.push(Value::from(&rest[..if keep { next } else { end }]));
        rest = &rest[next..];
    }
    Ok(Value::from(lines))
}

/// `ljust`, `rjust`, `center` and `zfill`.
pub(super) fn pad(state: &State, text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (width, fill): (i64, Option<char>) = from_args(args)?;
    let missing = usize::try_from(width).unwrap_or(0).saturating_sub(text.chars().count());
    state.consume_fuel(missing as u64)?;
    let fill = fill.unwrap_or(if method == "zfill" { '0' } else { ' ' });
    let sign = text.len() - text.trim_start_matches(['+', '-']).len();
    let (head, tail) = if method == "zfill" { text.split_at(sign.min(1)) } else { ("", text) };
    let left = match method {
        "ljust" => 0,
        "center" => missing / 2 + (missing & width as usize & 1),
        _ => missing,
    };
    let fill = |n: usize| std::iter::repeat_n(fill, n).collect::<String>();
    Ok(Value::from(format!("{head}{}{tail}{}", fill(left), fill(missing - left))))
}

/// `list.index(item)`.
fn index(list: &Value, args: &[Value]) -> Result<Value, Error> {
    let (item,): (Value,) = from_args(args)?;
    for (i, candidate) in list.try_iter()?.checked().enumerate() {
        if candidate? == item {
            return Ok(i.into());
        }
    }
    Err(Error::new(ErrorKind::InvalidOperation, format!("{item} is not in the list")))
}
