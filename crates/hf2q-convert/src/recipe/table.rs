//! The recipes as data.

use hf2q_gguf::TensorType::{self, *};

use super::rule::Layers::{First, FirstPart, MoreBits};
use super::rule::Only::{EightExperts, Grouped, Stacked, WithImportance, WithoutImportance};
use super::rule::{Rule, rule};
use super::slot::Slot::{AttnK, AttnOutput, AttnV, Every, FfnDown, Output};

/// One recipe.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mixture {
    pub(super) name: &'static str,
    pub(super) alias: Option<&'static str>,
    /// `general.file_type`.
    pub(super) file_type: u32,
    /// The type where no rule says another.
    pub(super) base: TensorType,
    /// The first rule that applies counts.
    pub(super) rules: &'static [&'static [Rule]],
    /// A type that is useless without importances in this recipe.
    pub(super) needs_importance: Option<TensorType>,
}

/// Every recipe, floats first, then by size.
#[rustfmt::skip]
pub(super) const MIXTURES: &[Mixture] = &[
    mixture("f32",     0, F32,  &[]),
    mixture("f16",     1, F16,  &[]),
    mixture("bf16",   32, Bf16, &[]),
    mixture("q8_0",    7, Q8_0, &[]),
    mixture("q6_k",   18, Q6K,  &[COMMON]),
    mixture("q5_k_m", 17, Q5K,  &[COMMON, &[
        rule(AttnV,      Q6K).in_layers(MoreBits),
        rule(FfnDown,    Q6K).in_layers(MoreBits),
    ]]).alias("q5_k"),
    mixture("q5_k_s", 16, Q5K,  &[COMMON]),
    mixture("q5_1",    9, Q5_1, &[COMMON]),
    mixture("q5_0",    8, Q5_0, &[COMMON, &[
        rule(FfnDown,    Q5_1).in_layers(FirstPart(8)).only(WithImportance),
    ]]),
    mixture("q4_k_m", 15, Q4K,  &[COMMON, OUTPUT_OF_EIGHT, &[
        rule(AttnV,      Q6K).in_layers(MoreBits),
        rule(FfnDown,    Q6K).in_layers(MoreBits),
    ]]).alias("q4_k"),
    mixture("q4_k_s", 14, Q4K,  &[COMMON, OUTPUT_OF_EIGHT, &[
        rule(AttnV,      Q5K).in_layers(First(4)),
        rule(FfnDown,    Q5K).in_layers(FirstPart(8)),
    ]]),
    mixture("q4_1",    3, Q4_1, &[COMMON]),
    mixture("q4_0",    2, Q4_0, &[COMMON, &[
        rule(FfnDown,    Q4_1).in_layers(FirstPart(8)).only(WithImportance),
    ]]),
    mixture("iq4_nl", 25, Iq4Nl, &[COMMON, OUTPUT_OF_EIGHT, IQ4]),
    mixture("iq4_xs", 30, Iq4Xs, &[COMMON, OUTPUT_OF_EIGHT, IQ4]),
    mixture("mxfp4_moe", 38, Mxfp4, &[&[
        rule(Every,      Mxfp4).only(Stacked),
        rule(Every,      Q8_0),
    ]]),
    mixture("q3_k_l", 13, Q3K,  &[COMMON, &[
        rule(AttnV,      Q5K),
        rule(FfnDown,    Q5K),
        rule(AttnOutput, Q3K).only(EightExperts),
        rule(AttnOutput, Q5K),
    ]]),
    mixture("q3_k_m", 12, Q3K,  &[COMMON, OUTPUT_OF_EIGHT, &[
        rule(AttnV,      Q5K).in_layers(First(2)),
        rule(AttnV,      Q4K),
        rule(FfnDown,    Q5K).in_layers(FirstPart(16)),
        rule(FfnDown,    Q4K),
        rule(AttnOutput, Q4K),
    ]]).alias("q3_k"),
    mixture("q3_k_s", 11, Q3K,  &[COMMON, OUTPUT_OF_EIGHT]),
    mixture("q2_k",   10, Q2K,  &[COMMON, OUTPUT_OF_EIGHT, &[
        rule(AttnV,      Q4K).only(Grouped),
        rule(AttnV,      Q3K),
        rule(FfnDown,    Q3K),
        rule(AttnOutput, Q3K),
    ]]),
    mixture("q2_k_s", 21, Q2K,  &[COMMON, &[
        rule(AttnV,      Q4K).only(Grouped),
        rule(FfnDown,    Q4K).in_layers(FirstPart(8)),
    ]]).needs_importance(Q2K),
];

/// What nearly all recipes share.
const COMMON: &[Rule] =
    &[rule(Output, Q6K), rule(AttnV, Q8_0).only(EightExperts), rule(AttnK, Q8_0).only(EightExperts)];

const OUTPUT_OF_EIGHT: &[Rule] = &[rule(AttnOutput, Q5K).only(EightExperts)];

const IQ4: &[Rule] =
    &[rule(AttnV, Q5K).only(Grouped), rule(FfnDown, Q5K).in_layers(FirstPart(8)).only(WithoutImportance)];

/// Recipes of llama.cpp whose types have no encoder here.
pub(super) const NOT_ENCODED: &[&str] = &[
    "iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq2_m", "iq3_xxs", "iq3_xs", "iq3_s", "iq3_m", "q1_0",
    "q2_0", "tq1_0", "tq2_0",
];

const fn mixture(
    name: &'static str,
    file_type: u32,
    base: TensorType,
    rules: &'static [&'static [Rule]],
) -> Mixture {
    Mixture { name, alias: None, file_type, base, rules, needs_importance: None }
}

impl Mixture {
    const fn alias(self, alias: &'static str) -> Self {
        Self { alias: Some(alias), ..self }
    }

    const fn needs_importance(self, ty: TensorType) -> Self {
        Self { needs_importance: Some(ty), ..self }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_and_numbers_are_unique() {
        let mut names = HashSet::new();
        let mut numbers = HashSet::new();
        for m in MIXTURES {
            assert!(names.insert(m.name) && m.alias.is_none_or(|a| names.insert(a)), "{}", m.name);
            assert!(numbers.insert(m.file_type), "{}", m.name);
        }
        assert!(NOT_ENCODED.iter().all(|n| names.insert(n)));
    }
}
