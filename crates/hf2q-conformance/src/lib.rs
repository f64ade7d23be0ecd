//! Stage -: what every backend must hold, in one place.
//!
//! In: a backend (and, for whole models, a recording with its weights). Out: reports. [`suite`] compares every
//! operation with the reference over shapes, formats and edge sizes; [`invariance`] requires that a row's logits
//! depend on that row's history alone, bit for bit; [`fusion`] that fused and unfused plans agree; [`one_vector`] that
//! keys formed of values are those that would have been stored; [`goldens`] compares with recorded outputs of another
//! implementation; [`outputs`] that what is kept for after a step is what observers see; [`perf`] and [`perf_attention`] time operations.

mod blocks;
mod builder;
mod cases;
mod compare;
mod error;
pub mod fusion;
pub mod goldens;
mod inputs;
pub mod invariance;
pub mod one_vector;
pub mod outputs;
mod paging;
pub mod perf;
pub mod perf_attention;
mod random;
mod report;
mod subject;
mod suite;
mod tolerance;
mod traffic;

pub use error::ConformanceError;
pub use report::{CaseReport, Outcome, Report};
pub use subject::Subject;
pub use suite::{agreement, suite, suite_of};
