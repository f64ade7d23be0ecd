//! Searches for the scale, or scale and minimum, of sixteen groups at once.
//!
//! `x[j]` and `w[j]` hold value `j` of every group and its weight. All operations and their order are those of
//! the formats' reference quantizer, group by group.

mod affine;
mod descent;
mod positive;
mod symmetric;

pub(crate) use affine::{Affine, Ladder, affine};
pub(crate) use descent::descend;
pub(crate) use positive::positive;
pub(crate) use symmetric::{Symmetric, extreme, symmetric};

use crate::lanes::LANES;

/// Value `j` of every group, or its weight or code.
pub(crate) type Groups<const LEN: usize> = [[f32; LANES]; LEN];

/// Groups of a smaller magnitude count as zeros.
pub(crate) const EMPTY: f32 = 1e-15;
