//! Do the parts of a configuration fit together?

use crate::architecture::Architecture;
use crate::config::{Centroids, Config, Layer};
use crate::error::{ArchError, Origin};
use crate::rope::RopeScaling;

/// Layers of a model.
pub(crate) const MAX_LAYERS: usize = 1024;
/// Any other size: rows, columns, heads, experts.
pub(crate) const MAX_SIZE: usize = 1 << 24;

struct Check {
    origin: Origin,
}

/// Everything that [`Config::tensors`], the recording of layers and the arithmetic on sizes rely on.
pub(crate) fn validate(c: &Config, origin: Origin) -> Result<(), ArchError> {
    let check = Check { origin };
    check.size("vocabulary", c.vocab)?;
    check.size("hidden size", c.hidden)?;
    check.size("context length", c.context_length)?;
    check.at_least_zero("norm epsilon", c.norm_eps)?;
    check.positive("embedding scale", c.embedding_scale)?;
    if let Some(cap) = c.final_softcap {
        check.positive("final logit soft cap", cap)?;
    }
    if c.layers.is_empty() || c.layers.len() > MAX_LAYERS {
        return Err(check.error("number of layers", c.layers.len(), format!("1 to {MAX_LAYERS}")));
    }
    if let Some(width) = c.per_layer_embedding {
        check
            .size("width of the per-layer embeddings of all layers", width.saturating_mul(c.layers.len()))?;
    }
    if let Some(e) = &c.experts {
        check.size("number of experts", e.count)?;
        check.size("inner width of the experts", e.ffn)?;
        check.size("gate and up rows of all experts", e.ffn.saturating_mul(2))?;
        if e.top_k == 0 || e.top_k > e.count {
            return Err(check.error(
                "chosen experts",
                e.top_k,
                format!("1 to the number of experts, {}", e.count),
            ));
        }
    }
    check.assistant(c)?;
    check.eagle(c)?;
    for (i, layer) in c.layers.iter().enumerate() {
        check.layer(c, i, layer)?;
    }
    check.kinds(c)
}

impl Check {
    fn layer(&self, c: &Config, i: usize, l: &Layer) -> Result<(), ArchError> {
        let named = |what: &str| format!("{what} of layer {i}");
        self.size(&named("query heads"), l.heads)?;
        self.size(&named("head size"), l.head_dim)?;
        self.size(&named("width of all heads"), l.heads.saturating_mul(l.head_dim))?;
        if l.kv_heads == 0 || !l.heads.is_multiple_of(l.kv_heads) {
            let accepted = format!("a divisor of the {} query heads", l.heads);
            return Err(self.error(&named("key/value heads"), l.kv_heads, accepted));
        }
        self.positive(&named("attention scale"), l.attention_scale)?;
        self.positive(&named("rope base"), l.rope.base)?;
        if l.rope.dims == 0 || l.rope.dims > l.head_dim || !l.rope.dims.is_multiple_of(2) {
            let accepted = format!("an even number up to the head size, {}", l.head_dim);
            return Err(self.error(&named("rotated columns"), l.rope.dims, accepted));
        }
        self.scaling(&named("rope scaling"), l.rope.scaling)?;
        if l.window == Some(0) {
            return Err(self.error(&named("window"), 0, "at least 1".to_owned()));
        }
        match (l.ffn, &c.experts) {
            (Some(width), _) => self.size(&named("feed-forward width"), width)?,
            // Only there do experts take the dense network's place.
            (None, Some(_)) if c.architecture == Architecture::Qwen3Moe => {}
            (None, _) => {
                return Err(self.error(&named("feed-forward width"), "absent", "a width".to_owned()));
            }
        }
        self.kv(c, i, l)
    }

    fn kv(&self, c: &Config, i: usize, l: &Layer) -> Result<(), ArchError> {
        let Some(from) = l.kv_from else { return Ok(()) };
        // The first layer of an assistant that reads some keys and values stands for the target's.
        let (is_before, owner) = match c.assistant {
            None => (from < i, None),
            Some(_) => (from <= i, Some(from)),
        };
        let fits = is_before && {
            let s = &c.layers[from];
            s.kv_from == owner && (s.kv_heads, s.head_dim, s.window) == (l.kv_heads, l.head_dim, l.window)
        };
        let accepted = "an earlier layer with keys and values of its own and the same heads and window";
        if fits {
            Ok(())
        } else {
            Err(self.error(&format!("KV source of layer {i}"), from, accepted.to_owned()))
        }
    }

