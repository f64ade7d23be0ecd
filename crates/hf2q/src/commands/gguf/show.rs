//! Metadata and its changes, for people and programs.

use std::path::Path;

use anyhow::{Context, Result, bail};
use hf2q_gguf::{Change, Edit, Metadata, Value};

use super::TEMPLATE;
use crate::args::GetArgs;
use crate::commands::inspect;
use crate::terminal;

/// Characters of a value that a list shows.
const SHOWN: usize = 60;

/// Prints the whole values of keys, or a list of all.
pub(super) fn get(args: &GetArgs) -> Result<()> {
    let edit = Edit::open(&args.file)?;
    let metadata = edit.original();
    let find = |key: &String| {
        metadata.get(key).with_context(|| format!("{}: has no key `{key}`", args.file.display()))
    };
    if args.json {
        let chosen: Vec<(&str, &Value)> = if args.keys.is_empty() {
            metadata.iter().collect()
        } else {
            args.keys.iter().map(|key| Ok((key.as_str(), find(key)?))).collect::<Result<_>>()?
        };
        let object: serde_json::Map<String, serde_json::Value> =
            chosen.into_iter().map(|(k, v)| (k.to_owned(), inspect::value_json(v))).collect();
        return terminal::print_json(&object.into());
    }
    if args.keys.is_empty() {
        return list(metadata);
    }
    for key in &args.keys {
        terminal::print_line(&whole(find(key)?))?;
    }
    Ok(())
}

fn list(metadata: &Metadata) -> Result<()> {
    let lines: Vec<[String; 3]> = metadata
        .iter()
        .map(|(key, value)| [terminal::safe(key), type_name(value), brief(value, 0)])
        .collect();
    terminal::print(&table(&lines))
}

/// Prints the chat template as it is.
pub(super) fn template(file: &Path) -> Result<()> {
    let edit = Edit::open(file)?;
    match edit.original().opt_str(TEMPLATE)? {
        Some(text) => terminal::print(text),
        None => bail!("{}: has no chat template (`{TEMPLATE}`)", file.display()),
    }
}

/// One line for each change: key, old value, new value.
pub(super) fn changes(changes: &[Change]) -> Result<()> {
    let lines: Vec<[String; 3]> = changes.iter().map(change).collect();
    terminal::print(&table(&lines))
}

fn change(change: &Change) -> [String; 3] {
    let key = terminal::safe(&change.key);
    let ty = |value: &Option<Value>| value.as_ref().map(type_name).unwrap_or_default();
    let (old, new) = (ty(&change.old), ty(&change.new));
    let types = match (&*old, &*new) {
        (old, "") => old.to_owned(),
        ("", new) => new.to_owned(),
        (old, new) if old == new => old.to_owned(),
        (old, new) => format!("{old} -> {new}"),
    };
    let skip = match (&change.old, &change.new) {
        (Some(Value::String(a)), Some(Value::String(b))) => common_start(a, b),
        _ => 0,
    };
    let show = |value: &Option<Value>, absent: &str| match value {
        Some(value) => brief(value, skip),
        None => absent.to_owned(),
    };
    [key, types, format!("{} -> {}", show(&change.old, "(absent)"), show(&change.new, "(removed)"))]
}

/// Characters to leave out so that the first difference of two texts can be seen.
fn common_start(a: &str, b: &str) -> usize {
    const BEFORE: usize = 20;
    let common = a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count();
    if common > SHOWN - BEFORE { common - BEFORE } else { 0 }
}

fn type_name(value: &Value) -> String {
    match value {
        Value::Array(array) => format!("array:{}", array.element_name()),
        single => single.type_name(),
    }
}

/// A value in one line; of a string, without its first characters.
fn brief(value: &Value, skip: usize) -> String {
    match value {
        Value::String(text) => {
            let more = text.chars().count() - skip.min(text.chars().count()) > SHOWN;
            let part: String = text.chars().skip(skip).take(SHOWN).collect();
            let (before, after) = (if skip > 0 { "…" } else { "" }, if more { "…" } else { "" });
            format!("{before}{part:?}{after}")
        }
        Value::Array(array) => {
            let (n, text) = (array.len(), array.to_string());
            let start = text.strip_suffix(&format!(", … {n} values]")).unwrap_or(&text);
            let cut: String = start.chars().take(SHOWN).collect();
            let more = if cut.len() < text.len() { " …" } else { "" };
            format!("{n} values {cut}{more}")
        }
        single => single.to_string(),
    }
}

/// A value as it is: text bare, arrays as JSON.
fn whole(value: &Value) -> String {
    match value {
        Value::Array(_) => inspect::value_json(value).to_string(),
        Value::String(text) => text.clone(),
        single => single.to_string(),
    }
}

/// Lines with their first two columns aligned.
fn table(lines: &[[String; 3]]) -> String {
    let width = |column: usize| lines.iter().map(|l| l[column].chars().count()).max().unwrap_or(0);
    let (first, second) = (width(0), width(1));
    lines.iter().map(|[a, b, c]| format!("{a:first$}  {b:second$}  {c}\n")).collect()
}
