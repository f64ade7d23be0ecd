//! Recipes against `llama-quantize`: the same type for every tensor of models with real shapes.

use std::collections::BTreeMap;

use hf2q_arch::Config;
use hf2q_convert::{Candidate, ConvertError, Facts, Overrides, Pattern, Recipe, Why, choose, natural_type};
use hf2q_gguf::TensorType;
use serde_json::Value;

use crate::support::root;

/// One file of `fixtures/recipes`.
struct Golden {
    name: &'static str,
    config: Config,
    shapes: BTreeMap<String, Vec<u64>>,
    runs: Vec<Run>,
}

/// One result of `llama-quantize`.
struct Run {
    recipe: String,
    importance: Vec<bool>,
    flags: Vec<String>,
    rest: TensorType,
    named: BTreeMap<String, TensorType>,
}

impl Golden {
    fn load(name: &'static str) -> Self {
        let path = root().join(format!("fixtures/recipes/{name}.json"));
        let json: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let config = Config::from_hf(&json["config"]).unwrap();
        let layers = config.layers.len();
        let shape = |text: &str| text.split('x').map(|d| d.parse().unwrap()).collect();
        let shapes = unfold(&json["tensors"], layers, shape);
        let runs = json["runs"].as_array().unwrap().iter().map(|run| Run::read(run, layers)).collect();
        Self { name, config, shapes, runs }
    }

    fn candidates(&self) -> Vec<Candidate<'_>> {
        let candidate =
            |(name, shape): (&'_ String, &'_ Vec<u64>)| natural_type(name, shape, TensorType::F16);
        self.shapes.iter().map(|t| Candidate { name: t.0, shape: t.1, ty: candidate(t) }).collect()
    }
}

impl Run {
    fn read(json: &Value, layers: usize) -> Self {
        let ty = |text: &str| TensorType::from_name(text).unwrap();
        let strings =
            |v: &Value| v.as_array().unwrap().iter().map(|s| s.as_str().unwrap().to_owned()).collect();
        let mut types = json["types"].clone();
        let rest = ty(types.as_object_mut().unwrap().remove("rest").unwrap().as_str().unwrap());
        Self {
            recipe: json["recipe"].as_str().unwrap().to_owned(),
            importance: json["importance"].as_array().unwrap().iter().map(|b| b.as_bool().unwrap()).collect(),
            flags: strings(&json["flags"]),
            rest,
            named: unfold(&types, layers, ty),
        }
    }

    fn overrides(&self) -> Overrides {
        let mut overrides = Overrides::default();
        let mut flags = self.flags.iter();
        while let Some(flag) = flags.next() {
            let mut value = || flags.next().unwrap();
            match flag.as_str() {
                "--pure" => overrides.pure = true,
                "--output-tensor-type" => {
                    overrides.output = Some(Overrides::type_from_name(value()).unwrap())
                }
                "--token-embedding-type" => {
                    overrides.embedding = Some(Overrides::type_from_name(value()).unwrap());
                }
                "--tensor-type" => overrides.add_pattern(value()).unwrap(),
                _ => panic!("{flag}"),
            }
        }
        overrides
    }
}

/// Undoes the shorthand of the files: `blk.*.x: A in 0-2,5; B in 3` is one entry for each of these layers.
fn unfold<T>(json: &Value, layers: usize, value: impl Fn(&str) -> T) -> BTreeMap<String, T> {
    let mut out = BTreeMap::new();
    for (name, text) in json.as_object().unwrap() {
        for part in text.as_str().unwrap().split("; ") {
            let (what, span) = part.split_once(" in ").unwrap_or((part, ""));
            for layer in if span.is_empty() { (0..layers).collect() } else { numbers(span) } {
                out.insert(name.replace('*', &layer.to_string()), value(what));
            }
        }
    }
    out
}

/// `0-2,5` is 0, 1, 2, 5.
fn numbers(span: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        first.parse().unwrap()..=last.parse().unwrap()
    };
    span.split(',').flat_map(range).collect()
}

fn check(name: &'static str) {
    let golden = Golden::load(name);
    let tensors = golden.candidates();
    let facts = Facts::from_config(&golden.config);
    for run in &golden.runs {
        let recipe = Recipe::from_name(&run.recipe).unwrap();
        for &importance in &run.importance {
            let context = format!("{name} {} {:?} importance: {importance}", run.recipe, run.flags);
            let choices = match choose(&recipe, &facts, &run.overrides(), importance, &tensors) {
                Ok(choices) => choices,
                // A dry run of llama-quantize only warns of it.
                Err(ConvertError::NeedsImportance { recipe: "q2_k_s", .. }) if !importance => continue,
                Err(error) => panic!("{context}: {error}"),
            };
            assert_eq!(choices.len(), tensors.len());
            let differences: Vec<String> = (tensors.iter().zip(&choices))
                .map(|(t, choice)| (t, choice, expected(run, t)))
                .filter(|(_, choice, expected)| choice.ty != *expected)
                .map(|(t, choice, expected)| format!("{}: {expected}, here {choice:?}", t.name))
                .collect();
            assert!(differences.is_empty(), "{context}\n{}", differences.join("\n"));
        }
    }
}

