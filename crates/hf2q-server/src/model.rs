//! One loaded model.

use std::sync::Arc;

use hf2q_engine::{Drafting, Engine, EngineError, Pooling, Sampling, SchedulerOptions, Service};
use hf2q_grammar::Grammars;
use hf2q_text::answer::AnswerFormat;
use hf2q_text::{ChatTemplate, Tokenizer};

/// A model as its [`Source`](crate::Source) hands it over.
pub struct Loaded {
    /// Computes it. Its sequences are the jobs under way at the same time.
    pub engine: Engine,
    /// How jobs share it.
    pub scheduler: SchedulerOptions,
    /// What guesses tokens ahead of it.
    pub drafting: Option<Drafting>,
    /// Its tokenizer.
    pub tokenizer: Tokenizer,
    /// Its chat template; base models have none.
    pub template: Option<ChatTemplate>,
    /// How tokens are drawn where a request does not say.
    pub sampling: Sampling,
    /// How embeddings are made.
    pub pooling: Option<Pooling>,
    /// Bytes of memory that it takes.
    pub bytes: u64,
    /// One line for people: what it is and where it runs.
    pub description: String,
}

/// A model that answers.
pub(crate) struct Model {
    pub(crate) id: String,
    pub(crate) service: Service,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) template: Option<ChatTemplate>,
    /// How it writes thoughts and calls of tools.
    pub(crate) format: AnswerFormat,
    /// Compiles what answers may be.
    pub(crate) grammars: Arc<Grammars>,
    pub(crate) sampling: Sampling,
    pub(crate) pooling: Option<Pooling>,
    pub(crate) vocabulary: usize,
    pub(crate) bytes: u64,
    pub(crate) description: String,
}

impl Model {
    pub(crate) fn new(id: String, loaded: Loaded) -> Result<Self, EngineError> {
        let vocabulary = loaded.engine.vocabulary();
        let format = AnswerFormat::detect(&loaded.tokenizer, loaded.template.as_ref());
        let tokenizer = Arc::new(loaded.tokenizer);
        Ok(Self {
            id,
            service: Service::with_drafts(loaded.engine, loaded.scheduler, loaded.drafting)?,
            grammars: Arc::new(Grammars::new(Arc::clone(&tokenizer), vocabulary)),
            tokenizer,
            template: loaded.template,
            format,
            sampling: loaded.sampling,
            pooling: loaded.pooling,
            vocabulary,
            bytes: loaded.bytes,
            description: loaded.description,
        })
    }

    /// Tokens that one request may have, prompt and answer together.
    pub(crate) fn context(&self) -> usize {
        self.service.limits().tokens
    }

    /// Whether the template knows thoughts. A vocabulary may have their markers without that.
    pub(crate) fn thinks(&self) -> bool {
        let close = self.format.thinking.map(|t| t.markers().1);
        close.is_some_and(|close| self.template_writes(close)) || self.template_reads("enable_thinking")
    }

    /// Whether the template looks at a variable.
    pub(crate) fn template_reads(&self, variable: &str) -> bool {
        self.template.as_ref().is_some_and(|template| template.reads(variable))
    }

    /// Whether a text stands in the template.
    fn template_writes(&self, text: &str) -> bool {
        self.template.as_ref().is_some_and(|template| template.source().contains(text))
    }
}
