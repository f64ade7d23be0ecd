//! Whether a model stays usable with an edit.

use std::path::Path;

use hf2q_convert::check_model;
use hf2q_gguf::{Change, Edit, Metadata};
use hf2q_text::{ChatTemplate, Tokenizer};

use super::{TEMPLATE, shapes};

/// What a change breaks, as the end of a sentence; `None` if it breaks nothing that worked before.
pub(super) fn check(edit: &Edit, file: &Path, changes: &[Change]) -> Option<String> {
    let (before, after) = (edit.original(), edit.metadata());
    let touches = |start: &str| changes.iter().any(|change| change.key.starts_with(start));
    let template =
        || if changes.iter().any(|change| is_template(&change.key)) { template_problem(after) } else { None };
    let tokenizer = || {
        if !touches("tokenizer.") || tokenizer_problem(before).is_some() {
            return None;
        }
        tokenizer_problem(after).map(|error| format!("the tokenizer does not load: {error}"))
    };
    let model = || {
        let shapes = shapes(file)?;
        let problem = |metadata: &Metadata| check_model(metadata, &shapes).problems.into_iter().next();
        if problem(before).is_some() {
            return None;
        }
        problem(after).map(|problem| format!("the model does not load: {problem}"))
    };
    template().or_else(tokenizer).or_else(model)
}

/// The default template or one with a name of its own. `tokenizer.chat_templates` is the list of those names.
fn is_template(key: &str) -> bool {
    key.strip_prefix(TEMPLATE).is_some_and(|name| name.is_empty() || name.starts_with('.'))
}

/// Each template must compile, whether the old one did or not.
fn template_problem(metadata: &Metadata) -> Option<String> {
    for (key, value) in metadata.iter().filter(|(key, _)| is_template(key)) {
        let hf2q_gguf::Value::String(source) = value else {
            return Some(format!("`{key}` is {}, no string", value.type_name()));
        };
        if let Err(error) = ChatTemplate::compile(source, "", "") {
            return Some(format!("`{key}` does not compile: {error}"));
        }
    }
    None
}

fn tokenizer_problem(metadata: &Metadata) -> Option<String> {
    Tokenizer::from_metadata(metadata).err().map(|error| error.to_string())
}
