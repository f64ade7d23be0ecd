//! How far to draft: as far as it makes answers come faster.
//!
//! Of each job it is known how often drafted tokens were the drawn ones, level by level, and of the backend how long steps take
//! by how many rows they have. From both follows how many tokens a second each depth would give; the best is taken. Where
//! drafts do not pay there are none, but for a short one now and then, ever more rarely; and none where they have cost an answer
//! too much already, whatever is expected of further ones. What is decided here changes when tokens come, never which.

use std::time::Duration;

use super::outcome::Outcome;

/// The deepest level of drafts whose depth is chosen.
const MOST_DEPTH: usize = 16;

/// How many levels drafts have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DraftDepth {
    /// As many as pay, by what is measured.
    #[default]
    Auto,
    /// Always as many as this, where there is room.
    Fixed(usize),
}

impl DraftDepth {
    /// The deepest level where the depth is chosen.
    pub const MOST: usize = MOST_DEPTH;
}

/// What drafts look like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DraftShape {
    /// Alternatives where they pay, by how often they were right and by what rows cost.
    #[default]
    Auto,
    /// Each token continues the one before.
    Chain,
    /// Alternatives wherever the drafter knows some, in as many further rows as there are levels.
    Tree,
}

/// How often an alternative is thought to be right where the first guess is wrong, before one was tried.
const SECOND: f32 = 0.3;

/// Of what is counted here of a job, the past counts less with each draft.
const KEPT: f32 = 0.85;
/// The same of all jobs.
const KEPT_OF_ALL: f32 = 0.98;
/// How many drafts the drafter's average over all jobs counts for in a job that is new.
const PRIOR: f32 = 2.0;
/// How likely the first level of the first draft is thought to be right.
const FIRST: f32 = 0.6;
/// So many of the latest times of a kind of step are looked at.
const RECENT: usize = 9;
/// Steps without drafts after one that did not pay, at first and at most.
const PAUSE: (u32, u32) = (8, 256);
/// The same where what it costs to try again asks for more.
const LONGEST_PAUSE: u32 = 4096;
/// Which part of the time drafts after pauses may take: pauses are as long as that asks for.
const PROBING: f64 = 0.015;
/// Levels of a draft after a pause.
const PROBE: usize = 2;
/// Timed steps after which what they said of steps is not believed any more: the context has grown since.
const OLD: u64 = 300;
/// The same of the drafter, which the longest pause must not make forget that it takes long.
const OLD_DRAFTER: u64 = 2 * LONGEST_PAUSE as u64;
/// By how much drafts must be expected to pay.
const MARGIN: f64 = 1.02;
/// Which part of an answer's time drafts may have cost it when one more is made, and how many steps beside that: what the first
/// of an answer are worth nobody knows.
const LOSS: f64 = 0.012;
const TRIALS: f64 = 1.0;
/// What a further row is thought to cost, as a part of a step, before it is measured.
const ROW: f64 = 0.1;

/// How often each level was right where the level above it was.
#[derive(Clone, Debug)]
struct Levels {
    right: [f32; MOST_DEPTH],
    tried: [f32; MOST_DEPTH],
}

impl Levels {
    fn new() -> Self {
        Self { right: [0.0; MOST_DEPTH], tried: [0.0; MOST_DEPTH] }
    }

    /// A draft of `depth` levels, of which `accepted` were right.
    fn record(&mut self, depth: usize, accepted: usize, kept: f32) {
        for level in 0..depth.min(accepted + 1).min(MOST_DEPTH) {
            self.right[level] = self.right[level] * kept + f32::from(level < accepted);
            self.tried[level] = self.tried[level] * kept + 1.0;
        }
    }

    /// The probability that a level is right, where `prior` says what is thought without a trial.
    fn at(&self, level: usize, prior: f32) -> f32 {
        (self.right[level] + PRIOR * prior) / (self.tried[level] + PRIOR)
    }
}

