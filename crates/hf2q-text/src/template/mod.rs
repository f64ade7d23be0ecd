//! Chat templates: Jinja with the settings and functions that HuggingFace adds.

mod compat;
mod deep;
mod filters;
mod json;
mod prepare;
mod print;
mod safe;
mod strftime;

use std::collections::{BTreeMap, HashSet};
use std::sync::OnceLock;
use std::time::SystemTime;

use hf2q_gguf::Metadata;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, Error, ErrorKind, Value};
use serde_json::{Map, Value as Json};

use crate::error::TextError;
use crate::tokenizer::Tokenizer;
use deep::{MAX_SOURCE, on_deep_stack};
use prepare::Habits;

/// Steps that a template may take for one prompt, before the messages' own size is added. A step is an instruction
/// or 64 bytes of text, so this also bounds memory.
const BASE_FUEL: u64 = 4_000_000;

/// What a prompt is made from.
#[derive(Clone, Debug, Default)]
pub struct ChatRequest<'a> {
    /// The conversation, in HuggingFace's form.
    pub messages: &'a [Json],
    /// Descriptions of tools; the template sees none if it is empty.
    pub tools: &'a [Json],
    /// Whether the prompt ends where the model's answer starts.
    pub add_generation_prompt: bool,
    /// Further variables, such as `enable_thinking`.
    pub extra: Map<String, Json>,
    /// The time that `strftime_now` tells, in seconds since 1970 of the local time zone; absent: now, in UTC.
    pub now: Option<i64>,
}

/// A compiled chat template.
pub struct ChatTemplate {
    env: Environment<'static>,
    source: String,
    special: Vec<(&'static str, String)>,
    habits: OnceLock<Habits>,
    /// Read before they are set, if they are set at all.
    variables: HashSet<String>,
}

const MAIN: &str = "chat";
/// A second template that some models have for conversations with tools.
const WITH_TOOLS: &str = "tool_use";

impl ChatTemplate {
    /// Compiles a template. `bos_text` and `eos_text` are what its `bos_token` and `eos_token` stand for.
    ///
    /// # Errors
    /// [`TextError::TemplateSyntax`].
    pub fn compile(source: &str, bos_text: &str, eos_text: &str) -> Result<Self, TextError> {
        let special = vec![("bos_token", bos_text.to_owned()), ("eos_token", eos_text.to_owned())];
        let (habits, variables) = (OnceLock::new(), HashSet::new());
        let mut template = Self { env: environment(), source: source.to_owned(), special, habits, variables };
        template.add(MAIN, source)?;
        Ok(template)
    }

    /// Compiles the template of a file; `None` if it has none, as base models do.
    ///
    /// # Errors
    /// [`TextError::TemplateSyntax`], or a key of another type than text.
    pub fn from_metadata(metadata: &Metadata, tokenizer: &Tokenizer) -> Result<Option<Self>, TextError> {
        let Some(source) = metadata.opt_str("tokenizer.chat_template")? else { return Ok(None) };
        let text = |id: Option<u32>| id.map(|id| tokenizer.token_text(id).into_owned()).unwrap_or_default();
        let mut template = Self::compile(source, &text(tokenizer.bos()), &text(tokenizer.eos()))?;
        if let Some(source) = metadata.opt_str("tokenizer.chat_template.tool_use")? {
            template.add(WITH_TOOLS, source)?;
        }
        Ok(Some(template))
    }

    fn add(&mut self, name: &'static str, source: &str) -> Result<(), TextError> {
        // Jinja2 reads every kind of line end as one.
        let source = source.replace("\r\n", "\n").replace('\r', "\n");
        let source = without_generation_marks(&source);
        if source.len() > MAX_SOURCE {
            let message = format!("it has {} bytes, accepted are up to {MAX_SOURCE}", source.len());
            return Err(TextError::TemplateSyntax { message });
        }
        on_deep_stack(|| {
            let added = self.env.add_template_owned(name, source);
            let read = added.and_then(|()| Ok(self.env.get_template(name)?.undeclared_variables(false)));
            self.variables.extend(read.map_err(|e| TextError::TemplateSyntax { message: e.to_string() })?);
            Ok(())
        })
    }

