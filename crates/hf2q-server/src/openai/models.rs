//! `/v1/models`.

use serde_json::{Value as Json, json};

use crate::app::{self, Call, Handled};
use crate::error::ApiError;
use crate::models::Entry;

fn describe(call: &Call, entry: &Entry) -> Json {
    let mut json = json!({
        "id": entry.id, "object": "model", "created": call.app.models.created, "owned_by": "hf2q",
        "status": { "value": entry.status },
    });
    if let Some(chats) = entry.chats {
        json["meta"] = json!({ "chat": chats });
    }
    if let Some(model) = &entry.model {
        let limits = model.service.limits();
        json["meta"] = json!({
            "n_ctx": limits.tokens, "n_vocab": model.vocabulary, "slots": limits.running,
            "memory": model.bytes, "chat": model.template.is_some(), "description": model.description,
        });
    }
    json
}

/// All of them.
pub(crate) fn list(call: &Call) -> Handled {
    let entries = call.app.models.list();
    let data: Vec<Json> = entries.iter().map(|e| describe(call, e)).collect();
    Ok(app::json(&json!({ "object": "list", "data": data })))
}

/// One by name, which stands in the path, perhaps with `%` codes.
pub(crate) fn one(call: &Call, path: &str) -> Handled {
    let id = decoded(path.strip_prefix("/v1/models/").unwrap_or_default());
    let entries = call.app.models.list();
    match entries.iter().find(|e| e.id == id) {
        Some(entry) => Ok(app::json(&describe(call, entry))),
        None => {
            let known: Vec<&str> = entries.iter().map(|e| e.id.as_str()).collect();
            Err(ApiError::no_model(&id, &known))
        }
    }
}

/// `%2F` to `/`. What is no code stays as it is.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = tail.get(..2).and_then(|c| std::str::from_utf8(c).ok()).filter(|_| *first == b'%');
        match code.and_then(|c| u8::from_str_radix(c, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_in_paths_are_decoded() {
        assert_eq!(super::decoded("a%2Fb"), "a/b");
        assert_eq!(super::decoded("a/b%"), "a/b%");
        assert_eq!(super::decoded("%zz%2"), "%zz%2");
    }
}
