//! Which files hold the weights.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::HubError;
use crate::listing::check_plain;

/// All weights in one file.
pub(crate) const SINGLE: &str = "model.safetensors";
/// Says which of several files holds which tensor.
pub(crate) const INDEX: &str = "model.safetensors.index.json";
/// Most bytes of an index: that of a model with a million tensors has half as many.
pub(crate) const LIMIT: u64 = 256 << 20;

#[derive(Deserialize)]
struct Index {
    weight_map: Map<String, Value>,
}

/// The file names in an index, each once.
pub(crate) fn shards(path: &Path, repository: &str) -> Result<Vec<String>, HubError> {
    let file = File::open(path).map_err(HubError::io(path))?;
    let mut bytes = Vec::new();
    file.take(LIMIT + 1).read_to_end(&mut bytes).map_err(HubError::io(path))?;
    if bytes.len() as u64 > LIMIT {
        return Err(HubError::TooLarge { of: INDEX.to_owned(), limit: LIMIT });
    }
    let bad = |why: String| HubError::Malformed { of: format!("{repository}: {INDEX}"), why };
    let index: Index = serde_json::from_slice(&bytes).map_err(|e| bad(format!("not an index: {e}")))?;
    let mut files = BTreeSet::new();
    for (tensor, file) in &index.weight_map {
        let Some(name) = file.as_str() else {
            return Err(bad(format!("weight_map has no file name for {}", crate::text::shown(tensor))));
        };
        check_plain(name).map_err(|why| HubError::HostileName {
            repository: repository.to_owned(),
            of: INDEX.to_owned(),
            name: name.to_owned(),
            why,
        })?;
        files.insert(name.to_owned());
    }
    if files.is_empty() {
        return Err(bad("weight_map is empty".to_owned()));
    }
    Ok(files.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<String>, HubError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(INDEX);
        std::fs::write(&path, text).unwrap();
        shards(&path, "a/b")
    }

    #[test]
    fn each_file_is_named_once() {
        let files = read(
            r#"{"metadata":{},"weight_map":{"x":"b.safetensors","y":"a.safetensors","z":"b.safetensors"}}"#,
        );
        assert_eq!(files.unwrap(), ["a.safetensors", "b.safetensors"]);
    }

    #[test]
    fn names_that_lead_out_are_refused() {
        for name in [
            "../x.safetensors",
            "/etc/passwd",
            "sub/../../x",
            "sub/x.safetensors",
            "..",
            "",
            ".hidden",
            "a\\\\b",
        ] {
            let error = read(&format!(r#"{{"weight_map":{{"x":"{name}"}}}}"#)).unwrap_err();
            assert!(matches!(error, HubError::HostileName { .. }), "{name}: {error}");
        }
    }

    #[test]
    fn what_is_no_index_is_refused() {
        for text in
            ["", "[]", "{}", r#"{"weight_map":{}}"#, r#"{"weight_map":{"x":1}}"#, r#"{"weight_map":{"x":"#]
        {
            assert!(matches!(read(text), Err(HubError::Malformed { .. })), "{text}");
        }
    }
}
