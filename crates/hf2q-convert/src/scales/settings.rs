//! What `config.json` says about quantized weights.

use serde_json::Value;

use crate::error::ConvertError;
use crate::folder::Folder;

const FILE: &str = "config.json";

/// The part of `quantization_config` that the weights' values depend on. How activations were meant to be quantized
/// does not matter here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Quantization {
    /// Rows and columns of blocks that share a scale.
    blocks: Vec<[usize; 2]>,
    /// Modules that are not quantized, as names with `*` for anything.
    left_out: Vec<String>,
}

impl Quantization {
    /// Reads the settings; none if the model is not quantized.
    ///
    /// # Errors
    /// A size of blocks is not two positive numbers.
    pub(crate) fn read(folder: &Folder, config: &Value) -> Result<Self, ConvertError> {
        const KEYS: [&str; 2] = ["quantization_config", "compression_config"];
        let text = config.get("text_config");
        let mut found = Self::default();
        for (key, settings) in
            KEYS.iter().flat_map(|key| [(*key, config.get(key)), (*key, text.and_then(|text| text.get(key)))])
        {
            let Some(settings) = settings.filter(|s| s.is_object()) else { continue };
            found.add_block(folder, format!("{key}.weight_block_size"), settings.get("weight_block_size"))?;
            found.add_groups(folder, key, settings)?;
            for list in ["modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules"] {
                let names = settings.get(list).and_then(Value::as_array).into_iter().flatten();
                found.left_out.extend(names.filter_map(Value::as_str).map(str::to_owned));
            }
        }
        Ok(found)
    }

    /// Blocks that share a scale, rows and columns.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = [usize; 2]> {
        self.blocks.iter().copied()
    }

    /// Whether the weight's module is listed as not quantized, so that its values are what is stored. A module lists
    /// all below it.
    pub(crate) fn leaves_out(&self, weight: &str) -> bool {
        let module = weight.strip_suffix(".weight").unwrap_or(weight);
        let dots = module.match_indices('.').map(|(at, _)| at).chain([module.len()]);
        let above: Vec<&str> = dots.map(|end| &module[..end]).collect();
        let last = module.rsplit('.').next().unwrap_or(module);
        let is_meant =
            |pattern: &String| *pattern == last || above.iter().any(|name| is_match(pattern, name));
        self.left_out.iter().any(is_meant)
    }

    /// The groups of compressed-tensors, each with the settings of its weights.
    fn add_groups(&mut self, folder: &Folder, key: &str, settings: &Value) -> Result<(), ConvertError> {
        let groups = settings.get("config_groups").and_then(Value::as_object);
        for (group, settings) in groups.into_iter().flatten() {
            let Some(weights) = settings.get("weights") else { continue };
            let at = |name: &str| format!("{key}.config_groups.{group}.weights.{name}");
            self.add_block(folder, at("block_structure"), weights.get("block_structure"))?;
            match weights.get("group_size").and_then(Value::as_u64).map(usize::try_from) {
                Some(Ok(columns)) if columns > 0 => self.blocks.push([1, columns]),
                _ => {}
            }
        }
        Ok(())
    }

    /// `[128, 128]`, or `"128x128"`.
    fn add_block(&mut self, folder: &Folder, key: String, found: Option<&Value>) -> Result<(), ConvertError> {
        let Some(found) = found.filter(|f| !f.is_null()) else { return Ok(()) };
        let sizes: Vec<Option<usize>> = match found {
            Value::Array(sizes) => sizes.iter().map(|s| usize::try_from(s.as_u64()?).ok()).collect(),
            Value::String(sizes) => sizes.split('x').map(|s| s.parse().ok()).collect(),
            _ => Vec::new(),
        };
        match sizes[..] {
            [Some(rows @ 1..), Some(columns @ 1..)] => self.blocks.push([rows, columns]),
            _ => {
                return Err(folder.bad_key(FILE, key, Some(found), "two positive numbers, rows and columns"));
            }
        }
        Ok(())
    }
}

