//! What became of a draft.

use super::DraftTree;

/// What a draft says of guesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Levels of the longest line that begins with what was drawn: of other lines nothing is known beyond their first token.
    pub(crate) depth: usize,
    /// Levels that were drawn.
    pub(crate) accepted: usize,
    /// The same of the line of first guesses, which a draft without alternatives would have been.
    pub(crate) chain: (usize, usize),
    /// Places where the first guess was wrong and had alternatives: those where one of them was right, and all.
    pub(crate) second: (usize, usize),
    /// Whether the draft had alternatives.
    pub(crate) branches: bool,
}

impl Outcome {
    /// Of a draft whose nodes in `path` were drawn, each of which continues the one before. Where the answer has not gone on,
    /// nothing is known of the levels behind them.
    pub(crate) fn new(tree: &DraftTree, path: &[usize], goes_on: bool) -> Self {
        let firsts = path.iter().take_while(|&&node| tree.is_first(node)).count();
        let last = path.last().copied();
        let depth = path.len() + if goes_on { tree.height(last) } else { 0 };
        // Where an alternative was right the first guess beside it was not.
        let chain = if firsts < path.len() { firsts + 1 } else { depth };
        let right = path.iter().filter(|&&node| !tree.is_first(node)).count();
        let wrong = usize::from(goes_on && tree.has_siblings(last));
        Self {
            depth,
            accepted: path.len(),
            chain: (chain, firsts),
            second: (right, right + wrong),
            branches: (0..tree.len()).any(|node| !tree.is_first(node)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line of four, 0 to 3, and another of two, 4 and 5; the third of the four, 2, has an alternative too, 6.
    fn tree() -> DraftTree {
        let parents = vec![None, Some(0), Some(1), Some(2), None, Some(4), Some(1)];
        DraftTree { tokens: (10..17).collect(), parents }
    }

    #[test]
    fn levels_count_on_the_line_that_was_walked() {
        let of = |path: &[usize], goes_on| {
            let o = Outcome::new(&tree(), path, goes_on);
            (o.depth, o.accepted)
        };
        assert_eq!((of(&[], true), of(&[0, 1], true), of(&[0, 1, 2, 3], true)), ((4, 0), (4, 2), (4, 4)));
        // Lines beside the first one end earlier.
        assert_eq!((of(&[4], true), of(&[4, 5], true), of(&[0, 1, 6], true)), ((2, 1), (2, 2), (3, 3)));
        assert_eq!((of(&[], false), of(&[0, 1], false), of(&[4], false)), ((0, 0), (2, 2), (1, 1)));
    }

    #[test]
    fn an_alternative_that_is_right_is_a_wrong_first_guess() {
        let of = |path: &[usize], goes_on| {
            let o = Outcome::new(&tree(), path, goes_on);
            (o.chain, o.second)
        };
        assert_eq!(of(&[4, 5], true), ((1, 0), (1, 1)));
        assert_eq!(of(&[4, 5], false), ((1, 0), (1, 1)));
        assert_eq!(of(&[0, 1, 6], true), ((3, 2), (1, 1)));
        assert_eq!(of(&[], true), ((4, 0), (0, 1)));
        assert_eq!(of(&[0], true), ((4, 1), (0, 0)));
        assert_eq!(of(&[0, 1], true), ((4, 2), (0, 1)));
        assert_eq!(of(&[0, 1], false), ((2, 2), (0, 0)));
    }

    #[test]
    fn chains_have_no_alternatives() {
        let chain = Outcome::new(&DraftTree::chain(vec![1, 2, 3]), &[0], true);
        let expected = Outcome { depth: 3, accepted: 1, chain: (3, 1), second: (0, 0), branches: false };
        assert_eq!(chain, expected);
        assert!(Outcome::new(&tree(), &[], true).branches);
    }
}
