//! Drafts of the jobs that draw tokens: what is guessed for them, what became of it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::plan::Share;
use super::{JobId, Scheduler, Walk};
use crate::draft::control::{Control, DraftDepth, DraftShape};
use crate::draft::outcome::Outcome;
use crate::draft::{DraftRequest, DraftTree, Drafter, Seen};
use crate::engine::{Engine, Tree};
use crate::error::EngineError;
use crate::job::DraftUse;

/// A drafter and how it is used.
pub struct Drafting {
    /// Guesses.
    pub drafter: Box<dyn Drafter>,
    /// How far.
    pub depth: DraftDepth,
    /// Whether with alternatives, where the drafter knows some.
    pub shape: DraftShape,
    /// Is told what goes wrong in the drafter: some jobs get no more drafts then, and go on without.
    pub warn: Box<dyn FnMut(&EngineError) + Send>,
}

/// A drafter at work.
pub(super) struct Drafts {
    drafting: Drafting,
    control: Control,
    counts: DraftStats,
    /// Failures since the last step with drafts that was computed.
    in_a_row: u32,
    /// How long it looked at what the step has computed.
    looked: Duration,
}

/// After so many failures in a row a drafter is not asked any more.
const MOST_FAILURES: u32 = 8;

/// What drafts were good for, since the scheduler was made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DraftStats {
    /// The drafter; empty where there is none.
    pub drafter: String,
    /// Drafts that were computed.
    pub drafts: u64,
    /// Tokens in them.
    pub drafted: u64,
    /// Those of them that were drawn.
    pub accepted: u64,
    /// By level, the first one first: drafts that had it, and those of them whose token there was drawn.
    pub levels: Vec<(u64, u64)>,
    /// Seconds that the drafter took.
    pub seconds: f64,
    /// Seconds that drafts saved, the sum of [`DraftUse::saved`] over the answers that have ended and for which it is known: those of
    /// answers that wait for the same steps count for each.
    pub saved: f64,
    /// How often it failed.
    pub failures: u64,
}

impl DraftStats {
    fn record(&mut self, tree: &DraftTree, outcome: &Outcome) {
        self.drafts += 1;
        self.drafted += tree.len() as u64;
        self.accepted += outcome.accepted as u64;
        DraftUse::record(&mut self.levels, outcome.depth, outcome.accepted);
    }
}

/// Rows, logits and pages that a step has left.
struct Spare {
    rows: usize,
    /// Pages of each group that the step's rows need.
    taken: Vec<usize>,
}

impl Spare {
    /// Whether there are pages for `more` in all groups.
    fn has(&self, engine: &Engine, more: &[usize]) -> bool {
        let mut pages = self.taken.iter().zip(more).enumerate();
        pages.all(|(g, (taken, more))| taken + more <= engine.cache().room(g))
    }

    fn take(&mut self, more: &[usize]) {
        self.taken.iter_mut().zip(more).for_each(|(taken, more)| *taken += more);
    }
}

impl Drafts {
    pub(super) fn new(drafting: Drafting) -> Self {
        let counts = DraftStats { drafter: drafting.drafter.name().to_owned(), ..DraftStats::default() };
        let control = Control::new(drafting.depth, drafting.shape, drafting.drafter.branches());
        Self { control, drafting, counts, in_a_row: 0, looked: Duration::ZERO }
    }

    pub(super) fn stats(&self) -> DraftStats {
        self.counts.clone()
    }

    /// How many of the target's outputs the drafter looks at.
    pub(super) fn taps(&self) -> usize {
        if self.is_off() { 0 } else { self.drafting.drafter.taps().len() }
    }

