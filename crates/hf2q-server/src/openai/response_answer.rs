//! Answers of `/v1/responses`, whole or as events.

use std::sync::Arc;

use axum::response::Response;
use hf2q_text::answer::Delta;
use serde_json::{Value as Json, json};

use super::logprobs;
use super::responses::Request;
use crate::app::{self, Call, Handled, Work};
use crate::conversation::{self, Conversation, Failure, Tokens, Turn};
use crate::http::sse::{self, Events, Gone};
use crate::ids;
use crate::tap::{End, Shown};

/// Answers a request.
pub(crate) fn answer(call: Arc<Call>, body: Json) -> Work {
    Box::pin(async move {
        let request = Request::read(&body)?;
        drop(body);
        let lease = call.app.models.get(&request.model).await?;
        let head =
            Head { id: ids::name("resp_"), created: ids::now(), model: lease.id.clone(), echo: request.echo };
        let logprobs = request.ask.drawing.logprobs.is_some();
        let conversation = conversation::start(lease, request.ask, call.reader(request.stream)).await?;
        let answer = Answer { items: Vec::new(), logprobs, tokens: Vec::new() };
        match request.stream {
            false => whole(&call, &head, conversation, answer).await,
            true => Ok(stream(call, head, conversation, answer)),
        }
    })
}

/// What all states of a response share.
struct Head {
    id: String,
    created: u64,
    model: String,
    echo: Json,
}

impl Head {
    fn response(&self, status: &str, output: Json) -> Json {
        let mut json = json!({
            "id": self.id, "object": "response", "created_at": self.created, "status": status, "model": self.model,
            "error": null, "incomplete_details": null, "output": output, "usage": null,
        });
        if let (Some(json), Json::Object(echo)) = (json.as_object_mut(), &self.echo) {
            json.extend(echo.clone());
        }
        json
    }
}

fn usage(tokens: Tokens) -> Json {
    let mut usage = json!({
        "input_tokens": tokens.prompt, "input_tokens_details": { "cached_tokens": tokens.cached },
        "output_tokens": tokens.answer, "output_tokens_details": { "reasoning_tokens": tokens.thought },
        "total_tokens": tokens.prompt + tokens.answer,
    });
    tokens.speculation.tell(tokens.answer, &mut usage);
    usage
}

/// A part of the output.
enum Item {
    Thought { id: String, text: String },
    Message { id: String, text: String, logprobs: Vec<Json> },
    Call { id: String, call_id: String, name: String, arguments: String },
}

impl Item {
    fn json(&self, status: &str) -> Json {
        match self {
            Self::Thought { id, text } => json!({
                "type": "reasoning", "id": id, "summary": [], "status": status,
                "content": [{ "type": "reasoning_text", "text": text }],
            }),
            Self::Message { id, .. } => json!({
                "type": "message", "id": id, "status": status, "role": "assistant", "content": [self.part()],
            }),
            Self::Call { id, call_id, name, arguments } => json!({
                "type": "function_call", "id": id, "call_id": call_id, "name": name, "arguments": arguments,
                "status": status,
            }),
        }
    }

    /// The item as it begins.
    fn empty(&self) -> Json {
        let mut json = self.json("in_progress");
        match self {
            Self::Thought { .. } | Self::Message { .. } => json["content"] = json!([]),
            Self::Call { .. } => json["arguments"] = json!(""),
        }
        json
    }

    fn part(&self) -> Json {
        match self {
            Self::Thought { text, .. } => json!({ "type": "reasoning_text", "text": text }),
            Self::Message { text, logprobs, .. } => {
                json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": logprobs })
            }
            Self::Call { .. } => Json::Null,
        }
    }

    fn id(&self) -> &str {
        let (Self::Thought { id, .. } | Self::Message { id, .. } | Self::Call { id, .. }) = self;
        id
    }
}

/// The output as far as it is.
struct Answer {
    items: Vec<Item>,
    logprobs: bool,
    /// Probabilities that belong to the next text.
    tokens: Vec<Json>,
}

/// What a delta did to the output.
struct Change {
    /// An item ended, by number.
    ended: Option<usize>,
    /// Another one began.
    began: bool,
    /// What was added to the last one.
    text: String,
    logprobs: Vec<Json>,
}

