//! What an answer may contain: tokens that a grammar, a schema or a tool call allows next.

/// A set of token ids, one bit each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSet {
    /// Bit `id % 32` of word `id / 32`.
    words: Vec<u32>,
    len: usize,
}

impl TokenSet {
    /// The empty set over a vocabulary of `len` tokens.
    pub fn new(len: usize) -> Self {
        Self { words: vec![0; len.div_ceil(32)], len }
    }

    /// Size of the vocabulary.
    pub fn vocabulary(&self) -> usize {
        self.len
    }

    /// Adds a token. Ids outside the vocabulary are left out.
    pub fn insert(&mut self, id: u32) {
        if (id as usize) < self.len {
            self.words[id as usize / 32] |= 1 << (id % 32);
        }
    }

    /// Takes a token out.
    pub fn remove(&mut self, id: u32) {
        if let Some(word) = self.words.get_mut(id as usize / 32) {
            *word &= !(1 << (id % 32));
        }
    }

    /// Removes all tokens.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Whether the token is in the set; ids outside the vocabulary are not.
    pub fn contains(&self, id: u32) -> bool {
        (id as usize) < self.len && self.words[id as usize / 32] >> (id % 32) & 1 == 1
    }

    /// Whether no token is in the set.
    pub fn is_empty(&self) -> bool {
        self.words().all(|word| word == 0)
    }

    /// Takes the tokens of `words`, bit `id % 32` of word `id / 32`; what it lacks at the end is not in the set.
    pub fn copy_from_words(&mut self, words: &[u32]) {
        let n = words.len().min(self.words.len());
        self.words[..n].copy_from_slice(&words[..n]);
        self.words[n..].fill(0);
    }

    /// The words, those bits left out that no token of the vocabulary has.
    pub(crate) fn words(&self) -> impl Iterator<Item = u32> {
        let tail = self.len % 32;
        let last = self.words.len().wrapping_sub(1);
        let mask = move |i: usize| if i == last && tail > 0 { (1 << tail) - 1 } else { u32::MAX };
        self.words.iter().enumerate().map(move |(i, &word)| word & mask(i))
    }
}

/// Why a constraint could not go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConstraintError {
    /// Nothing may follow what was drawn, not even the end.
    #[error("the constraint allows no token behind {drawn} drawn ones")]
    DeadEnd {
        /// Tokens of the answer so far.
        drawn: usize,
    },
    /// The implementation failed.
    #[error("the constraint failed: {why}")]
    Failed {
        /// What it says.
        why: String,
    },
}

/// Decides token by token what an answer may contain. The scheduler asks [`Constraint::allowed`] before each draw and
/// gives each drawn token to [`Constraint::push`], but for stop tokens, which end the answer. A job that is preempted keeps
/// its constraint as it is: tokens are drawn once.
pub trait Constraint: Send {
    /// Tokens that may be drawn next; `None`: any. Stop tokens are drawn only if they are in the set.
    ///
    /// # Errors
    /// The implementation fails; an empty set is an error of the scheduler.
    fn allowed(&mut self) -> Result<Option<&TokenSet>, ConstraintError>;

    /// A token of the answer was drawn.
    ///
    /// # Errors
    /// The implementation fails.
    fn push(&mut self, token: u32) -> Result<(), ConstraintError>;

    /// Whether the answer is complete: nothing may follow. It then ends without a stop token, as [`crate::Finish::Complete`].
    fn is_finished(&self) -> bool;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_into_it() {
        let mut set = TokenSet::new(70);
        assert!(set.is_empty());
        [0, 31, 32, 69, 70, 4000].into_iter().for_each(|id| set.insert(id));
        let held = |set: &TokenSet| (0..5000).filter(|&id| set.contains(id)).collect::<Vec<u32>>();
        assert_eq!(held(&set), [0, 31, 32, 69]);
        [31, 5000].into_iter().for_each(|id| set.remove(id));
        assert_eq!(held(&set), [0, 32, 69]);
        set.clear();
        assert!(set.is_empty());
    }

    #[test]
    fn words_of_another_length_are_cut_or_filled() {
        let mut set = TokenSet::new(40);
        set.copy_from_words(&[1, u32::MAX, u32::MAX]);
        assert!(set.contains(0) && set.contains(39) && !set.contains(40) && !set.contains(1));
        set.copy_from_words(&[2]);
        assert!(set.contains(1) && !set.contains(39));
        // Bits behind the vocabulary are nobody's.
        set.copy_from_words(&[0, 1 << 20]);
        assert!(set.is_empty());
    }
}
