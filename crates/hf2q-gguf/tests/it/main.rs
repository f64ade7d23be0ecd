//! Tests of the crate through its public functions.

#![expect(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

mod craft;
mod edit;
mod fixtures;
mod hostile;
mod metadata;
mod mutate;
mod round_trip;
mod set;
mod tensors;
mod write;
