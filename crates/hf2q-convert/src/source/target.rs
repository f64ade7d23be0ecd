//! The model that a drafter is for.

use std::path::{Path, PathBuf};

use hf2q_arch::{Config, Eagle};
use hf2q_gguf::{Gguf, Metadata};

use crate::error::ConvertError;
use crate::folder::Folder;
use crate::tokenizer;

/// Its configuration and its tokens.
pub(super) struct Target {
    path: PathBuf,
    config: Config,
    /// Its files, which must not be overwritten.
    pub(super) inputs: Vec<PathBuf>,
    /// Keys of its tokenizer.
    tokenizer: Metadata,
}

impl Target {
    /// Reads no weights.
    pub(super) fn open(path: &Path) -> Result<Self, ConvertError> {
        let mut tokenizer = Metadata::default();
        let inputs;
        let config = if path.is_dir() {
            let folder = Folder::new(path);
            let config = Config::from_hf(&folder.required_json("config.json")?)?;
            tokenizer::write(&folder, &config, &mut tokenizer)?;
            inputs = folder.inputs()?;
            config
        } else {
            let gguf = Gguf::open(path)?;
            for (key, value) in gguf.metadata().iter().filter(|(key, _)| key.starts_with("tokenizer.")) {
                tokenizer.insert(key.to_owned(), value.clone());
            }
            inputs = gguf.paths().to_vec();
            Config::from_metadata(gguf.metadata(), &|name| gguf.tensor(name).is_some())?
        };
        Ok(Self { path: path.to_owned(), config, inputs, tokenizer })
    }

    /// Gives a drafter its target's tokens.
    ///
    /// # Errors
    /// It has a tokenizer, in which a token is another one.
    pub(super) fn tokens(
        &self,
        (folder, config): (&Folder, &Config),
        metadata: &mut Metadata,
    ) -> Result<(), ConvertError> {
        if tokenizer::is_there(folder) {
            const TOKENS: &str = "tokenizer.ggml.tokens";
            let mut own = Metadata::default();
            tokenizer::write(folder, config, &mut own)?;
            let (ours, theirs) = (own.strings(TOKENS)?, self.tokenizer.strings(TOKENS)?);
            let pairs = ours.iter().zip(theirs).enumerate();
            if let Some((id, (ours, theirs))) = pairs.into_iter().find(|(_, (a, b))| a != b) {
                return Err(self.differs(&format!("token {id}"), format!("{ours:?}"), format!("{theirs:?}")));
            }
        }
        for (key, value) in self.tokenizer.iter() {
            metadata.insert(key.to_owned(), value.clone());
        }
        Ok(())
    }

    /// Refuses a drafter for another model, and tells a head which layers it reads where its file does not.
    pub(super) fn join(
        &self,
        path: &Path,
        config: &mut Config,
        warnings: &mut Vec<String>,
    ) -> Result<(), ConvertError> {
        if !config.architecture.is_drafter() {
            return Err(self.no_drafter(path, Some(config.architecture.name())));
        }
        let theirs = &self.config;
        self.same("vocabulary", config.vocab, theirs.vocab)?;
        if let Some(assistant) = &config.assistant {
            self.same("hidden size of the target", assistant.target_hidden, theirs.hidden)?;
        }
        let Some(eagle) = &mut config.eagle else { return Ok(()) };
        self.same("hidden size of the target", eagle.target_hidden, theirs.hidden)?;
        let layers = theirs.layers.len();
        if eagle.target_layers.is_empty() {
            eagle.target_layers = Eagle::usual_layers(layers);
            warnings.push(format!(
                "config.json has no eagle_aux_hidden_state_layer_ids: the head is taken to read the inputs of layers {:?}, as is \
                 usual for a model of {layers} layers",
                eagle.target_layers
            ));
        }
        match eagle.target_layers.iter().find(|&&layer| layer > layers) {
            Some(layer) => Err(self.differs("layer of the target", layer, format!("{layers} layers"))),
            None => Ok(()),
        }
    }

    /// The path is no folder, or one of another `architecture`.
    pub(super) fn no_drafter(&self, path: &Path, architecture: Option<&'static str>) -> ConvertError {
        ConvertError::NoDrafter { path: path.to_owned(), architecture, target: self.path.clone() }
    }

    fn same(&self, what: &str, ours: usize, theirs: usize) -> Result<(), ConvertError> {
        if ours == theirs { Ok(()) } else { Err(self.differs(what, ours, theirs)) }
    }

    fn differs(&self, what: &str, drafter: impl ToString, target: impl ToString) -> ConvertError {
        let (path, what) = (self.path.clone(), what.to_owned());
        ConvertError::OtherTarget { path, what, drafter: drafter.to_string(), target: target.to_string() }
    }
}
