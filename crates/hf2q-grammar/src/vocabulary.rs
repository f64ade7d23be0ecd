//! A model's vocabulary as llguidance reads it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use hf2q_text::{TokenKind, Tokenizer};
use llguidance::panic_utils::catch_unwind;
use llguidance::toktrie::{INVALID_TOKEN, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

use crate::error::GrammarError;

/// More than any model has.
const MAX_TOKENS: usize = 1 << 21;

/// Tokens as the bytes that they add to a text. Control tokens are apart from all text: a grammar can only name them.
struct Vocabulary {
    trie: TokTrie,
}

impl TokenizerEnv for Vocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.trie.greedy_tokenize(bytes)
    }

    /// The model chooses how to spell what a grammar leaves no choice about: the spelling that it was trained on is
    /// its own likeliest, and a forced one could differ at the borders.
    fn tokenize_is_canonical(&self) -> bool {
        false
    }
}

/// Reads a vocabulary.
///
/// # Errors
/// It is empty, or larger than a trie can be.
pub(crate) fn environment(tokenizer: &Tokenizer) -> Result<TokEnv, GrammarError> {
    let tokens = tokenizer.vocab_len();
    let refused = |why: String| GrammarError::Vocabulary { tokens, why };
    if tokens == 0 || tokens > MAX_TOKENS {
        return Err(refused(format!("from 1 to {MAX_TOKENS} are supported")));
    }
    let words: Vec<Vec<u8>> = (0..tokens as u32).map(|id| word(tokenizer, id)).collect();
    let stop = tokenizer.stop_ids();
    let info = TokRxInfo::new(tokens as u32, stop.first().copied().unwrap_or(INVALID_TOKEN));
    // The trie asserts what it cannot hold.
    let trie = catch_unwind(AssertUnwindSafe(|| Ok(TokTrie::from(&info, &words))));
    let trie = trie.map_err(|_| refused("their texts are too long together".into()))?;
    let trie = if stop.is_empty() { trie } else { trie.with_eos_tokens(stop) };
    Ok(Arc::new(Vocabulary { trie }))
}

fn word(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    let bytes = tokenizer.token_bytes(id);
    match tokenizer.token_kind(id) {
        // Longer tokens than a trie holds, and the byte that marks control tokens, are not needed to spell any text.
        _ if bytes.len() > 255 => Vec::new(),
        Some(TokenKind::Normal | TokenKind::UserDefined | TokenKind::Byte)
            if bytes.first() != Some(&TokTrie::SPECIAL_TOKEN_MARKER) =>
        {
            bytes.to_vec()
        }
        Some(TokenKind::Control | TokenKind::Unknown) => {
            let mut word = vec![TokTrie::SPECIAL_TOKEN_MARKER];
            word.extend_from_slice(bytes);
            word.truncate(255);
            word
        }
        _ => Vec::new(),
    }
}
