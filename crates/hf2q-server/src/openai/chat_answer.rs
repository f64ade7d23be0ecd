//! Answers of `/v1/chat/completions`, whole or in chunks.

use std::sync::Arc;

use hf2q_text::Tokenizer;
use hf2q_text::answer::Delta;
use serde_json::{Value as Json, json};

use super::chat::{Chat, Streaming};
use super::logprobs;
use crate::app::{self, Call, Handled, Work};
use crate::conversation::{self, Conversation, Failure, Message, Tokens, Turn};
use crate::http::sse::{self, Events, Gone};
use crate::ids;
use crate::tap::{End, Shown};

/// Answers a request.
pub(crate) fn answer(call: Arc<Call>, body: Json) -> Work {
    Box::pin(async move {
        let chat = Chat::read(&body)?;
        drop(body);
        let lease = call.app.models.get(&chat.model).await?;
        let head = Head::new(&lease.id, chat.ask.drawing.logprobs.is_some());
        let reader = call.reader(chat.stream.is_some());
        let conversation = conversation::start(lease, chat.ask, reader).await?;
        match chat.stream {
            None => whole(&call, &head, conversation).await,
            Some(streaming) => Ok(stream(call, head, conversation, streaming)),
        }
    })
}

/// What all chunks of an answer share.
struct Head {
    id: String,
    created: u64,
    model: String,
    logprobs: bool,
}

impl Head {
    fn new(model: &str, logprobs: bool) -> Self {
        Self { id: ids::name("chatcmpl-"), created: ids::now(), model: model.to_owned(), logprobs }
    }

    fn object(&self, kind: &str, choices: Json) -> Json {
        json!({
            "id": self.id, "object": kind, "created": self.created, "model": self.model,
            "system_fingerprint": crate::FINGERPRINT, "choices": choices,
        })
    }

    fn logprobs(&self, tokenizer: &Tokenizer, tokens: &[Shown]) -> Json {
        match self.logprobs {
            true => json!({ "content": logprobs::chat(tokenizer, tokens), "refusal": null }),
            false => Json::Null,
        }
    }

    fn chunk(&self, choice: usize, delta: Json, (logprobs, finish): (Json, Json)) -> Json {
        let choices =
            json!([{ "index": choice, "delta": delta, "logprobs": logprobs, "finish_reason": finish }]);
        self.object("chat.completion.chunk", choices)
    }
}

/// Tokens as OpenAI counts them.
pub(crate) fn usage(tokens: Tokens) -> Json {
    let mut usage = json!({
        "prompt_tokens": tokens.prompt, "completion_tokens": tokens.answer,
        "total_tokens": tokens.prompt + tokens.answer,
        "prompt_tokens_details": { "cached_tokens": tokens.cached },
        "completion_tokens_details": {
            "reasoning_tokens": tokens.thought,
            "accepted_prediction_tokens": tokens.accepted, "rejected_prediction_tokens": tokens.rejected,
        },
    });
    tokens.speculation.tell(tokens.answer, &mut usage);
    usage
}

/// Why an answer ended, in OpenAI's words.
pub(crate) fn finish_reason(end: &End, calls: bool) -> &'static str {
    match end {
        End::Length => "length",
        _ if calls => "tool_calls",
        _ => "stop",
    }
}

/// A message as part of an answer.
fn message(message: &Message) -> Json {
    let mut json = json!({ "role": "assistant", "content": message.content, "refusal": null });
    if !message.reasoning.is_empty() {
        json["reasoning_content"] = json!(message.reasoning);
    }
    if !message.calls.is_empty() {
        if message.content.is_empty() {
            json["content"] = Json::Null;
        }
        let call = |c: &conversation::CallOfTool| {
            let function = json!({ "name": c.name, "arguments": c.arguments });
            json!({ "id": c.id, "type": "function", "function": function })
        };
        json["tool_calls"] = message.calls.iter().map(call).collect();
    }
    json
}

