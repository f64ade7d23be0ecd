//! How large the engine gets, and what it keeps of sequences that are gone.

use hf2q_plan::{Group, PAGE, Span};

use crate::error::EngineError;

/// How large the engine gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Tokens a sequence can hold.
    pub context: usize,
    /// Sequences at the same time.
    pub sequences: usize,
    /// Rows of a step: the chunk in which prompts are computed.
    pub rows: usize,
    /// Rows of a step whose logits are wanted.
    pub logit_rows: usize,
    /// Memory of the caches, and what stays in them.
    pub cache: CacheOptions,
}

/// Memory of the caches, and what stays in them when no sequence needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheOptions {
    /// How many pages there are.
    pub budget: Budget,
    /// What happens to pages that left a window.
    pub windows: WindowPolicy,
}

/// How many pages the caches have. Pages that no sequence uses keep prefixes until others need them, so any budget
/// serves reuse as far as it goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Budget {
    /// As many as all sequences need at once: no step ever lacks a page. Beside them room for the window pages
    /// that the [`WindowPolicy`] keeps.
    #[default]
    Sequences,
    /// This many in each group, of [`PAGE`] positions each, but no more for what is kept exactly of the last positions than
    /// there is use for. Steps can run out of pages.
    Pages(usize),
    /// As many as fit into this many bytes, the same number in each group but no more window pages than the
    /// [`WindowPolicy`] has use for, and of recent positions as with [`Budget::Pages`]. Steps can run out of pages.
    Bytes(usize),
}

/// What happens to pages of windowed layers that all later rows of their sequence are too far away to see. Pages of what is
/// kept exactly of the last positions are always dropped, but for those of ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowPolicy {
    /// They stay until others need their place, as those of other layers do: every prefix can be shared at every
    /// position. [`Budget::Sequences`] gives windowed layers as many pages as the others. (Where recent positions are kept
    /// exactly: at every border of pages and at ends, of which there is room for as many as sequences.)
    Keep,
    /// They are dropped, but for the windows of `ends` ends: positions where a sequence ended or was
    /// [remembered](crate::Engine::remember). A prefix can be shared up to such a position.
    Drop {
        /// How many ends [`Budget::Sequences`] makes room for.
        ends: usize,
    },
}

impl Default for WindowPolicy {
    /// The memory that sequences need, and nothing more.
    fn default() -> Self {
        Self::Drop { ends: 0 }
    }
}

/// Slots are 32-bit numbers.
const MOST_PAGES: usize = u32::MAX as usize / PAGE;

impl EngineOptions {
    pub(crate) fn check(self) -> Result<(), EngineError> {
        // `context` rounded up to whole pages, for each sequence.
        let most_context = (MOST_PAGES / self.sequences.max(1)).saturating_sub(1) * PAGE;
        let (budget, most_budget) = match self.cache.budget {
            Budget::Sequences => (1, MOST_PAGES),
            Budget::Pages(n) => (n, MOST_PAGES),
            Budget::Bytes(n) => (n, usize::MAX),
        };
        let ends = match self.cache.windows {
            WindowPolicy::Keep => 1,
            WindowPolicy::Drop { ends } => ends.max(1),
        };
        for (what, found, max) in [
            ("sequences", self.sequences, MOST_PAGES),
            ("context", self.context, most_context),
            ("rows", self.rows, self.context.saturating_mul(self.sequences)),
            ("logit_rows", self.logit_rows, self.rows),
            ("the cache's budget", budget, most_budget),
            ("ends", ends, MOST_PAGES),
        ] {
            if found == 0 || found > max {
                return Err(EngineError::Size { what, found, max });
            }
        }
        Ok(())
    }

    /// Pages of each group; `page_bytes` are those of one page in all caches of a group.
    pub(crate) fn pages(self, groups: &[Group], page_bytes: &[usize]) -> Result<Vec<usize>, EngineError> {
        let pages = match self.cache.budget {
            Budget::Sequences => groups.iter().map(|g| self.useful(g)).collect(),
            Budget::Pages(n) => {
                let of = |g: &Group| if matches!(g.span, Span::Pages(_)) { n.min(self.useful(g)) } else { n };
                groups.iter().map(of).collect()
            }
            Budget::Bytes(bytes) => self.divide(bytes, groups, page_bytes)?,
        };
        let most = pages.iter().copied().max().unwrap_or(0);
        if most > MOST_PAGES {
            return Err(EngineError::Size { what: "pages of a group", found: most, max: MOST_PAGES });
        }
        Ok(pages)
    }

    /// Pages that all sequences can need at once and window pages that the policy keeps beside them. Behind a window a
    /// sequence holds the window, one position more and the chunk that is being computed.
    fn useful(self, group: &Group) -> usize {
        let all = self.context.div_ceil(PAGE);
        match (group.span, self.cache.windows) {
            (Span::Pages(n), windows) => {
                let (n, chunk) = (n as usize, self.rows.div_ceil(PAGE));
                let ends = match windows {
                    WindowPolicy::Keep => self.sequences,
                    WindowPolicy::Drop { ends } => ends,
                };
                // A step begins pages for as many rows as it has, and one more for each sequence that reaches a border.
                let together = (n + 1) * self.sequences + chunk;
                let each = all.min(n + chunk) * self.sequences;
                together.min(each) + ends.saturating_mul(all.min(n))
            }
            (Span::Last(window), WindowPolicy::Drop { ends }) => {
                let spanned = |positions: usize| all.min(positions.div_ceil(PAGE) + 1);
                let window = window as usize;
                let each = spanned(window.saturating_add(self.rows));
                each * self.sequences + ends.saturating_mul(spanned(window))
            }
            _ => all * self.sequences,
        }
    }

