//! The tables of cases, one file for each kind of operation.

mod attention;
mod elementwise;
mod embed;
mod experts;
mod formed;
mod input;
mod mat_mul;
mod norm;
mod recent;
mod rope;
mod route;
mod select;

use hf2q_plan::{Passes, PlanError, RowKind, View};

pub(crate) use rope::plain as plain_rope;

use crate::builder::{Builder, Built};
use crate::random::Random;
use crate::tolerance::Precision;

/// Tokens of the cases without caches; a step never holds a token twice.
pub(crate) const TOKENS: usize = 129;

type Build = Box<dyn Fn(&mut Builder) -> (View, RowKind)>;

/// What steps a case runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feed {
    /// Tokens in steps of 129, 64, 17, 3 and 1 rows, in and out of order; token `t` is always at one position.
    Rows,
    /// Random traffic of this seed over paged caches.
    Traffic(u64),
}

/// One operation with its shapes and formats.
pub(crate) struct Case {
    pub(crate) op: &'static str,
    pub(crate) name: String,
    pub(crate) precision: Precision,
    pub(crate) passes: Passes,
    pub(crate) feed: Feed,
    build: Build,
}

impl Case {
    fn new(
        op: &'static str,
        name: String,
        precision: Precision,
        build: impl Fn(&mut Builder) -> View + 'static,
    ) -> Self {
        let build: Build = Box::new(move |b| (build(b), RowKind::Step));
        Self { op, name, precision, passes: Passes::NONE, feed: Feed::Rows, build }
    }

    /// The same for an operation on the rows whose logits are wanted.
    fn of_logits(
        op: &'static str,
        name: String,
        precision: Precision,
        build: impl Fn(&mut Builder) -> View + 'static,
    ) -> Self {
        let build: Build = Box::new(move |b| (build(b), RowKind::Logits));
        Self { op, name, precision, passes: Passes::NONE, feed: Feed::Rows, build }
    }

    /// Records it; with `guarded`, among activations that must not change. Weights are the same either way.
    pub(crate) fn build(&self, guarded: bool) -> Result<Built, PlanError> {
        let vocabulary = match self.feed {
            Feed::Rows => TOKENS,
            Feed::Traffic(_) => 256,
        };
        let mut b = Builder::new(vocabulary, Random::new(&self.name, 1));
        let (out, kind) = (self.build)(&mut b);
        b.finish(out, kind, guarded)
    }
}

/// Every case of every operation.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = vec![];
    embed::cases(&mut cases);
    input::cases(&mut cases);
    norm::cases(&mut cases);
    mat_mul::cases(&mut cases);
    rope::cases(&mut cases);
    attention::cases(&mut cases);
    formed::cases(&mut cases);
    recent::cases(&mut cases);
    elementwise::cases(&mut cases);
    route::cases(&mut cases);
    experts::cases(&mut cases);
    select::cases(&mut cases);
    cases
}
