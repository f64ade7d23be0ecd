//! How a model is recorded: the formats of its caches, and how they are written on a command line.

use std::fmt;
use std::str::FromStr;

use hf2q_plan::KvFormat;

use crate::error::ModelError;

/// Where nothing else is said, recent positions are stored so.
const RECENT: KvFormat = KvFormat::F16;

/// In place of a format for recent positions.
const OFF: &str = "off";

/// How a model is recorded.
///
/// As text: items separated by `,` or `;`, each `[global:|sliding:][k=|v=]FORMAT` or `recent:FORMAT|off`. An item is about
/// both groups of layers and about keys and values unless it says otherwise; a group holds for the items behind it, until
/// the next group. Later items replace what earlier ones say, and what no item names is `f16`.
///
/// What is stored with TurboQuant is kept a second time for each row's own page, in the format of `recent`, and read there
/// by the rows of that page: the nearest positions matter most, and these cost the same at any length of a sequence.
///
/// | text | meaning |
/// |---|---|
/// | `tq4` | everything |
/// | `k=tq6,v=tq4` | keys and values |
/// | `global:tq4,sliding:f16` | groups |
/// | `global:k=tq6,v=tq4;sliding:f16` | both |
/// | `q8_0,global:v=tq4` | everything but the values of global layers |
/// | `tq4,recent:q8_0` | recent positions of all layers |
/// | `tq4,recent:off` | nothing is kept a second time |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordOptions {
    /// Storage of keys and of values in layers with a window.
    pub sliding: (KvFormat, KvFormat),
    /// Storage of keys and of values in layers that see everything.
    pub global: (KvFormat, KvFormat),
    /// Storage of a row's own page of 64 positions, for keys and for values that are otherwise stored with TurboQuant;
    /// `None`: they have no other.
    pub recent: Option<KvFormat>,
    /// Whether every row passes all layers, for observers that want to see them; otherwise rows whose logits nobody
    /// wants end where the last keys and values are stored. Logits are the same. Not part of the text.
    pub all_rows: bool,
}

impl RecordOptions {
    /// Keys and values of all layers in one format, recent positions in half precision.
    pub fn uniform(format: KvFormat) -> Self {
        Self { sliding: (format, format), global: (format, format), recent: Some(RECENT), all_rows: false }
    }

    /// In which formats keys and values that are stored in `formats` are kept a second time, if one of them is TurboQuant.
    /// The other one keeps its own.
    pub fn recent_formats(&self, formats: (KvFormat, KvFormat)) -> Option<(KvFormat, KvFormat)> {
        let recent = self.recent?;
        let of = |format: KvFormat| if format.turbo().is_some() { recent } else { format };
        let is_coded = formats.0.turbo().or(formats.1.turbo()).is_some();
        is_coded.then(|| (of(formats.0), of(formats.1)))
    }

    /// Whether anything is stored with TurboQuant.
    fn has_codes(&self) -> bool {
        let (sliding, global) = (self.sliding, self.global);
        [sliding.0, sliding.1, global.0, global.1].into_iter().any(|format| format.turbo().is_some())
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
    /// The shortest text that is read as these options. `recent` is left out where it has no effect.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |(k, v): (KvFormat, KvFormat)| match k == v {
            true => k.name().to_owned(),
            false => format!("k={},v={}", k.name(), v.name()),
        };
        let separator = if self.global == self.sliding {
            f.write_str(&side(self.global))?;
            ','
        } else {
            write!(f, "global:{};sliding:{}", side(self.global), side(self.sliding))?;
            ';'
        };
        if self.recent != Some(RECENT) && self.has_codes() {
            write!(f, "{separator}recent:{}", self.recent.map_or(OFF, KvFormat::name))?;
        }
        Ok(())
    }
}

impl FromStr for RecordOptions {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        let mut options = Self::default();
        // Which item a cell is from, and which one recent positions are.
        let (mut from, mut recent) = ([None; 4], None);
        let mut group = Group::Layers([true; 4]);
        let items: Vec<&str> = text.split([',', ';']).map(str::trim).collect();
        for (i, item) in items.iter().enumerate() {
            let (named, rest) = match item.split_once(':') {
                Some((name, rest)) => (group_of(name, item)?, rest),
                None => (group, *item),
            };
            group = named;
            let Group::Layers(cells) = group else {
                (options.recent, recent) = (recent_format(rest, item)?, Some(i));
                continue;
            };
            let (sides, name) = match rest.split_once('=') {
                Some((name, rest)) => (side_cells(name, item)?, rest),
                None => ([true; 4], rest),
            };
            let format = KvFormat::from_name(name.trim()).ok_or_else(|| unknown("format", name, item))?;
            for (c, cell) in options.cells().into_iter().enumerate() {
                if cells[c] && sides[c] {
                    (*cell, from[c]) = (format, Some(i));
                }
            }
        }
        let owned = |i: usize| (items[i].to_owned(), text.to_owned());
        if let Some(i) = (0..items.len()).find(|&i| !from.contains(&Some(i)) && recent != Some(i)) {
            let (item, text) = owned(i);
            return Err(ModelError::KvReplaced { item, text });
        }
        if let Some((item, text)) = recent.filter(|_| !options.has_codes()).map(owned) {
            return Err(ModelError::KvRecent { item, text });
        }
        Ok(options)
    }
}

