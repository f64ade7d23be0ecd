//! How a model is recorded: the formats of its caches, and how they are written on a command line.

use std::fmt;
use std::str::FromStr;

use hf2q_plan::KvFormat;

use crate::error::ModelError;

/// How a model is recorded.
///
/// As text: items separated by `,` or `;`, each `[global:|sliding:][k=|v=]FORMAT`. An item is about both groups of layers
/// and about keys and values unless it says otherwise; a group holds for the items behind it, until the next group. Later
/// items replace what earlier ones say, and what no item names is `f16`.
///
/// | text | meaning |
/// |---|---|
/// | `tq4` | everything |
/// | `k=tq6,v=tq4` | keys and values |
/// | `global:tq4,sliding:f16` | groups |
/// | `global:k=tq6,v=tq4;sliding:f16` | both |
/// | `q8_0,global:v=tq4` | everything but the values of global layers |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordOptions {
    /// Storage of keys and of values in layers with a window.
    pub sliding: (KvFormat, KvFormat),
    /// Storage of keys and of values in layers that see everything.
    pub global: (KvFormat, KvFormat),
    /// Whether every row passes all layers, for observers that want to see them; otherwise rows whose logits nobody
    /// wants end where the last keys and values are stored. Logits are the same. Not part of the text.
    pub all_rows: bool,
}

impl RecordOptions {
    /// Keys and values of all layers in one format.
    pub fn uniform(format: KvFormat) -> Self {
        Self { sliding: (format, format), global: (format, format), all_rows: false }
    }

    /// What an item may be about: sliding keys and values, global keys and values.
    fn cells(&mut self) -> [&mut KvFormat; 4] {
        let Self { sliding, global, .. } = self;
        [&mut sliding.0, &mut sliding.1, &mut global.0, &mut global.1]
    }
}

impl Default for RecordOptions {
    /// Half precision everywhere.
    fn default() -> Self {
        Self::uniform(KvFormat::F16)
    }
}

impl fmt::Display for RecordOptions {
    /// The shortest text that is read as these options.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |(k, v): (KvFormat, KvFormat)| match k == v {
            true => k.name().to_owned(),
            false => format!("k={},v={}", k.name(), v.name()),
        };
        if self.global == self.sliding {
            return f.write_str(&side(self.global));
        }
        write!(f, "global:{};sliding:{}", side(self.global), side(self.sliding))
    }
}

impl FromStr for RecordOptions {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        let mut options = Self::default();
        // Which item a cell is from.
        let mut from = [None; 4];
        let mut group = [true; 4];
        let items: Vec<&str> = text.split([',', ';']).map(str::trim).collect();
        for (i, item) in items.iter().enumerate() {
            let (groups, rest) = match item.split_once(':') {
                Some((name, rest)) => (group_cells(name, item)?, rest),
                None => (group, *item),
            };
            group = groups;
            let (sides, name) = match rest.split_once('=') {
                Some((name, rest)) => (side_cells(name, item)?, rest),
                None => ([true; 4], rest),
            };
            let format = KvFormat::from_name(name.trim()).ok_or_else(|| unknown("format", name, item))?;
            for (c, cell) in options.cells().into_iter().enumerate() {
                if group[c] && sides[c] {
                    (*cell, from[c]) = (format, Some(i));
                }
            }
        }
        match (0..items.len()).find(|&i| !from.contains(&Some(i))) {
            Some(i) => Err(ModelError::KvReplaced { item: items[i].to_owned(), text: text.to_owned() }),
            None => Ok(options),
        }
    }
}

fn group_cells(name: &str, item: &str) -> Result<[bool; 4], ModelError> {
    match name.trim() {
        "sliding" => Ok([true, true, false, false]),
        "global" => Ok([false, false, true, true]),
        _ => Err(unknown("group of layers", name, item)),
    }
}

fn side_cells(name: &str, item: &str) -> Result<[bool; 4], ModelError> {
    match name.trim() {
        "k" => Ok([true, false, true, false]),
        "v" => Ok([false, true, false, true]),
        _ => Err(unknown("side", name, item)),
    }
}

fn unknown(what: &'static str, name: &str, item: &str) -> ModelError {
    let accepted = match what {
        "format" => KvFormat::ALL.map(KvFormat::name).join(", "),
        "side" => "k, v".to_owned(),
        _ => "global, sliding".to_owned(),
    };
    ModelError::KvUnknown { what, name: name.trim().to_owned(), item: item.to_owned(), accepted }
}

#[cfg(test)]
mod tests {
    use super::*;

    const F16: KvFormat = KvFormat::F16;
    const TQ4: KvFormat = KvFormat::Tq4;
    const TQ6: KvFormat = KvFormat::Tq6;

    #[test]
    fn items_say_what_they_are_about() {
        for (text, sliding, global) in [
            ("tq4", (TQ4, TQ4), (TQ4, TQ4)),
            (" k=tq6 , v=tq4 ", (TQ6, TQ4), (TQ6, TQ4)),
            ("v=tq4", (F16, TQ4), (F16, TQ4)),
            ("global:tq4,sliding:f16", (F16, F16), (TQ4, TQ4)),
            ("global:tq4", (F16, F16), (TQ4, TQ4)),
            ("global:k=tq6,v=tq4;sliding:f16", (F16, F16), (TQ6, TQ4)),
            ("global:k=tq6;v=tq4", (F16, F16), (TQ6, TQ4)),
            ("tq6,global:v=tq4", (TQ6, TQ6), (TQ6, TQ4)),
            ("sliding:v=tq4,global:k=tq6", (F16, TQ4), (TQ6, F16)),
        ] {
            let expected = RecordOptions { sliding, global, all_rows: false };
            assert_eq!(text.parse::<RecordOptions>().unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn printed_options_are_read_back() {
        for (i, &a) in KvFormat::ALL.iter().enumerate() {
            for (j, &b) in KvFormat::ALL.iter().enumerate() {
                let c = KvFormat::ALL[(i * j) % KvFormat::ALL.len()];
                for options in [
                    RecordOptions { sliding: (a, b), global: (b, c), all_rows: false },
                    RecordOptions { sliding: (a, b), global: (a, b), all_rows: false },
                ] {
                    let text = options.to_string();
                    assert_eq!(text.parse::<RecordOptions>().unwrap(), options, "{text}");
                }
            }
        }
        assert_eq!(RecordOptions::default().to_string(), "f16");
    }

    #[test]
    fn mistakes_are_named() {
        for (text, expected) in [
            ("tq7", "unknown format \"tq7\" in \"tq7\"; accepted are f32, f16, bf16, q8_0, tq2, tq3, tq4"),
            ("", "unknown format \"\""),
            ("tq4,", "unknown format \"\""),
            ("local:tq4", "unknown group of layers \"local\" in \"local:tq4\"; accepted are global, sliding"),
            ("q=tq4", "unknown side \"q\" in \"q=tq4\"; accepted are k, v"),
            ("tq4,f16", "\"tq4\" has no effect in \"tq4,f16\""),
            ("global:k=tq4,v=tq4,tq6", "\"global:k=tq4\" has no effect"),
            ("k=k=tq4", "unknown format \"k=tq4\""),
        ] {
            let error = text.parse::<RecordOptions>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
