//! A conversation becomes prompt, constraint and parser.

use hf2q_engine::{Answer, DraftUse, Task, Usage};
use hf2q_text::answer::{AnswerParser, Delta, ParserOptions, tools_as_text};
use hf2q_text::{ChatRequest, Controls, TextError};
use serde_json::{Map, Value as Json, json};

use crate::answers::{Answers, Order, Reader};
use crate::ask::{Ask, ToolChoice, check_tools};
use crate::constraint::Constraints;
use crate::error::ApiError;
use crate::ids;
use crate::model::Model;
use crate::models::Lease;
use crate::speculation::Speculation;
use crate::tap::{self, End, Piece, Shown, Text, Wanted};

/// Variables that belong to the server.
const RESERVED: &[&str] =
    &["messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token", "strftime_now"];

/// Tokens at the end of a prompt among which a thought may be opened.
const TAIL: usize = 32;

/// Answers under way.
pub(crate) struct Conversation {
    pub(crate) answers: Answers,
    pub(crate) prompt_tokens: usize,
    pub(crate) choices: usize,
}

/// What is sent to the engine.
struct Prepared {
    prompt_tokens: usize,
    orders: Vec<Order>,
}

/// Renders, encodes and compiles on a thread of its own, then gives the jobs to the engine.
pub(crate) async fn start(lease: Lease, ask: Ask, reader: Reader) -> Result<Conversation, ApiError> {
    let choices = ask.drawing.choices;
    let (lease, prepared) = lease.work(move |model| prepare(model, &ask)).await?;
    let answers = Answers::start(lease, prepared.orders, &reader)?;
    Ok(Conversation { answers, prompt_tokens: prepared.prompt_tokens, choices })
}

/// The tokens of a conversation, up to where the answer starts.
pub(crate) fn prompt(model: &Model, ask: &Ask) -> Result<Vec<u32>, ApiError> {
    let Some(template) = &model.template else {
        let message = "This model has no chat template: it continues texts. Use /v1/completions.";
        return Err(ApiError::unsupported("messages", message));
    };
    // A model that must not call tools does better if it knows of none.
    let shown = if ask.tool_choice == ToolChoice::None { &[][..] } else { &ask.tools };
    let mut tools: Vec<Json> = shown.iter().map(|t| t.json.clone()).collect();
    let mut messages = ask.messages.clone();
    if !model.format.renders_tools {
        messages = tools_as_text(&messages, &std::mem::take(&mut tools), model.format.tools);
    }
    let messages = template.prepare(&messages);
    let extra = variables(model, ask)?;
    let request =
        ChatRequest { messages: &messages, tools: &tools, add_generation_prompt: true, extra, now: None };
    template.encode_chat(&model.tokenizer, &request).map_err(|e| template_error(&e))
}

fn template_error(error: &TextError) -> ApiError {
    let message = match error {
        TextError::TemplateRaised { message } => {
            format!("The model's chat template refuses this conversation: {message}.")
        }
        TextError::TemplateFuel { .. } => {
            "The model's chat template takes too many steps for this conversation.".to_owned()
        }
        _ => format!("The model's chat template fails for this conversation: {error}."),
    };
    ApiError::value("messages", message)
}

/// Variables for the template. One that it does not read would have no effect.
fn variables(model: &Model, ask: &Ask) -> Result<Map<String, Json>, ApiError> {
    let mut extra = Map::new();
    for (name, value) in &ask.template_args {
        let param = || format!("chat_template_kwargs.{name}");
        if RESERVED.contains(&name.as_str()) {
            return Err(ApiError::value(param(), "This variable is set by the server."));
        }
        // What a model cannot do anyway may be switched off.
        if !model.template_reads(name) && *value != json!(false) {
            return Err(ApiError::unsupported(
                param(),
                "The model's chat template does not read this variable.",
            ));
        }
        extra.insert(name.clone(), value.clone());
    }
    if let Some(thinking) = ask.thinking {
        let switch = ["enable_thinking", "thinking"].into_iter().find(|name| model.template_reads(name));
        let graded = model.template_reads("reasoning_effort");
        if thinking && switch.is_none() && !graded {
            let message = "This model's chat template has no switch for thinking.";
            return Err(ApiError::unsupported(ask.thinking_param, message));
        }
        if let Some(name) = switch {
            extra.entry(name).or_insert(json!(thinking));
        }
        if let Some(effort) = ask.effort.filter(|_| graded) {
            extra.entry("reasoning_effort").or_insert(json!(effort));
        }
    }
    Ok(extra)
}

fn prepare(model: &Model, ask: &Ask) -> Result<Prepared, ApiError> {
    check_tools(&ask.tools, &ask.tool_choice)?;
    let prompt = prompt(model, ask)?;
    check_length(model, prompt.len(), "messages")?;
    let sampler = ask.drawing.sampler(model)?;
    let in_thought = opens_thought(model, &prompt);
    let constraints = Constraints::new(model, ask, in_thought)?;
    let order = |choice: usize| {
        let mut answer = Answer::new(sampler.clone());
        answer.draws = choice as u64;
        answer.stop = model.tokenizer.stop_ids().to_vec();
        answer.max_tokens = ask.drawing.max_tokens;
        answer.logprobs = ask.drawing.logprobs;
        answer.constraint = constraints.one();
        let id_prefix = format!("call_{:016x}", ids::random());
        let options = ParserOptions { tools: ask.tool_set(), in_thought, id_prefix };
        let parser = AnswerParser::new(&model.tokenizer, &model.format, options);
        let wanted =
            Wanted { stops: ask.drawing.stops.clone(), reader: tap::Reader::Answer(Box::new(parser)) };
        Order { prompt: prompt.clone(), task: Task::Answer(Box::new(answer)), wanted }
    };
    let orders = (0..ask.drawing.choices).map(order).collect();
    Ok(Prepared { prompt_tokens: prompt.len(), orders })
}

