//! The crate through its public interface.

mod check;
mod fixtures;
mod float8;
mod goldens;
mod input;
mod kv;
mod lattice;
mod layout;
mod properties;
mod refusals;
