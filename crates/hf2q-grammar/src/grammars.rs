//! The grammars of one model.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use hf2q_engine::{Constraint, ConstraintError, TokenSet};
use hf2q_text::Tokenizer;
use llguidance::api::{GrammarInit, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::InferenceCapabilities;
use llguidance::{Matcher, ParserFactory};

use crate::cache::{Cache, Compiled};
use crate::error::GrammarError;
use crate::matcher::Follower;
use crate::spec::Spec;

/// Compiles what answers of one model may hold. Shared by all requests; grammars that come again are kept.
pub struct Grammars {
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) vocabulary: usize,
    factory: OnceLock<Result<ParserFactory, GrammarError>>,
    cache: Mutex<Cache>,
}

impl Grammars {
    /// For a model with this tokenizer and this many logits. The vocabulary is prepared when the first grammar is
    /// compiled, which takes up to two seconds for 262,144 tokens.
    pub fn new(tokenizer: Arc<Tokenizer>, vocabulary: usize) -> Self {
        Self { tokenizer, vocabulary, factory: OnceLock::new(), cache: Mutex::default() }
    }

    /// Prepares the vocabulary, so that the first request need not wait for it.
    ///
    /// # Errors
    /// A vocabulary that cannot be constrained.
    pub fn prepare(&self) -> Result<(), GrammarError> {
        self.factory.get_or_init(|| factory(&self.tokenizer)).as_ref().map(|_| ()).map_err(Clone::clone)
    }

    /// A constraint on a whole answer.
    ///
    /// # Errors
    /// What cannot be enforced, with the keyword or the place.
    pub fn constraint(&self, spec: &Spec) -> Result<Box<dyn Constraint>, GrammarError> {
        let compiled = self.compile(&spec.lark()?, spec.kind())?;
        Ok(Box::new(Whole(self.follow(&compiled))))
    }

    /// Compiles a grammar in Lark, or finds it. `kind` names it in messages.
    pub(crate) fn compile(&self, lark: &str, kind: &'static str) -> Result<Arc<Compiled>, GrammarError> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(compiled) = cache.get(lark) {
            return Ok(compiled);
        }
        drop(cache);
        let factory = self.factory.get_or_init(|| factory(&self.tokenizer)).as_ref().map_err(Clone::clone)?;
        let init = GrammarInit::Serialized(TopLevelGrammar::from_lark(lark.to_owned()));
        let parser = factory.create_parser_from_init(init, 0, 0);
        let parser = parser.map_err(|error| refused(kind, &error.to_string()))?;
        let mut start = Matcher::new(Ok(parser));
        // What only shows at the first step belongs to the request that asks, not to the answer.
        start.deep_clone().compute_mask_or_eos().map_err(|error| refused(kind, &error.to_string()))?;
        if let Some(error) = start.get_error() {
            return Err(refused(kind, &error));
        }
        start.invalidate_bias_cache();
        let compiled = Arc::new(Compiled::new(start, lark.len()));
        cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.insert(lark.to_owned(), compiled.clone());
        Ok(compiled)
    }

    pub(crate) fn follow(&self, compiled: &Compiled) -> Follower {
        Follower::new(compiled.start(), self.vocabulary)
    }
}

fn factory(tokenizer: &Tokenizer) -> Result<ParserFactory, GrammarError> {
    let environment = crate::vocabulary::environment(tokenizer)?;
    let slices = SlicedBiasComputer::json_slices();
    let factory = ParserFactory::new(&environment, InferenceCapabilities::default(), &slices);
    let mut factory = factory.map_err(|error| GrammarError::Vocabulary {
        tokens: tokenizer.vocab_len(),
        why: first_line(&error.to_string()),
    })?;
    factory.quiet();
    factory.limits_mut().verbose_errors = false;
    Ok(factory)
}

fn first_line(text: &str) -> String {
    text.lines().find(|l| !l.trim().is_empty()).unwrap_or_default().to_owned()
}

/// What llguidance says of a grammar that it does not take.
fn refused(kind: &'static str, message: &str) -> GrammarError {
    let why = first_line(message);
    match kind {
        "schema" => GrammarError::Schema { why },
        _ => GrammarError::Grammar { kind, why },
    }
}

/// A grammar over a whole answer.
struct Whole(Follower);

impl Constraint for Whole {
    fn allowed(&mut self) -> Result<Option<&TokenSet>, ConstraintError> {
        self.0.allowed().map(|set| Some(&*set))
    }

    fn push(&mut self, token: u32) -> Result<(), ConstraintError> {
        self.0.push(token)
    }

    fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}
