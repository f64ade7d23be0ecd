//! The parts a rule is made of.

use hf2q_gguf::TensorType;

use super::slot::Slot;

/// "These tensors, in these layers, in such models, get this type."
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) slot: Slot,
    pub(super) layers: Layers,
    pub(super) only: Only,
    pub(super) ty: TensorType,
}

/// Some of the tensors of a slot, by their position among all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layers {
    All,
    /// The first so many.
    First(usize),
    /// The first of so many equal parts.
    FirstPart(usize),
    /// Those that are worth more bits: the first eighth, the last eighth, and every third between.
    MoreBits,
}

/// What else must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Only {
    Always,
    /// Four or more query heads read one key and value head: `attn_v` is small, more bits cost little.
    Grouped,
    /// The model has exactly eight experts, so that its attention is small beside them.
    EightExperts,
    /// There is an importance matrix.
    WithImportance,
    /// There is none.
    WithoutImportance,
    /// The tensor is a stack of matrices.
    Stacked,
}

/// A rule for all layers of all models.
pub(super) const fn rule(slot: Slot, ty: TensorType) -> Rule {
    Rule { slot, layers: Layers::All, only: Only::Always, ty }
}

impl Rule {
    pub(super) const fn in_layers(self, layers: Layers) -> Self {
        Self { layers, ..self }
    }

    pub(super) const fn only(self, only: Only) -> Self {
        Self { only, ..self }
    }
}

impl Layers {
    /// Whether the tensor at position `at` of `count` is one of them.
    pub(super) fn contain(self, at: usize, count: usize) -> bool {
        match self {
            Self::All => true,
            Self::First(n) => at < n,
            Self::FirstPart(parts) => at < count / parts,
            Self::MoreBits => at < count / 8 || at >= 7 * count / 8 || (at - count / 8) % 3 == 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_bits_go_to_both_ends_and_every_third() {
        let of =
            |count: usize| (0..count).filter(|&i| Layers::MoreBits.contain(i, count)).collect::<Vec<_>>();
        assert_eq!(of(30), [0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 26, 27, 28, 29]);
        assert_eq!(of(6), [2, 5]);
        assert_eq!(of(1), [0]);
    }

    #[test]
    fn parts_are_rounded_down() {
        assert!(!Layers::FirstPart(8).contain(0, 7));
        assert!(Layers::FirstPart(8).contain(0, 8) && !Layers::FirstPart(8).contain(1, 15));
    }
}
