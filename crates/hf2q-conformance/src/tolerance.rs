//! How much a backend may differ from the reference, by operation and format.

use crate::compare::Distance;

/// What limits the precision of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    /// Copies, and single roundings of exact values.
    Exact,
    /// f32 arithmetic.
    Single,
    /// f32 arithmetic on angles, which lose with the position.
    Angle,
    /// Activations in int8 codes per 32 values (about 2e-5 for normal ones).
    Int8,
}

/// Largest accepted normalized mean square errors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tolerance {
    total: f64,
    worst_row: f64,
}

impl Precision {
    pub(crate) fn tolerance(self) -> Tolerance {
        let total = match self {
            Self::Exact => 1e-13,
            Self::Single => 1e-10,
            Self::Angle => 1e-8,
            Self::Int8 => 1e-4,
        };
        // A row of one value may lie far out in its distribution.
        Tolerance { total, worst_row: 30.0 * total }
    }
}

impl Tolerance {
    pub(crate) fn accepts(self, found: Distance) -> bool {
        found.total <= self.total && found.worst_row <= self.worst_row
    }
}

impl std::fmt::Display for Tolerance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.0e} in all and {:.0e} in a row", self.total, self.worst_row)
    }
}