/// Whether a name is that of a pattern, in which `*` is any text. What is between two `*` may be taken where it
/// first occurs: that leaves the most for the rest. So no pattern takes longer than its pieces take to be found.
fn is_match(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let (between, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    let inner = name.strip_prefix(start).and_then(|name| name.strip_suffix(end));
    let Some(mut inner) = inner else { return false };
    for piece in between.split('*') {
        let Some((_, rest)) = inner.split_once(piece) else { return false };
        inner = rest;
    }
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(config: &Value) -> Result<Quantization, ConvertError> {
        Quantization::read(&Folder::new(std::path::Path::new("/model")), config)
    }

    #[test]
    fn blocks_come_from_every_writer() {
        for (config, expected) in [
            (json!({}), vec![]),
            (json!({"quantization_config": null}), vec![]),
            (json!({"quantization_config": {"quant_method": "fp8", "weight_block_size": null}}), vec![]),
            (json!({"quantization_config": {"weight_block_size": [128, 64]}}), vec![[128, 64]]),
            (
                json!({"text_config": {"quantization_config": {"weight_block_size": [16, 32]}}}),
                vec![[16, 32]],
            ),
            (
                json!({"compression_config": {"config_groups": {
                    "group_0": {"weights": {"strategy": "block", "block_structure": [128, 128]}},
                    "group_1": {"weights": {"strategy": "block", "block_structure": "64x32"}},
                    "group_2": {"weights": {"strategy": "group", "group_size": 32}},
                    "group_3": {"weights": {"strategy": "channel", "group_size": -1, "block_structure": null}},
                    "group_4": {"input_activations": {"group_size": 8}},
                }}}),
                vec![[128, 128], [64, 32], [1, 32]],
            ),
        ] {
            let found: Vec<[usize; 2]> = read(&config).unwrap().blocks().collect();
            assert_eq!(found, expected, "{config}");
        }
    }

    #[test]
    fn bad_blocks_are_refused() {
        for block in
            [json!([128]), json!([128, 0]), json!([1, 2, 3]), json!(128), json!("128"), json!([-1, 2])]
        {
            let error =
                read(&json!({"quantization_config": {"weight_block_size": block}})).unwrap_err().to_string();
            assert!(error.contains("config.json: quantization_config.weight_block_size is"), "{error}");
            assert!(error.contains("expected two positive numbers"), "{error}");
        }
    }

    #[test]
    fn modules_are_left_out_by_name() {
        let config = json!({"quantization_config": {
            "modules_to_not_convert": ["lm_head", "model.layers.1.mlp"],
            "ignored_layers": ["model.layers.2.self_attn.q_proj"],
            "ignore": ["re:.*gate$", "model.embed_tokens"],
            "exclude_modules": ["*.router", "model.layers.3*"],
        }});
        let settings = read(&config).unwrap();
        for name in [
            "lm_head.weight",
            "model.layers.1.mlp.up_proj.weight",
            "model.layers.2.self_attn.q_proj.weight",
            "model.embed_tokens.weight",
            "model.layers.0.router.weight",
            "model.layers.3.mlp.up_proj.weight",
        ] {
            assert!(settings.leaves_out(name), "{name}");
        }
        for name in [
            "model.layers.10.mlp.up_proj.weight",
            "model.layers.1.mlp_2.up_proj.weight",
            "model.layers.2.self_attn.q_proj_2.weight",
            "model.layers.0.mlp.gate.weight",
            "model.norm.weight",
        ] {
            assert!(!settings.leaves_out(name), "{name}");
        }
        assert!(!Quantization::default().leaves_out("lm_head.weight"));
    }

    #[test]
    fn stars_are_any_text() {
        let is_match_slowly = |pattern: &str, name: &str| {
            // Which beginnings of the pattern match which beginnings of the name, one letter after the other.
            let mut ends = vec![false; name.len() + 1];
            ends[0] = true;
            for letter in pattern.bytes() {
                let mut next = vec![false; name.len() + 1];
                for at in 0..ends.len() {
                    let is_next = at > 0 && ends[at - 1] && name.as_bytes()[at - 1] == letter;
                    let is_star = letter == b'*' && (ends[at] || at > 0 && next[at - 1]);
                    next[at] = is_next || is_star;
                }
                ends = next;
            }
            ends[name.len()]
        };
        let texts = |letters: [char; 3]| {
            let mut texts = vec![String::new()];
            for from in 0..121 {
                texts.extend(letters.map(|letter| format!("{}{letter}", texts[from])));
            }
            texts
        };
        for pattern in texts(['a', 'b', '*']) {
            for name in texts(['a', 'b', 'c']) {
                assert_eq!(is_match(&pattern, &name), is_match_slowly(&pattern, &name), "{pattern} {name}");
            }
        }
        for (pattern, name, expected) in
            [("ab*bc", "abc", false), ("ab*bc", "abbc", true), ("*é*", "né.w", true), ("é*é", "é", false)]
        {
            assert_eq!(is_match(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn many_stars_take_no_time() {
        let config = json!({"quantization_config": {"ignore": ["**************Z", "*a".repeat(500) + "*Z"]}});
        let settings = read(&config).unwrap();
        assert!(!settings.leaves_out(&format!("model.{}.weight", "a".repeat(10_000))));
        assert!(!settings.leaves_out("model.layers.0.mlp.down_proj.weight"));
        assert!(settings.leaves_out("model.layers.0.Z.weight"));
    }
}
