//! A compiled plan with its memory.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use hf2q_plan::{
    BackendError, GroupId, Limits, Observer, PAGE, Plan, Program, ProgramMemory, SlotMove, Step, StepError,
    TensorId, TensorKind, Tensors, Timed, View,
};

use crate::backend::NAME;
use crate::cache::CacheMemory;
use crate::call::{Call, Context, Parts, Scratch};
use crate::compile::{Compiled, Phase, Purpose};
use crate::gate::{Barrier, Broken};
use crate::isa::Isa;
use crate::kernels::quant_mat_mul::QuantRows;
use crate::memory::{Memory, Place, Rows};
use crate::pool::{Job, Pool};
use crate::schedule::{Policy, Schedule, Stages, Task};
use crate::step::StepData;

/// The step that runs, and which of its stages.
struct Current {
    data: StepData,
    schedule: Schedule,
    stages: Range<usize>,
    /// Whether the caller's thread is to note when each stage ends.
    timed: bool,
}

/// What threads share.
struct Shared {
    isa: Isa,
    threads: usize,
    arena: Memory,
    caches: Vec<CacheMemory>,
    quantized: Vec<QuantRows>,
    calls: Vec<Box<dyn Call>>,
    scratch: Vec<Mutex<Scratch>>,
    current: RwLock<Current>,
    /// When stages of a timed job began; the last one is when it ended.
    stamps: Mutex<Vec<Instant>>,
}

impl Job for Shared {
    #[expect(unsafe_code, reason = "promises the discipline of waves")]
    fn run(&self, thread: usize, barrier: &Barrier) -> Result<(), Broken> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        let mut scratch = self.scratch[thread].lock().unwrap_or_else(PoisonError::into_inner);
        let parts = Parts { arena: &self.arena, caches: &self.caches, quantized: &self.quantized };
        // SAFETY: `validate` has checked the plan's waves, which phases follow, and `run` has checked the step; threads
        // claim different units of a stage and meet at the barrier before the next one.
        let cx = unsafe { Context::new(parts, &current.data, self.isa) };
        let part = Part { shared: self, current: &current, cx, scratch: &mut scratch, thread };
        if current.timed { part.run_timed(barrier) } else { part.run(barrier) }
    }
}

/// One thread's part in a job.
struct Part<'a> {
    shared: &'a Shared,
    current: &'a Current,
    cx: Context<'a>,
    scratch: &'a mut Scratch,
    thread: usize,
}

impl Part<'_> {
    /// Threads meet behind stages that all of them work on. What one thread does in between is done by the last one to
    /// come; the end of the job is the last meeting.
    fn run(mut self, barrier: &Barrier) -> Result<(), Broken> {
        let Range { start, end } = self.current.stages;
        let schedule = &self.current.schedule;
        let first = schedule.alone(start, end);
        let mut next = first.end;
        if self.thread == 0 {
            self.alone(first.clone());
        }
        if !first.is_empty() && next < end {
            barrier.wait()?;
        }
        while next < end {
            self.together(next);
            let small = schedule.alone(next + 1, end);
            next = small.end;
            if next < end {
                self.ahead(next);
            }
            if small.start < end {
                barrier.wait_for(|| self.alone(small))?;
            }
        }
        Ok(())
    }

    /// Stage by stage, with the caller's thread looking at the clock.
    fn run_timed(mut self, barrier: &Barrier) -> Result<(), Broken> {
        let stages = &self.current.schedule.stages[..self.current.stages.end];
        for stage in self.current.stages.clone() {
            if self.thread == 0 {
                self.shared.stamps.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
            }
            match stages[stage].alone {
                true if self.thread == 0 => self.alone(stage..stage + 1),
                true => (),
                false => self.together(stage),
            }
            // Between two stages of the caller's thread nobody has to wait.
            if stages.get(stage + 1).is_some_and(|next| !(stages[stage].alone && next.alone)) {
                barrier.wait()?;
            }
        }
        Ok(())
    }

    fn alone(&mut self, stages: Range<usize>) {
        let Self { shared, current, cx, scratch, .. } = self;
        current.schedule.work_alone(stages, |task| {
            scratch.quantized.renew();
            shared.calls[task.call].run(cx, task.units, scratch);
        });
    }

    /// Asks for what the thread will read first in a stage.
    fn ahead(&self, stage: usize) {
        if let Some(task) = self.current.schedule.first(stage, self.thread) {
            self.shared.calls[task.call].ahead(&self.current.data, task.units);
        }
    }

    fn together(&mut self, stage: usize) {
        let Self { shared, current, cx, scratch, thread } = self;
        // What was computed since the stage before is new; within a stage nothing that products read changes.
        scratch.quantized.renew();
        let run = |task: Task| shared.calls[task.call].run(cx, task.units, scratch);
        current.schedule.work_off(stage, *thread, run);
    }
}

