//! Answers of `/v1/completions`, whole or in chunks.

use std::sync::Arc;

use axum::response::Response;
use hf2q_engine::Logprobs;
use hf2q_text::answer::Delta;
use serde_json::{Value as Json, json};

use super::chat::Streaming;
use super::chat_answer::{finish_reason, usage};
use super::completions::{Completion, Shape};
use super::logprobs::Lists;
use crate::answers::Answers;
use crate::app::{self, Call, Handled, Work};
use crate::conversation::{Failure, Tokens};
use crate::http::sse::{self, Events, Gone};
use crate::ids;
use crate::models::Lease;
use crate::tap::{End, Piece, Text};

/// Answers a request.
pub(crate) fn answer(call: Arc<Call>, body: Json) -> Work {
    Box::pin(async move {
        let completion = Completion::read(&body, &call.app.settings)?;
        drop(body);
        let lease = call.app.models.get(&completion.model).await?;
        let head = Head {
            id: ids::name("cmpl-"),
            created: ids::now(),
            model: lease.id.clone(),
            logprobs: completion.ask.drawing.logprobs.is_some(),
            echo: completion.echo,
            choices: completion.ask.drawing.choices,
        };
        let stream = completion.stream;
        let (lease, (orders, shapes)) = lease.work(move |model| completion.prepare(model)).await?;
        let answers = Answers::start(lease, orders, &call.reader(stream.is_some()))?;
        let progress = Progress::new(head, shapes, &answers.lease);
        match stream {
            None => whole(&call, progress, answers).await,
            Some(streaming) => Ok(chunks(call, progress, answers, streaming)),
        }
    })
}

/// What all chunks of an answer share.
struct Head {
    id: String,
    created: u64,
    model: String,
    logprobs: bool,
    echo: bool,
    /// Of each prompt.
    choices: usize,
}

/// The choices as far as they are.
struct Progress {
    head: Head,
    shapes: Vec<Shape>,
    choices: Vec<Choice>,
    tokens: Tokens,
    /// For each prompt whether its cached tokens are counted.
    counted: Vec<bool>,
}

/// What of a choice is not sent yet.
#[derive(Default)]
struct Choice {
    text: String,
    lists: Lists,
    /// Of the prompt, until they are all there.
    prompt: Vec<Logprobs>,
}

impl Progress {
    fn new(head: Head, shapes: Vec<Shape>, lease: &Lease) -> Self {
        let choices = shapes.iter().flat_map(|shape| {
            (0..head.choices).map(|_| Choice { text: shape.text.clone(), ..Choice::default() })
        });
        let choices: Vec<Choice> = choices.collect();
        let prompt = shapes.iter().map(|s| s.ids.len()).sum();
        let counted = vec![false; shapes.len()];
        let mut progress =
            Self { head, shapes, choices, tokens: Tokens { prompt, ..Tokens::default() }, counted };
        for choice in 0..progress.choices.len() {
            // A prompt of one token has no probabilities.
            progress.list_prompt(lease, choice, Vec::new());
        }
        progress
    }

    /// Lists the tokens of an echoed prompt when the probabilities of all are there.
    fn list_prompt(&mut self, lease: &Lease, choice: usize, more: Vec<Logprobs>) {
        let shape = &self.shapes[choice / self.head.choices];
        let at = &mut self.choices[choice];
        at.prompt.extend(more);
        let echoed = self.head.logprobs && self.head.echo;
        if echoed && at.lists.is_empty() && at.prompt.len() + 1 == shape.ids.len() {
            shape.list(&mut at.lists, lease, &std::mem::take(&mut at.prompt));
        }
    }

    /// Takes a piece; says whether the choice has ended, and how.
    fn take(&mut self, lease: &Lease, choice: usize, piece: Piece) -> Option<End> {
        match piece {
            Piece::Started { cached_tokens } => {
                let counted = &mut self.counted[choice / self.head.choices];
                if !std::mem::replace(counted, true) {
                    self.tokens.cached += cached_tokens;
                }
            }
            Piece::Prompt(logprobs) => self.list_prompt(lease, choice, logprobs),
            Piece::Text(Text { deltas, tokens }) => {
                let before = self.shapes[choice / self.head.choices].text.chars().count();
                let at = &mut self.choices[choice];
                for delta in deltas {
                    if let Delta::Content(text) = delta {
                        at.text.push_str(&text);
                    }
                }
                for shown in tokens {
                    at.lists.push(&lease.tokenizer, shown.id, before + shown.offset, Some(&shown.logprobs));
                }
            }
            Piece::End { end, usage, drafts, .. } => {
                self.tokens.add(&usage, 0, &drafts);
                return Some(end);
            }
            Piece::Embedding(_) => {}
        }
        None
    }

    /// What is there of a choice, which is taken away.
    fn json(&mut self, choice: usize, end: Option<&End>) -> Json {
        let at = std::mem::take(&mut self.choices[choice]);
        let mut lists = at.lists;
        let logprobs = if self.head.logprobs && !lists.is_empty() { lists.json() } else { Json::Null };
        let finish = end.map(|end| finish_reason(end, false));
        json!({ "text": at.text, "index": choice, "logprobs": logprobs, "finish_reason": finish })
    }

    fn object(&self, choices: Json) -> Json {
        json!({
            "id": self.head.id, "object": "text_completion", "created": self.head.created,
            "model": self.head.model, "system_fingerprint": crate::FINGERPRINT, "choices": choices,
        })
    }
}

async fn whole(call: &Call, mut progress: Progress, mut answers: Answers) -> Handled {
    let mut ends: Vec<Option<End>> = progress.choices.iter().map(|_| None).collect();
    while let Some((choice, piece)) = answers.next().await {
        let Some(end) = progress.take(&answers.lease, choice, piece) else { continue };
        if let Some(failure) = Failure::of(&end) {
            return Err(call.failed(failure));
        }
        ends[choice] = Some(end);
    }
    call.count(progress.tokens);
    let choices = ends.iter().enumerate().map(|(i, end)| progress.json(i, end.as_ref())).collect();
    let mut object = progress.object(choices);
    object["usage"] = usage(progress.tokens);
    Ok(app::json(&object))
}

fn chunks(call: Arc<Call>, progress: Progress, answers: Answers, streaming: Streaming) -> Response {
    let (events, response) = sse::response();
    tokio::spawn(async move {
        // A client that is gone needs no answer.
        let _ = stream(&call, progress, answers, (&events, streaming)).await;
    });
    response
}

async fn stream(
    call: &Call,
    mut progress: Progress,
    mut answers: Answers,
    (events, streaming): (&Events, Streaming),
) -> Result<(), Gone> {
    while let Some((choice, piece)) = events.during(answers.next()).await? {
        let is_text = matches!(piece, Piece::Text(_));
        let end = progress.take(&answers.lease, choice, piece);
        if let Some(failure) = end.as_ref().and_then(Failure::of) {
            let error = call.failed(failure);
            return events.data(&error.json(call.dialect)).await;
        }
        if !is_text && end.is_none() {
            continue;
        }
        let part = progress.json(choice, end.as_ref());
        let mut chunk = progress.object(json!([part]));
        if streaming.usage {
            chunk["usage"] = Json::Null;
        }
        events.data(&chunk).await?;
    }
    call.count(progress.tokens);
    if streaming.usage {
        let mut last = progress.object(json!([]));
        last["usage"] = usage(progress.tokens);
        events.data(&last).await?;
    }
    events.done().await
}
