//! Filters, tests and functions of Jinja2 that the engine lacks or defines in another way.

use minijinja::value::{Kwargs, Rest, StringInput, ValueKind, ValueOrKwargs, from_args};
use minijinja::{Environment, Error, ErrorKind, State, Value};

use super::compat;

/// Adds them to an environment.
pub(super) fn add(env: &mut Environment<'static>) {
    env.add_filter("default", default);
    env.add_filter("d", default);
    env.add_filter("trim", compat::trim);
    env.add_filter("truncate", truncate);
    env.add_filter("center", |state: &State, text: &str, width: Option<i64>| {
        compat::pad(state, text, "center", &[Value::from(width.unwrap_or(80))])
    });
    env.add_filter("wordcount", |text: &str| {
        text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|w| !w.is_empty()).count()
    });
    env.add_filter("urlencode", url_encode);
    env.add_filter("escape", escape);
    env.add_filter("e", escape);
    env.add_filter("striptags", minijinja_contrib::filters::striptags);
    env.add_test("iterable", is_iterable);
    env.add_test("sequence", is_sequence);
    env.add_test("callable", is_callable);
    env.add_function("namespace", namespace);
    env.add_function("cycler", |items: Rest<Value>| minijinja_contrib::globals::cycler(items.0));
    env.add_function("joiner", minijinja_contrib::globals::joiner);
}

/// An argument by place or by name.
pub(super) fn argument(given: Option<Value>, kwargs: &Kwargs, name: &str) -> Result<Option<Value>, Error> {
    given.map_or_else(|| kwargs.get::<Option<Value>>(name), |value| Ok(Some(value)))
}

/// `default(value, default_value='', boolean=False)`.
fn default(value: &Value, given: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let (other, lax): (Option<Value>, Option<Value>) = from_args(&given)?;
    let other = argument(other, &kwargs, "default_value")?;
    let lax = argument(lax, &kwargs, "boolean")?;
    kwargs.assert_all_used()?;
    let missing = value.is_undefined() || (lax.is_some_and(|l| l.is_true()) && !value.is_true());
    Ok(if missing { other.unwrap_or_else(|| Value::from("")) } else { value.clone() })
}

/// `truncate(text, length=255, killwords=False, end='...', leeway=5)`, counted in characters.
fn truncate(text: &str, given: Rest<Value>, kwargs: Kwargs) -> Result<String, Error> {
    let (length, kill, end, leeway): (Option<Value>, Option<Value>, Option<Value>, Option<Value>) =
        from_args(&given)?;
    let number = |value: Option<Value>, default: usize| value.map_or(Ok(default), usize::try_from);
    let length = number(argument(length, &kwargs, "length")?, 255)?;
    let kill = argument(kill, &kwargs, "killwords")?.is_some_and(|k| k.is_true());
    let end = argument(end, &kwargs, "end")?.map_or_else(|| "...".to_owned(), |e| e.to_string());
    let leeway = number(argument(leeway, &kwargs, "leeway")?, 5)?;
    kwargs.assert_all_used()?;
    if text.chars().count() <= length.saturating_add(leeway) {
        return Ok(text.to_owned());
    }
    let cut: String = text.chars().take(length.saturating_sub(end.chars().count())).collect();
    let kept = if kill { &cut } else { cut.rsplit_once(' ').map_or(cut.as_str(), |(head, _)| head) };
    Ok(kept.to_owned() + &end)
}

/// `urlencode` of a text: everything but letters, digits and `_.-~/` as bytes in hexadecimal.
fn url_encode(text: &str) -> String {
    let encode = |byte: u8| {
        let plain = byte.is_ascii_alphanumeric() || b"_.-~/".contains(&byte);
        if plain { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    text.bytes().map(encode).collect()
}

/// `escape`, with the entities that Jinja2 uses.
fn escape(text: StringInput<'_>) -> String {
    let mut out = String::new();
    for c in text.as_str().chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// Everything that has a length and items.
fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::String | ValueKind::Map | ValueKind::Bytes)
        || (value.kind() == ValueKind::Iterable && value.len().is_some())
}

/// Everything that a loop accepts in Jinja2; unlike in the engine, `none` is not.
fn is_iterable(value: &Value) -> bool {
    is_sequence(value) || value.kind() == ValueKind::Iterable || value.is_undefined()
}

/// Functions, and macros, which have a `caller`.
fn is_callable(value: &Value) -> bool {
    let is_macro = || value.get_attr("caller").is_ok_and(|c| c.kind() == ValueKind::Bool);
    value.kind() == ValueKind::Plain || (value.kind() == ValueKind::Map && is_macro())
}

/// `namespace(dict, **values)`.
fn namespace(given: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let (first,): (Option<Value>,) = from_args(&given)?;
    let mut fields: Vec<(Value, Value)> = Vec::new();
    if let Some(first) = first {
        if first.kind() != ValueKind::Map {
            return Err(Error::new(ErrorKind::InvalidOperation, "namespace takes a dictionary"));
        }
        for key in first.try_iter()? {
            fields.push((key.clone(), first.get_item(&key)?));
        }
    }
    for name in kwargs.args() {
        fields.push((Value::from(name), kwargs.get::<Value>(name)?));
    }
    let fields = Value::from(
        fields.into_iter().map(|(k, v)| (k.to_string(), v)).collect::<std::collections::BTreeMap<_, _>>(),
    );
    minijinja::functions::namespace(Some(ValueOrKwargs::from(fields)))
}
