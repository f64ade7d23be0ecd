//! Tokens with a role: where a text begins, where a generation ends.

use crate::error::TextError;
use crate::parts::TokenizerParts;
use crate::tokenizer::is_disguised_control;
use crate::vocab::{TokenKind, Vocab};

/// Ids of tokens with a role.
pub(crate) struct Special {
    pub(crate) bos: Option<u32>,
    pub(crate) eos: Option<u32>,
    pub(crate) eot: Option<u32>,
    pub(crate) unknown: Option<u32>,
    pub(crate) add_bos: bool,
    pub(crate) add_eos: bool,
    /// Ids that end a generation, ascending.
    pub(crate) stop: Vec<u32>,
}

/// Spellings of control tokens that end a turn or a text in models in use. Files often name only one of theirs.
const STOP_NAMES: &[&str] = &[
    "<end_of_turn>",
    "<turn|>",
    "<|tool_response>",
    "<eos>",
    "</s>",
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<EOT>",
    "<end_of_utterance>",
];

impl Special {
    /// Reads ids and flags, and gives tokens that act as control tokens that kind.
    ///
    /// # Errors
    /// An id outside the vocabulary.
    pub(crate) fn new(
        parts: &TokenizerParts<'_>,
        vocab: &mut Vocab,
        add_bos: bool,
    ) -> Result<Self, TextError> {
        check_ids(parts, vocab.len())?;
        let ends = [parts.bos, parts.eos, parts.eot, parts.eom];
        let mut stop: Vec<u32> = ends[1..].iter().flatten().chain(&parts.stop_ids).copied().collect();
        for (id, text) in (0..).zip(parts.tokens) {
            let kind = vocab.kind(id).unwrap_or(TokenKind::Normal);
            let named =
                matches!(kind, TokenKind::Normal | TokenKind::UserDefined) && ends.contains(&Some(id));
            if is_disguised_control(kind, text) || (named && is_bracketed(text)) {
                vocab.make_control(id);
            }
            if vocab.kind(id) == Some(TokenKind::Control) && STOP_NAMES.contains(&text.as_str()) {
                stop.push(id);
            }
        }
        // In the harmony format <|end|> closes one of several messages of an answer.
        let text = |id: &u32| parts.tokens[*id as usize].as_str();
        if stop.iter().any(|id| text(id) == "<|return|>") {
            stop.retain(|id| text(id) != "<|end|>");
        }
        stop.sort_unstable();
        stop.dedup();
        Ok(Self {
            bos: parts.bos,
            eos: parts.eos,
            eot: parts.eot,
            unknown: parts.unknown,
            add_bos: parts.add_bos.unwrap_or(add_bos),
            add_eos: parts.add_eos.unwrap_or(false),
            stop,
        })
    }
}

fn check_ids(parts: &TokenizerParts<'_>, tokens: usize) -> Result<(), TextError> {
    let named = [
        ("tokenizer.ggml.bos_token_id", parts.bos),
        ("tokenizer.ggml.eos_token_id", parts.eos),
        ("tokenizer.ggml.eot_token_id", parts.eot),
        ("tokenizer.ggml.eom_token_id", parts.eom),
        ("tokenizer.ggml.unknown_token_id", parts.unknown),
    ];
    let stops = parts.stop_ids.iter().map(|id| (crate::parts::STOP_IDS_KEY, Some(*id)));
    let bad = named
        .into_iter()
        .chain(stops)
        .find_map(|(key, id)| id.filter(|i| *i as usize >= tokens).map(|i| (key, i)));
    bad.map_or(Ok(()), |(key, id)| Err(TextError::IdRange { key, id: id.into(), tokens }))
}

/// Whether a text has the form of a turn marker, such as `<|turn>` or `<channel|>`.
pub(crate) fn is_marker(text: &str) -> bool {
    is_bracketed(text) && (text.starts_with("<|") || text.ends_with("|>"))
}

fn is_bracketed(text: &str) -> bool {
    let ends = |open, close| text.len() > 2 && text.starts_with(open) && text.ends_with(close);
    ends('<', '>') || ends('[', ']')
}
