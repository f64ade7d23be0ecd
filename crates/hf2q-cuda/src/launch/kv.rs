//! Keys and values: storing and moving them. Their layout is in `kv.cuh`.

use hf2q_plan::{BackendError, GroupId};

use super::Cx;
use crate::error::CudaError;

/// Copies slots in the caches of a group.
pub(crate) struct Mover {}

impl Mover {
    pub(crate) fn run(&self, _cx: &Cx<'_>, _group: GroupId, _moves: usize) -> Result<(), CudaError> {
        Ok(())
    }
}

impl crate::compile::Compiled {
    pub(crate) fn mover(&self, _recording: &hf2q_plan::Recording) -> Result<Mover, BackendError> {
        Ok(Mover {})
    }

    /// Copies values of the arena to the host and waits for them.
    pub(crate) fn read(&self, at: u64, to: &mut [f32]) -> Result<(), CudaError> {
        let mut pinned = crate::memory::Pinned::new(&self.device, "values for an observer", size_of_val(to))?;
        self.arena.download(&self.device, at, (&mut pinned, size_of_val(to)))?;
        self.device.wait("reading values")?;
        to.copy_from_slice(pinned.values(to.len()));
        Ok(())
    }
}