/// A plan that runs on the threads of a backend.
pub(crate) struct CpuProgram {
    plan: Arc<Plan>,
    limits: Limits,
    pool: Arc<Pool>,
    shared: Arc<Shared>,
    phases: Vec<Phase>,
    purposes: Vec<Purpose>,
    places: Vec<Option<usize>>,
    vocabulary: usize,
    /// Bytes of tables that calls hold.
    table_bytes: usize,
    /// Logits, where they are a part of a wider activation.
    copied: Vec<f32>,
}

impl CpuProgram {
    pub(crate) fn new(
        plan: Arc<Plan>,
        compiled: Compiled,
        limits: &Limits,
        (pool, isa): (Arc<Pool>, Isa),
    ) -> Result<Self, BackendError> {
        let recording = &plan.recording;
        let caches = recording.caches.iter().map(|c| CacheMemory::new(c, limits.pages[c.group.index()]));
        let quantized = compiled.quantized.iter().map(|b| {
            let mut rows = QuantRows::new();
            rows.resize(b.rows, b.n_in);
            if b.octets {
                rows.add_octets(isa);
            }
            rows
        });
        let data = StepData::new(compiled.product_rows);
        let shared = Shared {
            isa,
            threads: pool.threads(),
            arena: Memory::new("the arena of activations", compiled.arena_bytes)?,
            caches: caches.collect::<Result<_, _>>()?,
            quantized: quantized.collect(),
            calls: compiled.calls,
            scratch: (0..pool.threads()).map(|_| Mutex::default()).collect(),
            current: RwLock::new(Current { data, schedule: Schedule::default(), stages: 0..0, timed: false }),
            stamps: Mutex::default(),
        };
        Ok(Self {
            limits: limits.clone(),
            pool,
            shared: Arc::new(shared),
            phases: compiled.phases,
            purposes: compiled.purposes,
            places: compiled.places,
            vocabulary: compiled.vocabulary,
            table_bytes: compiled.table_bytes,
            copied: Vec::new(),
            plan,
        })
    }

    /// Checks the step and cuts its work; returns the number of stages.
    fn prepare(&mut self, step: &Step, stages: Stages) -> Result<usize, BackendError> {
        step.check(&self.plan.recording, &self.limits, self.vocabulary)?;
        let mut current = self.shared.current.write().unwrap_or_else(PoisonError::into_inner);
        let Current { data, schedule, timed, .. } = &mut *current;
        data.set(step);
        *timed = stages == Stages::ByCall;
        let policy = Policy { threads: self.shared.threads, stages };
        schedule.build(&self.phases, &self.shared.calls, data, policy);
        Ok(schedule.stages.len())
    }

    fn run_stages(&mut self, stages: Range<usize>) -> Result<(), BackendError> {
        self.shared.current.write().unwrap_or_else(PoisonError::into_inner).stages = stages;
        let job: Arc<dyn Job> = Arc::clone(&self.shared) as _;
        self.pool.run(job).map_err(|why| BackendError::Failed { backend: NAME, why })
    }

    /// The wave that a stage belongs to.
    fn wave_of(&self, stage: usize) -> usize {
        let current = self.shared.current.read().unwrap_or_else(PoisonError::into_inner);
        current.schedule.stages[stage].wave
    }

    /// Runs wave by wave and shows each to the observer.
    fn run_observed(&mut self, stages: usize, observer: &mut dyn Observer) -> Result<(), BackendError> {
        let plan = Arc::clone(&self.plan);
        let mut start = 0;
        while start < stages {
            let wave = self.wave_of(start);
            let mut end = start + 1;
            while end < stages && self.wave_of(end) == wave {
                end += 1;
            }
            self.run_stages(start..end)?;
            let ops = &plan.recording.ops[plan.waves[wave].clone()];
            for op in ops {
                if observer.wants(op) {
                    observer.after(op, &Shown { program: self, wave });
                }
            }
            start = end;
        }
        Ok(())
    }

    /// Runs call by call and tells the observer how long each took.
    fn run_timed(&mut self, stages: usize, observer: &mut dyn Observer) -> Result<(), BackendError> {
        let shared = Arc::clone(&self.shared);
        let stamps = || shared.stamps.lock().unwrap_or_else(PoisonError::into_inner);
        stamps().clear();
        self.run_stages(0..stages)?;
        stamps().push(Instant::now());
        let current = shared.current.read().unwrap_or_else(PoisonError::into_inner);
        for (stage, times) in stamps().windows(2).enumerate() {
            let Purpose { op, preparation } = self.purposes[current.schedule.call(stage)];
            let op = &self.plan.recording.ops[op];
            observer.took(&Timed { op, preparation, time: times[1] - times[0] });
        }
        Ok(())
    }

