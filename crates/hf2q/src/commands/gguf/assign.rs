//! `KEY=VALUE` and `KEY:TYPE=VALUE`.

use anyhow::{Context, Result, bail};
use hf2q_gguf::{Array, Metadata, Value};
use serde_json::Value as Json;

/// Types of single values, by the names that `hf2q inspect` shows.
const TYPES: &str = "u8 i8 u16 i16 u32 i32 u64 i64 f32 f64 bool string";

/// Types of keys that files often lack and that are known without a file.
const KNOWN: &[(&str, &str)] = &[
    ("general.author", "string"),
    ("general.basename", "string"),
    ("general.description", "string"),
    ("general.finetune", "string"),
    ("general.license", "string"),
    ("general.name", "string"),
    ("general.organization", "string"),
    ("general.repo_url", "string"),
    ("general.size_label", "string"),
    ("general.url", "string"),
    ("general.version", "string"),
    ("general.file_type", "u32"),
    ("general.quantization_version", "u32"),
    ("general.sampling.temp", "f32"),
    ("general.sampling.top_p", "f32"),
    ("general.sampling.min_p", "f32"),
    ("general.sampling.top_k", "i32"),
    ("tokenizer.chat_template", "string"),
    ("tokenizer.ggml.add_bos_token", "bool"),
    ("tokenizer.ggml.add_eos_token", "bool"),
    ("tokenizer.ggml.add_space_prefix", "bool"),
    ("tokenizer.ggml.bos_token_id", "u32"),
    ("tokenizer.ggml.eos_token_id", "u32"),
    ("tokenizer.ggml.eot_token_id", "u32"),
    ("tokenizer.ggml.padding_token_id", "u32"),
    ("tokenizer.ggml.unknown_token_id", "u32"),
    ("tokenizer.ggml.pre", "string"),
];

/// Reads an assignment. Without a type, the key keeps the one it has in `metadata`.
pub(super) fn parse(text: &str, metadata: &Metadata) -> Result<(String, Value)> {
    let form = "an assignment is KEY=VALUE or KEY:TYPE=VALUE";
    let (left, value) = text.split_once('=').with_context(|| format!("{text:?} has no `=`: {form}"))?;
    if let Some(present) = metadata.get(left) {
        return Ok((left.to_owned(), like(present, left, value)?));
    }
    if let Some((key, ty)) = left.split_once(':') {
        return Ok((key.to_owned(), typed(ty, key, value, metadata.get(key))?));
    }
    let known = KNOWN.iter().find(|(key, _)| *key == left);
    let (_, ty) = known.with_context(|| {
        format!("`{left}` is not in the file, so its type is not known: write {left}:TYPE=VALUE with one of {TYPES}, or array:TYPE")
    })?;
    Ok((left.to_owned(), scalar(ty, left, value)?))
}

/// A value of the type of another.
fn like(present: &Value, key: &str, text: &str) -> Result<Value> {
    match present {
        Value::Array(array) => elements(array.element_name(), key, &list(key, text)?).map(Value::Array),
        single => scalar(&single.type_name(), key, text),
    }
}

fn typed(ty: &str, key: &str, text: &str, present: Option<&Value>) -> Result<Value> {
    let Some(element) = ty.strip_prefix("array") else { return scalar(ty, key, text) };
    let items = list(key, text)?;
    let element = match (element.strip_prefix(':'), present) {
        (Some(element), _) => element,
        (None, _) if !element.is_empty() => {
            bail!("`{key}`: {ty:?} is no type; accepted are {TYPES}, array:TYPE")
        }
        (None, Some(Value::Array(array))) => array.element_name(),
        (None, _) => guess(&items)
            .with_context(|| format!("`{key}`: give the type of an empty array, e.g. array:u32"))?,
    };
    elements(element, key, &items).map(Value::Array)
}

/// The usual type of such elements.
fn guess(items: &[Json]) -> Option<&'static str> {
    Some(match items.first()? {
        Json::String(_) => "string",
        Json::Bool(_) => "bool",
        _ if items.iter().all(|v| v.as_i64().is_some_and(|n| i32::try_from(n).is_ok())) => "i32",
        _ if items.iter().all(Json::is_i64) => "i64",
        _ => "f32",
    })
}

