//! What a user asks for beside a recipe.

use fancy_regex::Regex;
use hf2q_gguf::TensorType;

use super::slot::{OUTPUT, PER_LAYER_EMBEDDING, Slot};
use super::{Candidate, Recipe, slot};
use crate::error::ConvertError;

/// Changes to a recipe, with the meaning they have for `llama-quantize`.
///
/// [`Overrides::embedding`] and, where it is stored, [`Overrides::output`] come first. Then the first pattern counts that is
/// found in a tensor's name. None of them touches norms, routers and vectors.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// The base type for all, without the recipe's mixture.
    pub pure: bool,
    /// Type of the output matrix. Where the embedding stands in for it, type of the embedding (and of the per-layer
    /// embedding), unless `pure` or a pattern or `embedding` says otherwise, and only in quantized recipes.
    pub output: Option<TensorType>,
    /// Type of the token embedding and, unless a pattern names it, of the per-layer embedding.
    pub embedding: Option<TensorType>,
    /// Types for tensors by name, in quantized recipes only.
    pub patterns: Vec<(Pattern, TensorType)>,
}

/// A regular expression that is searched anywhere in a tensor's name.
#[derive(Clone, Debug)]
pub struct Pattern(Regex);

impl Pattern {
    /// Compiles a pattern. It is made lower case first, as the names of tensors are.
    ///
    /// # Errors
    /// [`ConvertError::Pattern`] if it is no regular expression.
    pub fn new(text: &str) -> Result<Self, ConvertError> {
        match Regex::new(&text.to_ascii_lowercase()) {
            Ok(regex) if !text.is_empty() => Ok(Self(regex)),
            Ok(_) => Err(ConvertError::Pattern { pattern: text.to_owned(), why: "it is empty".to_owned() }),
            Err(error) => Err(ConvertError::Pattern { pattern: text.to_owned(), why: error.to_string() }),
        }
    }

    /// The pattern, lower case.
    pub fn text(&self) -> &str {
        self.0.as_str()
    }

    /// Whether it is found in `name`.
    ///
    /// # Errors
    /// [`ConvertError::Pattern`] if the search takes too long.
    pub fn is_found_in(&self, name: &str) -> Result<bool, ConvertError> {
        let too_long = |e: fancy_regex::Error| ConvertError::Pattern {
            pattern: self.text().to_owned(),
            why: format!("searching it in {name:?} failed: {e}"),
        };
        self.0.is_match(name).map_err(too_long)
    }
}

impl Overrides {
    /// Adds a pattern with its type, written `PATTERN=TYPE`, behind those that are there.
    ///
    /// # Errors
    /// [`ConvertError::Pattern`] or [`ConvertError::OverrideType`].
    pub fn add_pattern(&mut self, text: &str) -> Result<(), ConvertError> {
        let Some((pattern, ty)) = text.split_once('=') else {
            let why = "a type is missing; write PATTERN=TYPE, for example attn_v=q8_0".to_owned();
            return Err(ConvertError::Pattern { pattern: text.to_owned(), why });
        };
        self.patterns.push((Pattern::new(pattern)?, Self::type_from_name(ty)?));
        Ok(())
    }

    /// The type with a name (in any case) that a tensor can be written in.
    ///
    /// # Errors
    /// [`ConvertError::OverrideType`] lists the types.
    pub fn type_from_name(name: &str) -> Result<TensorType, ConvertError> {
        let known = TensorType::from_name(&name.to_ascii_lowercase());
        known
            .filter(|&ty| hf2q_quant::can_encode(ty))
            .ok_or_else(|| ConvertError::OverrideType { found: name.to_owned() })
    }

    /// The type that is asked for by the tensor's name.
    pub(super) fn by_name(&self, name: &str, recipe: Recipe) -> Result<Option<TensorType>, ConvertError> {
        let pattern = self.pattern(name)?.map(|(_, ty)| *ty);
        let named = name == PER_LAYER_EMBEDDING && pattern.is_some();
        if Slot::of(name) == Slot::Embedding && self.embedding.is_some() && !named {
            return Ok(self.embedding);
        }
        if name == OUTPUT && self.output.is_some() {
            return Ok(self.output);
        }
        Ok(pattern.filter(|_| recipe.is_quantized()))
    }

    fn pattern(&self, name: &str) -> Result<Option<&(Pattern, TensorType)>, ConvertError> {
        for entry in &self.patterns {
            if entry.0.is_found_in(name)? {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// One sentence for each override that changes nothing in a model with these tensors.
    ///
    /// # Errors
    /// [`ConvertError::Pattern`] if a search takes too long.
    pub fn without_effect(
        &self,
        recipe: Recipe,
        tensors: &[Candidate<'_>],
    ) -> Result<Vec<String>, ConvertError> {
        let mut out = Vec::new();
        let is_tied = tensors.iter().all(|t| t.name != OUTPUT);
        let embedding_decides = self.embedding.is_some() || self.pure || !recipe.is_quantized();
        if self.output.is_some() && is_tied && embedding_decides {
            out.push("the type of the output matrix has no effect: the model has none, its embedding takes that place".to_owned());
        }
        for (i, (pattern, ty)) in self.patterns.iter().enumerate() {
            if !recipe.is_quantized() {
                out.push(format!(
                    "{}={ty} has no effect: patterns change quantized recipes, and {} is none",
                    pattern.text(),
                    recipe.name()
                ));
            } else if !self.is_used(i, tensors)? {
                out.push(format!(
                    "{}={ty} has no effect: it is found in no tensor that could be quantized and that no earlier override decides",
                    pattern.text()
                ));
            }
        }
        Ok(out)
    }

    /// Whether pattern `i` decides any tensor.
    fn is_used(&self, i: usize, tensors: &[Candidate<'_>]) -> Result<bool, ConvertError> {
        for tensor in tensors.iter().filter(|t| !slot::is_exact(t.name, t.shape)) {
            let is_first = match self.pattern(tensor.name)? {
                Some(found) => std::ptr::eq(found, &self.patterns[i]),
                None => false,
            };
            let by_table = (tensor.name == OUTPUT && self.output.is_some())
                || (Slot::of(tensor.name) == Slot::Embedding
                    && self.embedding.is_some()
                    && tensor.name != PER_LAYER_EMBEDDING);
            if is_first && !by_table {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
