//! How a step's work is cut into tasks.

use std::ops::Range;

use crate::call::{Call, Work};
use crate::claims::Claims;
use crate::compile::Phase;
use crate::step::StepData;

/// Nanoseconds below which a phase is not worth a barrier: the caller's thread runs it alone.
const ALONE: f32 = 4_000.0;

/// Nanoseconds of a task: not so short that claiming it counts, not so long that threads wait for the last one.
const TASK: Range<f32> = 2_000.0..100_000.0;

/// Tasks for each thread in a phase, if they do not become too short.
const SHARES: f32 = 16.0;

/// Part of a stage: one call.
#[derive(Debug)]
struct Piece {
    call: usize,
    units: usize,
    /// Units of a task.
    grain: usize,
    tasks: usize,
}

/// Work between two barriers.
#[derive(Debug)]
pub(crate) struct Stage {
    pieces: Range<usize>,
    /// Run by one thread, piece by piece.
    pub(crate) alone: bool,
    pub(crate) wave: usize,
}

/// Some units of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) call: usize,
    pub(crate) units: Range<usize>,
}

/// The stages of a step.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    pieces: Vec<Piece>,
    pub(crate) stages: Vec<Stage>,
    /// Of each stage.
    claims: Claims,
    /// Those of a phase, while a schedule is made.
    works: Vec<(usize, Work)>,
}

/// How a schedule is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    pub(crate) threads: usize,
    pub(crate) stages: Stages,
}

/// Where stages end, beside where threads have to meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stages {
    /// Nowhere else.
    Joined,
    /// With each wave of the plan, for observers.
    ByWave,
    /// With each call, to time it.
    ByCall,
}

impl Schedule {
    pub(crate) fn build(
        &mut self,
        phases: &[Phase],
        calls: &[Box<dyn Call>],
        step: &StepData,
        policy: Policy,
    ) {
        self.pieces.clear();
        self.stages.clear();
        self.claims.clear(policy.threads);
        let mut works = std::mem::take(&mut self.works);
        for phase in phases {
            let all = phase.calls.iter().map(|&call| (call, calls[call].work(step)));
            works.clear();
            works.extend(all.filter(|(_, work)| work.units > 0));
            // Observers see every wave; what completes one may have nothing to do.
            if works.is_empty() && self.stages.last().is_some_and(|last| last.wave == phase.wave) {
                continue;
            }
            match policy.stages {
                Stages::ByCall => works.chunks(1).for_each(|work| self.stage(work, phase.wave, policy)),
                Stages::Joined | Stages::ByWave => self.stage(&works, phase.wave, policy),
            }
        }
        self.works = works;
    }

    /// The call of a stage that has one only.
    pub(crate) fn call(&self, stage: usize) -> usize {
        self.pieces[self.stages[stage].pieces.start].call
    }

    /// The stages from `first` on, up to `end`, that one thread runs.
    pub(crate) fn alone(&self, first: usize, end: usize) -> Range<usize> {
        let others = self.stages[first..end].iter().position(|stage| !stage.alone);
        first..others.map_or(end, |n| first + n)
    }

    fn stage(&mut self, works: &[(usize, Work)], wave: usize, policy: Policy) {
        let first = self.pieces.len();
        let total: f32 = works.iter().map(|(_, w)| w.units as f32 * w.nanoseconds).sum();
        let target = (total / (policy.threads as f32 * SHARES)).clamp(TASK.start, TASK.end);
        let mut tasks = 0;
        for &(call, work) in works {
            let grain = ((target / work.nanoseconds.max(1.0)) as usize).max(1);
            let piece = Piece { call, units: work.units, grain, tasks: work.units.div_ceil(grain) };
            tasks += piece.tasks;
            self.pieces.push(piece);
        }
        let alone = policy.threads == 1 || total < ALONE || tasks <= 1;
        let may_join = |last: &Stage| match policy.stages {
            Stages::Joined => true,
            Stages::ByWave => last.wave == wave,
            Stages::ByCall => false,
        };
        match self.stages.last_mut().filter(|last| alone && last.alone && may_join(last)) {
            Some(last) => last.pieces.end = self.pieces.len(),
            None => {
                let pieces = first..self.pieces.len();
                self.stages.push(Stage { pieces, alone, wave });
                self.claims.add(if alone { 0 } else { tasks });
            }
        }
    }

    /// Calls `run` with all work of some stages.
    pub(crate) fn work_alone(&self, stages: Range<usize>, mut run: impl FnMut(Task)) {
        for stage in &self.stages[stages] {
            for piece in &self.pieces[stage.pieces.clone()] {
                run(Task { call: piece.call, units: 0..piece.units });
            }
        }
    }

