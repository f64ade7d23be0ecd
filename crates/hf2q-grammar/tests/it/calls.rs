//! Calls that must come: whatever is drawn is a call of a tool with arguments of its schema.

use hf2q_grammar::{AnswerRules, Output, Rules, ToolChoice};
use hf2q_text::answer::{AnswerFormat, AnswerParser, Delta, ParserOptions, ToolSet, ToolSyntax};
use serde_json::{Value, json};

use crate::{grammars, text, walk};

pub(crate) const NOTATIONS: [(&str, ToolSyntax); 5] = [
    ("demo", ToolSyntax::Gemma4),
    ("qwen2", ToolSyntax::Hermes),
    ("qwen2", ToolSyntax::Xml),
    ("spm", ToolSyntax::Mistral),
    ("llama3", ToolSyntax::Json),
];

pub(crate) fn tools() -> ToolSet {
    let weather = json!({
        "type": "object",
        "properties": {
            "unit": { "enum": ["c", "f"], "type": "string" },
            "city": { "type": "string", "maxLength": 12 },
            "days": { "type": "integer", "minimum": 1, "maximum": 9 },
            "where": { "$ref": "#/$defs/place" }
        },
        "required": ["city", "unit"],
        "$defs": { "place": {
            "type": "object",
            "properties": { "x": { "type": "number" }, "near": { "type": "array", "items": { "type": "boolean" }, "maxItems": 2 } },
            "required": ["x"], "additionalProperties": false
        } }
    });
    let function = |name: &str, parameters: Value| json!({ "type": "function", "function": { "name": name, "parameters": parameters } });
    let stop = json!({ "type": "object", "properties": {} });
    ToolSet::from_openai(&[function("weather", weather), function("stop", stop)]).unwrap()
}

fn is_valid(name: &str, arguments: &Value) -> bool {
    let Some(fields) = arguments.as_object() else { return false };
    if name == "stop" {
        return fields.is_empty();
    }
    let place = |p: &Value| {
        let near = p
            .get("near")
            .is_none_or(|n| n.as_array().is_some_and(|l| l.len() <= 2 && l.iter().all(Value::is_boolean)));
        p["x"].is_number() && near && p.as_object().unwrap().keys().all(|k| k == "x" || k == "near")
    };
    name == "weather"
        && fields["city"].as_str().is_some_and(|c| c.chars().count() <= 12)
        && (fields["unit"] == "c" || fields["unit"] == "f")
        && fields.get("days").is_none_or(|d| d.as_i64().is_some_and(|d| (1..=9).contains(&d)))
        && fields.get("where").is_none_or(place)
        && fields.keys().all(|k| ["unit", "city", "days", "where"].contains(&k.as_str()))
}

pub(crate) fn compile(name: &str, syntax: ToolSyntax, choice: ToolChoice, parallel: bool) -> Rules {
    let (_, grammars) = grammars(name);
    let format = AnswerFormat { thinking: None, tools: syntax, renders_tools: true };
    let output = Output::Tools { tools: tools(), choice, parallel };
    let rules = AnswerRules { format, in_thought: false, thinking: false, thinking_budget: None, output };
    grammars.compile_rules(&rules).unwrap_or_else(|e| panic!("{name} {syntax:?}: {e}"))
}

/// Names and arguments of an answer's calls, and its content.
pub(crate) fn parse(name: &str, syntax: ToolSyntax, ids: &[u32]) -> (Vec<(String, String)>, String) {
    let (tokenizer, _) = grammars(name);
    let format = AnswerFormat { thinking: None, tools: syntax, renders_tools: true };
    let options = ParserOptions { tools: tools(), ..ParserOptions::default() };
    let mut parser = AnswerParser::new(&tokenizer, &format, options);
    let mut deltas: Vec<Delta> = ids.iter().flat_map(|id| parser.push(&tokenizer, *id)).collect();
    deltas.extend(parser.finish());
    let (mut calls, mut content) = (Vec::new(), String::new());
    for delta in deltas {
        match delta {
            Delta::Call { name, .. } => calls.push((name, String::new())),
            Delta::Arguments { index, text } => calls[index].1 += &text,
            Delta::Content(text) => content += &text,
            Delta::Reasoning(text) => panic!("a thought: {text}"),
        }
    }
    (calls, content)
}

#[test]
fn required_calls_are_calls() {
    for (name, syntax) in NOTATIONS {
        let (tokenizer, _) = grammars(name);
        let rules = compile(name, syntax, ToolChoice::Required, true);
        let (mut ended, mut several) = (0, 0);
        for seed in 0..30 {
            let (ids, whole) = walk(&tokenizer, &mut *rules.constraint().unwrap(), seed, 400);
            let (calls, content) = parse(name, syntax, &ids);
            if !whole {
                continue;
            }
            ended += 1;
            several += usize::from(calls.len() > 1);
            let shown = text(&tokenizer, &ids);
            assert_eq!(content, "", "{name} {syntax:?}: {shown:?}");
            assert!(!calls.is_empty(), "{name} {syntax:?}: {shown:?}");
            for (function, arguments) in calls {
                let arguments: Value = serde_json::from_str(&arguments)
                    .unwrap_or_else(|e| panic!("{name} {syntax:?}: {shown:?}: {arguments:?}: {e}"));
                assert!(is_valid(&function, &arguments), "{name} {syntax:?}: {shown:?}: {arguments}");
            }
        }
        assert!(
            ended >= 15 && several > 0,
            "{name} {syntax:?}: {ended} of 30 ended, {several} with several calls"
        );
    }
}

#[test]
fn a_named_call_is_of_that_function_and_one_is_one() {
    for (name, syntax) in NOTATIONS {
        let (tokenizer, _) = grammars(name);
        let rules = compile(name, syntax, ToolChoice::Named("stop".into()), false);
        for seed in 0..5 {
            let (ids, whole) = walk(&tokenizer, &mut *rules.constraint().unwrap(), seed, 100);
            let (calls, content) = parse(name, syntax, &ids);
            let shown = text(&tokenizer, &ids);
            assert!(whole && content.is_empty(), "{name} {syntax:?}: {shown:?}");
            assert_eq!(calls.len(), 1, "{name} {syntax:?}: {shown:?}");
            let arguments: Value = serde_json::from_str(&calls[0].1).unwrap();
            assert_eq!((calls[0].0.as_str(), arguments), ("stop", json!({})), "{shown:?}");
        }
    }
}
