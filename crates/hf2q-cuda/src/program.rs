//! A compiled plan that runs steps.

use std::collections::HashMap;
use std::sync::Arc;

use hf2q_plan::{
    BackendError, GroupId, Limits, Observer, PAGE, Plan, Program, ProgramMemory, RowKind, SlotMove, Step,
    StepError, TensorId, TensorKind, Tensors,
};

use crate::backend::NAME;
use crate::compile::{Compiled, Wave};
use crate::error::CudaError;
use crate::graph::Graph;
use crate::launch::Cx;
use crate::memory::{Buffer, Pinned};
use crate::{step, timing};

/// Words of a step that there is room for at first.
const WORDS: usize = 1 << 16;

/// Numbers on their way to the device.
struct Sent {
    pinned: Pinned,
    buffer: Buffer,
}

impl Sent {
    fn new(compiled: &Compiled, words: usize) -> Result<Self, CudaError> {
        let (what, bytes) = ("the numbers of a step", words * size_of::<u32>());
        let pinned = Pinned::new(&compiled.device, what, bytes)?;
        let buffer = Buffer::new(&compiled.device, what, pinned.bytes())?;
        Ok(Self { pinned, buffer })
    }
}

/// A plan that runs on a device.
pub(crate) struct CudaProgram {
    plan: Arc<Plan>,
    limits: Limits,
    // Dropped before what they launch on.
    graphs: HashMap<(usize, usize), Graph>,
    words: Vec<u32>,
    windows: Vec<Option<u32>>,
    sent: Sent,
    logits: Pinned,
    /// Rows of the step that runs, and of its logits.
    rows: (usize, usize),
    compiled: Compiled,
}

/// Fewest rows that a recorded step of `rows` rows has room for.
fn bucket(rows: usize, max: usize) -> usize {
    if rows == 0 { 0 } else { rows.next_power_of_two().min(max) }
}

impl CudaProgram {
    pub(crate) fn new(plan: Arc<Plan>, compiled: Compiled, limits: &Limits) -> Result<Self, BackendError> {
        let recording = &plan.recording;
        let bytes = limits.max_logit_rows * recording.logits.width * size_of::<f32>();
        let logits = Pinned::new(&compiled.device, "the logits of a step", bytes)?;
        Ok(Self {
            limits: limits.clone(),
            graphs: HashMap::new(),
            words: Vec::new(),
            windows: recording.groups.iter().map(|g| g.span.most()).collect(),
            sent: Sent::new(&compiled, WORDS)?,
            logits,
            rows: (0, 0),
            compiled,
            plan,
        })
    }

    /// Checks the step and sends its numbers.
    fn send(&mut self, step: &Step) -> Result<(), BackendError> {
        step.check(&self.plan.recording, &self.limits, self.compiled.vocabulary)?;
        self.rows = (step.len(), step.logit_rows.len());
        step::words(step, &self.windows, &mut self.words);
        self.check_spans()?;
        self.send_words().map_err(BackendError::from)
    }

    /// No slot is seen twice, so a row sees no more pages than there are, and one where it begins amid a page: partial
    /// results of attention have that room.
    fn check_spans(&self) -> Result<(), BackendError> {
        for (i, (group, &pages)) in self.plan.recording.groups.iter().zip(&self.limits.pages).enumerate() {
            let found = step::spans(&self.words, i);
            if found > pages.saturating_add(1) {
                let why = format!("a row sees {found} pages of group {}, which has {pages}", group.name);
                return Err(BackendError::Failed { backend: NAME, why });
            }
        }
        Ok(())
    }

    fn send_words(&mut self) -> Result<(), CudaError> {
        let (len, device) = (self.words.len(), &self.compiled.device);
        if len * size_of::<u32>() > self.sent.pinned.bytes() {
            device.wait("the step before")?;
            // Recorded launches name the old address.
            self.graphs.clear();
            self.sent = Sent::new(&self.compiled, len.next_power_of_two())?;
        }
        self.sent.pinned.words(len).copy_from_slice(&self.words);
        self.sent.buffer.upload(device, &self.sent.pinned, len * size_of::<u32>())
    }

    fn cx(&self, rows: usize, logit_rows: usize) -> Cx<'_> {
        Cx { device: &self.compiled.device, step: self.sent.buffer.at(), rows, logit_rows }
    }

    fn first(&self, cx: &Cx<'_>) -> Result<(), CudaError> {
        self.compiled.first.iter().try_for_each(|(_, call)| call.launch(cx))
    }

    /// Replays the launches of the step's bucket.
    fn replay(&mut self) -> Result<(), CudaError> {
        let key =
            (bucket(self.rows.0, self.limits.max_rows), bucket(self.rows.1, self.limits.max_logit_rows));
        if !self.graphs.contains_key(&key) {
            let cx = self.cx(key.0, key.1);
            let graph = Graph::record(cx.device, || {
                self.first(&cx)?;
                self.compiled.fused.iter().try_for_each(|call| call.launch(&cx))
            })?;
            self.graphs.insert(key, graph);
        }
        self.graphs[&key].launch()
    }

    /// Runs wave by wave and shows each to the observer.
    fn observed(&mut self, observer: &mut dyn Observer) -> Result<(), CudaError> {
        let cx = self.cx(self.rows.0, self.rows.1);
        self.first(&cx)?;
        for (i, wave) in self.compiled.waves.iter().enumerate() {
            queue(wave, &cx)?;
            for op in &self.plan.recording.ops[self.plan.waves[i].clone()] {
                if observer.wants(op) {
                    observer.after(op, &Shown { program: self, wave: i });
                }
            }
        }
        Ok(())
    }

    /// Runs call by call and tells the observer how long each took.
    fn timed(&self, observer: &mut dyn Observer) -> Result<(), CudaError> {
        let times = timing::run(&self.compiled, &self.cx(self.rows.0, self.rows.1))?;
        self.compiled.device.wait("a timed step")?;
        times.tell(&self.plan, observer)
    }

    /// Copies the logits to the host and waits for them.
    fn read(&mut self) -> Result<&[f32], CudaError> {
        let view = self.plan.recording.logits;
        let (_, stride) =
            self.plan.recording.activation(view.tensor).unwrap_or((RowKind::Logits, view.width));
        let (width, rows, device) = (view.width, self.rows.1, &self.compiled.device);
        let first = self.compiled.places[view.tensor.index()].expect("opening has looked for the logits");
        let at = first + (view.offset * size_of::<f32>()) as u64;
        if stride == width {
            let bytes = rows * width * size_of::<f32>();
            self.compiled.arena.download(device, at, (&mut self.logits, bytes))?;
            device.wait("a step")?;
        } else {
            let mut all = vec![0.0; rows * stride];
            self.compiled.read(first, &mut all)?;
            let rows = all.chunks_exact(stride).flat_map(|row| &row[view.offset..][..width]);
            let words = self.logits.words(self.rows.1 * width);
            words.iter_mut().zip(rows).for_each(|(to, from)| *to = from.to_bits());
        }
        Ok(self.logits.values(rows * width))
    }
}