    /// Calls `run` with the tasks of a stage that fall to a thread.
    pub(crate) fn work_off(&self, stage: usize, thread: usize, mut run: impl FnMut(Task)) {
        while let Some(tasks) = self.claims.next(stage, thread) {
            self.claimed(&self.stages[stage], tasks, &mut run);
        }
    }

    /// The first work of a stage that falls to a thread.
    pub(crate) fn first(&self, stage: usize, thread: usize) -> Option<Task> {
        let (mut first, mut tasks) = (None, self.claims.own(stage, thread));
        tasks.end = tasks.end.min(tasks.start + 1);
        self.claimed(&self.stages[stage], tasks, &mut |task| first = Some(task));
        first
    }

    /// Neighbouring tasks of a stage; those of one piece go together.
    fn claimed(&self, stage: &Stage, tasks: Range<usize>, run: &mut impl FnMut(Task)) {
        let mut before = 0;
        for piece in &self.pieces[stage.pieces.clone()] {
            let own = tasks.start.max(before)..tasks.end.min(before + piece.tasks);
            if !own.is_empty() {
                let unit = |task: usize| ((task - before) * piece.grain).min(piece.units);
                run(Task { call: piece.call, units: unit(own.start)..unit(own.end) });
            }
            before += piece.tasks;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Context, Scratch};

    struct Fake(Work);

    impl Call for Fake {
        fn work(&self, _step: &StepData) -> Work {
            self.0
        }

        fn run(&self, _cx: &Context<'_>, _units: Range<usize>, _scratch: &mut Scratch) {}
    }

    fn build(works: &[(usize, f32)], threads: usize, stages: Stages) -> Schedule {
        let fakes = works.iter().map(|&(units, ns)| Box::new(Fake(Work::new(units, ns))) as Box<dyn Call>);
        let calls: Vec<_> = fakes.collect();
        let phases: Vec<Phase> = (0..works.len()).map(|i| Phase { calls: vec![i], wave: i }).collect();
        let mut schedule = Schedule::default();
        let policy = Policy { threads, stages };
        schedule.build(&phases, &calls, &StepData::new(1), policy);
        schedule
    }

    #[test]
    fn every_unit_is_run_once() {
        let works = [(1, 50.0), (1000, 33.0), (7, 90_000.0), (3, 10.0), (2, 10.0)];
        for (threads, stages) in (1..5).flat_map(|n| [(n, Stages::Joined), (n, Stages::ByCall)]) {
            let schedule = build(&works, threads, stages);
            let mut seen: Vec<Vec<usize>> = works.iter().map(|w| vec![0; w.0]).collect();
            let mut count = |t: Task| t.units.for_each(|u| seen[t.call][u] += 1);
            for (i, stage) in schedule.stages.iter().enumerate() {
                if stage.alone {
                    schedule.work_alone(i..i + 1, &mut count);
                } else {
                    (0..threads).for_each(|thread| schedule.work_off(i, thread, &mut count));
                }
            }
            assert!(seen.iter().flatten().all(|&n| n == 1), "{threads} threads: {seen:?}");
        }
    }

    #[test]
    fn small_phases_share_a_stage() {
        let works = [(1, 50.0), (4, 100.0), (1000, 100.0), (1, 10.0)];
        let alone = |s: &Schedule| s.stages.iter().map(|s| s.alone).collect::<Vec<_>>();
        assert_eq!(alone(&build(&works, 2, Stages::Joined)), [true, false, true]);
        let timed = build(&works, 2, Stages::ByCall);
        assert_eq!(alone(&timed), [true, true, false, true]);
        assert_eq!((0..4).map(|stage| timed.call(stage)).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!([0, 2, 3].map(|stage| timed.alone(stage, 4)), [0..2, 2..2, 3..4]);
    }

    #[test]
    fn claims_cross_pieces() {
        let pieces = vec![
            Piece { call: 0, units: 10, grain: 2, tasks: 5 },
            Piece { call: 1, units: 5, grain: 2, tasks: 3 },
        ];
        let stages = vec![Stage { pieces: 0..2, alone: false, wave: 0 }];
        let mut schedule = Schedule { pieces, stages, ..Schedule::default() };
        schedule.claims.clear(1);
        schedule.claims.add(8);
        let mut tasks = Vec::new();
        schedule.work_off(0, 0, |t| tasks.push((t.call, t.units)));
        assert_eq!(tasks, [(0, 0..8), (0, 8..10), (1, 0..2), (1, 2..4), (1, 4..5)]);
    }
}