/// Whether the answer begins inside a thought.
fn opens_thought(model: &Model, prompt: &[u32]) -> bool {
    let tail = &prompt[prompt.len().saturating_sub(TAIL)..];
    model.format.opens_thought(&model.tokenizer.decode(tail, Controls::Show))
}

/// Refuses prompts that do not fit.
pub(crate) fn check_length(model: &Model, tokens: usize, param: &str) -> Result<(), ApiError> {
    match model.context() {
        context if tokens > context => Err(ApiError::context(tokens, context, param)),
        _ if tokens == 0 => Err(ApiError::value(param, "The prompt is empty.")),
        _ => Ok(()),
    }
}

/// What happens to the answers of a conversation.
pub(crate) enum Turn {
    /// The prompt is being computed.
    Started { cached_tokens: usize },
    /// An answer goes on.
    Part { choice: usize, deltas: Vec<Delta>, tokens: Vec<Shown> },
    /// An answer has ended.
    Ended { choice: usize, end: End, usage: Usage, thought: usize, drafts: DraftUse },
}

impl Conversation {
    /// The next turn; `None` when all answers have ended.
    pub(crate) async fn next(&mut self) -> Option<Turn> {
        loop {
            let (choice, piece) = self.answers.next().await?;
            return Some(match piece {
                Piece::Started { cached_tokens } => Turn::Started { cached_tokens },
                Piece::Text(Text { deltas, tokens }) => Turn::Part { choice, deltas, tokens },
                Piece::End { end, usage, thought, drafts } => {
                    Turn::Ended { choice, end, usage, thought, drafts }
                }
                Piece::Prompt(_) | Piece::Embedding(_) => continue,
            });
        }
    }

    /// All answers, when they have ended.
    pub(crate) async fn collect(mut self) -> Result<Collected, Failure> {
        let mut messages: Vec<Message> = (0..self.choices).map(|_| Message::default()).collect();
        let (mut tokens, mut cached_tokens) = (Tokens::default(), None);
        while let Some(turn) = self.next().await {
            match turn {
                Turn::Started { cached_tokens: cached } => cached_tokens = cached_tokens.or(Some(cached)),
                Turn::Part { choice, deltas, tokens } => {
                    messages[choice].add(deltas);
                    messages[choice].tokens.extend(tokens);
                }
                Turn::Ended { choice, end, usage, thought, drafts } => {
                    if let Some(failure) = Failure::of(&end) {
                        return Err(failure);
                    }
                    tokens.add(&usage, thought, &drafts);
                    messages[choice].end = Some(end);
                }
            }
        }
        tokens.prompt = self.prompt_tokens;
        tokens.cached = cached_tokens.unwrap_or(0);
        Ok(Collected { messages, tokens, lease: self.answers.lease })
    }
}

/// Answers that have ended.
pub(crate) struct Collected {
    pub(crate) messages: Vec<Message>,
    pub(crate) tokens: Tokens,
    pub(crate) lease: Lease,
}

/// How many tokens a request took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tokens {
    pub(crate) prompt: usize,
    /// Those of the prompt that the cache held.
    pub(crate) cached: usize,
    /// Of all answers.
    pub(crate) answer: usize,
    /// Those of the answers that were thoughts.
    pub(crate) thought: usize,
    /// Those of the answers that were guessed.
    pub(crate) accepted: usize,
    /// Guesses that were wrong.
    pub(crate) rejected: usize,
    /// What guessing was good for.
    pub(crate) speculation: Speculation,
}

impl Tokens {
    /// An answer has ended.
    pub(crate) fn add(&mut self, usage: &Usage, thought: usize, drafts: &DraftUse) {
        self.speculation.add(drafts);
        self.answer += usage.answer_tokens;
        self.thought += thought;
        self.accepted += usage.accepted_tokens;
        self.rejected += usage.drafted_tokens - usage.accepted_tokens;
    }
}

/// One answer.
#[derive(Debug, Default)]
pub(crate) struct Message {
    pub(crate) content: String,
    pub(crate) reasoning: String,
    pub(crate) calls: Vec<CallOfTool>,
    pub(crate) tokens: Vec<Shown>,
    pub(crate) end: Option<End>,
}

/// A call that the model asks for.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallOfTool {
    pub(crate) id: String,
    pub(crate) name: String,
    /// JSON.
    pub(crate) arguments: String,
}

impl Message {
    pub(crate) fn add(&mut self, deltas: Vec<Delta>) {
        for delta in deltas {
            match delta {
                Delta::Content(text) => self.content.push_str(&text),
                Delta::Reasoning(text) => self.reasoning.push_str(&text),
                Delta::Call { id, name, .. } => {
                    self.calls.push(CallOfTool { id, name, arguments: String::new() });
                }
                Delta::Arguments { index, text } => {
                    if let Some(call) = self.calls.get_mut(index) {
                        call.arguments.push_str(&text);
                    }
                }
            }
        }
    }
}

/// An answer that is none.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What the client is told.
    pub(crate) error: ApiError,
    /// What the operator is told.
    pub(crate) detail: Option<String>,
}

impl Failure {
    pub(crate) fn of(end: &End) -> Option<Self> {
        let error = match end {
            End::Stop | End::StopString(_) | End::Length => return None,
            End::Deadline => ApiError::deadline(),
            End::Cancelled => ApiError::unavailable("cancelled", "The answer was ended by the server.", 1),
            End::Failed(_) => ApiError::internal(),
        };
        let detail = if let End::Failed(cause) = end { Some(cause.to_string()) } else { None };
        Some(Self { error, detail })
    }
}