    /// A job has ended or lost its pages.
    pub(super) fn forget(&mut self, job: JobId) {
        let drafter = &mut self.drafting.drafter;
        // It was not asked for anything: that says nothing of whether it can still draft.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drafter.forget(job))) {
            self.tell(&EngineError::panicked(&*panic));
        }
    }

    /// Asks the drafter for something.
    fn guarded<T>(&mut self, ask: impl FnOnce(&mut dyn Drafter) -> Result<T, EngineError>) -> Asked<T> {
        let drafter = &mut *self.drafting.drafter;
        let asked = catch_unwind(AssertUnwindSafe(|| ask(drafter)));
        match asked.unwrap_or_else(|panic| Err(EngineError::panicked(&*panic))) {
            Ok(answer) => Asked::Answer(answer),
            Err(EngineError::OutOfPages { .. }) => Asked::NoRoom,
            Err(error) => {
                self.failed(&error);
                Asked::Failed
            }
        }
    }

    /// It has failed, or a step with what it drafted.
    pub(super) fn failed(&mut self, error: &EngineError) {
        self.in_a_row += 1;
        self.tell(error);
    }

    /// An answer has ended for which drafts have saved so many seconds.
    pub(super) fn count_saved(&mut self, seconds: f64) {
        self.counts.saved += seconds;
    }

    /// Something that drafts need has failed.
    pub(super) fn tell(&mut self, error: &EngineError) {
        self.counts.failures += 1;
        (self.drafting.warn)(error);
    }

    /// Whether it is not asked any more.
    fn is_off(&self) -> bool {
        self.in_a_row >= MOST_FAILURES
    }

    /// A step was computed that had nothing but rows of answers, and drafts. What the drafter did beside it says nothing of rows.
    fn timed(&mut self, (rows, drafted): (usize, usize), clock: &Clock) -> Cost {
        let looked = std::mem::take(&mut self.looked);
        let step = clock.began.elapsed().saturating_sub(looked);
        if clock.answers {
            self.control.timed(rows, drafted, step);
        }
        // By what such steps take, not by what this one took: it may have waited for other work of the machine.
        let steps = self.control.seconds(rows, drafted).filter(|_| drafted > 0 && clock.answers);
        Cost { steps, drafter: (clock.drafting + looked).as_secs_f64() }
    }
}

/// What is known of the time of a step.
pub(super) struct Clock {
    /// When the drafts were there.
    pub(super) began: Instant,
    /// How long that took.
    pub(super) drafting: Duration,
    /// Whether it has nothing but rows of answers.
    pub(super) answers: bool,
}

/// Seconds.
struct Cost {
    /// Of such a step without drafts and with them, where it has some and that is measured.
    steps: Option<(f64, f64)>,
    drafter: f64,
}

/// What a drafter said.
enum Asked<T> {
    Answer(T),
    /// Its caches are full.
    NoRoom,
    /// An error that was told.
    Failed,
}

impl Scheduler {
    /// A draft for each share: empty where there is none.
    pub(super) fn draft(&mut self, shares: &[Share]) -> Vec<DraftTree> {
        let mut trees = vec![DraftTree::new(); shares.len()];
        let mut spare = self.spare(shares);
        let wishes = self.wishes(shares, &mut spare);
        let Some(drafts) = self.drafts.as_mut().filter(|_| !wishes.is_empty()) else { return trees };
        let (running, branches) = (&mut self.running, drafts.control.branches());
        let requests: Vec<DraftRequest<'_>> = wishes
            .iter()
            .filter_map(|w| running[shares[w.share].at].job.draft_request((w.depth, w.room), branches))
            .collect();
        let warm = requests.len() == wishes.len()
            && wishes.iter().all(|w| running[shares[w.share].at].job.control.warm);
        let began = Instant::now();
        let levels = requests.iter().map(|r| r.depth).sum();
        let drafted = drafts.guarded(|drafter| {
            let drafted = drafter.draft(&requests)?;
            let whole = drafted.len() == requests.len() && drafted.iter().all(|tree| tree.is_tree());
            if whole {
                return Ok(drafted);
            }
            let why = "a defect: its answer is not a tree for each request".to_owned();
            Err(EngineError::Drafter { drafter: drafter.name().to_owned(), why })
        });
        drop(requests);
        let took = began.elapsed();
        drafts.counts.seconds += took.as_secs_f64();
        let drafted = match drafted {
            Asked::Answer(drafted) => drafted,
            other => {
                let failed = matches!(other, Asked::Failed);
                self.give_up(wishes.iter().map(|w| shares[w.share].at), failed);
                return trees;
            }
        };
        // What a drafter computes of a job for the first time, or after a pause, says nothing of a level.
        if drafted.iter().all(|tree| !tree.is_empty()) {
            if warm {
                drafts.control.drafted(levels, took);
            } else if let [_] = &drafted[..] {
                drafts.control.drafted_late(took);
            }
        }
        for (wish, tree) in wishes.iter().zip(&drafted) {
            running[shares[wish.share].at].job.control.warm = !tree.is_empty();
        }
        for (wish, tree) in wishes.iter().zip(drafted) {
            let tree = if branches { tree } else { tree.keep(|node| tree.is_first(node)) };
            let tree = tree.within(wish.depth, wish.room, self.limits.vocabulary);
            trees[wish.share] = self.fit_tree(tree, &mut spare);
        }
        trees
    }