/// What is known of one job.
#[derive(Clone, Debug)]
pub(crate) struct JobControl {
    levels: Levels,
    /// Steps for which there are no drafts.
    pause: u32,
    /// How long the next pause is.
    next_pause: u32,
    /// A pause is over: what is thought of the job is old.
    probe: bool,
    /// The step before had a draft: the drafter has only that step to catch up with.
    pub(crate) warm: bool,
    /// The drafter has failed.
    pub(crate) failed: bool,
    /// Tokens of the answer.
    tokens: f64,
    /// Steps without drafts that drafts have saved it.
    saved: f64,
}

impl JobControl {
    pub(crate) fn new() -> Self {
        Self {
            levels: Levels::new(),
            pause: 0,
            next_pause: PAUSE.0,
            probe: false,
            warm: false,
            failed: false,
            tokens: 0.0,
            saved: 0.0,
        }
    }

    /// A step gave so many tokens, and drafts saved so many steps without them, less than none where they cost some.
    pub(crate) fn settle(&mut self, tokens: usize, saved: f64) {
        self.tokens += tokens as f64;
        self.saved += saved;
    }

    /// Whether drafts have cost the answer more than they may.
    fn is_in_debt(&self) -> bool {
        self.saved < -(LOSS * self.tokens + TRIALS)
    }
}

/// The middle one of the latest values: a few that the machine's other work has made large say nothing. It is forgotten where
/// nothing was added for `OLD` steps.
#[derive(Clone, Copy, Debug, Default)]
struct Middle<const OLD: u64> {
    values: [f64; RECENT],
    /// How many values were added.
    count: usize,
    /// When something was added last.
    at: u64,
    middle: f64,
}

impl<const OLD: u64> Middle<OLD> {
    fn record(&mut self, value: f64, now: u64) {
        if self.known(now).is_none() {
            self.count = 0;
        }
        self.values[self.count % RECENT] = value;
        self.count += 1;
        self.at = now;
        let mut values = self.values;
        let values = &mut values[..self.count.min(RECENT)];
        values.sort_unstable_by(f64::total_cmp);
        self.middle = f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2]);
    }

    fn known(&self, now: u64) -> Option<f64> {
        (self.count > 0 && now - self.at < OLD).then_some(self.middle)
    }
}

/// Seconds of steps by their rows.
#[derive(Clone, Debug, Default)]
struct Costs {
    /// Steps that were timed.
    now: u64,
    /// By rows, those of steps without drafts.
    plain: Vec<Middle<OLD>>,
    /// By [`bucket`] of the rows that are no drafts and by the number of drafted rows less one: how many times as long as without them.
    drafted: Vec<Vec<Middle<OLD>>>,
}

impl Costs {
    fn record(&mut self, rows: usize, drafted: usize, seconds: f64) {
        self.now += 1;
        if drafted == 0 {
            grown(&mut self.plain, rows).record(seconds, self.now);
        } else if let Some(plain) = self.plain(rows) {
            grown(grown(&mut self.drafted, bucket(rows)), drafted - 1).record(seconds / plain, self.now);
        }
    }

    /// Seconds of a step without drafts: in a line between what was measured next to `rows`. Nothing is said of rows below
    /// or above all that was.
    fn plain(&self, rows: usize) -> Option<f64> {
        let known = |rows: usize| Some((rows, self.plain.get(rows)?.known(self.now)?));
        let (below, low) = (0..=rows).rev().find_map(known)?;
        let (above, high) = (rows..self.plain.len()).find_map(known)?;
        let further = (rows - below) as f64 / (above - below).max(1) as f64;
        Some(low + (high - low) * further)
    }

    /// Whether a step with drafts was measured, of about so many other rows.
    fn has_drafts(&self, rows: usize) -> bool {
        self.drafted.get(bucket(rows)).is_some_and(|means| means.iter().any(|m| m.known(self.now).is_some()))
    }

    /// How many times as long a step with so many drafted rows takes: in a line between what was measured.
    fn factor(&self, rows: usize, drafted: usize) -> f64 {
        let measured = self.drafted.get(bucket(rows)).map_or(&[][..], Vec::as_slice);
        let known = measured.iter().enumerate().filter_map(|(i, mean)| Some((i + 1, mean.known(self.now)?)));
        let (mut below, mut above) = ((0, 1.0), None);
        for point in known {
            if point.0 <= drafted {
                below = point;
            } else {
                above = above.or(Some(point));
            }
        }
        let further = (drafted - below.0) as f64;
        let slope = match above {
            Some((n, factor)) => (factor - below.1) / (n - below.0) as f64,
            None if below.0 > 0 => (below.1 - 1.0) / below.0 as f64,
            None => ROW / rows as f64,
        };
        below.1 + further * slope.max(0.0)
    }
}