impl Drop for CudaProgram {
    fn drop(&mut self) {
        // After an error, launches and copies may still run on what is freed next.
        let _ = self.compiled.device.wait("closing a program");
    }
}

fn queue(wave: &Wave, cx: &Cx<'_>) -> Result<(), CudaError> {
    let before = wave.before.iter().map(|(_, call)| call);
    before.chain(&wave.calls).try_for_each(|call| call.launch(cx))
}

impl Program for CudaProgram {
    fn memory(&self) -> Option<ProgramMemory> {
        Some(self.compiled.memory)
    }

    fn run(&mut self, step: &Step, mut observer: Option<&mut dyn Observer>) -> Result<&[f32], BackendError> {
        self.compiled.device.bind()?;
        self.send(step)?;
        let timed = observer.as_deref_mut().is_some_and(Observer::times);
        match observer {
            None => self.replay()?,
            Some(observer) if timed => self.timed(observer)?,
            Some(observer) => self.observed(observer)?,
        }
        Ok(self.read()?)
    }

    fn output(&self, index: usize) -> Result<Vec<f32>, BackendError> {
        let view = self.plan.recording.output(index)?;
        let activation = self.plan.recording.activation(view.tensor);
        let found = activation.zip(self.compiled.places[view.tensor.index()]);
        let Some(((kind, stride), at)) = found else {
            let why = format!("no operation writes output {index}");
            return Err(BackendError::Failed { backend: NAME, why });
        };
        self.compiled.device.bind()?;
        let rows = match kind {
            RowKind::Step => self.rows.0,
            RowKind::Logits => self.rows.1,
        };
        let mut all = vec![0.0; rows * stride];
        self.compiled.read(at, &mut all)?;
        if stride == view.width {
            return Ok(all);
        }
        Ok(all.chunks_exact(stride).flat_map(|row| &row[view.offset..][..view.width]).copied().collect())
    }

    fn move_slots(&mut self, group: GroupId, moves: &[SlotMove]) -> Result<(), BackendError> {
        let Some(&pages) = self.limits.pages.get(group.index()) else {
            let why = format!("the plan has no group {}", group.index());
            return Err(BackendError::Failed { backend: NAME, why });
        };
        let slots = pages * PAGE;
        for (row, m) in moves.iter().enumerate() {
            for (what, found) in [("the slot to move from", m.from), ("the slot to move to", m.to)] {
                if found as usize >= slots {
                    return Err(StepError::Index { row, what, found, bound: slots }.into());
                }
            }
        }
        self.compiled.device.bind()?;
        // The step's numbers are not needed any more: the step has been waited for.
        self.words.clear();
        self.words.extend(moves.iter().flat_map(|m| [m.from, m.to]));
        self.send_words()?;
        self.compiled.mover.run(&self.cx(1, 1), group, moves.len())?;
        Ok(self.compiled.device.wait("moving slots")?)
    }
}

/// A program between two waves.
struct Shown<'a> {
    program: &'a CudaProgram,
    wave: usize,
}

impl Shown<'_> {
    /// All values of an activation that the wave touches; `None` also where the device fails, which the end of the step
    /// reports.
    fn read(&self, id: TensorId, indices: bool) -> Option<Vec<f32>> {
        let (plan, compiled) = (&self.program.plan, &self.program.compiled);
        let touched = plan.recording.ops[plan.waves[self.wave].clone()].iter().any(|op| {
            let access = op.op.access();
            access.reads.contains(&id) || access.writes.contains(&id)
        });
        let is_indices = matches!(plan.recording.tensors[id.index()].kind, TensorKind::Indices { .. });
        let (kind, width) = plan.recording.activation(id).filter(|_| touched && is_indices == indices)?;
        let rows = match kind {
            RowKind::Step => self.program.rows.0,
            RowKind::Logits => self.program.rows.1,
        };
        let mut values = vec![0.0; rows * width];
        compiled.read(compiled.places[id.index()]?, &mut values).ok()?;
        Some(values)
    }
}

impl Tensors for Shown<'_> {
    fn values(&self, id: TensorId) -> Option<Vec<f32>> {
        self.read(id, false)
    }

    fn indices(&self, id: TensorId) -> Option<Vec<i32>> {
        let bits = self.read(id, true)?;
        Some(bits.into_iter().map(|x| x.to_bits().cast_signed()).collect())
    }
}
