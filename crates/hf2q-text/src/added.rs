//! Tokens that are matched in the text before it is split any further.

use std::ops::Range;

/// Finds listed strings in a text, leftmost first, longest first. The strings are kept sorted; a match narrows the
/// list byte by byte, so a position costs at most the length of the longest string.
#[derive(Default)]
pub(crate) struct Added {
    bytes: Vec<u8>,
    /// Sorted by text.
    entries: Vec<Entry>,
    /// Entries that start with byte `b` are `first[b]..first[b + 1]`.
    first: Vec<u32>,
}

#[derive(Clone, Copy)]
struct Entry {
    start: u32,
    end: u32,
    id: u32,
}

/// A string that was found.
pub(crate) struct Found {
    /// Place in the text, in bytes.
    pub(crate) range: Range<usize>,
    /// The token.
    pub(crate) id: u32,
}

impl Added {
    /// Takes strings and their ids. Empty strings never match; of equal strings the first counts.
    pub(crate) fn new(strings: impl Iterator<Item = (impl AsRef<str>, u32)>) -> Self {
        let mut added = Self::default();
        for (text, id) in strings.filter(|(text, _)| !text.as_ref().is_empty()) {
            let start = added.bytes.len() as u32;
            added.bytes.extend_from_slice(text.as_ref().as_bytes());
            added.entries.push(Entry { start, end: added.bytes.len() as u32, id });
        }
        let Self { bytes, entries, .. } = &mut added;
        let text = |e: &Entry| &bytes[e.start as usize..e.end as usize];
        entries.sort_by(|a, b| text(a).cmp(text(b)));
        entries.dedup_by(|a, b| text(a) == text(b));
        added.first =
            (0..=256).map(|b| entries.partition_point(|e| usize::from(text(e)[0]) < b) as u32).collect();
        added
    }

    /// The first match at or after `from` that `accept` allows; of those that start there the longest.
    pub(crate) fn find(
        &self,
        text: &[u8],
        from: usize,
        accept: impl Fn(u32, Range<usize>) -> bool,
    ) -> Option<Found> {
        if self.entries.is_empty() {
            return None;
        }
        (from..text.len()).find_map(|at| self.longest(text, at, &accept))
    }

    fn longest(&self, text: &[u8], at: usize, accept: impl Fn(u32, Range<usize>) -> bool) -> Option<Found> {
        let byte = usize::from(text[at]);
        let mut entries = &self.entries[self.first[byte] as usize..self.first[byte + 1] as usize];
        let mut best = None;
        let mut len = 1;
        while let Some(shortest) = entries.first() {
            if shortest.len() == len {
                if accept(shortest.id, at..at + len) {
                    best = Some(Found { range: at..at + len, id: shortest.id });
                }
                entries = &entries[1..];
            }
            let Some(&next) = text.get(at + len) else { break };
            let byte = |e: &Entry| self.bytes[e.start as usize + len];
            let low = entries.partition_point(|e| byte(e) < next);
            let high = entries.partition_point(|e| byte(e) <= next);
            entries = &entries[low..high];
            len += 1;
        }
        best
    }

    /// The strings with their ids, sorted by text.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], u32)> {
        self.entries.iter().map(|e| (&self.bytes[e.start as usize..e.end as usize], e.id))
    }
}

impl Entry {
    fn len(self) -> usize {
        (self.end - self.start) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftmost_then_longest() {
        let strings = ["<a>", "<a><b>", "b", "<", "é", "\n", "\n\n", "\n\n\n", "b", "<a>"];
        let added = Added::new(strings.iter().zip(0..));
        let ids = |text: &str, banned: u32| {
            let (mut at, mut ids) = (0, Vec::new());
            while let Some(found) = added.find(text.as_bytes(), at, |id, _| id != banned) {
                ids.push(found.id);
                at = found.range.end;
            }
            ids
        };
        assert_eq!(ids("x<a><b><a>b", 99), [1, 0, 2]);
        assert_eq!(ids("x<a><b><a>b", 1), [0, 3, 2, 0, 2]);
        assert_eq!(ids("\n\n\n\n\n", 99), [7, 6]);
        assert_eq!(ids("cé<a", 99), [4, 3]);
    }
}
