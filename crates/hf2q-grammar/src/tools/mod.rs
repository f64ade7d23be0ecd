//! Tool calls as grammars, in each model's notation.

mod gemma;
mod json;
mod xml;

use hf2q_text::Tokenizer;
use hf2q_text::answer::{Tool, ToolSet, ToolSyntax};

use crate::error::GrammarError;
use crate::{lark, schema};

/// Which tools an answer must call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolChoice {
    /// Text or calls, as the model likes; a call that begins is one of a tool, with arguments of its schema.
    Auto,
    /// At least one call, and nothing else.
    Required,
    /// A call of this function, and nothing else.
    Named(String),
}

/// Grammars of calls.
pub(crate) struct CallGrammar {
    /// What follows the marker that a call begins with.
    pub(crate) rest: String,
    /// One call with its markers, or several.
    pub(crate) whole: String,
}

/// The grammar of calls of some tools. `parallel`: several may follow one another.
pub(crate) fn grammar(
    tokenizer: &Tokenizer,
    syntax: ToolSyntax,
    tools: &ToolSet,
    parallel: bool,
) -> Result<CallGrammar, GrammarError> {
    for tool in tools.iter() {
        check(tool)?;
    }
    let open = |text: &str| marker(tokenizer, text);
    let (rules, start) = match syntax {
        ToolSyntax::Gemma4 => {
            let markers = gemma::Markers { quote: open("<|\"|>"), close: open("<tool_call|>") };
            (gemma::rules(tools, &markers)?, open("<|tool_call>"))
        }
        ToolSyntax::Hermes => (json::hermes(tools, &open("</tool_call>")), open("<tool_call>")),
        ToolSyntax::Xml => (xml::rules(tools, &open("</tool_call>"))?, open("<tool_call>")),
        ToolSyntax::Mistral => return Ok(json::mistral(tools, &open("[TOOL_CALLS]"), parallel)),
        _ => (json::bare(tools), String::new()),
    };
    // How calls of one answer are told apart.
    let gap = match syntax {
        ToolSyntax::Gemma4 => "",
        ToolSyntax::Hermes | ToolSyntax::Xml => "\"\\n\"?",
        _ => "\";\" \" \"?",
    };
    let more = if parallel { format!(" ({gap} {start} rest)*") } else { String::new() };
    Ok(CallGrammar {
        rest: format!("start: rest\n{rules}"),
        whole: format!("start: {start} rest{more}\n{rules}"),
    })
}

fn check(tool: &Tool) -> Result<(), GrammarError> {
    let named = |source| GrammarError::Tool { name: tool.name.clone(), source: Box::new(source) };
    schema::check(&tool.parameters).map_err(named)?;
    let is_object = match tool.parameters.get("type") {
        Some(serde_json::Value::Array(types)) => types.iter().any(|t| t == "object"),
        Some(found) => found == "object",
        None => true,
    };
    if is_object {
        return Ok(());
    }
    let why = "arguments are an object".to_owned();
    Err(named(GrammarError::Keyword { path: "#".into(), keyword: "type".into(), why }))
}

/// A marker in Lark: the control token if there is one, else the text.
fn marker(tokenizer: &Tokenizer, text: &str) -> String {
    match tokenizer.special_id(text).filter(|id| tokenizer.is_control(*id)) {
        Some(id) => format!("<[{id}]>"),
        None => lark::literal(text),
    }
}
