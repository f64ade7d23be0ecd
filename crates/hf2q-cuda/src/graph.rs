//! Launches recorded once and replayed.

use cudarc::driver::CudaGraph;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};

use crate::device::{Device, driver_error};
use crate::error::CudaError;

/// The launches of a step, for one bucket of rows.
pub(crate) struct Graph(CudaGraph);

// SAFETY: graph handles are not to be used by two threads at once; a program uses them under an exclusive borrow.
#[expect(unsafe_code, reason = "handles of the driver")]
unsafe impl Send for Graph {}

impl Graph {
    /// Records what `queue` puts on the device's stream, which runs nothing yet.
    pub(crate) fn record(
        device: &Device,
        queue: impl FnOnce() -> Result<(), CudaError>,
    ) -> Result<Self, CudaError> {
        let fail = |e| driver_error("recording the launches of a step", e);
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        device.stream.begin_capture(mode).map_err(fail)?;
        let queued = queue();
        let graph = device.stream.end_capture(CUgraphInstantiate_flags(0));
        queued?;
        let graph = graph.map_err(fail)?.ok_or_else(|| CudaError::Driver {
            what: "recording the launches of a step".to_owned(),
            why: "nothing was recorded".to_owned(),
        })?;
        graph.upload().map_err(fail)?;
        Ok(Self(graph))
    }

    /// Queues all of it.
    pub(crate) fn launch(&self) -> Result<(), CudaError> {
        self.0.launch().map_err(|e| driver_error("replaying the launches of a step", e))
    }
}
