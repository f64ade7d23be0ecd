//! Which positions a row sees.

use std::ops::Range;

use crate::tensor::PAGE;

/// Which of the positions up to its own a row sees: always those from some first one on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Span {
    /// All.
    All,
    /// The last so many, its own among them: those above `position - n`.
    Last(u32),
    /// Those of its own page and of `n - 1` pages before it. What a row sees jumps where a page begins, so a page is seen
    /// by rows of `n` pages and by no others.
    Pages(u32),
}

impl Span {
    /// The first position that a row at `position` sees.
    pub fn first(self, position: usize) -> usize {
        match self {
            Self::All => 0,
            Self::Last(n) => (position + 1).saturating_sub(n as usize),
            Self::Pages(n) => (position / PAGE + 1).saturating_sub(n as usize) * PAGE,
        }
    }

    /// The positions that a row at `position` sees.
    pub fn seen(self, position: usize) -> Range<usize> {
        self.first(position)..position + 1
    }

    /// The most positions that a row can see; `None`: there is no limit.
    pub fn most(self) -> Option<u32> {
        match self {
            Self::All => None,
            Self::Last(n) => Some(n),
            Self::Pages(n) => Some(n.saturating_mul(PAGE as u32)),
        }
    }

    /// Whether rows see all positions up to their own, however many.
    pub fn is_all(self) -> bool {
        self == Self::All
    }
}

impl From<Option<u32>> for Span {
    /// A window, as models give it.
    fn from(window: Option<u32>) -> Self {
        window.map_or(Self::All, Self::Last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_see_from_the_first_position_on() {
        for (span, firsts) in [
            (Span::All, [0, 0, 0, 0, 0]),
            (Span::Last(1), [0, 63, 64, 127, 200]),
            (Span::Last(65), [0, 0, 0, 63, 136]),
            (Span::Last(u32::MAX), [0, 0, 0, 0, 0]),
            (Span::Pages(1), [0, 0, 64, 64, 192]),
            (Span::Pages(2), [0, 0, 0, 0, 128]),
            (Span::Pages(u32::MAX), [0, 0, 0, 0, 0]),
        ] {
            assert_eq!([0, 63, 64, 127, 200].map(|p| span.first(p)), firsts, "{span:?}");
        }
        assert_eq!(Span::from(Some(16)).seen(39), 24..40);
    }

    #[test]
    fn what_a_row_sees_never_begins_earlier_than_for_the_row_before() {
        for span in [Span::All, Span::Last(1), Span::Last(100), Span::Pages(1), Span::Pages(3)] {
            for position in 0..1000 {
                let seen = span.seen(position);
                assert!(seen.contains(&position) && span.first(position + 1) >= seen.start);
                assert!(span.most().is_none_or(|most| seen.len() <= most as usize));
            }
        }
    }
}