impl Answer {
    fn add(&mut self, delta: Delta) -> Change {
        let fits = matches!(
            (self.items.last(), &delta),
            (Some(Item::Thought { .. }), Delta::Reasoning(_))
                | (Some(Item::Message { .. }), Delta::Content(_))
                | (Some(Item::Call { .. }), Delta::Arguments { .. })
        );
        let ended = if fits { None } else { self.items.len().checked_sub(1) };
        let mut added = Vec::new();
        if !fits {
            self.items.push(match &delta {
                Delta::Reasoning(_) => Item::Thought { id: ids::name("rs_"), text: String::new() },
                Delta::Content(_) | Delta::Arguments { .. } => {
                    Item::Message { id: ids::name("msg_"), text: String::new(), logprobs: Vec::new() }
                }
                Delta::Call { id, name, .. } => Item::Call {
                    id: ids::name("fc_"),
                    call_id: id.clone(),
                    name: name.clone(),
                    arguments: String::new(),
                },
            });
        }
        let text = match delta {
            Delta::Reasoning(text) | Delta::Content(text) | Delta::Arguments { text, .. } => text,
            Delta::Call { .. } => String::new(),
        };
        match self.items.last_mut() {
            Some(Item::Thought { text: all, .. } | Item::Call { arguments: all, .. }) => all.push_str(&text),
            Some(Item::Message { text: all, logprobs, .. }) => {
                all.push_str(&text);
                added = std::mem::take(&mut self.tokens);
                logprobs.extend(added.iter().cloned());
            }
            None => {}
        }
        Change { ended, began: !fits, text, logprobs: added }
    }

    fn note(&mut self, tokens: &[Shown], tokenizer: &hf2q_text::Tokenizer) {
        if self.logprobs {
            self.tokens.extend(logprobs::chat(tokenizer, tokens));
        }
    }

    fn json(&self, status: &str) -> Json {
        self.items.iter().map(|item| item.json(status)).collect()
    }
}

/// The response when its answer has ended.
fn finished(head: &Head, answer: &Answer, end: &End, tokens: Tokens) -> Json {
    let cut = matches!(end, End::Length);
    let status = if cut { "incomplete" } else { "completed" };
    let mut response = head.response(status, answer.json(status));
    if cut {
        response["incomplete_details"] = json!({ "reason": "max_output_tokens" });
    }
    response["usage"] = usage(tokens);
    response
}

async fn whole(call: &Call, head: &Head, mut conversation: Conversation, mut answer: Answer) -> Handled {
    let tokenizer = Arc::clone(&conversation.answers.lease.tokenizer);
    let mut tokens = Tokens { prompt: conversation.prompt_tokens, ..Tokens::default() };
    let mut last = End::Cancelled;
    while let Some(turn) = conversation.next().await {
        match turn {
            Turn::Started { cached_tokens } => tokens.cached = cached_tokens,
            Turn::Part { deltas, tokens, .. } => {
                answer.note(&tokens, &tokenizer);
                deltas.into_iter().for_each(|delta| drop(answer.add(delta)));
            }
            Turn::Ended { end, usage, thought, drafts, .. } => {
                tokens.add(&usage, thought, &drafts);
                last = end;
            }
        }
    }
    if let Some(failure) = Failure::of(&last) {
        return Err(call.failed(failure));
    }
    call.count(tokens);
    Ok(app::json(&finished(head, &answer, &last, tokens)))
}

fn stream(call: Arc<Call>, head: Head, conversation: Conversation, answer: Answer) -> Response {
    let (events, response) = sse::response();
    tokio::spawn(async move {
        let mut writer = Writer { call, head, answer, events, number: 0 };
        // A client that is gone needs no answer.
        let _ = writer.run(conversation).await;
    });
    response
}

/// Writes the events of one response.
struct Writer {
    call: Arc<Call>,
    head: Head,
    answer: Answer,
    events: Events,
    number: u64,
}

