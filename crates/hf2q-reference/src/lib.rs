//! Stage 7: plain scalar execution of every operation, the oracle of all backends.
//!
//! In: a plan, its weights and steps. Out: logits that other backends are compared with. Activations are stored
//! as f32, sums are carried in f64, and nothing is reused: every activation has its own memory, which holds NaN
//! until an operation writes it, as does every slot of a cache.

mod backend;
mod cache;
mod memory;
mod ops;
mod program;

pub use backend::ReferenceBackend;
