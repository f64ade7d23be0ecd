//! What a request allows an answer to be, compiled for the engine.

use hf2q_engine::Constraint;

use crate::ask::{Ask, Format, ToolChoice};
use crate::error::ApiError;
use crate::model::Model;

/// A constraint that cannot be honoured.
#[derive(Debug)]
pub(crate) struct Error {
    param: String,
    message: String,
}

impl Error {
    pub(crate) fn into_api(self) -> ApiError {
        ApiError::value(self.param, self.message)
    }
}

/// The constraint of one request, for any number of answers.
pub(crate) struct Constraints {}

impl Constraints {
    /// Compiles it.
    pub(crate) fn new(_model: &Model, ask: &Ask) -> Result<Self, ApiError> {
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
    pub(crate) fn one(&self) -> Result<Option<Box<dyn Constraint>>, Error> {
        Ok(None)
    }
}