    /// A view of the arena while no job runs.
    #[expect(unsafe_code, reason = "a view of memory that no thread uses now")]
    fn rows(&self, view: View) -> Option<(Rows<'_>, usize)> {
        let (kind, stride) = self.plan.recording.activation(view.tensor)?;
        let at = self.places[view.tensor.index()]? + view.offset * size_of::<f32>();
        let place = Place { at, stride, width: view.width };
        let count = self.shared.current.read().unwrap_or_else(PoisonError::into_inner).data.count(kind);
        // SAFETY: jobs run only while this program is borrowed mutably.
        Some((unsafe { Rows::new(&self.shared.arena, place) }, count))
    }

    fn logits(&mut self) -> Result<&[f32], BackendError> {
        let view = self.plan.recording.logits;
        let mut copied = std::mem::take(&mut self.copied);
        copied.clear();
        let (rows, count) = self.rows(view).ok_or_else(|| BackendError::Failed {
            backend: NAME,
            why: "no operation writes the logits".to_owned(),
        })?;
        let whole = rows.stride() == view.width;
        if !whole {
            (0..count).for_each(|r| copied.extend_from_slice(rows.row(r)));
        }
        self.copied = copied;
        let Some((rows, _)) = self.rows(view).filter(|_| whole) else { return Ok(&self.copied) };
        Ok(rows.whole(count))
    }
}

impl Program for CpuProgram {
    fn memory(&self) -> Option<ProgramMemory> {
        let Shared { arena, caches, quantized, .. } = &*self.shared;
        let quantized: usize = quantized.iter().map(QuantRows::bytes).sum();
        let caches = caches.iter().map(CacheMemory::bytes).sum();
        Some(ProgramMemory { caches, work: arena.bytes() + quantized + self.table_bytes })
    }

    fn run(&mut self, step: &Step, mut observer: Option<&mut dyn Observer>) -> Result<&[f32], BackendError> {
        let how = match observer.as_deref_mut().map(Observer::times) {
            None => Stages::Joined,
            Some(false) => Stages::ByWave,
            Some(true) => Stages::ByCall,
        };
        let stages = self.prepare(step, how)?;
        match observer {
            None => self.run_stages(0..stages)?,
            Some(observer) if how == Stages::ByCall => self.run_timed(stages, observer)?,
            Some(observer) => self.run_observed(stages, observer)?,
        }
        self.logits()
    }

    fn output(&self, index: usize) -> Result<Vec<f32>, BackendError> {
        let view = self.plan.recording.output(index)?;
        let (rows, count) = self.rows(view).ok_or_else(|| BackendError::Failed {
            backend: NAME,
            why: format!("no operation writes output {index}"),
        })?;
        Ok((0..count).flat_map(|r| rows.row(r)).copied().collect())
    }

    fn move_slots(&mut self, group: GroupId, moves: &[SlotMove]) -> Result<(), BackendError> {
        let pages = self.limits.pages.get(group.index()).copied().unwrap_or(0);
        let slots = pages * PAGE;
        for (row, m) in moves.iter().enumerate() {
            for (what, found) in [("the slot to move from", m.from), ("the slot to move to", m.to)] {
                if found as usize >= slots {
                    return Err(StepError::Index { row, what, found, bound: slots }.into());
                }
            }
        }
        let shared = Arc::get_mut(&mut self.shared).ok_or_else(|| BackendError::Failed {
            backend: NAME,
            why: "the caches are still in use by a step".to_owned(),
        })?;
        for cache in shared.caches.iter_mut().filter(|c| c.cache.group == group) {
            for m in moves {
                cache.copy_slot(m.from as usize, m.to as usize);
            }
        }
        Ok(())
    }
}

/// A program between two waves.
struct Shown<'a> {
    program: &'a CpuProgram,
    wave: usize,
}

impl Shown<'_> {
    /// The whole of an activation that the wave touches.
    fn view(&self, id: TensorId) -> Option<(Rows<'_>, usize)> {
        let plan = &self.program.plan;
        let touched = plan.recording.ops[plan.waves[self.wave].clone()].iter().any(|op| {
            let access = op.op.access();
            access.reads.contains(&id) || access.writes.contains(&id)
        });
        let (_, width) = plan.recording.activation(id).filter(|_| touched)?;
        self.program.rows(View { tensor: id, offset: 0, width })
    }

    fn is_indices(&self, id: TensorId) -> bool {
        matches!(self.program.plan.recording.tensors[id.index()].kind, TensorKind::Indices { .. })
    }
}

impl Tensors for Shown<'_> {
    fn values(&self, id: TensorId) -> Option<Vec<f32>> {
        let (rows, count) = self.view(id).filter(|_| !self.is_indices(id))?;
        Some((0..count).flat_map(|r| rows.row(r).iter().copied()).collect())
    }

    fn indices(&self, id: TensorId) -> Option<Vec<i32>> {
        let (rows, count) = self.view(id).filter(|_| self.is_indices(id))?;
        Some((0..count).flat_map(|r| rows.indices(r).iter().copied()).collect())
    }
}
