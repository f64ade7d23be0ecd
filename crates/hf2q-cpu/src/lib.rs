//! Stage 7: runs plans on the CPU with SIMD kernels.
//!
//! In: a [`hf2q_plan::Plan`], the bytes of its weights and steps. Out: logits. The instruction set is chosen when the
//! backend is made.
//!
//! A row's result depends on that row's history alone, bit for bit: not on other rows of the step, on how a prompt is
//! cut into steps, on the number of threads, or on the instruction set (all have sixteen lanes, fused multiply-add and
//! the same trees of additions).

mod ahead;
mod backend;
mod cache;
mod call;
mod claims;
mod compile;
mod gate;
pub mod isa;
pub mod kernels;
mod lines;
mod lower;
mod memory;
mod pool;
mod program;
mod roofline;
mod schedule;
mod simd;
mod step;
mod topology;
mod validate;

pub use backend::{CpuBackend, CpuOptions};
pub use isa::Isa;
pub use memory::promised;
pub use topology::default_threads;