impl Writer {
    async fn run(&mut self, mut conversation: Conversation) -> Result<(), Gone> {
        let tokenizer = Arc::clone(&conversation.answers.lease.tokenizer);
        let mut tokens = Tokens { prompt: conversation.prompt_tokens, ..Tokens::default() };
        let begun = self.head.response("in_progress", json!([]));
        self.send("response.created", json!({ "response": begun })).await?;
        self.send("response.in_progress", json!({ "response": begun })).await?;
        let mut last = End::Cancelled;
        while let Some(turn) = self.events.during(conversation.next()).await? {
            match turn {
                Turn::Started { cached_tokens } => tokens.cached = cached_tokens,
                Turn::Part { deltas, tokens, .. } => {
                    self.answer.note(&tokens, &tokenizer);
                    for delta in deltas {
                        self.delta(delta).await?;
                    }
                }
                Turn::Ended { end, usage, thought, drafts, .. } => {
                    tokens.add(&usage, thought, &drafts);
                    last = end;
                }
            }
        }
        self.close(&last, tokens).await
    }

    /// What follows the last delta.
    async fn close(&mut self, last: &End, tokens: Tokens) -> Result<(), Gone> {
        if let Some(failure) = Failure::of(last) {
            let error = self.call.failed(failure);
            let mut response = self.head.response("failed", self.answer.json("incomplete"));
            response["error"] = json!({ "code": "server_error", "message": error.message });
            return self.send("response.failed", json!({ "response": response })).await;
        }
        if let Some(i) = self.answer.items.len().checked_sub(1) {
            self.ended(i, if matches!(last, End::Length) { "incomplete" } else { "completed" }).await?;
        }
        self.call.count(tokens);
        let response = finished(&self.head, &self.answer, last, tokens);
        let name = if matches!(last, End::Length) { "response.incomplete" } else { "response.completed" };
        self.send(name, json!({ "response": response })).await
    }

    async fn send(&mut self, name: &str, fields: Json) -> Result<(), Gone> {
        let mut event = json!({ "type": name, "sequence_number": self.number });
        self.number += 1;
        if let (Some(event), Json::Object(fields)) = (event.as_object_mut(), fields) {
            event.extend(fields);
        }
        self.events.named(name, &event).await
    }

    async fn delta(&mut self, delta: Delta) -> Result<(), Gone> {
        let change = self.answer.add(delta);
        if let Some(i) = change.ended {
            self.ended(i, "completed").await?;
        }
        let i = self.answer.items.len() - 1;
        if change.began {
            let item = self.answer.items[i].empty();
            self.send("response.output_item.added", json!({ "output_index": i, "item": item })).await?;
            if let Some(mut part) = self.part(i) {
                part["part"]["text"] = json!("");
                self.send("response.content_part.added", part).await?;
            }
        }
        if change.text.is_empty() {
            return Ok(());
        }
        let item = &self.answer.items[i];
        let mut event = json!({ "item_id": item.id(), "output_index": i, "delta": change.text });
        let name = match item {
            Item::Thought { .. } => "response.reasoning_text.delta",
            Item::Message { .. } => "response.output_text.delta",
            Item::Call { .. } => "response.function_call_arguments.delta",
        };
        if !matches!(item, Item::Call { .. }) {
            event["content_index"] = json!(0);
        }
        if matches!(item, Item::Message { .. }) {
            event["logprobs"] = json!(change.logprobs);
        }
        self.send(name, event).await
    }

    /// The part of an item that has one.
    fn part(&self, i: usize) -> Option<Json> {
        let item = &self.answer.items[i];
        let part = item.part();
        let event = json!({ "item_id": item.id(), "output_index": i, "content_index": 0, "part": part });
        (!part.is_null()).then_some(event)
    }

    async fn ended(&mut self, i: usize, status: &str) -> Result<(), Gone> {
        let item = &self.answer.items[i];
        let at = json!({ "item_id": item.id(), "output_index": i });
        let (name, more) = match item {
            Item::Thought { text, .. } => {
                ("response.reasoning_text.done", json!({ "content_index": 0, "text": text }))
            }
            Item::Message { text, logprobs, .. } => (
                "response.output_text.done",
                json!({ "content_index": 0, "text": text, "logprobs": logprobs }),
            ),
            Item::Call { name, arguments, .. } => {
                ("response.function_call_arguments.done", json!({ "name": name, "arguments": arguments }))
            }
        };
        let mut event = at;
        if let (Some(event), Json::Object(more)) = (event.as_object_mut(), more) {
            event.extend(more);
        }
        let (part, item) = (self.part(i), item.json(status));
        self.send(name, event).await?;
        if let Some(part) = part {
            self.send("response.content_part.done", part).await?;
        }
        self.send("response.output_item.done", json!({ "output_index": i, "item": item })).await
    }
}
