//! Chat templates against what HuggingFace's Jinja renders.

use hf2q_text::{ChatRequest, ChatTemplate, TextError};
use serde_json::{Map, Value, json};

use crate::json;

/// Renders one recorded case.
fn render(cases: &Value, case: &Value) -> Result<String, TextError> {
    let source = cases["templates"][case["template"].as_str().unwrap()].as_str().unwrap();
    let list = |key: &str| case[key].as_array().cloned().unwrap_or_default();
    let mut vars = case["vars"].as_object().cloned().unwrap_or_default();
    if case["tools"] == json!([]) {
        vars.insert("tools".into(), json!([]));
    }
    let mut text =
        |key: &str| vars.remove(key).and_then(|v| v.as_str().map(String::from)).unwrap_or_default();
    let (bos, eos) = (text("bos_token"), text("eos_token"));
    ChatTemplate::compile(source, &bos, &eos)?.render(&ChatRequest {
        messages: &list("messages"),
        tools: &list("tools"),
        add_generation_prompt: case["add_generation_prompt"] == true,
        extra: vars,
        now: Some(NOW),
    })
}

/// The moment at which the cases were recorded, `now` in the file.
const NOW: i64 = 1_783_155_903;

/// Constructs of Jinja2 that fail here, rather than render something else: `'%s' % x`, and macros that take any
/// arguments. No published template is known to use them.
const UNSUPPORTED: [&str; 2] = ["percent-format", "macro-arguments"];

#[test]
fn cases_render_as_recorded() {
    let cases = json("templates/cases.json");
    let mut failures = Vec::new();
    for case in cases["cases"].as_array().unwrap() {
        let rendered = render(&cases, case);
        let right = match case.get("expected") {
            Some(expected) => rendered.as_ref().is_ok_and(|text| Some(text.as_str()) == expected.as_str()),
            None => rendered.is_err(),
        };
        if UNSUPPORTED.contains(&case["name"].as_str().unwrap()) {
            assert!(rendered.is_err(), "{} works now", case["name"]);
            continue;
        }
        if !right {
            failures
                .push(format!("{}\n  expected {}\n  rendered {rendered:?}", case["name"], case["expected"]));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Renders a template over one message.
fn one(source: &str, content: &str) -> Result<String, TextError> {
    let messages = [json!({ "role": "user", "content": content })];
    let request = ChatRequest { messages: &messages, extra: Map::new(), ..ChatRequest::default() };
    ChatTemplate::compile(source, "<s>", "</s>")?.render(&request)
}

#[test]
fn hostile_templates_run_out_of_steps() {
    let hostile = [
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(x='x') %}{% for i in range(40) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x='x') %}{% for i in range(40) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{% set ns = namespace(x=['x']) %}{% for i in range(40) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x=['x']) %}{% for i in range(40) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x|tojson }}",
        "{% set ns = namespace(x='ab') %}{% for i in range(40) %}{% set ns.x = ns.x.replace('a', 'aa') %}{% endfor %}",
        "{% set ns = namespace(x='ab') %}{% for i in range(40) %}{% set ns.x = ns.x|join(ns.x) %}{% endfor %}",
        "{{ 'a'.ljust(100000000000) }}",
        "{{ 'a\tb'.expandtabs(100000000000) }}",
        "{{ 'a'|center(100000000000) }}",
        "{{ messages|tojson(indent=100000000000) }}",
        "{% macro m() %}{% for i in range(1000) %}{{ m() }}{% endfor %}{% endmacro %}{{ m() }}",
    ];
    for source in hostile {
        let error = one(source, "hi").expect_err(source);
        assert!(
            matches!(error, TextError::TemplateFuel { .. } | TextError::TemplateRender { .. }),
            "{source}: {error}"
        );
    }
    let long = "x".repeat(3_000_000);
    assert_eq!(one("{{ messages[0].content | trim }}", &long).unwrap(), long);
}