fn expected(run: &Run, tensor: &Candidate<'_>) -> TensorType {
    let is_exact = tensor.shape.len() < 2 || tensor.name.contains("ffn_gate_inp");
    let usual = if is_exact { TensorType::F32 } else { run.rest };
    run.named.get(tensor.name).copied().unwrap_or(usual)
}

/// One test for each model, and a list of all of them.
macro_rules! models {
    ($($test:ident: $name:literal,)*) => {
        $(#[test] fn $test() { check($name); })*
        const MODELS: &[&str] = &[$($name),*];
    };
}

models! {
    gemma4_with_experts: "gemma4-26b-a4b",
    gemma4_dense: "gemma4-31b",
    gemma4_e4b: "gemma4-e4b",
    gemma4_e2b: "gemma4-e2b",
    gemma4_with_eight_experts: "gemma4-8-experts",
    gemma3_270m: "gemma3-270m",
    gemma3_1b: "gemma3-1b",
    gemma3_27b: "gemma3-27b",
    llama_tied: "llama-1b",
    llama_untied: "llama-8b",
    llama_without_groups: "llama-7b",
    llama_70b: "llama-70b",
    llama_65b: "llama-65b",
    llama_of_80_layers: "llama-80-layers",
    smollm2: "smollm2-135m",
    odd_widths: "odd-widths",
    rows_of_48: "rows-of-48",
    qwen3_tied: "qwen3-0.6b",
    qwen3_untied: "qwen3-8b",
    qwen3_with_experts: "qwen3-30b-a3b",
    qwen3_with_eight_experts: "qwen3-8-experts",
}

#[test]
fn every_file_and_every_recipe_is_compared() {
    let files = std::fs::read_dir(root().join("fixtures/recipes")).unwrap();
    let mut names: Vec<String> =
        files.map(|f| f.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    names.retain(|n| !n.starts_with("demo-"));
    names.sort();
    let mut listed = MODELS.to_vec();
    listed.sort_unstable();
    assert_eq!(names, listed);
    for name in MODELS {
        let golden = Golden::load(name);
        for recipe in Recipe::names() {
            for importance in [false, true] {
                let found = golden.runs.iter().filter(|r| r.recipe == recipe && r.flags.is_empty());
                assert!(found.flat_map(|r| &r.importance).any(|&i| i == importance), "{name} {recipe}");
            }
        }
    }
}

#[test]
fn the_models_are_those_of_the_tensor_map() {
    for name in MODELS {
        let golden = Golden::load(name);
        let mut found = 0;
        for row in golden.config.tensors() {
            let Some(shape) = golden.shapes.get(&row.gguf) else {
                assert!(row.optional, "{} lacks {}", golden.name, row.gguf);
                continue;
            };
            assert!(row.shape.iter().map(|&d| d as u64).eq(shape.iter().copied()), "{name} {}", row.gguf);
            found += 1;
        }
        assert_eq!(found, golden.shapes.len(), "{name}");
    }
}

/// The choice for one tensor of the Gemma 4 with experts.
fn one(recipe: &str, overrides: &Overrides, tensor: &str) -> (TensorType, Why) {
    let golden = Golden::load("gemma4-26b-a4b");
    let tensors = golden.candidates();
    let facts = Facts::from_config(&golden.config);
    let recipe = Recipe::from_name(recipe).unwrap();
    let choices = choose(&recipe, &facts, overrides, true, &tensors).unwrap();
    let at = tensors.iter().position(|t| t.name == tensor).unwrap();
    (choices[at].ty, choices[at].why)
}

#[test]
fn choices_say_why() {
    let plain = Overrides::default();
    let experts = "blk.3.ffn_down_exps.weight";
    let wanted = |wanted| Why::Fallback { wanted };
    for (recipe, tensor, ty, why) in [
        ("q4_k_m", "blk.0.attn_q.weight", TensorType::Q4K, Why::Recipe),
        ("q4_k_m", "blk.0.attn_v.weight", TensorType::Q6K, Why::Mixture),
        ("q4_k_m", "token_embd.weight", TensorType::Q6K, Why::Mixture),
        ("q4_k_m", "blk.0.attn_norm.weight", TensorType::F32, Why::Kept),
        ("q4_k_m", experts, TensorType::Q5_0, wanted(TensorType::Q4K)),
        ("q4_k_m", "blk.0.ffn_down_exps.weight", TensorType::Q8_0, wanted(TensorType::Q6K)),
        ("bf16", experts, TensorType::Bf16, Why::Kept),
    ] {
        assert_eq!(one(recipe, &plain, tensor), (ty, why), "{recipe} {tensor}");
    }
    let mut overrides = Overrides { output: Some(TensorType::Q8_0), ..Overrides::default() };
    overrides.add_pattern("exps=iq4_xs").unwrap();
    assert_eq!(one("q4_k_m", &overrides, "token_embd.weight"), (TensorType::Q8_0, Why::Override));
    assert_eq!(one("q4_k_m", &overrides, experts), (TensorType::Iq4Nl, wanted(TensorType::Iq4Xs)));
    let gate = "blk.3.ffn_gate_up_exps.weight";
    assert_eq!(one("q4_k_m", &overrides, gate), (TensorType::Iq4Xs, Why::Override));
}

#[test]
fn choices_do_not_depend_on_the_order_of_tensors() {
    let golden = Golden::load("llama-8b");
    let facts = Facts::from_config(&golden.config);
    let recipe = Recipe::from_name("q4_k_m").unwrap();
    let of = |tensors: &[Candidate<'_>]| {
        let choices = choose(&recipe, &facts, &Overrides::default(), false, tensors).unwrap();
        tensors.iter().zip(choices).map(|(t, c)| (t.name.to_owned(), c.ty)).collect::<BTreeMap<_, _>>()
    };
    let mut tensors = golden.candidates();
    let forwards = of(&tensors);
    tensors.reverse();
    assert_eq!(of(&tensors), forwards);
}

#[test]
fn names_are_those_of_llama_quantize() {
    for (name, full, number) in [
        ("Q4_K", "q4_k_m", 15),
        ("q3_k", "q3_k_m", 12),
        ("Q5_k", "q5_k_m", 17),
        ("MXFP4_MOE", "mxfp4_moe", 38),
    ] {
        let recipe = Recipe::from_name(name).unwrap();
        assert_eq!((recipe.name(), recipe.file_type()), (full, number));
    }
    for name in ["iq2_xs", "IQ3_M", "tq2_0"] {
        let message = Recipe::from_name(name).unwrap_err().to_string();
        assert!(message.contains(&name.to_lowercase()) && message.contains("no encoder"), "{message}");
        assert!(message.contains("q4_k_m") && message.contains("iq4_xs"), "{message}");
    }
    let message = Recipe::from_name("q9_9").unwrap_err().to_string();
    assert!(message.contains("q9_9") && message.contains("q4_k_m"), "{message}");
}

#[test]
fn two_bits_need_importances() {
    let golden = Golden::load("llama-8b");
    let facts = Facts::from_config(&golden.config);
    let recipe = Recipe::from_name("q2_k_s").unwrap();
    let result = choose(&recipe, &facts, &Overrides::default(), false, &golden.candidates());
    let message = result.unwrap_err().to_string();
    assert!(message.contains("q2_k_s") && message.contains("importance matrix"), "{message}");
    assert!(!recipe.needs_importance("token_embd.weight", TensorType::Q2K));
}

#[test]
fn malformed_overrides_say_what_is_accepted() {
    let refused = |text: &str, part: &str| {
        let message = Overrides::default().add_pattern(text).unwrap_err().to_string();
        assert!(message.contains(part), "{text}: {message}");
    };
    refused("attn_v", "PATTERN=TYPE");
    refused("=q8_0", "empty");
    refused("attn_(=q8_0", "attn_(");
    refused("attn_v=q9_9", "q9_9");
    refused("attn_v=i32", "q8_0");
    // More steps than a search may take.
    let slow = Pattern::new(r"^(a|a?)+\1$").unwrap();
    assert!(slow.is_found_in(&format!("{}b", "a".repeat(60))).is_err());
}

#[test]
fn overrides_without_effect_are_told() {
    let golden = Golden::load("gemma4-26b-a4b");
    let tensors = golden.candidates();
    let told = |recipe: &str, overrides: &Overrides| {
        overrides.without_effect(Recipe::from_name(recipe).unwrap(), &tensors).unwrap().join("; ")
    };
    let mut overrides = Overrides { pure: true, output: Some(TensorType::Q8_0), ..Overrides::default() };
    for text in ["attn_q=q8_0", "attn_[qk]=q6_k", "attn_q=q5_k", "ffn_typo=q8_0", "attn_norm=q8_0"] {
        overrides.add_pattern(text).unwrap();
    }
    let message = told("q4_k_m", &overrides);
    assert!(message.contains("output matrix") && message.contains("attn_q=q5_k"), "{message}");
    assert!(message.contains("ffn_typo=q8_0") && message.contains("attn_norm=q8_0"), "{message}");
    assert!(!message.contains("attn_q=q8_0") && !message.contains("attn_[qk]"), "{message}");
    assert!(told("bf16", &overrides).contains("attn_q=q8_0"));
    assert_eq!(told("q4_k_m", &Overrides::default()), "");
}
