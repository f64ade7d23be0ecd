//! What an engine takes of memory, known before it is opened.

use hf2q_gguf::Bytes;
use hf2q_plan::{Backend, Cache, Limits, PAGE, Plan, Recording, Span};

use crate::error::EngineError;
use crate::options::EngineOptions;

/// What an engine takes of memory. Left out are what its state and the threads' buffers take: a few MiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Bytes of the plan's weights. Those of a mapped file count as memory because every token reads them.
    pub weights: usize,
    /// The caches by group of layers.
    pub groups: Vec<GroupNeeds>,
    /// Bytes of activations and of what is derived from them, at the largest step.
    pub work: usize,
}

/// The caches of the layers that keep the same positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupNeeds {
    /// `global`, `sliding` or `recent`.
    pub name: String,
    /// The most positions that a row sees; `None`: all.
    pub window: Option<u32>,
    /// Whether it has, a second time, the last positions of each sequence alone: as much for a long one as for a short one.
    pub fixed: bool,
    /// Layers with a cache.
    pub layers: usize,
    /// Bytes of a page of [`PAGE`] positions in all of them.
    pub page_bytes: usize,
    /// Pages that are allocated.
    pub pages: usize,
}

impl GroupNeeds {
    /// Bytes of all pages.
    pub fn bytes(&self) -> usize {
        self.pages.saturating_mul(self.page_bytes)
    }

    /// Bytes that a further token takes.
    pub fn token_bytes(&self) -> usize {
        if self.fixed { 0 } else { self.page_bytes / PAGE }
    }

    /// Bytes that a sequence takes whatever its length.
    pub fn sequence_bytes(&self) -> usize {
        let pages = self.window.map_or(0, |w| w as usize / PAGE);
        if self.fixed { pages.saturating_mul(self.page_bytes) } else { 0 }
    }
}

impl Needs {
    /// What [`crate::Engine::open`] would take with the same arguments. Nothing is allocated, and no matrix is read.
    ///
    /// # Errors
    /// As [`crate::Engine::open`], but for the memory itself.
    pub fn new(
        backend: &dyn Backend,
        plan: &Plan,
        weights: Vec<Bytes>,
        options: EngineOptions,
    ) -> Result<Self, EngineError> {
        options.check()?;
        let groups = groups(&plan.recording, options)?;
        let limits = limits(options, groups.iter().map(|g| g.pages).collect());
        let bytes = weights.iter().map(|w| w.len()).sum();
        let work = backend.memory(plan, weights, &limits)?.work;
        Ok(Self { weights: bytes, groups, work })
    }

    /// Bytes of all caches.
    pub fn caches(&self) -> usize {
        self.groups.iter().map(GroupNeeds::bytes).fold(0, usize::saturating_add)
    }

    /// How many tokens one sequence can hold if it is alone; pages may hold more than the context, or less.
    pub fn tokens(&self) -> usize {
        let of = |g: &GroupNeeds| {
            // Behind a step the window before the last position, and the next position's page.
            let whole = g.window.is_some_and(|w| (w as usize).div_ceil(PAGE) < g.pages);
            if whole { usize::MAX } else { g.pages.saturating_mul(PAGE) }
        };
        self.groups.iter().map(of).min().unwrap_or(usize::MAX)
    }

    /// Bytes that a further token takes in all layers; those of windowed layers are given back behind the window.
    pub fn token_bytes(&self) -> usize {
        self.groups.iter().map(GroupNeeds::token_bytes).sum()
    }

    /// Bytes that a sequence takes in all layers whatever its length, beside those of its tokens.
    pub fn sequence_bytes(&self) -> usize {
        self.groups.iter().map(GroupNeeds::sequence_bytes).fold(0, usize::saturating_add)
    }

    /// All bytes.
    pub fn total(&self) -> usize {
        self.weights.saturating_add(self.caches()).saturating_add(self.work)
    }
}

/// What a backend is opened with.
pub(crate) fn limits(options: EngineOptions, pages: Vec<usize>) -> Limits {
    Limits { max_rows: options.rows, max_logit_rows: options.logit_rows, pages }
}

/// The caches of a recording.
pub(crate) fn groups(recording: &Recording, options: EngineOptions) -> Result<Vec<GroupNeeds>, EngineError> {
    let of = |g: usize| recording.caches.iter().filter(move |c| c.group.index() == g);
    let page_bytes: Vec<usize> =
        (0..recording.groups.len()).map(|g| of(g).map(Cache::page_bytes).sum()).collect();
    let pages = options.pages(&recording.groups, &page_bytes)?;
    let sizes = page_bytes.into_iter().zip(pages).enumerate();
    let needs = recording.groups.iter().zip(sizes).map(|(group, (g, (page_bytes, pages)))| GroupNeeds {
        name: group.name.clone(),
        window: group.span.most(),
        fixed: matches!(group.span, Span::Pages(_)),
        layers: of(g).count(),
        page_bytes,
        pages,
    });
    Ok(needs.collect())
}