fn list(key: &str, text: &str) -> Result<Vec<Json>> {
    serde_json::from_str(text).with_context(|| {
        format!("`{key}` is an array: its value is a JSON list such as [1, 2] or [\"a\", \"b\"]")
    })
}

fn scalar(ty: &str, key: &str, text: &str) -> Result<Value> {
    Ok(match ty {
        "u8" => Value::U8(integer(key, text)?),
        "i8" => Value::I8(integer(key, text)?),
        "u16" => Value::U16(integer(key, text)?),
        "i16" => Value::I16(integer(key, text)?),
        "u32" => Value::U32(integer(key, text)?),
        "i32" => Value::I32(integer(key, text)?),
        "u64" => Value::U64(integer(key, text)?),
        "i64" => Value::I64(integer(key, text)?),
        "f32" => Value::F32(single(key, text)?),
        "f64" => Value::F64(double(key, text)?),
        "bool" => Value::Bool(boolean(key, text)?),
        "string" => Value::String(text.to_owned()),
        _ => bail!("`{key}`: {ty:?} is no type; accepted are {TYPES}, array:TYPE"),
    })
}

fn elements(ty: &str, key: &str, items: &[Json]) -> Result<Array> {
    Ok(match ty {
        "u8" => Array::U8(numbers(key, items, integer)?),
        "i8" => Array::I8(numbers(key, items, integer)?),
        "u16" => Array::U16(numbers(key, items, integer)?),
        "i16" => Array::I16(numbers(key, items, integer)?),
        "u32" => Array::U32(numbers(key, items, integer)?),
        "i32" => Array::I32(numbers(key, items, integer)?),
        "u64" => Array::U64(numbers(key, items, integer)?),
        "i64" => Array::I64(numbers(key, items, integer)?),
        "f32" => Array::F32(numbers(key, items, single)?),
        "f64" => Array::F64(numbers(key, items, double)?),
        "bool" => Array::Bool(each(key, items, "true or false", Json::as_bool)?),
        "string" => Array::String(each(key, items, "a string", |v| v.as_str().map(str::to_owned))?),
        _ => bail!("`{key}`: {ty:?} is no type of elements; accepted are {TYPES}"),
    })
}

fn numbers<T>(key: &str, items: &[Json], read: impl Fn(&str, &str) -> Result<T>) -> Result<Vec<T>> {
    let texts = each(key, items, "a number", |v| v.as_number().map(ToString::to_string))?;
    texts.iter().map(|text| read(key, text)).collect()
}

fn each<T>(key: &str, items: &[Json], wanted: &str, read: impl Fn(&Json) -> Option<T>) -> Result<Vec<T>> {
    let one = |(i, item)| {
        read(item).with_context(|| format!("`{key}`: element {i} of the list is {item}, expected {wanted}"))
    };
    items.iter().enumerate().map(one).collect()
}

