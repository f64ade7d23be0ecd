//! Runs the operations of a plan in order.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use hf2q_plan::{
    BackendError, GroupId, Limits, NamedOp, Observer, PAGE, Plan, Program, SlotMove, Step, StepError,
    TensorId, Tensors, Timed,
};

use crate::cache::CacheData;
use crate::memory::Memory;
use crate::ops;

/// A plan with dequantized weights and its caches.
pub(crate) struct ReferenceProgram {
    pub(crate) plan: Arc<Plan>,
    pub(crate) limits: Limits,
    pub(crate) vocabulary: usize,
    pub(crate) memory: Memory,
    pub(crate) caches: Vec<CacheData>,
    pub(crate) logits: Vec<f32>,
}

impl Program for ReferenceProgram {
    fn run(&mut self, step: &Step, mut observer: Option<&mut dyn Observer>) -> Result<&[f32], BackendError> {
        step.check(&self.plan.recording, &self.limits, self.vocabulary)?;
        self.memory.begin(step)?;
        let plan = Arc::clone(&self.plan);
        let timed = observer.as_deref_mut().is_some_and(Observer::times);
        for wave in &plan.waves {
            let wave = &plan.recording.ops[wave.clone()];
            for op in wave {
                let started = Instant::now();
                let mut state = ops::State {
                    recording: &plan.recording,
                    step,
                    memory: &mut self.memory,
                    caches: &mut self.caches,
                };
                ops::run(op, &mut state)?;
                if let Some(observer) = observer.as_deref_mut().filter(|_| timed) {
                    observer.took(&Timed { op, preparation: None, time: started.elapsed() });
                }
            }
            if let Some(observer) = observer.as_deref_mut().filter(|_| !timed) {
                self.show(wave, observer);
            }
        }
        let view = plan.recording.logits;
        self.logits.clear();
        for row in 0..self.memory.rows(view) {
            self.logits.extend_from_slice(self.memory.row(view, row));
        }
        Ok(&self.logits)
    }

    fn output(&self, index: usize) -> Result<Vec<f32>, BackendError> {
        let view = self.plan.recording.output(index)?;
        let rows = 0..self.memory.rows(view);
        Ok(rows.flat_map(|row| self.memory.row(view, row)).copied().collect())
    }

    fn move_slots(&mut self, group: GroupId, moves: &[SlotMove]) -> Result<(), BackendError> {
        let Some(&pages) = self.limits.pages.get(group.index()) else {
            let why = format!("it has no group {}", group.index());
            return Err(BackendError::Failed { backend: crate::backend::NAME, why });
        };
        let bound = pages * PAGE;
        for (row, m) in moves.iter().enumerate() {
            for found in [m.from, m.to] {
                if found as usize >= bound {
                    let what = "a slot to be moved";
                    return Err(StepError::Index { row, what, found, bound }.into());
                }
            }
        }
        for (cache, data) in self.plan.recording.caches.iter().zip(&mut self.caches) {
            if cache.group == group {
                for m in moves {
                    data.copy(m.from, m.to);
                }
            }
        }
        Ok(())
    }
}

impl ReferenceProgram {
    fn show(&self, wave: &[NamedOp], observer: &mut dyn Observer) {
        let accesses = wave.iter().map(|o| o.op.access());
        let visible = accesses.flat_map(|a| a.reads.into_iter().chain(a.writes)).collect();
        let look = Look { memory: &self.memory, visible };
        for op in wave {
            if observer.wants(op) {
                observer.after(op, &look);
            }
        }
    }
}

struct Look<'a> {
    memory: &'a Memory,
    visible: HashSet<TensorId>,
}

impl Tensors for Look<'_> {
    fn values(&self, id: TensorId) -> Option<Vec<f32>> {
        self.visible.contains(&id).then(|| self.memory.observed_values(id)).flatten()
    }

    fn indices(&self, id: TensorId) -> Option<Vec<i32>> {
        self.visible.contains(&id).then(|| self.memory.observed_indices(id)).flatten()
    }
}
