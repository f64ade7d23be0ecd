//! `/tokenize` and `/detokenize`.

use std::sync::Arc;

use hf2q_text::{Controls, Specials};
use serde_json::{Value as Json, json};

use crate::app::{self, Call, Work};
use crate::ask::Ask;
use crate::conversation;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::model::Model;
use crate::openai::completions::{check_ids, ids};
use crate::openai::messages;

/// All fields of a request for tokens.
pub(crate) const FIELDS: &[&str] =
    &["model", "content", "prompt", "messages", "tools", "add_special", "parse_special", "with_pieces"];
/// All fields of a request for text.
pub(crate) const TEXT_FIELDS: &[&str] = &["model", "tokens"];

/// The tokens of a text, or of a conversation as its template writes it.
pub(crate) fn tokenize(call: Arc<Call>, body: Json) -> Work {
    Box::pin(async move {
        let fields = Fields::body(&body, FIELDS)?;
        let name = fields.need_text("model")?.to_owned();
        let wanted = Wanted::read(&fields)?;
        let pieces = fields.flag("with_pieces")?.unwrap_or(false);
        drop(body);
        let lease = call.app.models.get(&name).await?;
        let (lease, tokens) = lease.work(move |model| wanted.tokens(model)).await?;
        let piece = |id: &u32| json!({ "id": id, "piece": lease.tokenizer.token_text(*id) });
        let list: Json = if pieces { tokens.iter().map(piece).collect() } else { json!(tokens) };
        Ok(app::json(&json!({ "tokens": list, "count": tokens.len(), "max_model_len": lease.context() })))
    })
}

/// The text of tokens.
pub(crate) fn detokenize(call: Arc<Call>, body: Json) -> Work {
    Box::pin(async move {
        let fields = Fields::body(&body, TEXT_FIELDS)?;
        let name = fields.need_text("model")?.to_owned();
        let tokens = ids(fields.need("tokens")?, "tokens")?;
        drop(body);
        let lease = call.app.models.get(&name).await?;
        check_ids(&lease, &tokens, "tokens")?;
        let text = lease.tokenizer.decode(&tokens, Controls::Show);
        Ok(app::json(&json!({ "content": text, "prompt": text })))
    })
}

enum Wanted {
    Text { text: String, ends: bool, specials: Specials },
    Chat(Box<Ask>),
}

impl Wanted {
    fn read(fields: &Fields<'_>) -> Result<Self, ApiError> {
        let texts = [fields.text("content")?, fields.text("prompt")?];
        let ends = fields.flag("add_special")?;
        let parse = fields.flag("parse_special")?;
        match (texts, fields.get("messages").is_some()) {
            ([Some(text), None] | [None, Some(text)], false) => {
                fields.without(&[("tools", "it needs 'messages'")])?;
                let specials = if parse == Some(true) { Specials::Parse } else { Specials::AsText };
                Ok(Self::Text { text: text.to_owned(), ends: ends.unwrap_or(false), specials })
            }
            ([None, None], true) => {
                fields.without(&[
                    ("add_special", "the template decides about it"),
                    ("parse_special", "control tokens come from the template alone"),
                ])?;
                let (messages, tools) = (messages::messages(fields)?, messages::tools(fields)?);
                Ok(Self::Chat(Box::new(Ask { messages, tools, ..Ask::default() })))
            }
            ([None, None], false) => Err(ApiError::missing("content".into())),
            _ => Err(ApiError::value("content", "Give one of 'content', 'prompt' and 'messages'.")),
        }
    }

    fn tokens(&self, model: &Model) -> Result<Vec<u32>, ApiError> {
        match self {
            Self::Text { text, ends: true, specials } => Ok(model.tokenizer.encode_prompt(text, *specials)),
            Self::Text { text, ends: false, specials } => Ok(model.tokenizer.encode(text, *specials)),
            Self::Chat(ask) => conversation::prompt(model, ask),
        }
    }
}
