//! Answers taken apart: text, thoughts, calls.

use hf2q_text::answer::{
    AnswerFormat, AnswerParser, Delta, ParserOptions, Thinking, Tool, ToolSet, ToolSyntax, tools_as_text,
};
use hf2q_text::{ChatRequest, ChatTemplate, Specials, Tokenizer};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{json as file, tokenizer};

/// An answer, put together again.
#[derive(Clone, Debug, Default, PartialEq)]
struct Answer {
    content: String,
    reasoning: String,
    /// Names and arguments.
    calls: Vec<(String, String)>,
}

fn collect(deltas: impl IntoIterator<Item = Delta>) -> Answer {
    let mut answer = Answer::default();
    for delta in deltas {
        match delta {
            Delta::Content(text) => answer.content += &text,
            Delta::Reasoning(text) => answer.reasoning += &text,
            Delta::Call { index, id, name } => {
                assert_eq!(index, answer.calls.len());
                assert_eq!(id, format!("call_{index}"));
                answer.calls.push((name, String::new()));
            }
            Delta::Arguments { index, text } => {
                assert_eq!(index + 1, answer.calls.len(), "arguments belong to the last call");
                answer.calls[index].1 += &text;
            }
        }
    }
    answer
}

fn options() -> ParserOptions {
    let weather = json!({ "type": "object", "properties": { "city": { "type": "string" }, "days": { "type": "integer" } } });
    let mut tools = ToolSet::default();
    for name in ["weather", "f"] {
        tools.add(Tool { name: name.into(), description: None, parameters: weather.clone() });
    }
    ParserOptions { tools, in_thought: false, id_prefix: "call_".into() }
}

fn format(thinking: Option<Thinking>, tools: ToolSyntax) -> AnswerFormat {
    AnswerFormat { thinking, tools, renders_tools: true }
}

fn read(format: &AnswerFormat, options: &ParserOptions, pieces: &[&str]) -> Answer {
    let mut parser = AnswerParser::of_text(format, options.clone());
    let mut deltas: Vec<Delta> = pieces.iter().flat_map(|p| parser.push_text(p)).collect();
    deltas.extend(parser.finish());
    collect(deltas)
}

/// Reads a text whole and in single characters, which must agree.
fn check(format: &AnswerFormat, text: &str, content: &str, reasoning: &str, calls: &[(&str, Value)]) {
    let whole = read(format, &options(), &[text]);
    let mut chars = [0; 4];
    let mut parser = AnswerParser::of_text(format, options());
    let mut deltas = Vec::new();
    for c in text.chars() {
        deltas.extend(parser.push_text(c.encode_utf8(&mut chars)));
    }
    deltas.extend(parser.finish());
    assert_eq!(collect(deltas), whole, "{text:?}");
    let found: Vec<(&str, Value)> = whole
        .calls
        .iter()
        .map(|(n, a)| {
            (n.as_str(), serde_json::from_str(a).unwrap_or_else(|e| panic!("{text:?}: {a:?}: {e}")))
        })
        .collect();
    assert_eq!((whole.content.as_str(), whole.reasoning.as_str()), (content, reasoning), "{text:?}");
    assert_eq!(found, calls, "{text:?}");
}

const TAGS: Option<Thinking> = Some(Thinking::Tags);