fn grown<T: Default + Clone>(list: &mut Vec<T>, at: usize) -> &mut T {
    if list.len() <= at {
        list.resize(at + 1, T::default());
    }
    &mut list[at]
}

/// Steps whose rows have equally many binary digits are thought alike.
fn bucket(rows: usize) -> usize {
    (usize::BITS - rows.leading_zeros()) as usize
}

/// Decides how far to draft.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    depth: DraftDepth,
    shape: DraftShape,
    /// Of all jobs.
    levels: Levels,
    /// Of the places where the first guess was wrong and had alternatives: those where one of them was right, and all.
    second: (f32, f32),
    costs: Costs,
    /// Seconds in which the drafter makes one level for one job.
    level_seconds: Middle<OLD_DRAFTER>,
    /// Seconds of the drafter for a draft before which it had something to catch up with.
    late_seconds: Middle<OLD_DRAFTER>,
}

impl Control {
    /// `branches`: the drafter knows alternatives.
    pub(crate) fn new(depth: DraftDepth, shape: DraftShape, branches: bool) -> Self {
        let shape = if branches { shape } else { DraftShape::Chain };
        let (levels, costs, seconds) = (Levels::new(), Costs::default(), Middle::default());
        let second = (0.0, 0.0);
        Self { depth, shape, levels, second, costs, level_seconds: seconds, late_seconds: seconds }
    }

    /// How many levels to draft for a job, in a step that has `rows` rows without drafts, those of `jobs` jobs that may have
    /// drafts among them.
    pub(crate) fn depth(&self, job: &mut JobControl, (rows, jobs): (usize, usize)) -> usize {
        match self.depth {
            _ if job.failed => 0,
            DraftDepth::Fixed(depth) => depth,
            DraftDepth::Auto if job.is_in_debt() => 0,
            DraftDepth::Auto if job.pause > 0 => {
                job.pause -= 1;
                job.probe = job.pause == 0;
                0
            }
            DraftDepth::Auto if job.probe => PROBE,
            DraftDepth::Auto => self.best(job, (rows, jobs)),
        }
    }

    /// Whether drafts may have alternatives.
    pub(crate) fn branches(&self) -> bool {
        self.shape != DraftShape::Chain
    }

    /// How many nodes a draft of so many levels may have, in a step as for [`Control::depth`].
    pub(crate) fn nodes(&self, job: &JobControl, depth: usize, step: (usize, usize)) -> usize {
        match self.shape {
            DraftShape::Chain => depth,
            DraftShape::Tree => 2 * depth,
            DraftShape::Auto if self.alternatives_pay(job, depth, step) => 2 * depth,
            DraftShape::Auto => depth,
        }
    }

    /// Whether twice the rows are worth the alternatives in them.
    fn alternatives_pay(&self, job: &JobControl, depth: usize, step: (usize, usize)) -> bool {
        if self.costs.plain(step.0).is_none() {
            // A depth that is fixed may leave no steps to compare with.
            return true;
        }
        let tokens = self.expected(job).take(depth).last().unwrap_or(0.0);
        let gain = |width| self.gain(tokens + self.second(job, width), (depth, width), step);
        gain(2) > gain(1)
    }

    /// Tokens that the alternatives of a draft with `width` nodes a level are expected to give.
    fn second(&self, job: &JobControl, width: usize) -> f64 {
        if width < 2 {
            return 0.0;
        }
        let second = (self.second.0 + PRIOR * SECOND) / (self.second.1 + PRIOR);
        let first = job.levels.at(0, self.levels.at(0, FIRST));
        f64::from((1.0 - first) * second)
    }

