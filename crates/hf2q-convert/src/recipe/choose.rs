//! The evaluator of recipes.

use hf2q_gguf::TensorType;

use super::fit::fit;
use super::overrides::Overrides;
use super::rule::{Only, Rule};
use super::slot::{self, Slot};
use super::{Facts, Recipe};
use crate::error::ConvertError;
use crate::record::Why;

/// A tensor that needs a type.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// GGUF name.
    pub name: &'a str,
    /// In GGUF order: columns first.
    pub shape: &'a [u64],
    /// What it is in the source, kept where it is not quantized.
    pub ty: TensorType,
}

/// The type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The type.
    pub ty: TensorType,
    /// Why.
    pub why: Why,
}

/// Gives each of `tensors`, which are all of a model's in any order, its type; choices are in the order of `tensors`.
/// `importance` tells whether there is an importance matrix.
///
/// # Errors
/// [`ConvertError::NeedsImportance`] if the recipe is useless without, [`ConvertError::Pattern`] if a search takes too long,
/// [`ConvertError::NoLayer`] if the name of an expert does not tell its layer.
pub fn choose(
    recipe: &Recipe,
    facts: &Facts,
    overrides: &Overrides,
    importance: bool,
    tensors: &[Candidate<'_>],
) -> Result<Vec<Choice>, ConvertError> {
    let mut chooser = Chooser {
        recipe: *recipe,
        facts: *facts,
        overrides,
        importance,
        is_tied: tensors.iter().all(|t| t.name != slot::OUTPUT),
        attn_v: Counter {
            next: 0,
            count: tensors.iter().filter(|t| Slot::of(t.name) == Slot::AttnV).count(),
        },
        ffn_down: Counter { next: 0, count: facts.layers },
    };
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    order.sort_by_key(|&i| slot::place(tensors[i].name));
    let mut choices = Vec::with_capacity(tensors.len());
    for i in order {
        choices.push((i, chooser.choice(&tensors[i])?));
    }
    choices.sort_by_key(|&(i, _)| i);
    Ok(choices.into_iter().map(|(_, choice)| choice).collect())
}

struct Chooser<'a> {
    recipe: Recipe,
    facts: Facts,
    overrides: &'a Overrides,
    importance: bool,
    /// No output matrix is stored: the embedding takes its place.
    is_tied: bool,
    attn_v: Counter,
    ffn_down: Counter,
}

/// Numbers the tensors of a slot. Only those that the mixture decides are numbered: a tensor with an override moves the
/// numbers of all that follow, though not their count.
struct Counter {
    next: usize,
    count: usize,
}

impl Counter {
    fn take(&mut self) -> (usize, usize) {
        self.next += 1;
        (self.next - 1, self.count)
    }
}

impl Chooser<'_> {
    fn choice(&mut self, tensor: &Candidate<'_>) -> Result<Choice, ConvertError> {
        if slot::is_exact(tensor.name, tensor.shape) {
            return Ok(Choice { ty: tensor.ty, why: Why::Kept });
        }
        let base = self.recipe.base();
        let (wanted, why) = match self.overrides.by_name(tensor.name, self.recipe)? {
            Some(ty) => (ty, Why::Override),
            None if !self.recipe.is_quantized() => (base, Why::Kept),
            None if self.overrides.pure => (base, Why::Recipe),
            None => self.mixed(tensor)?,
        };
        let ty = fit(wanted, tensor.shape[0]);
        if self.recipe.needs_importance(tensor.name, ty) && !self.importance {
            let (recipe, tensor) = (self.recipe.name(), tensor.name.to_owned());
            return Err(ConvertError::NeedsImportance { recipe, tensor, ty });
        }
        let why = if ty == wanted { why } else { Why::Fallback { wanted } };
        Ok(Choice { ty, why })
    }

    /// What the rules say.
    fn mixed(&mut self, tensor: &Candidate<'_>) -> Result<(TensorType, Why), ConvertError> {
        let slot = match Slot::of(tensor.name) {
            Slot::Embedding if self.is_tied => Slot::Output,
            slot => slot,
        };
        if let (Slot::Output, Some(ty)) = (slot, self.overrides.output) {
            return Ok((ty, Why::Override));
        }
        let (at, count) = match slot {
            Slot::AttnV => self.attn_v.take(),
            Slot::FfnDown if self.facts.experts > 1 => (self.layer(tensor.name)?, self.facts.layers),
            Slot::FfnDown => self.ffn_down.take(),
            _ => (0, 0),
        };
        let is_stack = tensor.shape.get(2).is_some_and(|&n| n > 1);
        let applies =
            |r: &&Rule| r.slot.covers(slot) && r.layers.contain(at, count) && self.holds(r.only, is_stack);
        let base = self.recipe.base();
        let found = self.recipe.0.rules.iter().copied().flatten().find(applies);
        let ty = self.raised(slot, found.map_or(base, |r| r.ty));
        Ok((ty, if ty == base { Why::Recipe } else { Why::Mixture }))
    }

    /// The layer of a down projection. Experts may share a layer with another network, so counting does not tell it.
    fn layer(&self, name: &str) -> Result<usize, ConvertError> {
        let layers = self.facts.layers;
        let found = slot::layer(name).filter(|&l| l < layers);
        found.ok_or_else(|| ConvertError::NoLayer { tensor: name.to_owned(), layers })
    }

    fn holds(&self, only: Only, is_stack: bool) -> bool {
        match only {
            Only::Always => true,
            Only::Grouped => self.facts.heads_per_kv >= 4,
            Only::EightExperts => self.facts.experts == 8,
            Only::WithImportance => self.importance,
            Only::WithoutImportance => !self.importance,
            Only::Stacked => is_stack,
        }
    }

    /// The one rule that looks at the type another has found.
    fn raised(&self, slot: Slot, ty: TensorType) -> TensorType {
        match ty {
            TensorType::Q3K | TensorType::Q4K if slot == Slot::AttnV && self.facts.is_llama_70b() => {
                TensorType::Q5K
            }
            _ => ty,
        }
    }
}
