//! What the caches hold, and how often that was of use.

/// Counts since the engine was opened, and the pages of now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// One for each group of layers.
    pub groups: Vec<GroupStats>,
    /// Sequences that were added with a prefix.
    pub lookups: u64,
    /// Those of them for which something was there.
    pub hits: u64,
    /// Positions that lookups could have found: all but the last of each.
    pub tokens_wanted: u64,
    /// Positions that were found.
    pub tokens_reused: u64,
    /// Pages of prefixes that were given up for others.
    pub evictions: u64,
    /// Pages that were copied because they were shared and partly filled.
    pub copies: u64,
}

/// Pages of one group of layers. `in_use + cached + free = pages`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupStats {
    /// `global` or `sliding`.
    pub name: String,
    /// Bytes of one page in all layers of the group.
    pub page_bytes: usize,
    /// All pages.
    pub pages: usize,
    /// Those that sequences hold.
    pub in_use: usize,
    /// Those that only prefixes hold.
    pub cached: usize,
    /// Those that nobody holds.
    pub free: usize,
}
