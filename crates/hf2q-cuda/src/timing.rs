//! A step whose operations are timed one by one.

use hf2q_plan::{NamedOp, Observer, Plan, Timed};

use crate::compile::Compiled;
use crate::device::Stamp;
use crate::error::CudaError;
use crate::launch::{Call, Cx};

/// Nanoseconds for which the device waits for each call that is queued behind: without a queue, what it takes to launch would
/// be in the times.
const WAIT: u64 = 8_000;

/// Queues all calls of a step with a point in time behind each.
pub(crate) fn run(compiled: &Compiled, cx: &Cx<'_>) -> Result<Times, CudaError> {
    let mut times = Times { parts: Vec::new(), stamps: Vec::new() };
    let calls: usize = compiled.waves.iter().map(|w| w.before.len() + w.calls.len()).sum();
    compiled.wait(cx.device, WAIT * calls as u64)?;
    times.stamps.push(Stamp::new(cx.device)?);
    for (op, call) in &compiled.first {
        times.queue(cx, &**call, (*op, Some(call.preparation())))?;
    }
    let mut op = 0;
    for wave in &compiled.waves {
        for (op, call) in &wave.before {
            times.queue(cx, &**call, (*op, Some(call.preparation())))?;
        }
        for call in &wave.calls {
            times.queue(cx, &**call, (op, None))?;
            op += 1;
        }
    }
    Ok(times)
}

/// Points in time between the parts of a step.
pub(crate) struct Times {
    /// Position of the operation in the plan, and what kind of preparation it is.
    parts: Vec<(usize, Option<&'static str>)>,
    stamps: Vec<Stamp>,
}

impl Times {
    fn queue(
        &mut self,
        cx: &Cx<'_>,
        call: &dyn Call,
        part: (usize, Option<&'static str>),
    ) -> Result<(), CudaError> {
        call.launch(cx)?;
        self.parts.push(part);
        self.stamps.push(Stamp::new(cx.device)?);
        Ok(())
    }

    /// Tells the observer, once the step is done.
    pub(crate) fn tell(&self, plan: &Plan, observer: &mut dyn Observer) -> Result<(), CudaError> {
        let ops: &[NamedOp] = &plan.recording.ops;
        for (&(op, preparation), stamps) in self.parts.iter().zip(self.stamps.windows(2)) {
            let time = stamps[1].since(&stamps[0])?;
            observer.took(&Timed { op: &ops[op], preparation, time });
        }
        Ok(())
    }
}
