//! The backend: threads and an instruction set.

use std::sync::Arc;

use hf2q_gguf::Bytes;
use hf2q_plan::{Backend, BackendError, Limits, Plan, Program, ProgramMemory, Roofline};

use crate::compile::compile;
use crate::isa::Isa;
use crate::pool::Pool;
use crate::program::CpuProgram;

/// Name in errors and reports.
pub(crate) const NAME: &str = "cpu";

/// Most threads that may be asked for.
const MAX_THREADS: usize = 1024;

/// How programs are run.
#[derive(Clone, Copy, Debug)]
pub struct CpuOptions {
    /// Threads, the caller's included: 1 to 1024.
    pub threads: usize,
    /// One of [`Isa::available`]; `None`: the best of them. Results do not depend on it.
    pub isa: Option<Isa>,
}

/// Runs plans on this machine's processors. Programs of one backend share its threads and take turns.
pub struct CpuBackend {
    pool: Arc<Pool>,
    isa: Isa,
}

impl CpuBackend {
    /// Starts the threads.
    ///
    /// # Errors
    /// If the number of threads is not accepted, or the system does not start them.
    pub fn new(options: CpuOptions) -> Result<Self, BackendError> {
        let threads = options.threads;
        if threads == 0 || threads > MAX_THREADS {
            let why = format!("{threads} threads asked for, accepted are 1 to {MAX_THREADS}");
            return Err(BackendError::Failed { backend: NAME, why });
        }
        let pool = Pool::new(threads).map_err(|error| {
            let why = format!("{threads} threads could not be started: {error}; ask for fewer");
            BackendError::Failed { backend: NAME, why }
        })?;
        Ok(Self { pool: Arc::new(pool), isa: options.isa.unwrap_or_else(Isa::detect) })
    }
}

impl Backend for CpuBackend {
    fn name(&self) -> &'static str {
        NAME
    }

    fn describe(&self) -> String {
        format!("{NAME}: {}, {} threads", self.isa.name(), self.pool.threads())
    }

    fn open(
        &self,
        plan: Arc<Plan>,
        weights: Vec<Bytes>,
        limits: &Limits,
    ) -> Result<Box<dyn Program>, BackendError> {
        let compiled = compile(&plan, weights, limits, (self.pool.threads(), self.isa))?;
        Ok(Box::new(CpuProgram::new(plan, compiled, limits, (Arc::clone(&self.pool), self.isa))?))
    }

    fn memory(
        &self,
        plan: &Plan,
        weights: Vec<Bytes>,
        limits: &Limits,
    ) -> Result<ProgramMemory, BackendError> {
        let work = compile(plan, weights, limits, (self.pool.threads(), self.isa))?.work_bytes();
        Ok(ProgramMemory { caches: limits.cache_bytes(&plan.recording), work })
    }

    /// With all threads and the instruction set, in less than a second.
    fn roofline(&self, bytes: usize) -> Result<Roofline, BackendError> {
        crate::roofline::measure(&self.pool, self.isa, bytes)
    }
}
