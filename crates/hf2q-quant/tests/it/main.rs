//! The crate through its public interface.

mod check;
mod fixtures;
mod goldens;
mod input;
mod lattice;
mod layout;
mod properties;
mod refusals;