#[test]
fn errors_say_what_went_wrong() {
    let message = |error: Result<String, TextError>| error.unwrap_err().to_string();
    assert!(message(one("a\n{% if %}", "")).contains("chat:2"));
    assert_eq!(
        message(one("{{ raise_exception('no ' ~ messages[0].content) }}", "way")),
        "the chat template refused these messages: no way"
    );
    let deep = "(".repeat(10_000);
    assert!(matches!(one(&format!("{{{{ {deep} }}}}"), ""), Err(TextError::TemplateSyntax { .. })));
}

#[test]
fn messages_of_clients_fit_the_template() {
    let call = |content: Option<Value>| {
        let function = json!({ "name": "f", "arguments": "{\"a\": 1}" });
        let mut message =
            json!({ "role": "assistant", "tool_calls": [{ "type": "function", "function": function }] });
        if let Some(content) = content {
            message["content"] = content;
        }
        message
    };
    let template = "{% for m in messages %}[{{ m.role }} {{ m.content }}{% for c in m.tool_calls or [] %}\
        {{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}]{% endfor %}";
    let template = ChatTemplate::compile(template, "", "").unwrap();
    let rendered = |content| {
        let messages = template.prepare(&[
            json!({ "role": "user", "content": [{ "type": "text", "text": "hi" }] }),
            call(content),
        ]);
        template.render(&ChatRequest { messages: &messages, ..ChatRequest::default() }).unwrap()
    };
    let expected = "[user hi][assistant f{\"a\": 1}]";
    for content in [None, Some(Value::Null), Some(json!(""))] {
        assert_eq!(rendered(content), expected);
    }
    let strings =
        ChatTemplate::compile("{% for m in messages %}{{ m.content + '.' }}{% endfor %}", "", "").unwrap();
    let parts = json!([{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }]);
    let prepared = strings.prepare(&[json!({ "role": "user", "content": parts })]);
    assert_eq!(prepared, [json!({ "role": "user", "content": "ab" })]);
}

/// As many repetitions as a template can hold.
fn repeated(head: &str, part: &str, tail: &str) -> String {
    const MAX_SOURCE: usize = 128 << 10;
    let n = (MAX_SOURCE - head.len() - tail.len()) / part.len();
    format!("{head}{}{tail}", part.repeat(n))
}

#[test]
fn templates_that_nest_as_deep_as_they_can_do_not_end_the_process() {
    for (head, part, tail) in [
        ("{{ ", "not ", "1 }}"),
        ("{{ ", "-", "1 }}"),
        ("{{ 1", "+1", " }}"),
        ("{{ a", ".a", " }}"),
        ("{{ 'a'", "|upper", " }}"),
        ("{{ a", "[0]", " }}"),
        ("{{ ", "(", "1 }}"),
        ("{{ 2", "**1", " }}"),
        ("{{ 1", " is defined", " }}"),
        ("{{ ", "1 if 1 else ", "1 }}"),
        ("{% if 0 %}", "{% elif 0 %}", "{% endif %}"),
        ("{% set a", ".a", " = 1 %}"),
        ("", "{% if 1 %}", ""),
    ] {
        let source = repeated(head, part, tail);
        // Either answer will do.
        if let Ok(template) = ChatTemplate::compile(&source, "", "") {
            let _ = template.render(&ChatRequest::default());
        }
    }
    let nested = "{% set ns = namespace(a=0, b=0) %}{% for i in range(100000) %}{% set ns.a = [ns.a] %}{% set ns.b = [ns.b] %}{% endfor %}{{ ns.a == ns.b }}";
    let _ = ChatTemplate::compile(nested, "", "").unwrap().render(&ChatRequest::default());
    let error = ChatTemplate::compile(&"x".repeat(1 << 20), "", "").err().unwrap();
    assert!(error.to_string().contains("1048576 bytes"), "{error}");
}
