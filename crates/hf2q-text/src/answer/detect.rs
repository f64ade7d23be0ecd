//! Which notation a model uses, found by trying its chat template.

use serde_json::{Value as Json, json};

use super::lexer::{Lexer, Mark};
use super::{AnswerParser, Delta, ParserOptions, Thinking, Tool, ToolSet, ToolSyntax};
use crate::template::{ChatRequest, ChatTemplate};
use crate::tokenizer::Tokenizer;

/// The notation of a model's answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerFormat {
    /// How it writes thoughts, if it has them.
    pub thinking: Option<Thinking>,
    /// How it writes calls.
    pub tools: ToolSyntax,
    /// The template shows tools and calls. Where it does not, messages go through [`super::tools_as_text`].
    pub renders_tools: bool,
}

/// Names that no template contains.
const PROBE: &str = "qzprobeqz";
const USER: &str = "qzuserqz";

/// Notations with markers, the more particular first.
const MARKED: [ToolSyntax; 4] =
    [ToolSyntax::Gemma4, ToolSyntax::Xml, ToolSyntax::Hermes, ToolSyntax::Mistral];

impl AnswerFormat {
    /// The notation of a model with this vocabulary and template.
    ///
    /// A call is rendered with the template and read back in each notation: the one that yields the call is the
    /// model's. Where the template shows no calls, a vocabulary with Gemma 4's markers decides for its notation,
    /// else it is [`ToolSyntax::Json`].
    pub fn detect(tokenizer: &Tokenizer, template: Option<&ChatTemplate>) -> Self {
        let has = |text: &str| tokenizer.special_id(text).is_some();
        let rendered = template.and_then(syntax_of);
        let gemma = ["<|tool_call>", "<tool_call|>", "<|\"|>"].into_iter().all(has);
        let other = if gemma { ToolSyntax::Gemma4 } else { ToolSyntax::Json };
        Self {
            thinking: thinking_of(tokenizer, template),
            tools: rendered.unwrap_or(other),
            renders_tools: rendered.is_some(),
        }
    }

    /// Whether a prompt ends inside a thought, as templates write it whose models always think.
    pub fn opens_thought(&self, prompt: &str) -> bool {
        let prompt = prompt.trim_end();
        match self.thinking {
            Some(Thinking::Tags) => prompt.ends_with("<think>"),
            Some(Thinking::Channel) => prompt.ends_with("<|channel>thought"),
            None => false,
        }
    }

    /// What a call begins with in this notation, as text; empty where an answer may begin with `{`.
    pub fn call_marker(&self) -> &'static str {
        match self.tools {
            ToolSyntax::Gemma4 => "<|tool_call>",
            ToolSyntax::Hermes | ToolSyntax::Xml => "<tool_call>",
            ToolSyntax::Mistral => "[TOOL_CALLS]",
            ToolSyntax::Json => "",
        }
    }
}

fn thinking_of(tokenizer: &Tokenizer, template: Option<&ChatTemplate>) -> Option<Thinking> {
    let source = template.map(ChatTemplate::source).unwrap_or_default();
    [Thinking::Channel, Thinking::Tags].into_iter().find(|thinking| {
        let (open, close) = thinking.markers();
        let spelled = source.contains(close);
        // A template may leave thoughts to the model.
        let channel = *thinking == Thinking::Channel && tokenizer.special_id(open).is_some();
        spelled || (channel && tokenizer.special_id(close).is_some())
    })
}

/// The notation in which a template shows a call.
fn syntax_of(template: &ChatTemplate) -> Option<ToolSyntax> {
    let parameters = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
    let function = json!({ "name": PROBE, "description": "d", "parameters": parameters });
    let tools = [json!({ "type": "function", "function": function })];
    let call = json!({ "name": PROBE, "arguments": "{\"a\": \"qzvalueqz\"}" });
    let messages = template.prepare(&[
        json!({ "role": "user", "content": USER }),
        json!({ "role": "assistant", "content": null,
                "tool_calls": [{ "id": "000000000", "type": "function", "function": call }] }),
    ]);
    let request = ChatRequest { messages: &messages, tools: &tools, ..ChatRequest::default() };
    let text = template.render(&request).ok()?;
    // Tools are described before the user's message, or in it.
    let answer = &text[text.rfind(USER)?..];
    let marked = MARKED.into_iter().find(|s| has_open(*s, answer) && reads(*s, answer));
    let bare = || {
        let start = answer[..answer.find(PROBE)?].rfind('{')?;
        reads(ToolSyntax::Json, &answer[start..]).then_some(ToolSyntax::Json)
    };
    marked.or_else(bare)
}

fn has_open(syntax: ToolSyntax, text: &str) -> bool {
    let mut lexer = Lexer::new(None, Some(syntax), |_| false);
    lexer.push(text);
    let is_open = |u: &super::lexer::Unit| {
        matches!(u, super::lexer::Unit::Mark(Mark::CallOpen | Mark::FunctionOpen, _))
    };
    lexer.units.iter().any(is_open)
}

/// Whether the probe's call is read from a text in a notation.
fn reads(syntax: ToolSyntax, text: &str) -> bool {
    let mut tools = ToolSet::default();
    tools.add(Tool { name: PROBE.into(), description: None, parameters: json!({}) });
    let format = AnswerFormat { thinking: None, tools: syntax, renders_tools: true };
    let mut parser = AnswerParser::of_text(&format, ParserOptions { tools, ..ParserOptions::default() });
    let mut deltas = parser.push_text(text);
    deltas.extend(parser.finish());
    let arguments: String = deltas
        .iter()
        .filter_map(|d| if let Delta::Arguments { text, .. } = d { Some(text.as_str()) } else { None })
        .collect();
    serde_json::from_str::<Json>(&arguments).is_ok_and(|a| a == json!({ "a": "qzvalueqz" }))
}
