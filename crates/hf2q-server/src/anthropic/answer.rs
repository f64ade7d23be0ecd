//! Answers of `/v1/messages`, whole or as events.

use std::sync::Arc;

use axum::response::Response;
use hf2q_text::answer::Delta;
use serde_json::{Map, Value as Json, json};

use super::messages::Request;
use crate::app::{self, Call, Handled, Work};
use crate::conversation::{self, Conversation, Failure, Tokens, Turn};
use crate::http::sse::{self, Events, Gone};
use crate::ids;
use crate::tap::End;

/// Answers a request.
pub(crate) fn answer(call: Arc<Call>, body: Json) -> Work {
    Box::pin(async move {
        let request = Request::read(&body)?;
        drop(body);
        let lease = call.app.models.get(&request.model).await?;
        let head = Head { id: ids::name("msg_"), model: lease.id.clone() };
        let conversation = conversation::start(lease, request.ask, call.reader(request.stream)).await?;
        match request.stream {
            false => whole(&call, &head, conversation).await,
            true => Ok(stream(call, head, conversation)),
        }
    })
}

/// Counts the tokens of a request.
pub(crate) fn count(call: Arc<Call>, body: Json) -> Work {
    Box::pin(async move {
        let request = Request::read_count(&body)?;
        drop(body);
        let lease = call.app.models.get(&request.model).await?;
        let (_, prompt) = lease.work(move |model| conversation::prompt(model, &request.ask)).await?;
        Ok(app::json(&json!({ "input_tokens": prompt.len() })))
    })
}

/// What all states of a message share.
struct Head {
    id: String,
    model: String,
}

impl Head {
    fn message(&self, content: Json, reason: Json, (stop, tokens): (Json, Tokens)) -> Json {
        json!({
            "id": self.id, "type": "message", "role": "assistant", "model": self.model, "content": content,
            "stop_reason": reason, "stop_sequence": stop, "usage": usage(tokens),
        })
    }
}

/// Tokens as Anthropic counts them: what the cache held is not among the input's.
fn usage(tokens: Tokens) -> Json {
    let mut usage = json!({
        "input_tokens": tokens.prompt.saturating_sub(tokens.cached), "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": tokens.cached, "output_tokens": tokens.answer,
    });
    tokens.speculation.tell(tokens.answer, &mut usage);
    usage
}

/// Why an answer ended, and the stop string if that is why.
fn stop_reason(end: &End, calls: bool) -> (Json, Json) {
    match end {
        End::StopString(text) => (json!("stop_sequence"), json!(text)),
        End::Length => (json!("max_tokens"), Json::Null),
        _ if calls => (json!("tool_use"), Json::Null),
        _ => (json!("end_turn"), Json::Null),
    }
}

/// A block of the answer.
enum Block {
    Text(String),
    Thinking(String),
    ToolUse { id: String, name: String, arguments: String },
}

impl Block {
    fn of(delta: &Delta) -> Self {
        match delta {
            Delta::Reasoning(_) => Self::Thinking(String::new()),
            Delta::Call { id, name, .. } => {
                Self::ToolUse { id: id.clone(), name: name.clone(), arguments: String::new() }
            }
            Delta::Content(_) | Delta::Arguments { .. } => Self::Text(String::new()),
        }
    }

    fn takes(&self, delta: &Delta) -> bool {
        matches!(
            (self, delta),
            (Self::Text(_), Delta::Content(_))
                | (Self::Thinking(_), Delta::Reasoning(_))
                | (Self::ToolUse { .. }, Delta::Arguments { .. })
        )
    }

    fn json(&self) -> Json {
        match self {
            Self::Text(text) => json!({ "type": "text", "text": text }),
            Self::Thinking(text) => json!({ "type": "thinking", "thinking": text, "signature": "" }),
            Self::ToolUse { id, name, arguments } => {
                // Arguments of an answer that was cut may be no object.
                let input = serde_json::from_str::<Map<String, Json>>(arguments).unwrap_or_default();
                json!({ "type": "tool_use", "id": id, "name": name, "input": input })
            }
        }
    }
}

/// Adds a delta to blocks.
fn add(blocks: &mut Vec<Block>, delta: &Delta) {
    if !blocks.last().is_some_and(|b| b.takes(delta)) {
        blocks.push(Block::of(delta));
    }
    let text = match delta {
        Delta::Content(text) | Delta::Reasoning(text) | Delta::Arguments { text, .. } => text.as_str(),
        Delta::Call { .. } => "",
    };
    if let Some(Block::Text(all) | Block::Thinking(all) | Block::ToolUse { arguments: all, .. }) =
        blocks.last_mut()
    {
        all.push_str(text);
    }
}

