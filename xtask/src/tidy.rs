//! What the compiler and clippy do not check: lengths of files, words that do not belong in the tree, stage
//! headers, and that crates import earlier stages only.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Longest file, tests not counted.
const MAX_LINES: usize = 800;

/// Words that do not belong in sources and documents. Each is put together here so that this file passes.
const FORBIDDEN: &[(&str, &str)] = &[
    (concat!("TO", "DO"), "finish the work or describe the limit"),
    (concat!("FIX", "ME"), "finish the work or describe the limit"),
    (concat!("X", "XX"), "finish the work or describe the limit"),
    (concat!("/ro", "ot/"), "paths of one machine do not belong here"),
    (concat!("/wo", "rk/"), "paths of one machine do not belong here"),
    (concat!("/ho", "me/"), "paths of one machine do not belong here"),
    (concat!("std::env::", "set_var"), "configuration is a struct"),
    (concat!("#[ig", "nore"), "a test that does not run is not a test"),
];

/// Folders of other people's or generated files.
const SKIPPED: &[&str] = &["target", ".git", "models", "fixtures", "corpus", "artifacts"];

const CHECKED: &[&str] = &["rs", "md", "toml", "py", "sh", "yml"];

pub(crate) fn run() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the workspace")?;
    let mut problems = Vec::new();
    let mut files = Vec::new();
    collect(root, &mut files)?;
    for file in &files {
        check_file(root, file, &mut problems)?;
    }
    check_stages(root, &mut problems)?;
    if problems.is_empty() {
        return Ok(());
    }
    bail!("{}\n{} problems", problems.join("\n"), problems.len());
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        if path.is_dir() {
            if !SKIPPED.contains(&name) {
                collect(&path, files)?;
            }
        } else if path.extension().and_then(|e| e.to_str()).is_some_and(|e| CHECKED.contains(&e)) {
            files.push(path);
        }
    }
    Ok(())
}

fn check_file(root: &Path, file: &Path, problems: &mut Vec<String>) -> Result<()> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let shown = file.strip_prefix(root).unwrap_or(file).display();
    for (number, line) in (1..).zip(text.lines()) {
        for (word, why) in FORBIDDEN {
            if line.contains(word) {
                problems.push(format!("{shown}:{number}: {word}: {why}"));
            }
        }
    }
    let is_test = file.components().any(|c| c.as_os_str() == "tests" || c.as_os_str() == "tests.rs");
    if file.extension().is_some_and(|e| e == "rs") && !is_test {
        let lines = text.lines().take_while(|l| *l != "#[cfg(test)]").count();
        if lines > MAX_LINES {
            problems.push(format!("{shown}: {lines} lines without tests, at most {MAX_LINES}: split it"));
        }
    }
    Ok(())
}

/// Every library of `crates/` opens with `//! Stage n: …` (`-` for tools beside the path), and depends on lower stages.
fn check_stages(root: &Path, problems: &mut Vec<String>) -> Result<()> {
    let mut stages: BTreeMap<String, Option<u32>> = BTreeMap::new();
    let mut manifests = Vec::new();
    for entry in fs::read_dir(root.join("crates"))? {
        let dir = entry?.path();
        let Some(name) = dir.file_name().and_then(|n| n.to_str()).map(str::to_owned) else { continue };
        let library = dir.join("src/lib.rs");
        if library.exists() {
            let text = fs::read_to_string(&library)?;
            match stage(&text) {
                Some(stage) => drop(stages.insert(name.clone(), stage)),
                None => problems.push(format!("crates/{name}/src/lib.rs: must open with `//! Stage n: …`")),
            }
        }
        manifests.push((name, fs::read_to_string(dir.join("Cargo.toml"))?));
    }
    for (name, manifest) in &manifests {
        let Some(Some(own)) = stages.get(name) else { continue };
        for dependency in dependencies(manifest) {
            match stages.get(dependency) {
                Some(Some(theirs)) if theirs < own => {}
                Some(_) => {
                    problems.push(format!("crates/{name}: imports {dependency}, which is no earlier stage"))
                }
                None => {}
            }
        }
    }
    Ok(())
}

/// `Some(None)` for `Stage -`.
fn stage(text: &str) -> Option<Option<u32>> {
    let rest = text.lines().next()?.strip_prefix("//! Stage ")?;
    let (number, _) = rest.split_once(':')?;
    if number == "-" { Some(None) } else { number.parse().ok().map(Some) }
}

/// Names in `[dependencies]`; development dependencies may point anywhere.
fn dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    let section = manifest.lines().skip_while(|l| l.trim() != "[dependencies]").skip(1);
    let lines = section.take_while(|l| !l.starts_with('['));
    lines.filter_map(|l| l.split(['.', ' ', '=']).next()).filter(|n| n.starts_with("hf2q"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stage_headers_are_read() {
        assert_eq!(stage("//! Stage 3: data\n"), Some(Some(3)));
        assert_eq!(stage("//! Stage -: a tool\n"), Some(None));
        assert_eq!(stage("//! A crate\n"), None);
    }

    #[test]
    fn only_normal_dependencies_count() {
        let manifest = "[package]\nname = \"a\"\n[dependencies]\nhf2q-gguf.workspace = true\nserde = \"1\"\n[dev-dependencies]\nhf2q-cpu.workspace = true\n";
        assert_eq!(dependencies(manifest).collect::<Vec<_>>(), ["hf2q-gguf"]);
    }
}