    /// The most pages of a group that can be of use; those of prefixes always can.
    fn most(self, group: &Group) -> usize {
        match (group.span, self.cache.windows) {
            (Span::Pages(_), _) | (Span::Last(_), WindowPolicy::Drop { .. }) => self.useful(group),
            _ => MOST_PAGES,
        }
    }

    fn divide(self, bytes: usize, groups: &[Group], page_bytes: &[usize]) -> Result<Vec<usize>, EngineError> {
        let caps: Vec<usize> = groups.iter().map(|g| self.most(g)).collect();
        let taken = |n: usize| {
            let one = |(&cap, &b): (&usize, &usize)| n.min(cap).saturating_mul(b);
            caps.iter().zip(page_bytes).map(one).fold(0, usize::saturating_add)
        };
        // The most that fits: `taken` does not fall.
        let (mut fits, mut too_many) = (0, MOST_PAGES + 1);
        while too_many - fits > 1 {
            let middle = fits + (too_many - fits) / 2;
            if taken(middle) <= bytes { fits = middle } else { too_many = middle }
        }
        if fits == 0 {
            return Err(EngineError::Budget { found: bytes, least: taken(1) });
        }
        Ok(caps.into_iter().map(|cap| cap.min(fits)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(cache: CacheOptions) -> EngineOptions {
        EngineOptions { context: 640, sequences: 2, rows: 32, logit_rows: 1, cache }
    }

    fn groups() -> [Group; 2] {
        [("sliding", Span::Last(96)), ("global", Span::All)]
            .map(|(name, span)| Group { name: name.into(), span })
    }

    #[test]
    fn pools_have_what_the_policy_has_use_for() {
        for (windows, budget, expected) in [
            (WindowPolicy::Drop { ends: 0 }, Budget::Sequences, [6, 20]),
            (WindowPolicy::Drop { ends: 4 }, Budget::Sequences, [6 + 4 * 3, 20]),
            (WindowPolicy::Keep, Budget::Sequences, [20, 20]),
            (WindowPolicy::Keep, Budget::Pages(7), [7, 7]),
            (WindowPolicy::Keep, Budget::Bytes(110 * 9 + 109), [9, 9]),
            (WindowPolicy::Drop { ends: 0 }, Budget::Bytes(100 * 6 + 10 * 50 + 9), [6, 50]),
        ] {
            let found = options(CacheOptions { budget, windows }).pages(&groups(), &[100, 10]).unwrap();
            assert_eq!(found, expected, "{windows:?} {budget:?}");
        }
    }

    #[test]
    fn recent_positions_have_pages_for_sequences_chunks_and_ends() {
        let group = |span| [Group { name: "recent".into(), span }];
        let pages = |span, budget, windows, (sequences, rows, context): (usize, usize, usize)| {
            let cache = CacheOptions { budget, windows };
            let options = EngineOptions { context, sequences, rows, logit_rows: 1, cache };
            options.pages(&group(span), &[10]).unwrap()[0]
        };
        let (one, drop) = (Span::Pages(1), |ends| WindowPolicy::Drop { ends });
        for (span, windows, sizes, expected) in [
            (one, drop(0), (1, 1, 640), 2),
            (one, drop(0), (1, 512, 640), 9),
            (one, drop(0), (8, 512, 6400), 8 * 2 + 8),
            (one, drop(3), (8, 512, 6400), 8 * 2 + 8 + 3),
            (one, WindowPolicy::Keep, (8, 512, 6400), 8 * 2 + 8 + 8),
            (one, drop(0), (8, 512, 64), 8),
            (Span::Pages(3), drop(2), (2, 64, 6400), 2 * 4 + 2 * 3),
        ] {
            assert_eq!(pages(span, Budget::Sequences, windows, sizes), expected, "{span:?} {sizes:?}");
        }
        assert_eq!(pages(one, Budget::Pages(100), drop(0), (1, 1, 640)), 2);
        assert_eq!(pages(one, Budget::Pages(1), drop(0), (1, 1, 640)), 1);
        assert_eq!(pages(one, Budget::Bytes(10_000), WindowPolicy::Keep, (1, 1, 640)), 3);
        assert_eq!(pages(Span::All, Budget::Bytes(10_000), WindowPolicy::Keep, (1, 1, 640)), 1000);
    }

    #[test]
    fn a_budget_below_one_page_says_what_is_needed() {
        let cache = CacheOptions { budget: Budget::Bytes(109), windows: WindowPolicy::Keep };
        let error = options(cache).pages(&groups(), &[100, 10]).unwrap_err();
        assert!(matches!(error, EngineError::Budget { found: 109, least: 110 }), "{error}");
    }
}