    fn assistant(&self, c: &Config) -> Result<(), ArchError> {
        let Some(assistant) = &c.assistant else { return Ok(()) };
        self.size("hidden size of the target", assistant.target_hidden)?;
        self.size("width of embedding and hidden state of the target", 2 * assistant.target_hidden)?;
        let Some(Centroids { count, top_k }) = assistant.centroids else { return Ok(()) };
        if count == 0 || !c.vocab.is_multiple_of(count) {
            let accepted = format!("a divisor of the vocabulary, {}", c.vocab);
            return Err(self.error("number of centroids", count, accepted));
        }
        if top_k == 0 || top_k > count {
            let accepted = format!("1 to the number of centroids, {count}");
            return Err(self.error("chosen centroids", top_k, accepted));
        }
        Ok(())
    }

    /// The list of layers may be missing in `config.json`: who converts it knows the target.
    fn eagle(&self, c: &Config) -> Result<(), ArchError> {
        let Some(eagle) = &c.eagle else { return Ok(()) };
        self.size("hidden size of the target", eagle.target_hidden)?;
        let layers = &eagle.target_layers;
        let may_lack = self.origin == Origin::ConfigJson && layers.is_empty();
        let few = (1..=MAX_LAYERS).contains(&layers.len());
        if !may_lack && (!few || layers.iter().any(|&l| l > MAX_LAYERS)) {
            let accepted = format!("1 to {MAX_LAYERS} numbers up to {MAX_LAYERS}");
            return Err(self.error("layers of the target", format!("{layers:?}"), accepted));
        }
        self.size("width of what is read of the target", eagle.features().max(1))?;
        self.size("width of embedding and state", 2 * c.hidden)?;
        if eagle.draft_vocab == 0 || eagle.draft_vocab > c.vocab {
            let accepted = format!("1 to the vocabulary, {}", c.vocab);
            return Err(self.error("draft vocabulary", eagle.draft_vocab, accepted));
        }
        Ok(())
    }

    fn scaling(&self, what: &str, scaling: RopeScaling) -> Result<(), ArchError> {
        match scaling {
            RopeScaling::None => Ok(()),
            RopeScaling::Linear { factor } => self.positive(what, factor),
            RopeScaling::Yarn { factor, attention_factor, beta_fast, beta_slow, original_context } => {
                for value in [factor, attention_factor, beta_fast, beta_slow, original_context as f32] {
                    self.positive(what, value)?;
                }
                Ok(())
            }
        }
    }

    /// Metadata has one head size, rotation and window for all windowed layers, and one for all global layers.
    fn kinds(&self, c: &Config) -> Result<(), ArchError> {
        for windowed in [true, false] {
            let mut of_kind = c.layers.iter().enumerate().filter(|(_, l)| l.window.is_some() == windowed);
            let Some((_, first)) = of_kind.next() else { continue };
            let kind = |l: &Layer| (l.window, l.head_dim, l.rope, l.attention_scale);
            if let Some((i, l)) = of_kind.find(|(_, l)| kind(l) != kind(first)) {
                let found = format!("{:?}", kind(l));
                let accepted = format!("those of the first layer of its kind, {:?}", kind(first));
                return Err(self.error(
                    &format!("window, head size, rope and scale of layer {i}"),
                    found,
                    accepted,
                ));
            }
        }
        let one_kind = |what, same: bool| {
            let accepted = "the same in all layers".to_owned();
            if same { Ok(()) } else { Err(self.error(what, "different from layer to layer", accepted)) }
        };
        let first = &c.layers[0];
        match c.architecture {
            Architecture::Gemma4 | Architecture::Gemma4Assistant => Ok(()),
            Architecture::Gemma3 => {
                one_kind("head size", c.layers.iter().all(|l| l.head_dim == first.head_dim))
            }
            _ => one_kind("window", c.layers.iter().all(|l| l.window == first.window)),
        }
    }

    fn size(&self, what: &str, found: usize) -> Result<(), ArchError> {
        if (1..=MAX_SIZE).contains(&found) {
            return Ok(());
        }
        Err(self.error(what, found, format!("1 to {MAX_SIZE}")))
    }

    fn positive(&self, what: &str, found: f32) -> Result<(), ArchError> {
        if found.is_finite() && found > 0.0 {
            return Ok(());
        }
        Err(self.error(what, found, "a positive number".to_owned()))
    }

    fn at_least_zero(&self, what: &str, found: f32) -> Result<(), ArchError> {
        if found.is_finite() && found >= 0.0 {
            return Ok(());
        }
        Err(self.error(what, found, "a number from 0".to_owned()))
    }

    fn error(&self, what: &str, found: impl ToString, accepted: String) -> ArchError {
        ArchError::value(self.origin, what, found, accepted)
    }
}