    /// How many times as fast a draft is that is expected to give so many tokens.
    fn gain(&self, tokens: f64, draft: (usize, usize), step: (usize, usize)) -> f64 {
        let (rows, jobs) = step;
        (1.0 + tokens * jobs as f64 / rows as f64) / self.time(draft, step)
    }

    /// How many times as long a step takes with drafts of `depth` levels that have `width` nodes each.
    fn time(&self, (depth, width): (usize, usize), (rows, jobs): (usize, usize)) -> f64 {
        let level_seconds = self.level_seconds.known(self.costs.now).unwrap_or(0.0);
        let levels = level_seconds * (depth * jobs) as f64;
        let drafting = self.costs.plain(rows).map_or(0.0, |plain| levels / plain);
        self.costs.factor(rows, width * depth * jobs) + drafting
    }

    /// Tokens that chains of one level, of two and so on are expected to give.
    fn expected(&self, job: &JobControl) -> impl Iterator<Item = f64> {
        (0..MOST_DEPTH).scan((1.0, 0.0, FIRST), |(line, tokens, above), level| {
            // Of a level that was never tried the one above it says most.
            *above = job.levels.at(level, self.levels.at(level, *above));
            *line *= f64::from(*above);
            *tokens += *line;
            Some(*tokens)
        })
    }

    fn best(&self, job: &mut JobControl, step: (usize, usize)) -> usize {
        let (rows, _) = step;
        // Drafts are compared with steps that have none.
        let Some(plain) = self.costs.plain(rows) else { return 0 };
        let widths = match self.shape {
            DraftShape::Chain => 1..=1,
            DraftShape::Auto => 1..=2,
            DraftShape::Tree => 2..=2,
        };
        // What a row costs here is learned from one.
        let deepest = if self.costs.has_drafts(rows) { MOST_DEPTH } else { 1 };
        let (mut best, mut most) = (0, MARGIN);
        for (depth, tokens) in (1..=deepest).zip(self.expected(job)) {
            for width in widths.clone() {
                let gain = self.gain(tokens + self.second(job, width), (depth, width), step);
                if gain > most {
                    (best, most) = (depth, gain);
                }
            }
        }
        if best == 0 {
            let late = self.late_seconds.known(self.costs.now).unwrap_or(0.0) / plain;
            let width = self.nodes(job, PROBE, step) / PROBE;
            let least = (((self.time((PROBE, width), step) - 1.0).max(0.0) + late) / PROBING) as u32;
            job.pause = job.next_pause.max(least.min(LONGEST_PAUSE));
            job.next_pause = (job.next_pause * 2).min(PAUSE.1);
        }
        best
    }

    /// What became of a draft.
    pub(crate) fn learn(&mut self, job: &mut JobControl, outcome: &Outcome) {
        if outcome.depth == 0 {
            return;
        }
        job.probe = false;
        let (depth, accepted) = outcome.chain;
        job.levels.record(depth, accepted, KEPT);
        self.levels.record(depth, accepted, KEPT_OF_ALL);
        if outcome.accepted == outcome.depth {
            job.next_pause = PAUSE.0;
        }
        self.learn_second(outcome);
    }

    /// What was found of alternatives is forgotten by and by where there are none, so that they are tried again.
    fn learn_second(&mut self, outcome: &Outcome) {
        let (right, all) = outcome.second;
        if all > 0 || !outcome.branches {
            let (was, tried) = self.second;
            self.second = (was * KEPT_OF_ALL + right as f32, tried * KEPT_OF_ALL + all as f32);
        }
    }

    /// Seconds of a step without drafts, where that is measured, and of one with `drafted` drafted rows beside the others.
    pub(crate) fn seconds(&self, rows: usize, drafted: usize) -> Option<(f64, f64)> {
        let plain = self.costs.plain(rows)?;
        Some((plain, plain * if drafted == 0 { 1.0 } else { self.costs.factor(rows, drafted) }))
    }

    /// How long a step took that had nothing but rows of answers and `drafted` drafted ones.
    pub(crate) fn timed(&mut self, rows: usize, drafted: usize, time: Duration) {
        self.costs.record(rows, drafted, time.as_secs_f64());
    }