    /// The drafter lets go of jobs: for now, or for good where it has failed.
    pub(super) fn give_up(&mut self, jobs: impl Iterator<Item = usize>, failed: bool) {
        for at in jobs {
            let job = &mut self.running[at].job;
            job.control.failed |= failed;
            job.control.warm = false;
            let id = job.id;
            if let Some(drafts) = &mut self.drafts {
                drafts.forget(id);
            }
        }
    }

    /// What `shares` leave of a step.
    fn spare(&self, shares: &[Share]) -> Spare {
        let sizes = self.engine.options();
        let rows: usize = shares.iter().map(|s| s.rows).sum();
        let logits: usize = shares.iter().map(|s| s.work(&self.running[s.at]).logits.count(s.rows)).sum();
        let most = self.options.busy_rows.max(2 * self.limits.running).min(sizes.rows);
        let taken = (0..self.engine.cache().groups()).map(|g| {
            let needed = |s: &Share| self.engine.pages_needed(self.running[s.at].sequence, g, s.rows);
            shares.iter().map(needed).sum()
        });
        let rows = most.saturating_sub(rows).min(sizes.logit_rows.saturating_sub(logits));
        Spare { rows, taken: taken.collect() }
    }

    /// How far to draft for each job that draws a token in this step; the oldest come first where rows or pages are few.
    fn wishes(&mut self, shares: &[Share], spare: &mut Spare) -> Vec<Wish> {
        let Some(drafts) = self.drafts.as_ref().filter(|drafts| !drafts.is_off()) else { return Vec::new() };
        let drafted = |s: &Share| {
            let r = &self.running[s.at];
            s.rows == 1 && r.left() == 1 && r.job.draft_levels() > 0 && !r.job.control.failed
        };
        let jobs: Vec<usize> = (0..shares.len()).filter(|&i| drafted(&shares[i])).collect();
        let rows: usize = shares.iter().map(|s| s.rows).sum();
        let mut wishes = Vec::new();
        for &share in &jobs {
            let r = &mut self.running[shares[share].at];
            let wanted = drafts.control.depth(&mut r.job.control, (rows, jobs.len()));
            let room = spare.rows.min(drafts.control.nodes(&r.job.control, wanted, (rows, jobs.len())));
            // The row itself is stored at the position of what is held.
            let context = self.limits.tokens.saturating_sub(r.held + 1);
            let mut depth = wanted.min(room).min(r.job.draft_levels()).min(context);
            let needed = |depth| -> Vec<usize> {
                let of = |g| self.engine.pages_needed(r.sequence, g, 1 + depth);
                (0..spare.taken.len()).map(|g| of(g) - self.engine.pages_needed(r.sequence, g, 1)).collect()
            };
            while depth > 0 && !spare.has(&self.engine, &needed(depth)) {
                depth -= 1;
            }
            if depth == 0 {
                r.job.control.warm = false;
            } else {
                spare.take(&needed(depth));
                spare.rows -= room;
                wishes.push(Wish { share, depth, room });
            }
        }
        wishes
    }

    /// A tree without those nodes for which there are no spare pages.
    fn fit_tree(&self, tree: DraftTree, spare: &mut Spare) -> DraftTree {
        let mut placed = Tree::new(0, 0);
        placed.grow(&tree);
        let more = vec![placed.spare_pages(); spare.taken.len()];
        if spare.has(&self.engine, &more) {
            spare.take(&more);
            return tree;
        }
        tree.keep(|node| placed.is_in_place(node))
    }

