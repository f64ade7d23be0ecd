//! Encoders of the blocks of 256 values, sixteen blocks at a time: lane `i` is block `i`.

mod batch;
pub(crate) mod pack;
pub(crate) mod signed;
pub(crate) mod with_minimum;

#[cfg(test)]
pub(crate) use batch::encode_on;
pub(crate) use batch::{Batch, Grid, SuperBlock, encode};

/// Values of a block.
pub(crate) const LEN: usize = 256;

#[cfg(test)]
pub(crate) mod tests;