    /// How long the drafter took for so many levels of all jobs, where it had nothing to catch up with.
    pub(crate) fn drafted(&mut self, levels: usize, time: Duration) {
        if levels > 0 {
            self.level_seconds.record(time.as_secs_f64() / levels as f64, self.costs.now);
        }
    }

    /// How long the drafter took for one job that it had to catch up with.
    pub(crate) fn drafted_late(&mut self, time: Duration) {
        self.late_seconds.record(time.as_secs_f64(), self.costs.now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draft::DraftTree;

    /// A backend on which a drafted row takes `row` of a step, and texts whose drafts are right up to some level.
    struct World {
        control: Control,
        job: JobControl,
        row: f64,
        /// What the drafter takes for a level, and for each step that it had not to look at.
        level: f64,
        behind: f64,
        late: usize,
        /// What each row behind the first one takes beside that.
        further: f64,
        /// In how many of ten places where the first guess is wrong an alternative is right.
        other: usize,
    }

    /// The same for the same numbers: 0 to 9.
    fn dice(step: usize, which: usize) -> usize {
        let mixed = (step * 2 + which + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 33) % 10
    }

    impl World {
        fn new(row: f64) -> Self {
            Self::shaped(row, DraftShape::Chain)
        }

        /// A drafter that knows alternatives, all of them wrong.
        fn shaped(row: f64, shape: DraftShape) -> Self {
            let control = Control::new(DraftDepth::Auto, shape, true);
            Self {
                control,
                job: JobControl::new(),
                row,
                level: 0.0,
                behind: 0.0,
                late: 0,
                further: 0.0,
                other: 0,
            }
        }

        /// `steps` steps: tokens, seconds, and the depth of the last draft.
        fn run(&mut self, steps: usize, right: impl Fn(usize) -> usize) -> (f64, f64, usize) {
            let (mut tokens, mut seconds, mut last) = (0.0, 0.0, 0);
            for step in 0..steps {
                let depth = self.control.depth(&mut self.job, (1, 1));
                let nodes = self.control.nodes(&self.job, depth, (1, 1));
                let mut tree = DraftTree::chain(vec![7; depth]);
                (depth..nodes).for_each(|_| _ = tree.push(8, None));
                let found = right(step).min(depth);
                let other = found == 0 && nodes > depth && dice(step, 1) < self.other;
                let path: Vec<usize> = if other { vec![depth] } else { (0..found).collect() };
                let accepted = path.len();
                let further = self.further * nodes.saturating_sub(1) as f64;
                let time = 1.0 + self.row * nodes as f64 + further;
                self.late += 1;
                let mut drafting = self.level * depth as f64;
                if depth > 0 {
                    drafting += self.behind * std::mem::take(&mut self.late) as f64;
                    let time = Duration::from_secs_f64(drafting);
                    if self.job.warm {
                        self.control.drafted(depth, time)
                    } else {
                        self.control.drafted_late(time)
                    }
                }
                self.job.warm = depth > 0;
                self.control.timed(1, nodes, Duration::from_secs_f64(time));
                self.control.learn(&mut self.job, &Outcome::new(&tree, &path, true));
                self.job.settle(1 + accepted, 1.0 + accepted as f64 - time - drafting);
                tokens += 1.0 + accepted as f64;
                seconds += time + drafting;
                last = depth;
            }
            (tokens, seconds, last)
        }
    }

    #[test]
    fn drafts_that_are_right_get_deep() {
        let (tokens, seconds, depth) = World::new(0.1).run(100, |_| 16);
        assert!(depth == MOST_DEPTH && tokens / seconds > 4.0, "{tokens} in {seconds}, {depth} deep");
    }

    #[test]
    fn drafts_are_as_deep_as_they_are_right() {
        let (_, _, depth) = World::new(0.1).run(200, |_| 3);
        assert!((2..=4).contains(&depth), "{depth}");
    }

    #[test]
    fn drafts_that_are_never_right_cost_little() {
        for shape in [DraftShape::Chain, DraftShape::Auto, DraftShape::Tree] {
            for row in [0.05, 0.3, 1.0] {
                for steps in [200, 1000] {
                    let (tokens, seconds, _) = World::shaped(row, shape).run(steps, |_| 0);
                    assert!(tokens / seconds > 0.97, "{shape:?}, {row}: {tokens} in {seconds}");
                }
            }
        }
    }

    #[test]
    fn drafts_that_are_seldom_right_cost_little() {
        for shape in [DraftShape::Chain, DraftShape::Auto, DraftShape::Tree] {
            for (row, every) in [(0.3, 5), (0.5, 3), (1.0, 2)] {
                let right = |step| usize::from(step % every == 0);
                let (tokens, seconds, _) = World::shaped(row, shape).run(1000, right);
                assert!(tokens / seconds > 0.97, "{shape:?}, {row}: {tokens} in {seconds}");
            }
        }
    }

    #[test]
    fn many_short_answers_that_cannot_be_drafted_cost_little() {
        let mut world = World { level: 0.2, ..World::new(0.5) };
        world.run(300, |_| 0);
        let (mut tokens, mut seconds) = (0.0, 0.0);
        for _ in 0..50 {
            world.job = JobControl::new();
            let (t, s, _) = world.run(20, |_| 0);
            (tokens, seconds) = (tokens + t, seconds + s);
        }
        assert!(tokens / seconds > 0.97, "{tokens} in {seconds}");
    }

    #[test]
    fn a_drafter_that_takes_time_drafts_where_it_pays() {
        let (tokens, seconds, _) = World { level: 0.1, ..World::new(0.1) }.run(300, |_| 8);
        assert!(tokens / seconds > 2.0, "{tokens} in {seconds}");
        let (tokens, seconds, _) = World { level: 1.5, ..World::new(0.1) }.run(1000, |_| 1);
        assert!(tokens / seconds > 0.97, "{tokens} in {seconds}");
    }

    #[test]
    fn a_drafter_that_has_to_catch_up_is_asked_more_and_more_rarely() {
        for (behind, level) in [(0.02, 0.05), (0.01, 0.3), (0.0, 2.0)] {
            let (tokens, seconds, _) = World { behind, level, ..World::new(0.3) }.run(4000, |_| 0);
            assert!(tokens / seconds > 0.97, "{behind}, {level}: {tokens} in {seconds}");
        }
    }

    #[test]
    fn guesses_that_are_right_by_luck_cost_little() {
        for (row, level, behind) in [(0.35, 0.1, 0.003), (0.15, 0.25, 0.03), (0.1, 0.15, 0.02)] {
            for of_ten in 0..4 {
                let (mut tokens, mut seconds) = (0.0, 0.0);
                for answer in 0..40 {
                    let mut world = World { level, behind, ..World::new(row) };
                    let right = |step| {
                        (0..16).take_while(|level| dice(answer * 1000 + step, *level) < of_ten).count()
                    };
                    let (t, s, _) = world.run(250, right);
                    (tokens, seconds) = (tokens + t, seconds + s);
                }
                assert!(tokens / seconds > 0.97, "{row}, {level}, {of_ten}: {tokens} in {seconds}");
            }
        }
    }

    #[test]
    fn the_time_of_a_step_lies_between_those_of_fewer_and_more_rows() {
        let mut costs = Costs::default();
        costs.record(8, 0, 4.5);
        assert_eq!((costs.plain(7), costs.plain(8), costs.plain(9)), (None, Some(4.5), None));
        costs.record(12, 0, 6.5);
        assert_eq!((costs.plain(10), costs.plain(12), costs.plain(13)), (Some(5.5), Some(6.5), None));
    }

    #[test]
    fn a_machine_that_does_other_work_does_not_change_what_steps_are_thought_to_take() {
        let mut control = Control::new(DraftDepth::Auto, DraftShape::Chain, false);
        for step in 0..200_usize {
            // Each third step takes ten times as long, whatever it has.
            let held_up = if step % 3 == 1 { 10.0 } else { 1.0 };
            let drafted = step / 2 % 2;
            let seconds = held_up * (2.0 + 0.5 * drafted as f64);
            control.timed(1, drafted, Duration::from_secs_f64(seconds));
        }
        let (plain, with) = control.seconds(1, 1).unwrap();
        assert!((plain - 2.0).abs() < 1e-6 && (with - 2.5).abs() < 1e-6, "{plain} {with}");
        assert_eq!(control.seconds(2, 1), None);
    }

    #[test]
    fn rows_that_cost_as_much_as_steps_are_not_worth_it() {
        let (tokens, seconds, _) = World::new(1.0).run(1000, |step| step % 2);
        assert!(tokens / seconds > 0.97, "{tokens} in {seconds}");
    }

    #[test]
    fn what_begins_to_be_right_is_noticed() {
        let mut world = World::new(0.1);
        world.run(300, |_| 0);
        let (_, _, depth) = world.run(600, |_| 16);
        assert_eq!(depth, MOST_DEPTH);
    }

    #[test]
    fn alternatives_are_drafted_where_rows_are_cheap_and_they_are_right() {
        let nodes = |row: f64, right: Option<bool>, shape, branches| {
            let mut control = Control::new(DraftDepth::Auto, shape, branches);
            let mut job = JobControl::new();
            for drafted in [0, 2, 4].repeat(20) {
                control.timed(1, drafted, Duration::from_secs_f64(1.0 + row * drafted as f64));
                let tried = usize::from(right.is_some());
                let second = (usize::from(right == Some(true)), tried);
                let (accepted, branches) = (drafted / 4, right.is_some());
                control
                    .learn(&mut job, &Outcome { depth: 2, accepted, chain: (2, accepted), second, branches });
            }
            control.nodes(&job, 2, (1, 1))
        };
        assert_eq!(nodes(0.01, Some(true), DraftShape::Auto, true), 4);
        assert_eq!(nodes(0.01, None, DraftShape::Auto, true), 4);
        assert_eq!(nodes(0.5, Some(true), DraftShape::Auto, true), 2);
        assert_eq!(nodes(0.02, Some(false), DraftShape::Auto, true), 2);
        assert_eq!(nodes(0.5, Some(false), DraftShape::Tree, true), 4);
        assert_eq!(nodes(0.01, Some(true), DraftShape::Chain, true), 2);
        assert_eq!(nodes(0.01, Some(true), DraftShape::Tree, false), 2);
    }

    /// A row takes 1/20 of a step and a second one twice as much; of ten first guesses three are right, and of ten alternatives to
    /// the others six.
    #[test]
    fn alternatives_are_found_to_be_right_though_they_were_not_before() {
        let speed = |shape, before: usize| {
            let mut world = World { further: 0.06, ..World::shaped(0.05, shape) };
            let right = |step| usize::from(dice(step, 0) < 3);
            world.run(before, right);
            (world.job, world.other) = (JobControl::new(), 6);
            let (tokens, seconds, _) = world.run(2000, right);
            tokens / seconds
        };
        for before in [0, 50, 500] {
            let [auto, tree, chain] =
                [DraftShape::Auto, DraftShape::Tree, DraftShape::Chain].map(|shape| speed(shape, before));
            assert!(tree > 1.15 * chain && auto > 0.95 * tree, "{before}: {auto} {tree} {chain}");
        }
    }

    #[test]
    fn what_steps_take_is_forgotten_before_what_the_drafter_takes() {
        let (mut step, mut drafter) = (Middle::<OLD>::default(), Middle::<OLD_DRAFTER>::default());
        for value in [5.0, 1.0, 2.0, 4.0] {
            step.record(value, 7);
            drafter.record(value, 7);
        }
        assert_eq!((step.known(7), step.known(306), step.known(307)), (Some(3.0), Some(3.0), None));
        assert_eq!(drafter.known(7 + u64::from(LONGEST_PAUSE)), Some(3.0));
        step.record(9.0, 400);
        assert_eq!(step.known(400), Some(9.0));
    }

    #[test]
    fn a_fixed_depth_is_kept_until_the_drafter_fails() {
        let control = Control::new(DraftDepth::Fixed(5), DraftShape::Auto, false);
        let mut job = JobControl::new();
        assert_eq!(control.depth(&mut job, (1, 1)), 5);
        job.failed = true;
        assert_eq!(control.depth(&mut job, (1, 1)), 0);
    }
}