async fn whole(call: &Call, head: &Head, conversation: Conversation) -> Handled {
    let collected = conversation.collect().await.map_err(|f| call.failed(f))?;
    call.count(collected.tokens);
    let tokenizer = &collected.lease.tokenizer;
    let choice = |(i, m): (usize, &Message)| {
        let finish = m.end.as_ref().map(|end| finish_reason(end, !m.calls.is_empty()));
        json!({
            "index": i, "message": message(m), "logprobs": head.logprobs(tokenizer, &m.tokens),
            "finish_reason": finish,
        })
    };
    let choices = collected.messages.iter().enumerate().map(choice).collect();
    let mut object = head.object("chat.completion", choices);
    object["usage"] = usage(collected.tokens);
    Ok(app::json(&object))
}

fn stream(
    call: Arc<Call>,
    head: Head,
    conversation: Conversation,
    streaming: Streaming,
) -> axum::response::Response {
    let (events, response) = sse::response();
    let called = vec![false; conversation.choices];
    let tokenizer = Arc::clone(&conversation.answers.lease.tokenizer);
    let chunks = Chunks { call, head, events, streaming, tokenizer, called, tokens: Tokens::default() };
    tokio::spawn(async move {
        // A client that is gone needs no answer.
        let _ = chunks.run(conversation).await;
    });
    response
}

/// Writes the chunks of one response.
struct Chunks {
    call: Arc<Call>,
    head: Head,
    events: Events,
    streaming: Streaming,
    tokenizer: Arc<Tokenizer>,
    /// Which choices have calls.
    called: Vec<bool>,
    tokens: Tokens,
}

impl Chunks {
    async fn run(mut self, mut conversation: Conversation) -> Result<(), Gone> {
        self.tokens.prompt = conversation.prompt_tokens;
        for choice in 0..self.called.len() {
            let delta = json!({ "role": "assistant", "content": "", "refusal": null });
            self.send(self.head.chunk(choice, delta, (Json::Null, Json::Null))).await?;
        }
        let mut cached = None;
        while let Some(turn) = self.events.during(conversation.next()).await? {
            match turn {
                Turn::Started { cached_tokens } => {
                    self.tokens.cached = *cached.get_or_insert(cached_tokens);
                }
                Turn::Part { choice, deltas, tokens } => self.part(choice, deltas, tokens).await?,
                Turn::Ended { choice, end, usage, thought, drafts } => {
                    self.tokens.add(&usage, thought, &drafts);
                    if let Some(failure) = Failure::of(&end) {
                        let error = self.call.failed(failure);
                        return self.events.data(&error.json(self.call.dialect)).await;
                    }
                    let finish = finish_reason(&end, self.called[choice]);
                    self.send(self.head.chunk(choice, json!({}), (Json::Null, json!(finish)))).await?;
                }
            }
        }
        self.call.count(self.tokens);
        if self.streaming.usage {
            let mut last = self.head.object("chat.completion.chunk", json!([]));
            last["usage"] = usage(self.tokens);
            self.events.data(&last).await?;
        }
        self.events.done().await
    }

    /// Chunks before the last one say that it will count.
    async fn send(&self, mut chunk: Json) -> Result<(), Gone> {
        if self.streaming.usage {
            chunk["usage"] = Json::Null;
        }
        self.events.data(&chunk).await
    }

    async fn part(&mut self, choice: usize, deltas: Vec<Delta>, tokens: Vec<Shown>) -> Result<(), Gone> {
        let mut logprobs = self.head.logprobs(&self.tokenizer, &tokens);
        let mut deltas: Vec<Json> = deltas.into_iter().map(|d| self.delta(choice, d)).collect();
        if deltas.is_empty() && self.head.logprobs && !tokens.is_empty() {
            deltas.push(json!({ "content": "" }));
        }
        for delta in deltas {
            // All tokens go with the first delta that they made.
            let logprobs = std::mem::replace(&mut logprobs, Json::Null);
            self.send(self.head.chunk(choice, delta, (logprobs, Json::Null))).await?;
        }
        Ok(())
    }

    fn delta(&mut self, choice: usize, delta: Delta) -> Json {
        match delta {
            Delta::Content(text) => json!({ "content": text }),
            Delta::Reasoning(text) => json!({ "reasoning_content": text }),
            Delta::Call { index, id, name } => {
                self.called[choice] = true;
                let function = json!({ "name": name, "arguments": "" });
                json!({ "tool_calls": [{ "index": index, "id": id, "type": "function", "function": function }] })
            }
            Delta::Arguments { index, text } => {
                json!({ "tool_calls": [{ "index": index, "function": { "arguments": text } }] })
            }
        }
    }
}
