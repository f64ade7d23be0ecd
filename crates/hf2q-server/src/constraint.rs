//! What a request allows an answer to be, compiled for the engine.

use hf2q_engine::Constraint;

use crate::ask::{Ask, Format, ToolChoice};
use crate::error::ApiError;
use crate::model::Model;

/// The constraint of one request, for any number of answers.
pub(crate) struct Constraints {}

impl Constraints {
    /// Compiles it.
    pub(crate) fn new(_model: &Model, ask: &Ask, _in_thought: bool) -> Result<Self, ApiError> {
        let refuse = |param: &str| {
            let message = "Constrained answers are not supported by this build.";
            Err(ApiError::unsupported(param, message))
        };
        match (&ask.format, &ask.tool_choice) {
            (Format::Text, ToolChoice::Auto | ToolChoice::None) => Ok(Self {}),
            (Format::Text, _) => refuse("tool_choice"),
            _ => refuse("response_format"),
        }
    }

    /// For one answer.
    pub(crate) fn one(&self) -> Option<Box<dyn Constraint>> {
        None
    }
}
