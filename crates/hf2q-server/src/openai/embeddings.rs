//! `/v1/embeddings`.

use std::sync::Arc;

use hf2q_engine::Task;
use serde_json::{Value as Json, json};

use super::completions::{Prompt, check_ids};
use crate::answers::{Answers, Order};
use crate::app::{self, Call, Work};
use crate::conversation::{Failure, Tokens, check_length};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::ids;
use crate::model::Model;
use crate::tap::{Piece, Reader, Wanted};

/// All fields of a request.
pub(crate) const FIELDS: &[&str] = &["model", "input", "encoding_format", "dimensions", "user"];

/// Answers a request.
pub(crate) fn answer(call: Arc<Call>, body: Json) -> Work {
    Box::pin(async move {
        let fields = Fields::body(&body, FIELDS)?;
        fields.notes(&["user"])?;
        let name = fields.need_text("model")?.to_owned();
        let inputs = Prompt::read(&fields, "input", call.app.settings.max_inputs)?;
        let base64 = fields.word("encoding_format", &["float", "base64"])? == Some("base64");
        let dimensions = fields.count("dimensions", 1)?;
        drop(body);
        let lease = call.app.models.get(&name).await?;
        let (lease, prompts) = lease.work(move |model| prompts(model, &inputs)).await?;
        let total = prompts.iter().map(Vec::len).sum();
        drop(lease);
        let vectors = vectors(&call, &name, prompts).await?;
        if let (Some(wanted), Some(is)) = (dimensions, vectors.first().map(Vec::len))
            && wanted != is
        {
            let message =
                format!("The vectors of this model have {is} dimensions, and cannot be cut to {wanted}.");
            return Err(ApiError::unsupported("dimensions", message));
        }
        call.count(Tokens { prompt: total, ..Tokens::default() });
        Ok(page(&name, &vectors, base64, total))
    })
}

fn prompts(model: &Model, inputs: &[Prompt]) -> Result<Vec<Vec<u32>>, ApiError> {
    let one = |input: &Prompt| {
        if matches!(input, Prompt::Text(text) if text.is_empty()) {
            return Err(ApiError::value("input", "'input' holds an empty string."));
        }
        let ids = input.ids(model);
        check_ids(model, &ids, "input")?;
        check_length(model, ids.len(), "input")?;
        Ok(ids)
    };
    inputs.iter().map(one).collect()
}

/// The vectors, some at a time: a long list must not fill the queue.
async fn vectors(call: &Call, name: &str, prompts: Vec<Vec<u32>>) -> Result<Vec<Vec<f32>>, ApiError> {
    let mut vectors = Vec::with_capacity(prompts.len());
    let mut prompts = prompts.into_iter().peekable();
    while prompts.peek().is_some() {
        let lease = call.app.models.get(name).await?;
        let pooling = lease.pooling.ok_or_else(|| {
            let message =
                "This model's file asks for vectors that this server cannot make (its pooling_type).";
            ApiError::unsupported("model", message)
        })?;
        let order = |prompt| Order {
            prompt,
            task: Task::Embed(pooling),
            wanted: Wanted { stops: Vec::new(), reader: Reader::plain() },
        };
        let limits = lease.service.limits();
        let orders: Vec<Order> =
            prompts.by_ref().take(limits.running.min(limits.queue).max(1)).map(order).collect();
        let mut part: Vec<Vec<f32>> = vec![Vec::new(); orders.len()];
        let mut answers = Answers::start(lease, orders, &call.reader(false))?;
        while let Some((i, piece)) = answers.next().await {
            match piece {
                Piece::Embedding(vector) => part[i] = vector,
                Piece::End { end, .. } => {
                    if let Some(failure) = Failure::of(&end) {
                        return Err(call.failed(failure));
                    }
                }
                _ => {}
            }
        }
        vectors.extend(part);
    }
    Ok(vectors)
}

fn page(model: &str, vectors: &[Vec<f32>], base64: bool, tokens: usize) -> axum::response::Response {
    let vector = |v: &Vec<f32>| match base64 {
        true => json!(ids::base64(&v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>())),
        false => json!(v),
    };
    let data: Vec<Json> = vectors
        .iter()
        .enumerate()
        .map(|(i, v)| json!({ "object": "embedding", "index": i, "embedding": vector(v) }))
        .collect();
    app::json(&json!({
        "object": "list", "data": data, "model": model,
        "usage": { "prompt_tokens": tokens, "total_tokens": tokens },
    }))
}
