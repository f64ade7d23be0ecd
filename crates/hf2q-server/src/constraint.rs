//! What a request allows an answer to be, compiled for the engine.

use hf2q_engine::Constraint;
use hf2q_grammar::{AnswerRules, GrammarError, Output, Rules, Spec, ToolChoice as Choice};

use crate::ask::{Ask, Format, ToolChoice};
use crate::error::ApiError;
use crate::model::Model;

/// The constraint of one request, for any number of answers.
pub(crate) struct Constraints(Option<Rules>);

impl Constraints {
    /// Compiles it. Blocks: the first one of a model prepares its vocabulary.
    pub(crate) fn new(model: &Model, ask: &Ask, in_thought: bool) -> Result<Self, ApiError> {
        let output = output(ask)?;
        if matches!(output, Output::Free) && ask.thinking_budget.is_none() {
            return Ok(Self(None));
        }
        if ask.drawing.endless {
            let message =
                "'ignore_eos' cannot be combined with an enforced format, calls or a budget of thoughts.";
            return Err(ApiError::unsupported("ignore_eos", message));
        }
        let rules = AnswerRules {
            format: model.format,
            in_thought,
            thinking: ask.thinking.unwrap_or_else(|| model.thinks()),
            thinking_budget: ask.thinking_budget,
            output,
        };
        let rules = model.grammars.compile_rules(&rules).map_err(|e| refused(&e, ask))?;
        Ok(Self(Some(rules)))
    }

    /// For one answer.
    pub(crate) fn one(&self) -> Option<Box<dyn Constraint>> {
        self.0.as_ref().and_then(Rules::constraint)
    }
}

fn output(ask: &Ask) -> Result<Output, ApiError> {
    let choice = match &ask.tool_choice {
        _ if ask.tools.is_empty() => None,
        ToolChoice::None => None,
        ToolChoice::Auto => Some(Choice::Auto),
        ToolChoice::Required => Some(Choice::Required),
        ToolChoice::Named(name) => Some(Choice::Named(name.clone())),
    };
    match (choice, spec(&ask.format)) {
        (None, None) => Ok(Output::Free),
        (None, Some(spec)) => Ok(Output::Form(spec)),
        (Some(choice), None) => Ok(Output::Tools { tools: ask.tool_set(), choice, parallel: ask.parallel }),
        (Some(_), Some(_)) => {
            let message = "A form of the answer cannot be combined with 'tools' that may be called.";
            Err(ApiError::unsupported(format_param(ask), message))
        }
    }
}

fn spec(format: &Format) -> Option<Spec> {
    Some(match format {
        Format::Text => return None,
        Format::JsonObject => Spec::JsonObject,
        Format::JsonSchema { schema, .. } => Spec::JsonSchema(schema.clone()),
        Format::Regex(pattern) => Spec::Regex(pattern.clone()),
        Format::Choice(texts) => Spec::Choice(texts.clone()),
        Format::Grammar(text) if text.contains("::=") => Spec::Gbnf(text.clone()),
        Format::Grammar(text) => Spec::Lark(text.clone()),
    })
}

/// The field in which the client gave the form.
fn format_param(ask: &Ask) -> String {
    match &ask.format {
        Format::JsonSchema { param, .. } => param.clone(),
        Format::Text | Format::JsonObject => "response_format".to_owned(),
        Format::Regex(_) | Format::Choice(_) | Format::Grammar(_) => "structured_outputs".to_owned(),
    }
}

/// What the client is told of a form that cannot be enforced.
fn refused(error: &GrammarError, ask: &Ask) -> ApiError {
    let param = match error {
        GrammarError::Tool { name, .. } => {
            let tool = ask.tools.iter().find(|t| t.name == *name);
            tool.map_or_else(|| "tools".to_owned(), |t| t.param.clone())
        }
        GrammarError::NoSuchTool { .. } => "tool_choice".to_owned(),
        GrammarError::Vocabulary { .. } => {
            return ApiError::unsupported(format_param(ask), format!("{error}."));
        }
        _ if ask.format == Format::Text => "tools".to_owned(),
        _ => format_param(ask),
    };
    ApiError::value(param, format!("{error}."))
}
