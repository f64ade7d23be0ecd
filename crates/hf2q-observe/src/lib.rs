//! Stage 10: observers of running models.
//!
//! In: an engine, token ids, and what is to be looked at. Out: measurements: [`Collector`] sums the squared inputs of
//! every matrix for an importance file, [`Likelihood`] says how well a model predicts a text, a [`Comparer`] puts
//! configurations side by side, a [`Haystack`] asks for what was said long before. An observer reads activations between
//! waves and changes nothing; a program without one carries no cost of it.

mod chunk;
mod collect;
mod compare;
mod error;
mod likelihood;
mod needle;
mod profile;
pub mod report;
mod trace;
mod windows;

pub use chunk::{Reading, read_chunk};
pub use collect::{Collector, Scope};
pub use compare::{
    Bar, CacheSize, Compared, Comparer, Comparison, Failure, GoOn, Greedy, LayerCosine, Measured, PositionKl,
    Side, Spread, Thresholds,
};
pub use error::ObserveError;
pub use likelihood::Likelihood;
pub use needle::{Answer, Fact, Haystack, MOST_FACTS, Question, Recipe};
pub use profile::{
    By, Entry, Line, Phase, PhaseProfile, Profile, Profiler, Workload, profile, scattered_tokens,
};
pub use trace::{
    CodecStats, HISTOGRAM, Histogram, Steps, StepsError, TensorStats, TraceStep, Traced, Tracer, trace,
};
pub use windows::{Window, read_window, windows};
