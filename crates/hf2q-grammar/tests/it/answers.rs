//! Thoughts before a form, calls within text.

use hf2q_grammar::{AnswerRules, Constraint, Grammars, Output, Spec, ToolChoice};
use hf2q_text::answer::{AnswerFormat, Thinking, ToolSyntax};
use hf2q_text::{Specials, Tokenizer};
use serde_json::json;

use crate::calls::{NOTATIONS, compile, parse};
use crate::{feed, grammars, may_end};

fn form(thinking: Option<Thinking>, in_thought: bool, budget: Option<usize>) -> AnswerRules {
    let schema = json!({ "type": "object", "properties": { "a": { "type": "integer" } }, "additionalProperties": false });
    AnswerRules {
        format: AnswerFormat { thinking, tools: ToolSyntax::Hermes, renders_tools: true },
        in_thought,
        thinking: true,
        thinking_budget: budget,
        output: Output::Form(Spec::JsonSchema(schema)),
    }
}

fn constraint(grammars: &Grammars, rules: &AnswerRules) -> Box<dyn Constraint> {
    grammars.compile_rules(rules).unwrap().constraint().unwrap()
}

/// Feeds a text with its markers; whether all of it was allowed and the answer may end.
fn takes(tokenizer: &Tokenizer, constraint: &mut dyn Constraint, text: &str) -> bool {
    let taken = feed(tokenizer, constraint, text, Specials::Parse);
    taken == text.len() && may_end(tokenizer, constraint)
}

#[test]
fn a_form_begins_behind_the_thought() {
    for (name, thinking, open) in [
        ("demo", Thinking::Channel, "<|channel>thought\nHm, {} <tag>\n<channel|>"),
        ("qwen35", Thinking::Tags, "<think>\nHm, {} <tag>\n</think>"),
    ] {
        let (tokenizer, grammars) = grammars(name);
        assert!(tokenizer.special_id(thinking.markers().0).is_some(), "{name}");
        let rules = form(Some(thinking), false, None);
        for (text, good) in [
            (format!("{open}{{\"a\": 3}}"), true),
            ("{\"a\": 3}".to_owned(), true),
            (format!("{open}Text"), false),
            (open.to_owned(), false),
            ("Text".to_owned(), false),
        ] {
            let mut constraint = constraint(&grammars, &rules);
            assert_eq!(takes(&tokenizer, &mut *constraint, &text), good, "{name}: {text:?}");
        }
        // Without leave to think, and where the prompt opened the thought.
        let mut never = constraint(&grammars, &AnswerRules { thinking: false, ..rules });
        assert!(!takes(&tokenizer, &mut *never, &format!("{open}{{}}")), "{name}");
        let inside = open.split_once('\n').unwrap().1;
        let mut inside_constraint = constraint(&grammars, &form(Some(thinking), true, None));
        assert!(takes(&tokenizer, &mut *inside_constraint, &format!("{inside}{{}}")), "{name}");
    }
}

#[test]
fn a_thought_ends_with_its_budget() {
    let (tokenizer, grammars) = grammars("qwen35");
    let mut constraint = constraint(&grammars, &form(Some(Thinking::Tags), true, Some(3)));
    let words = tokenizer.encode("one two three four five six", Specials::AsText);
    let mut taken = 0;
    for id in words {
        let set = constraint.allowed().unwrap().unwrap();
        if !set.contains(id) {
            let close = tokenizer.special_id("</think>").unwrap();
            assert!(set.contains(close));
            constraint.push(close).unwrap();
            break;
        }
        constraint.push(id).unwrap();
        taken += 1;
    }
    assert_eq!(taken, 4, "the fourth token goes over the budget");
    assert!(takes(&tokenizer, &mut *constraint, "{\"a\": 1}"));
}

#[test]
fn nothing_to_constrain_is_no_constraint() {
    let (_, grammars) = grammars("demo");
    let free = AnswerRules { output: Output::Free, ..form(None, false, None) };
    assert!(grammars.compile_rules(&free).unwrap().constraint().is_none());
}

/// A call as each notation writes it, cut before the value of an argument.
fn beginning(syntax: ToolSyntax) -> (&'static str, &'static str, &'static str) {
    match syntax {
        ToolSyntax::Gemma4 => (
            "Let me look.\n<|tool_call>",
            "call:weather{city:<|\"|>Ulm<|\"|>,",
            "unit:<|\"|>c<|\"|>}<tool_call|>",
        ),
        ToolSyntax::Hermes => (
            "Let me look.\n<tool_call>",
            "\n{\"name\": \"weather\", \"arguments\": {",
            "\"unit\": \"c\", \"city\": \"Ulm\"}}\n</tool_call>",
        ),
        ToolSyntax::Xml => (
            "Let me look.\n<tool_call>",
            "\n<function=weather>\n<parameter=unit>\n",
            "c\n</parameter>\n<parameter=city>\nUlm\n</parameter>\n</function>\n</tool_call>",
        ),
        ToolSyntax::Mistral => (
            "Look:[TOOL_CALLS]",
            "[{\"name\": \"weather\", \"arguments\": {",
            "\"unit\": \"c\", \"city\": \"Ulm\"}}]",
        ),
        _ => ("", "{\"name\": \"weather\", \"parameters\": {", "\"unit\": \"c\", \"city\": \"Ulm\"}}"),
    }
}

#[test]
fn a_call_that_begins_keeps_to_its_schema() {
    for (name, syntax) in NOTATIONS {
        let (tokenizer, _) = grammars(name);
        let (open, start, rest) = beginning(syntax);
        for parallel in [true, false] {
            let rules = compile(name, syntax, ToolChoice::Auto, parallel);
            let mut constraint = rules.constraint().unwrap();
            let text = format!("{open}{start}{rest}");
            assert_eq!(
                feed(&tokenizer, &mut *constraint, &text, Specials::Parse),
                text.len(),
                "{name} {syntax:?}"
            );
            assert_eq!(constraint.is_finished(), !parallel, "{name} {syntax:?}");
            assert!(may_end(&tokenizer, &mut *constraint), "{name} {syntax:?}");
            let (calls, _) = parse(name, syntax, &tokenizer.encode(&text, Specials::Parse));
            assert_eq!(calls.len(), 1, "{name} {syntax:?}");
            // Something that the schema does not have.
            let mut constraint = rules.constraint().unwrap();
            let bad = format!("{open}{start}\"colour\": 1");
            assert!(
                feed(&tokenizer, &mut *constraint, &bad, Specials::Parse) < bad.len(),
                "{name} {syntax:?}"
            );
            assert!(!may_end(&tokenizer, &mut *constraint), "{name} {syntax:?}: the call must be finished");
        }
        // Text alone is free.
        let mut constraint = compile(name, syntax, ToolChoice::Auto, true).constraint().unwrap();
        assert!(
            takes(&tokenizer, &mut *constraint, "No call <b>here</b> {\"name\": 3}, nor [there]."),
            "{name} {syntax:?}"
        );
    }
}