#[test]
fn hermes_calls() {
    let format = format(TAGS, ToolSyntax::Hermes);
    let call = ("weather", json!({ "city": "Köln \"am\" Rhein", "days": 3 }));
    let text = r#"<tool_call>
{"name": "weather", "arguments": {"city": "Köln \"am\" Rhein", "days": 3}}
</tool_call>"#;
    check(&format, text, "", "", std::slice::from_ref(&call));
    check(&format, &format!("Let me see.\n{text}\n{text}"), "Let me see.", "", &[call.clone(), call.clone()]);
    check(&format, &format!("<think>\nhm </tool_call>\n</think>\n\n{text}"), "", "hm </tool_call>", &[call]);
    // Other orders and forms that models write.
    let f = |arguments: Value| [("f", arguments)];
    check(
        &format,
        r#"<tool_call>{"arguments":{"a":[1,{}]},"name":"f"}</tool_call>"#,
        "",
        "",
        &f(json!({"a":[1,{}]})),
    );
    check(
        &format,
        r#"<tool_call>{"name":"f","arguments":"{\"a\": 1}"}</tool_call>"#,
        "",
        "",
        &f(json!({ "a": 1 })),
    );
    check(&format, r#"<tool_call>{"name":"f"}</tool_call>ok"#, "ok", "", &f(json!({})));
    check(&format, r#"<tool_call>{"name":"f","arguments":null}</tool_call>"#, "", "", &f(json!({})));
    check(
        &format,
        r#"<tool_call>{"id":7,"name":"f","x":[{"name":"g"}],"parameters":{}}"#,
        "",
        "",
        &f(json!({})),
    );
    let marker = r#"<tool_call>{"name":"f","arguments":{"a":"</tool_call><think>"}}</tool_call>"#;
    check(&format, marker, "", "", &f(json!({ "a": "</tool_call><think>" })));
}

#[test]
fn what_only_looks_like_a_call_stays_text() {
    let format = format(TAGS, ToolSyntax::Hermes);
    for text in [
        "<tool_call>",
        "<tool_call> is a tag",
        "a <tool_cal> b",
        "<tool_call>{\"name\": \"unknown\", \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
        "<tool_call>{\"name\": 5}</tool_call>",
        "<tool_call>{\"arguments\": {}}</tool_call>",
        "<tool_call>{\"arguments\": {\"a\": 1}",
        "<tool_call>{\"name\": \"f\"",
        "{\"name\": \"f\", \"arguments\": {}}",
        "text <think> about tags",
        "a\n\n b \n",
        "<tool",
    ] {
        check(&format, text, text, "", &[]);
    }
    let nested = "<tool_call>no <tool_call>{\"name\":\"f\"}</tool_call>";
    check(&format, nested, "<tool_call>no", "", &[("f", json!({}))]);
    // Without tools, calls are text.
    let none = ParserOptions { tools: ToolSet::default(), ..options() };
    let text = "<tool_call>{\"name\":\"f\"}</tool_call> \n";
    assert_eq!(read(&format, &none, &[text]).content, text);
}

#[test]
fn thoughts() {
    let tags = format(TAGS, ToolSyntax::Hermes);
    check(&tags, "<think>\na\n\nb\n</think>\n\nc\n", "c\n", "a\n\nb", &[]);
    check(&tags, "<think>\n\n</think>\n\nc", "c", "", &[]);
    check(&tags, "\n<think>a", "", "a", &[]);
    let open = ParserOptions { in_thought: true, ..options() };
    let answer = read(&tags, &open, &["a <think> b</thi", "nk>", " c"]);
    assert_eq!((answer.reasoning.as_str(), answer.content.as_str()), ("a <think> b", "c"));

    let channel = format(Some(Thinking::Channel), ToolSyntax::Gemma4);
    check(&channel, "<|channel>thought\nhm\n<channel|>Yes.", "Yes.", "hm", &[]);
    check(&channel, "<|channel>thought\n<channel|>Yes.", "Yes.", "", &[]);
    check(&channel, "<|channel>final\nYes.", "Yes.", "", &[]);
    check(&channel, "Hm.<|channel>thought", "Hm.<|channel>thought", "", &[]);
}

#[test]
fn gemma_calls() {
    let format = format(Some(Thinking::Channel), ToolSyntax::Gemma4);
    let call = |arguments: &str| format!("<|tool_call>call:f{{{arguments}}}<tool_call|>");
    let f = |arguments: Value| [("f", arguments)];
    for (text, arguments) in [
        ("", json!({})),
        (r#"city:<|"|>Köln "x" \ {},:<|"|>,n:-1.5e3"#, json!({ "city": "Köln \"x\" \\ {},:", "n": -1500.0 })),
        ("a:true,b:null,c:[1,2,[]],d:{}", json!({ "a": true, "b": null, "c": [1, 2, []], "d": {} })),
        (r#"a:{<|"|>k k<|"|>:<|"|><|"|>}"#, json!({ "a": { "k k": "" } })),
        (r#"a:{k:[{x:<|"|>1<|"|>},false]}"#, json!({ "a": { "k": [{ "x": "1" }, false] } })),
        // Slips that models make.
        (r#"a: "x, \"y\"", b: word two, c:None"#, json!({ "a": "x, \"y\"", "b": "word two", "c": null })),
        ("a:1,", json!({ "a": 1 })),
        ("a:[1,],b:", json!({ "a": [1], "b": null })),
        ("a:<|\"|>line\n\u{1}<|\"|>", json!({ "a": "line\n\u{1}" })),
    ] {
        check(
            &format,
            &call(arguments.to_string().as_str()).replace(&arguments.to_string(), text),
            "",
            "",
            &f(arguments),
        );
    }
    let two = call("a:1") + &call("a:2");
    check(&format, &format!("So:\n{two}"), "So:", "", &[("f", json!({ "a": 1 })), ("f", json!({ "a": 2 }))]);
    check(&format, "<|tool_call>call:g{}<tool_call|>", "<|tool_call>call:g{}<tool_call|>", "", &[]);
    check(&format, "<|tool_call>cull", "<|tool_call>cull", "", &[]);
    // Closed too early.
    check(&format, "<|tool_call>call:f{a:[1<tool_call|>x", "x", "", &f(json!({ "a": [1] })));
}

#[test]
fn other_notations() {
    let json = format(None, ToolSyntax::Json);
    let f = [("f", json!({ "a": 1 }))];
    check(&json, r#"{"name": "f", "parameters": {"a": 1}}"#, "", "", &f);
    check(&json, "<|python_tag|>{\"name\": \"f\", \"parameters\": {\"a\": 1}}", "", "", &f);
    check(&json, "```tool_code\n{\"name\": \"f\", \"parameters\": {\"a\": 1}}\n```\n", "", "", &f);
    let two = r#"{"name":"f","parameters":{"a":1}}; {"name":"f","parameters":{"a":1}}"#;
    check(&json, two, "", "", &[f[0].clone(), f[0].clone()]);
    for text in [
        "{\"a\": 1}",
        "```rust\nfn f() {}\n```",
        "{\"name\": \"g\", \"parameters\": {}}",
        "see {\"name\": \"f\"}",
    ] {
        check(&json, text, text, "", &[]);
    }
    let mistral = format(None, ToolSyntax::Mistral);
    check(&mistral, r#"[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}]"#, "", "", &f);
    check(&mistral, r#"[TOOL_CALLS]f[ARGS]{"a": 1}"#, "", "", &f);
    check(&mistral, r#"[TOOL_CALLS]f{"a": 1}"#, "", "", &f);
    let large = "<tool_call>\n<function=f>\n<parameter=n>\n1e999\n</parameter>\n</function>\n</tool_call>";
    let answer = read(&format(None, ToolSyntax::Xml), &options(), &[large]);
    assert_eq!(answer.calls, [("f".to_owned(), "{\"n\":1e999}".to_owned())]);
    check(&mistral, "[TOOL_CALLS] none", "[TOOL_CALLS] none", "", &[]);
    let xml = format(TAGS, ToolSyntax::Xml);
    let text = "<tool_call>\n<function=weather>\n<parameter=city>\n12\n</parameter>\n<parameter=days>\n3\n</parameter>\n\
        <parameter=x>\n{\"y\": [1]}\n</parameter>\n</function>\n</tool_call>";
    let call = ("weather", json!({ "city": "12", "days": 3, "x": { "y": [1] } }));
    check(&xml, text, "", "", std::slice::from_ref(&call));
    check(&xml, &format!("<think>\nh\n</think>\n\nok\n{text}"), "ok", "h", &[call]);
    check(&xml, "<tool_call>\n<function=g>\n</function>", "<tool_call>\n<function=g>\n</function>", "", &[]);
}

/// Control tokens are markers only as tokens; their spelling is text.
#[test]
fn control_tokens_are_no_text() {
    let tokenizer = tokenizer("demo");
    let format = AnswerFormat::detect(&tokenizer, None);
    assert_eq!((format.thinking, format.tools), (Some(Thinking::Channel), ToolSyntax::Gemma4));
    assert!(!format.renders_tools);
    let text = "<|channel>thought\nhm<channel|>Hi <eos>!<|tool_call>call:f{a:<|\"|>x é<|\"|>}<tool_call|>";
    let read = |specials| {
        let mut parser = AnswerParser::new(&tokenizer, &format, options());
        let ids = tokenizer.encode(text, specials);
        let mut deltas: Vec<Delta> = ids.iter().flat_map(|id| parser.push(&tokenizer, *id)).collect();
        deltas.extend(parser.finish());
        collect(deltas)
    };
    let answer = read(Specials::Parse);
    assert_eq!((answer.content.as_str(), answer.reasoning.as_str()), ("Hi !", "hm"));
    assert_eq!(answer.calls, [("f".to_owned(), "{\"a\":\"x é\"}".to_owned())]);
    assert_eq!(read(Specials::AsText), Answer { content: text.into(), ..Answer::default() });
}

fn any_piece() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "<|tool_call>",
        "<tool_call|>",
        "<|\"|>",
        "call:f{",
        "}",
        "{\"name\": \"f\", \"arguments\": {\"a\": 1}}",
        "{\"name\":\"f\",",
        "\"arguments\":",
        "{",
        "\"",
        "\\",
        ",",
        ":",
        "[TOOL_CALLS]",
        "[ARGS]",
        "[",
        "]",
        "<function=f>",
        "<parameter=a>",
        "</parameter>",
        "</function>",
        "```",
        "\n",
        " ",
        "json",
        "a",
        "é🙂",
        "<",
        "thought\n",
        "<|channel>",
        "<channel|>",
        "1",
        "null",
        "f",
        "<|python_tag|>",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Any cut gives what the whole gives; and no text is lost, whatever it holds.
    #[test]
    fn cuts_do_not_matter(
        pieces in prop::collection::vec(any_piece(), 0..24),
        cuts in prop::collection::vec(0usize..200, 0..12),
        thinking in prop::sample::select(vec![None, TAGS, Some(Thinking::Channel)]),
        tools in prop::sample::select(vec![
            ToolSyntax::Gemma4, ToolSyntax::Hermes, ToolSyntax::Xml, ToolSyntax::Mistral, ToolSyntax::Json,
        ]),
    ) {
        let text: String = pieces.concat();
        let format = format(thinking, tools);
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|c| text.is_char_boundary(*c)).collect();
        cuts.sort_unstable();
        let mut parts = Vec::new();
        let mut from = 0;
        for cut in cuts {
            parts.push(&text[from..cut]);
            from = cut;
        }
        parts.push(&text[from..]);
        let whole = read(&format, &options(), &[&text]);
        prop_assert_eq!(&read(&format, &options(), &parts), &whole);
        if whole.calls.is_empty() && whole.reasoning.is_empty() && thinking.is_none() {
            prop_assert_eq!(&whole.content, &text);
        }
    }
}

fn template(name: &str) -> ChatTemplate {
    let source = file("templates/cases.json")["templates"][name].as_str().unwrap().to_owned();
    ChatTemplate::compile(&source, "<bos>", "<eos>").unwrap()
}

fn formats(tokenizer: &Tokenizer) -> Vec<(&'static str, AnswerFormat)> {
    let names = ["gemma4-tools", "llama3-tools", "qwen-tools", "alternating"];
    names.into_iter().map(|name| (name, AnswerFormat::detect(tokenizer, Some(&template(name))))).collect()
}

#[test]
fn templates_tell_the_notation() {
    let spm = tokenizer("spm");
    let found: Vec<_> =
        formats(&spm).into_iter().map(|(n, f)| (n, f.thinking, f.tools, f.renders_tools)).collect();
    let channel = Some(Thinking::Channel);
    assert_eq!(
        found,
        [
            ("gemma4-tools", channel, ToolSyntax::Gemma4, true),
            ("llama3-tools", None, ToolSyntax::Json, true),
            ("qwen-tools", TAGS, ToolSyntax::Hermes, true),
            ("alternating", None, ToolSyntax::Json, false),
        ]
    );
}

/// An answer with a call goes back into the template as it came out, with content that is null, absent or empty (C4).
#[test]
fn calls_go_back_into_the_prompt() {
    let spm = tokenizer("spm");
    let function =
        json!({ "name": "f", "description": "d", "parameters": { "type": "object", "properties": {} } });
    let tools = [json!({ "type": "function", "function": function })];
    for (name, format) in formats(&spm) {
        let template = template(name);
        let render = |content: Option<Value>| {
            let call = json!({ "id": "call_0", "type": "function",
                "function": { "name": "f", "arguments": "{\"b\": \"x\", \"a\": [1, {\"c\": null}]}" } });
            let mut assistant = json!({ "role": "assistant", "tool_calls": [call] });
            if let Some(content) = content {
                assistant["content"] = content;
            }
            let messages = [
                json!({ "role": "user", "content": "q" }),
                assistant,
                json!({ "role": "tool", "tool_call_id": "call_0", "content": "RESULT" }),
            ];
            let (messages, tools) = if format.renders_tools {
                (template.prepare(&messages), &tools[..])
            } else {
                (tools_as_text(&messages, &tools, format.tools), &[][..])
            };
            let request = ChatRequest {
                messages: &messages,
                tools,
                add_generation_prompt: true,
                ..ChatRequest::default()
            };
            template.render(&request).unwrap_or_else(|e| panic!("{name}: {e}"))
        };
        let text = render(Some(Value::Null));
        assert_eq!(render(None), text, "{name}");
        assert_eq!(render(Some(json!(""))), text, "{name}");
        assert!(text.contains("RESULT") && !text.contains("unknown"), "{name}: {text}");
        let marker = format.call_marker();
        let start = if marker.is_empty() { text.rfind("{\"name\"") } else { text.rfind(marker) };
        let answer = read(&format, &options(), &[&text[start.unwrap()..]]);
        let arguments: Value = serde_json::from_str(&answer.calls[0].1).unwrap();
        assert_eq!(arguments, json!({ "a": [1, { "c": null }], "b": "x" }), "{name}: {text}");
    }
}

#[test]
fn tools_are_checked() {
    let tool = |name: &str| json!({ "type": "function", "function": { "name": name } });
    let set = ToolSet::from_openai(&[tool("a"), tool("b-1")]).unwrap();
    assert_eq!(set.get("a").unwrap().parameters, json!({ "type": "object", "properties": {} }));
    for bad in [
        json!({}),
        tool(""),
        tool("a b"),
        tool("b"),
        json!({ "type": "x" }),
        json!(3),
        json!({ "function": { "name": "c", "parameters": 3 } }),
    ] {
        assert_eq!(ToolSet::from_openai(&[tool("b"), bad.clone()]).unwrap_err().0, 1, "{bad}");
    }
}
