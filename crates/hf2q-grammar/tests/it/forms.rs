//! Schemas, expressions, choices, grammars.

use hf2q_grammar::Spec;
use serde_json::{Value, json};

use crate::{VOCABULARIES, accepts, grammars, text, walk};

/// Checks texts that a form accepts, and others, in every vocabulary.
fn check(spec: &Spec, good: &[&str], bad: &[&str]) {
    for name in VOCABULARIES {
        let (tokenizer, grammars) = grammars(name);
        for text in good {
            let mut constraint = grammars.constraint(spec).unwrap();
            assert!(accepts(&tokenizer, &mut *constraint, text), "{name}: {spec:?} should accept {text:?}");
        }
        for text in bad {
            let mut constraint = grammars.constraint(spec).unwrap();
            assert!(!accepts(&tokenizer, &mut *constraint, text), "{name}: {spec:?} accepts {text:?}");
        }
    }
}

#[test]
fn schemas() {
    let person = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "name": { "type": "string", "maxLength": 5 },
            "age": { "type": "integer", "minimum": 0, "maximum": 150 },
            "friends": { "type": "array", "items": { "$ref": "#" } }
        },
        "required": ["name"],
        "additionalProperties": false
    });
    check(
        &Spec::JsonSchema(person),
        &[
            r#"{"name": "Ada"}"#,
            r#"{"name":"Köln","age":150}"#,
            "{\n  \"name\": \"é🙂\\n\",\n  \"friends\": [{\"name\": \"B\"}]\n}",
        ],
        &[
            "{}",
            "[]",
            "hello",
            r#"{"name": "Ada""#,
            r#"{"name": "Ada Lovelace"}"#,
            r#"{"name": "Ada", "age": 151}"#,
            r#"{"name": "Ada", "age": 1.5}"#,
            r#"{"name": "Ada", "x": 1}"#,
            "{\"name\":\n\n\n\"Ada\"}",
        ],
    );
    check(&Spec::JsonSchema(json!({ "enum": ["a", 1, null] })), &["\"a\"", "1", "null"], &["\"b\"", "2", ""]);
    check(&Spec::JsonSchema(json!(true)), &["{\"a\": [1.5e3, true]}", "3", "\"x\""], &["x", "{"]);
    check(&Spec::JsonObject, &["{}", "{\"a\": {\"b\": []}}"], &["[]", "1", "{\"a\"}"]);
}

#[test]
fn expressions_and_choices() {
    check(&Spec::Regex("[0-9]{3}-(ab|é)/?".into()), &["123-ab", "123-é/"], &["12-ab", "123-abc", "x123-ab"]);
    check(
        &Spec::Choice(vec!["yes".into(), "no".into(), "\"may\nbe\"".into(), "nothing".into()]),
        &["yes", "no", "nothing", "\"may\nbe\""],
        &["", "maybe", "nothin", "yes "],
    );
}

#[test]
fn grammars_of_both_notations() {
    let sums = [&["1+2", "(1+20)+3"][..], &["1+", "(1", "a"]];
    check(
        &Spec::Lark("start: sum\nsum: part (\"+\" part)*\npart: /[0-9]+/ | \"(\" sum \")\"\n".into()),
        sums[0],
        sums[1],
    );
    let gbnf =
        "# sums\nroot ::= sum\nsum ::= part (\"+\" part)* # parts\npart ::= [0-9]+ |\n  \"(\" sum \")\"\n";
    check(&Spec::Gbnf(gbnf.into()), sums[0], sums[1]);
    let more = r#"
root ::= greeting ws name{1,2} "!"? "\x21" end
greeting ::= "Hello" | "\"Hi\""
ws ::= [ \t\n]*
name ::= [^\]0-9!-] [a-z-]+ ","
end ::= "" | "."
"#;
    check(
        &Spec::Gbnf(more.into()),
        &["Hello Ada,!", "\"Hi\"\n Bo-b,Çx,!!.", "HelloAda,!"],
        &["Hello 1a,!", "Hello Ada!", "Hello Ada,", "Hello Ada,Bob,Eve,!"],
    );
}

/// What is drawn evenly from what is allowed is what was asked for, and holds no control token.
#[test]
fn walks_keep_to_the_form() {
    let schema = json!({
        "type": "object",
        "properties": {
            "kind": { "enum": ["a", "b"] },
            "text": { "type": "string", "maxLength": 8 },
            "list": { "type": "array", "items": { "type": ["boolean", "null"] }, "minItems": 1, "maxItems": 3 }
        },
        "required": ["kind", "text", "list"],
        "additionalProperties": false
    });
    for name in VOCABULARIES {
        let (tokenizer, grammars) = grammars(name);
        let mut ended = 0;
        for seed in 0..20 {
            let mut constraint = grammars.constraint(&Spec::JsonSchema(schema.clone())).unwrap();
            let (ids, whole) = walk(&tokenizer, &mut *constraint, seed, 200);
            assert!(!ids.iter().any(|id| tokenizer.is_control(*id)), "{name}");
            if !whole {
                continue;
            }
            ended += 1;
            let text = text(&tokenizer, &ids);
            let value: Value =
                serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {text:?}: {e}"));
            assert!(value["kind"] == "a" || value["kind"] == "b", "{text}");
            assert!(value["text"].as_str().unwrap().chars().count() <= 8, "{text}");
            let list = value["list"].as_array().unwrap();
            assert!(
                (1..=3).contains(&list.len()) && list.iter().all(|v| v.is_boolean() || v.is_null()),
                "{text}"
            );
        }
        assert!(ended >= 10, "{name}: {ended} of 20 answers ended");
    }
}

/// What one answer may hold does not depend on other answers of the same grammar.
#[test]
fn answers_do_not_feel_one_another() {
    let (tokenizer, grammars) = grammars("qwen2");
    let spec = Spec::JsonSchema(json!({ "type": "array", "items": { "type": "string" } }));
    let first = walk(&tokenizer, &mut *grammars.constraint(&spec).unwrap(), 7, 60);
    let mut other = grammars.constraint(&spec).unwrap();
    walk(&tokenizer, &mut *other, 8, 60);
    let again = walk(&tokenizer, &mut *grammars.constraint(&spec).unwrap(), 7, 60);
    assert_eq!(again, first);
}