/// What an item is about.
#[derive(Clone, Copy)]
enum Group {
    /// Which of [`RecordOptions::cells`].
    Layers([bool; 4]),
    /// Recent positions.
    Recent,
}

fn group_of(name: &str, item: &str) -> Result<Group, ModelError> {
    match name.trim() {
        "sliding" => Ok(Group::Layers([true, true, false, false])),
        "global" => Ok(Group::Layers([false, false, true, true])),
        "recent" => Ok(Group::Recent),
        _ => Err(unknown("group of layers", name, item)),
    }
}

fn recent_format(name: &str, item: &str) -> Result<Option<KvFormat>, ModelError> {
    match name.trim() {
        OFF => Ok(None),
        name => match KvFormat::from_name(name) {
            Some(format) => Ok(Some(format)),
            None => Err(unknown("format of recent positions", name, item)),
        },
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
    let formats = KvFormat::ALL.map(KvFormat::name).join(", ");
    let accepted = match what {
        "format" => formats,
        "format of recent positions" => format!("{formats}, {OFF}"),
        "side" => "k, v".to_owned(),
        _ => "global, sliding, recent".to_owned(),
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
            let expected = RecordOptions { sliding, global, recent: Some(F16), all_rows: false };
            assert_eq!(text.parse::<RecordOptions>().unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn printed_options_are_read_back() {
        for (i, &a) in KvFormat::ALL.iter().enumerate() {
            for (j, &b) in KvFormat::ALL.iter().enumerate() {
                let c = KvFormat::ALL[(i * j) % KvFormat::ALL.len()];
                for (global, recent) in
                    [((b, c), Some(F16)), ((a, b), Some(F16)), ((b, c), Some(a)), ((a, b), None)]
                {
                    let mut options = RecordOptions { sliding: (a, b), global, recent, all_rows: false };
                    if !options.has_codes() {
                        options.recent = Some(F16);
                    }
                    let text = options.to_string();
                    assert_eq!(text.parse::<RecordOptions>().unwrap(), options, "{text}");
                }
            }
        }
        assert_eq!(RecordOptions::default().to_string(), "f16");
    }

    #[test]
    fn recent_positions_have_a_format_where_something_is_coded() {
        let tq4 = RecordOptions::uniform(TQ4);
        for (text, recent, printed) in [
            ("tq4", Some(F16), "tq4"),
            ("tq4,recent:f16", Some(F16), "tq4"),
            ("recent:q8_0;global:tq4;sliding:tq4", Some(KvFormat::Q8_0), "tq4,recent:q8_0"),
            ("tq4; recent: off", None, "tq4,recent:off"),
            ("tq4,recent:tq8", Some(KvFormat::Tq8), "tq4,recent:tq8"),
        ] {
            let options: RecordOptions = text.parse().unwrap();
            assert_eq!(options, RecordOptions { recent, ..tq4 }, "{text}");
            assert_eq!(options.to_string(), printed, "{text}");
        }
        let options: RecordOptions = "sliding:v=tq4;recent:f32".parse().unwrap();
        assert_eq!(options.to_string(), "global:f16;sliding:k=f16,v=tq4;recent:f32");
        assert_eq!(options.recent_formats(options.sliding), Some((F16, KvFormat::F32)));
        assert_eq!(options.recent_formats(options.global), None);
        assert_eq!(RecordOptions { recent: None, ..tq4 }.recent_formats((TQ4, TQ4)), None);
        assert_eq!(RecordOptions { recent: None, ..RecordOptions::default() }.to_string(), "f16");
    }

    #[test]
    fn mistakes_are_named() {
        for (text, expected) in [
            ("tq7", "unknown format \"tq7\" in \"tq7\"; accepted are f32, f16, bf16, q8_0, tq2, tq3, tq4"),
            ("", "unknown format \"\""),
            ("tq4,", "unknown format \"\""),
            (
                "local:tq4",
                "unknown group of layers \"local\" in \"local:tq4\"; accepted are global, sliding, recent",
            ),
            ("q8_0,recent:off", "\"recent:off\" has no effect in \"q8_0,recent:off\": only TurboQuant"),
            ("tq4,recent:f16,recent:off", "\"recent:f16\" has no effect"),
            ("recent:off,tq4", "\"recent:off\" has no effect"),
            ("tq4,recent:k=f16", "unknown format of recent positions \"k=f16\""),
            ("tq4,recent:tq9", "accepted are f32, f16, bf16, q8_0, tq2, tq3, tq4, tq5, tq6, tq8, off"),
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