    /// Counts what became of a draft. Where the answer has ended nothing is known of the levels that were not accepted.
    pub(super) fn learn(&mut self, at: usize, tree: &DraftTree, (path, goes_on): (&[usize], bool)) {
        let Some(drafts) = self.drafts.as_mut().filter(|_| !tree.is_empty()) else { return };
        let outcome = Outcome::new(tree, path, goes_on);
        drafts.counts.record(tree, &outcome);
        let job = &mut self.running[at].job;
        job.count_draft(tree.len(), &outcome);
        drafts.control.learn(&mut job.control, &outcome);
    }

    /// Counts how long a step took, and what each job's share of it saved.
    pub(super) fn count_time(
        &mut self,
        shares: &[Share],
        trees: &[DraftTree],
        (walks, clock): (&[Walk], &Clock),
    ) {
        let Some(drafts) = self.drafts.as_mut() else { return };
        let rows: usize = shares.iter().map(|s| s.rows).sum();
        let cost = drafts.timed((rows, trees.iter().map(DraftTree::len).sum()), clock);
        for (share, walk) in shares.iter().zip(walks) {
            let tokens = 1 + walk.path.len();
            let saved = cost.steps.map(|(plain, with)| tokens as f64 * plain - with - cost.drafter);
            let steps = cost.steps.zip(saved).map_or(0.0, |((plain, _), saved)| saved / plain);
            self.running[share.at].job.control.settle(tokens, steps);
            // Without a plain time a step with drafts cannot be compared.
            let overhead = if trees.iter().all(DraftTree::is_empty) { cost.drafter } else { 0.0 };
            self.running[share.at].job.count_saved(saved, overhead);
        }
    }

    /// Shows the drafter the rows of a step that stay. `features` are those of the step's rows, for each of its taps.
    pub(super) fn show(&mut self, kept: &[Kept], features: Result<Vec<Vec<f32>>, EngineError>) {
        let Some(drafts) = self.drafts.as_mut().filter(|drafts| !drafts.is_off()) else { return };
        let running = &self.running;
        let began = Instant::now();
        let shown = drafts.guarded(|drafter| {
            let features = kept_features(kept, &features?);
            let seen = kept.iter().zip(&features).filter_map(|(k, features)| {
                let job = &running[k.at].job;
                let tokens = &job.history[k.from..k.from + k.rows.len()];
                let wanted = job.draws() && !job.control.failed;
                wanted.then_some(Seen { job: job.id, from: k.from, tokens, features })
            });
            let seen: Vec<Seen<'_>> = seen.collect();
            if seen.is_empty() { Ok(()) } else { drafter.seen(&seen) }
        });
        drafts.looked = began.elapsed();
        drafts.counts.seconds += drafts.looked.as_secs_f64();
        match shown {
            Asked::Answer(()) if kept.iter().any(|k| k.drafted) => drafts.in_a_row = 0,
            Asked::Answer(()) => {}
            other => self.give_up(kept.iter().map(|k| k.at), matches!(other, Asked::Failed)),
        }
    }
}

/// Of each job's rows that stay the values that each tap has for the step's rows.
fn kept_features(kept: &[Kept], features: &[Vec<f32>]) -> Vec<Vec<Vec<f32>>> {
    let rows: usize = kept.iter().map(|k| k.step_rows).sum();
    let mut first = 0;
    let of_job = |k: &Kept| {
        let of_tap = |values: &Vec<f32>| {
            let width = values.len().checked_div(rows).unwrap_or(0);
            let row = |&i: &usize| &values[(first + i) * width..(first + i + 1) * width];
            k.rows.iter().flat_map(row).copied().collect()
        };
        let of_job = features.iter().map(of_tap).collect();
        first += k.step_rows;
        of_job
    };
    kept.iter().map(of_job).collect()
}

/// How far one share's job is drafted.
struct Wish {
    share: usize,
    depth: usize,
    room: usize,
}

/// The rows of one job that stay.
pub(super) struct Kept {
    /// Index of the job.
    pub(super) at: usize,
    /// Position of the first.
    pub(super) from: usize,
    /// Rows that the step had for the job, and which of them stay.
    pub(super) step_rows: usize,
    pub(super) rows: Vec<usize>,
    /// Whether it had a draft.
    pub(super) drafted: bool,
}
