//! What cannot be enforced is an error that says why.

use hf2q_grammar::{AnswerRules, GrammarError, Output, Spec, ToolChoice};
use hf2q_text::answer::{AnswerFormat, ToolSet, ToolSyntax};
use serde_json::{Value, json};

use crate::grammars;

fn refusal(spec: Spec) -> GrammarError {
    let (_, grammars) = grammars("demo");
    let Err(error) = grammars.constraint(&spec) else { panic!("{spec:?} is taken") };
    error
}

#[test]
fn keywords_are_named() {
    let inside = |schema: Value| json!({ "type": "object", "properties": { "a": schema } });
    for (keyword, schema) in [
        ("not", json!({ "not": { "type": "string" } })),
        ("if", json!({ "if": {}, "then": {} })),
        ("uniqueItems", json!({ "type": "array", "uniqueItems": true })),
        ("contains", json!({ "contains": {} })),
        ("propertyNames", json!({ "propertyNames": {} })),
        ("dependentRequired", json!({ "dependentRequired": {} })),
        ("unevaluatedProperties", json!({ "unevaluatedProperties": false })),
        ("$ref", json!({ "$ref": "https://example.com/x" })),
        ("$ref", json!({ "$ref": "#/$defs/missing" })),
        ("anyOf", json!({ "anyOf": [] })),
        ("enum", json!({ "enum": [] })),
        ("required", json!({ "required": "a" })),
        ("minLength", json!({ "type": "string", "minLength": -1 })),
        ("minProperties", json!({ "type": "object", "minProperties": 2 })),
    ] {
        match refusal(Spec::JsonSchema(inside(schema))) {
            GrammarError::Keyword { path, keyword: found, .. } => {
                assert_eq!((path.as_str(), found.as_str()), ("#/properties/a", keyword));
            }
            other => panic!("{keyword}: {other}"),
        }
    }
    let draft = json!({ "$schema": "https://example.com/schema" });
    assert!(
        matches!(refusal(Spec::JsonSchema(draft)), GrammarError::Keyword { keyword, .. } if keyword == "$schema")
    );
}

#[test]
fn other_schemas_are_refused_with_a_reason() {
    let mut deep = json!({ "type": "string" });
    for _ in 0..100 {
        deep = json!({ "items": deep });
    }
    for (schema, part) in [
        (json!(3), "no schema"),
        (json!(false), "nothing fits"),
        (json!({ "items": 3 }), "no schema"),
        (json!({ "type": "text" }), "text"),
        (json!({ "type": "string", "format": "colour" }), "colour"),
        (json!({ "type": "string", "pattern": "(" }), "regex"),
        (json!({ "type": "string", "minLength": 5, "maxLength": 2 }), "Length"),
        (json!({ "oneOf": [{ "type": "string" }, { "type": "string", "maxLength": 3 }] }), "oneOf"),
        (deep, "deep"),
    ] {
        let error = refusal(Spec::JsonSchema(schema.clone()));
        assert!(matches!(error, GrammarError::Schema { .. }), "{schema}: {error:?}");
        assert!(error.to_string().to_lowercase().contains(&part.to_lowercase()), "{schema}: {error}");
    }
    // What nothing refers to does no harm, nor do words of other makers.
    let (_, grammars) = grammars("demo");
    let good = json!({ "$defs": { "x": { "not": {} } }, "x-order": 1, "nullable": true, "type": "string" });
    assert!(grammars.constraint(&Spec::JsonSchema(good)).is_ok());
}

#[test]
fn grammars_are_refused_with_a_reason() {
    for (spec, part) in [
        (Spec::Regex("(".into()), "regular expression"),
        (Spec::Regex(String::new()), "empty"),
        (Spec::Choice(vec![]), "0 texts"),
        (Spec::Choice(vec!["a".into(), String::new()]), "text 1 is empty"),
        (Spec::Lark("start: missing".into()), "missing"),
        (Spec::Lark("start: <|turn>".into()), "line 1"),
        (Spec::Lark("other: \"a\"".into()), "start"),
        (Spec::Gbnf("a ::= \"x\"".into()), "root"),
        (Spec::Gbnf("root ::= b".into()), "\"b\""),
        (Spec::Gbnf("root ::= \"x".into()), "line 1"),
        (Spec::Gbnf("root ::= (\"x\"".into()), "missing"),
        (Spec::Gbnf("root ::= * \"x\"".into()), "repeats nothing"),
        (Spec::Gbnf("root ::= [a".into()), "without its end"),
        (Spec::Gbnf("root ::= \"a\"{99999}".into()), "99999"),
        (Spec::Gbnf("\"a\"".into()), "not in a rule"),
    ] {
        let error = refusal(spec.clone()).to_string();
        assert!(error.contains(part), "{spec:?}: {error}");
    }
}

fn rules(tools: &[Value], choice: ToolChoice, syntax: ToolSyntax) -> AnswerRules {
    let tools = ToolSet::from_openai(tools).unwrap();
    AnswerRules {
        format: AnswerFormat { thinking: None, tools: syntax, renders_tools: true },
        in_thought: false,
        thinking: false,
        thinking_budget: None,
        output: Output::Tools { tools, choice, parallel: true },
    }
}

#[test]
fn tools_are_named() {
    let (_, grammars) = grammars("demo");
    let tool = |name: &str, parameters: Value| json!({ "type": "function", "function": { "name": name, "parameters": parameters } });
    let fine = tool("fine", json!({}));
    for syntax in
        [ToolSyntax::Gemma4, ToolSyntax::Hermes, ToolSyntax::Xml, ToolSyntax::Mistral, ToolSyntax::Json]
    {
        for (bad, part) in [
            (json!({ "type": "object", "properties": { "a": { "not": {} } } }), "\"not\" at #/properties/a"),
            (json!({ "type": "array" }), "\"type\""),
        ] {
            let rules = rules(&[fine.clone(), tool("bad", bad.clone())], ToolChoice::Auto, syntax);
            let Err(error) = grammars.compile_rules(&rules) else { panic!("{syntax:?} takes {bad}") };
            let error = error.to_string();
            assert!(error.contains("\"bad\"") && error.contains(part), "{syntax:?}: {error}");
        }
        let named = rules(std::slice::from_ref(&fine), ToolChoice::Named("other".into()), syntax);
        let error = grammars.compile_rules(&named).err().unwrap().to_string();
        assert!(error.contains("\"other\"") && error.contains("\"fine\""), "{error}");
        assert!(grammars.compile_rules(&rules(&[], ToolChoice::Required, syntax)).is_err());
    }
}