/// An integer type with its name and range.
trait Whole: TryFrom<i128> {
    const RANGE: (&'static str, i128, i128);
}

macro_rules! whole {
    ($($ty:ident)*) => {
        $(impl Whole for $ty {
            const RANGE: (&'static str, i128, i128) = (stringify!($ty), $ty::MIN as i128, $ty::MAX as i128);
        })*
    };
}

whole!(u8 i8 u16 i16 u32 i32 u64 i64);

fn integer<T: Whole>(key: &str, text: &str) -> Result<T> {
    let (name, low, high) = T::RANGE;
    let value = text.trim().parse().ok().and_then(|n: i128| T::try_from(n).ok());
    value.with_context(|| format!("`{key}` is of type {name}: {text:?} is no integer from {low} to {high}"))
}

fn single(key: &str, text: &str) -> Result<f32> {
    let value = text.trim().parse().ok().filter(|v: &f32| v.is_finite());
    value.with_context(|| format!("`{key}` is of type f32: {text:?} is no number that fits it"))
}

fn double(key: &str, text: &str) -> Result<f64> {
    let value = text.trim().parse().ok().filter(|v: &f64| v.is_finite());
    value.with_context(|| format!("`{key}` is of type f64: {text:?} is no number that fits it"))
}

fn boolean(key: &str, text: &str) -> Result<bool> {
    text.trim().parse().ok().with_context(|| format!("`{key}` is a bool: {text:?} is neither true nor false"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata() -> Metadata {
        let mut m = Metadata::new();
        m.insert("n", 7_u32);
        m.insert("small", Value::I8(-1));
        m.insert("x", 0.5_f32);
        m.insert("on", true);
        m.insert("text", "hello");
        m.insert("ids", vec![1_u32, 2]);
        m.insert("odd:name", 1_u32);
        m
    }

    fn value(text: &str) -> Value {
        parse(text, &metadata()).unwrap().1
    }

    #[track_caller]
    fn refused(text: &str, parts: &[&str]) {
        let message = format!("{:#}", parse(text, &metadata()).unwrap_err());
        for part in parts {
            assert!(message.contains(part), "{part:?} is not in {message:?}");
        }
    }

    #[test]
    fn types_are_kept() {
        assert_eq!(value("n=4294967295"), Value::U32(u32::MAX));
        assert_eq!(value("small=-128"), Value::I8(-128));
        assert_eq!(value("x=1e-3"), Value::F32(1e-3));
        assert_eq!(value("on=false"), Value::Bool(false));
        assert_eq!(value("text=a=b: c"), Value::from("a=b: c"));
        assert_eq!(value("text="), Value::from(""));
        assert_eq!(value("ids=[]"), Value::from(Vec::<u32>::new()));
        assert_eq!(parse("odd:name=2", &metadata()).unwrap(), ("odd:name".to_owned(), Value::U32(2)));
    }

    #[test]
    fn types_are_given() {
        assert_eq!(parse("new:u8=255", &metadata()).unwrap(), ("new".to_owned(), Value::U8(255)));
        assert_eq!(value("n:string=7"), Value::from("7"));
        assert_eq!(value("new:f64=0.1"), Value::F64(0.1));
        assert_eq!(value("new:array:u16=[1,2]"), Value::Array(Array::U16(vec![1, 2])));
        assert_eq!(value("ids:array=[3]"), Value::from(vec![3_u32]));
        assert_eq!(value("new:array=[\"a\"]"), Value::from(vec!["a".to_owned()]));
        assert_eq!(value("new:array=[1, -2]"), Value::from(vec![1_i32, -2]));
        assert_eq!(value("new:array=[1, 0.5]"), Value::from(vec![1.0_f32, 0.5]));
        assert_eq!(value("new:array=[1, 4294967296]"), Value::Array(Array::I64(vec![1, 1 << 32])));
        assert_eq!(value("general.name=N"), Value::from("N"));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        refused("n", &["no `=`", "KEY:TYPE=VALUE"]);
        refused("n=-1", &["`n`", "u32", "from 0 to 4294967295"]);
        refused("n=1.0", &["`n`", "\"1.0\""]);
        refused("small=128", &["from -128 to 127"]);
        refused("x=1e39", &["`x`", "fits"]);
        refused("x=nan", &["`x`", "nan"]);
        refused("on=1", &["neither true nor false"]);
        refused("ids=1", &["JSON list"]);
        refused("ids=[1, \"2\"]", &["element 1", "a number"]);
        refused("ids=[-1]", &["from 0 to"]);
        refused("ids=[[1]]", &["element 0"]);
        refused("new=1", &["not in the file", "new:TYPE=VALUE"]);
        refused("new:u9=1", &["\"u9\"", "u8 i8"]);
        refused("new:array:array=[]", &["array", "accepted"]);
        refused("new:arrays=[]", &["\"arrays\""]);
        refused("new:array=[]", &["array:u32"]);
        refused("new:array:f32=[1e39]", &["f32"]);
    }
}
