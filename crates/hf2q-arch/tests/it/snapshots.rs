//! Every configuration and its tensor map as text, compared with a stored file.

use std::fmt::Write as _;
use std::path::Path;

use hf2q_arch::{Config, Layer, Source, TensorRow, Transform};

use crate::configs;

#[test]
fn configurations_and_tensor_maps() {
    let differ: Vec<String> = configs::all()
        .into_iter()
        .filter_map(|(name, json)| {
            let config = Config::from_hf(&json).unwrap_or_else(|e| panic!("{name}: {e}"));
            difference(&name, &text(&config))
        })
        .collect();
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

/// Where the stored text differs; what was found is left in the build folder, to be copied if it is right.
fn difference(name: &str, found: &str) -> Option<String> {
    let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/snapshots").join(format!("{name}.txt"));
    let expected = std::fs::read_to_string(&stored).unwrap_or_default();
    if expected == found {
        return None;
    }
    let new = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("arch-{name}.txt"));
    std::fs::write(&new, found).unwrap();
    let line = expected.lines().zip(found.lines()).take_while(|(a, b)| a == b).count() + 1;
    Some(format!("{} differs from {} at line {line}", stored.display(), new.display()))
}

fn text(config: &Config) -> String {
    let mut out = format!("{:#?}\n", Config { layers: Vec::new(), ..config.clone() });
    runs(&config.layers, |layer: &Layer| format!("{layer:?}"), &mut out, "layer");
    for row in config.tensors() {
        // Layers of one kind have the same tensors; the first of each shows them.
        let first = |i: usize| !config.layers[..i].contains(&config.layers[i]);
        let layer =
            row.gguf.strip_prefix("blk.").and_then(|rest| rest.split('.').next()).map(|i| i.parse().unwrap());
        if layer.is_none_or(first) {
            out += &line(&row);
        }
    }
    out
}

/// Equal neighbours on one line.
fn runs<T>(items: &[T], show: impl Fn(&T) -> String, out: &mut String, what: &str) {
    let mut at = 0;
    while at < items.len() {
        let shown = show(&items[at]);
        let len = items[at..].iter().take_while(|x| show(x) == shown).count();
        writeln!(out, "{what} {at}..{}: {shown}", at + len).unwrap();
        at += len;
    }
}

fn line(row: &TensorRow) -> String {
    let source = match &row.source {
        Source::Hf { name, transform: Transform::None } => name.clone(),
        Source::Hf { name, transform } => format!("{name} {transform:?}"),
        Source::Stack { names } => format!("{} .. {}", names[0], names[names.len() - 1]),
        Source::Computed(values) => {
            let mut shown = String::new();
            runs(values, |x| format!("{x:.4e}"), &mut shown, "pairs");
            shown.trim_end().replace('\n', ", ")
        }
    };
    let optional = if row.optional { " optional" } else { "" };
    format!("{} {:?} {:?}{optional} <- {source}\n", row.gguf, row.shape, row.class)
}