async fn whole(call: &Call, head: &Head, mut conversation: Conversation) -> Handled {
    let mut tokens = Tokens { prompt: conversation.prompt_tokens, ..Tokens::default() };
    let mut blocks = Vec::new();
    let mut last = End::Cancelled;
    while let Some(turn) = conversation.next().await {
        match turn {
            Turn::Started { cached_tokens } => tokens.cached = cached_tokens,
            Turn::Part { deltas, .. } => deltas.iter().for_each(|delta| add(&mut blocks, delta)),
            Turn::Ended { end, usage, drafts, .. } => {
                tokens.add(&usage, 0, &drafts);
                last = end;
            }
        }
    }
    if let Some(failure) = Failure::of(&last) {
        return Err(call.failed(failure));
    }
    call.count(tokens);
    let calls = blocks.iter().any(|b| matches!(b, Block::ToolUse { .. }));
    let content = blocks.iter().map(Block::json).collect();
    let (reason, stop) = stop_reason(&last, calls);
    Ok(app::json(&head.message(content, reason, (stop, tokens))))
}

fn stream(call: Arc<Call>, head: Head, conversation: Conversation) -> Response {
    let (events, response) = sse::response();
    tokio::spawn(async move {
        let mut writer = Writer { call, head, events, blocks: Vec::new(), begun: false };
        // A client that is gone needs no answer.
        let _ = writer.run(conversation).await;
    });
    response
}

/// Writes the events of one message.
struct Writer {
    call: Arc<Call>,
    head: Head,
    events: Events,
    blocks: Vec<Block>,
    /// The first event is out: it has the counts of the prompt.
    begun: bool,
}

impl Writer {
    async fn run(&mut self, mut conversation: Conversation) -> Result<(), Gone> {
        let mut tokens = Tokens { prompt: conversation.prompt_tokens, ..Tokens::default() };
        let mut last = End::Cancelled;
        while let Some(turn) = self.events.during(conversation.next()).await? {
            match turn {
                Turn::Started { cached_tokens } => {
                    tokens.cached = cached_tokens;
                    self.begin(tokens).await?;
                }
                Turn::Part { deltas, .. } => {
                    for delta in deltas {
                        self.delta(delta).await?;
                    }
                }
                Turn::Ended { end, usage, drafts, .. } => {
                    tokens.add(&usage, 0, &drafts);
                    last = end;
                }
            }
        }
        if let Some(failure) = Failure::of(&last) {
            let error = self.call.failed(failure);
            return self.events.named("error", &error.json(self.call.dialect)).await;
        }
        self.begin(tokens).await?;
        self.end_block().await?;
        self.call.count(tokens);
        let calls = self.blocks.iter().any(|b| matches!(b, Block::ToolUse { .. }));
        let (reason, stop) = stop_reason(&last, calls);
        let delta = json!({ "stop_reason": reason, "stop_sequence": stop });
        self.send("message_delta", json!({ "delta": delta, "usage": usage(tokens) })).await?;
        self.send("message_stop", json!({})).await
    }

    async fn send(&self, name: &str, mut event: Json) -> Result<(), Gone> {
        event["type"] = json!(name);
        self.events.named(name, &event).await
    }

    async fn begin(&mut self, tokens: Tokens) -> Result<(), Gone> {
        if std::mem::replace(&mut self.begun, true) {
            return Ok(());
        }
        let tokens = Tokens { answer: 0, ..tokens };
        let message = self.head.message(json!([]), Json::Null, (Json::Null, tokens));
        self.send("message_start", json!({ "message": message })).await?;
        self.send("ping", json!({})).await
    }

    async fn delta(&mut self, delta: Delta) -> Result<(), Gone> {
        if !self.blocks.last().is_some_and(|b| b.takes(&delta)) {
            self.end_block().await?;
            let block = Block::of(&delta).json();
            self.send("content_block_start", json!({ "index": self.blocks.len(), "content_block": block }))
                .await?;
        }
        add(&mut self.blocks, &delta);
        let delta = match delta {
            Delta::Content(text) => json!({ "type": "text_delta", "text": text }),
            Delta::Reasoning(text) => json!({ "type": "thinking_delta", "thinking": text }),
            Delta::Arguments { text, .. } => json!({ "type": "input_json_delta", "partial_json": text }),
            Delta::Call { .. } => return Ok(()),
        };
        self.send("content_block_delta", json!({ "index": self.blocks.len() - 1, "delta": delta })).await
    }

    async fn end_block(&self) -> Result<(), Gone> {
        match self.blocks.len().checked_sub(1) {
            Some(last) => self.send("content_block_stop", json!({ "index": last })).await,
            None => Ok(()),
        }
    }
}
