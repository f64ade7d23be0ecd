//! One grammar followed token by token.

use hf2q_engine::{ConstraintError, TokenSet};
use llguidance::Matcher;

/// Follows the text of an answer, or of a part of it, through a grammar.
pub(crate) struct Follower {
    matcher: Matcher,
    allowed: TokenSet,
    /// `allowed` is that of the present state.
    fresh: bool,
    drawn: usize,
}

impl Follower {
    /// `matcher` is at the start of its grammar; `vocabulary` is the number of logits.
    pub(crate) fn new(matcher: Matcher, vocabulary: usize) -> Self {
        Self { matcher, allowed: TokenSet::new(vocabulary), fresh: false, drawn: 0 }
    }

    /// Tokens that may follow; stop tokens are among them where the text may end.
    pub(crate) fn allowed(&mut self) -> Result<&mut TokenSet, ConstraintError> {
        if !self.fresh {
            let mask = self.matcher.compute_mask_or_eos();
            let mask = mask.map_err(|error| self.failure(&error))?;
            self.allowed.copy_from_words(mask.as_slice());
            self.fresh = true;
        }
        Ok(&mut self.allowed)
    }

    /// Takes a token that was allowed.
    pub(crate) fn push(&mut self, token: u32) -> Result<(), ConstraintError> {
        self.fresh = false;
        self.drawn += 1;
        let taken = self.matcher.consume_token(token);
        taken.map_err(|error| self.failure(&error))
    }

    /// Takes a text whole, if the grammar accepts it; else nothing is taken that counts.
    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) -> bool {
        let Ok(environment) = self.matcher.tok_env() else { return false };
        let tokens = environment.tok_trie().greedy_tokenize(bytes);
        let whole = environment.tok_trie().decode_raw(&tokens) == bytes;
        self.fresh = false;
        whole && self.matcher.try_consume_tokens(&tokens).is_ok_and(|n| n == tokens.len())
    }

    /// Nothing may follow any more.
    pub(crate) fn is_finished(&self) -> bool {
        self.matcher.is_stopped() && !self.matcher.is_error()
    }

    fn failure(&self, error: &impl ToString) -> ConstraintError {
        let error = error.to_string();
        let why = error.lines().next().unwrap_or_default().to_owned();
        if self.matcher.stop_reason() == llguidance::api::StopReason::NoExtensionBias {
            return ConstraintError::DeadEnd { drawn: self.drawn };
        }
        ConstraintError::Failed { why }
    }
}