    /// Renders a prompt. As in `transformers`, keys of messages whose value is null are left out first, and the
    /// names under which messages hold their reasoning are filled from one another.
    ///
    /// # Errors
    /// The template refuses the messages, fails, or runs too long.
    pub fn render(&self, request: &ChatRequest<'_>) -> Result<String, TextError> {
        self.render_messages(request, &Json::from(request.messages), &Json::from(request.tools))
    }

    fn render_messages(
        &self,
        request: &ChatRequest<'_>,
        messages: &Json,
        tools: &Json,
    ) -> Result<String, TextError> {
        on_deep_stack(|| self.render_here(request, messages, tools))
    }

    fn render_here(
        &self,
        request: &ChatRequest<'_>,
        messages: &Json,
        tools: &Json,
    ) -> Result<String, TextError> {
        let has_tools = tools.as_array().is_some_and(|t| !t.is_empty());
        let name = if has_tools && self.has(WITH_TOOLS) { WITH_TOOLS } else { MAIN };
        let mut env = self.env.clone();
        let fuel = BASE_FUEL + 16 * (text_len(messages) + text_len(tools)) as u64;
        env.set_fuel(Some(fuel));
        let now = request.now.unwrap_or_else(utc_now);
        env.add_function("strftime_now", move |format: String| strftime::format(now, &format));
        let mut context = BTreeMap::from([
            ("messages", to_value(&prepare::as_transformers_does(messages))),
            ("tools", if has_tools { to_value(tools) } else { Value::from(()) }),
            ("documents", Value::from(())),
            ("add_generation_prompt", request.add_generation_prompt.into()),
        ]);
        context.extend(self.special.iter().map(|(name, text)| (*name, text.as_str().into())));
        context.extend(request.extra.iter().map(|(name, value)| (name.as_str(), to_value(value))));
        let context = Value::from(context);
        let rendered = env.get_template(name).and_then(|t| t.render(context));
        rendered.map_err(|error| render_error(&error, fuel))
    }

    /// The template's text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether the template reads a variable of this name that it does not set itself first.
    pub fn reads(&self, variable: &str) -> bool {
        self.variables.contains(variable)
    }

    fn has(&self, name: &str) -> bool {
        self.env.templates().any(|(n, _)| n == name)
    }
}

fn to_value(json: &Json) -> Value {
    Value::from(Serde(json))
}

/// Bytes of text in a value, keys included; each value counts a little too.
fn text_len(json: &Json) -> usize {
    match json {
        Json::String(s) => s.len(),
        Json::Array(items) => items.iter().map(text_len).sum::<usize>() + 8,
        Json::Object(fields) => fields.iter().map(|(k, v)| k.len() + text_len(v)).sum::<usize>() + 8,
        _ => 8,
    }
}

fn utc_now() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64)
}

/// An environment with the settings that HuggingFace gives Jinja2.
fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    env.set_syntax(syntax.expect("the delimiters are the default ones"));
    env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    env.set_unknown_method_callback(compat::method);
    env.set_formatter(print::format);
    filters::add(&mut env);
    env.add_filter("tojson", json::filter);
    env.add_function("raise_exception", raise_exception);
    env
}

/// The message of a template's `raise_exception`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
}

fn render_error(error: &Error, fuel: u64) -> TextError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = cause {
        if let Some(Raised(message)) = current.downcast_ref() {
            return TextError::TemplateRaised { message: message.clone() };
        }
        if current.downcast_ref::<Error>().is_some_and(|e| e.kind() == ErrorKind::OutOfFuel) {
            return TextError::TemplateFuel { fuel };
        }
        cause = current.source();
    }
    TextError::TemplateRender { message: error.to_string() }
}

/// Replaces `{% generation %}`, which marks answers for training, by a block of no effect with the same rules for
/// whitespace.
fn without_generation_marks(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let Some(len) = rest[start..].find("%}").map(|n| n + 2) else { break };
        let tag = &rest[start..start + len];
        let word = tag[2..len - 2].trim_matches(['-', '+']).trim();
        out.push_str(&rest[..start]);
        match word {
            "generation" => out.push_str(&tag.replace("generation", "with")),
            "endgeneration" => out.push_str(&tag.replace("endgeneration", "endwith")),
            _ => out.push_str(tag),
        }
        rest = &rest[start + len..];
    }
    out + rest
}
