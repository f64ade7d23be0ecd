//! Reads goldens: a JSON file with prompts and checks, a safetensors file with logits and hidden states.

use std::path::Path;

use safetensors::{Dtype, SafeTensors};

use crate::error::ConformanceError;

/// Everything recorded for one model.
#[derive(Clone, Debug)]
pub struct Golden {
    /// The model's name.
    pub name: String,
    /// Prompts with their results.
    pub prompts: Vec<Prompt>,
    /// Of a longer text.
    pub perplexity: Perplexity,
}

/// One prompt.
#[derive(Clone, Debug)]
pub struct Prompt {
    /// `story`, `long`, …
    pub name: String,
    /// Its tokens.
    pub ids: Vec<u32>,
    /// Most likely token after each position.
    pub argmax: Vec<u32>,
    /// Logits after the last position.
    pub last_logits: Vec<f32>,
    /// Hidden states of the last position: the scaled embedding, the output of each layer, the output of the last norm.
    pub hidden_last: Vec<Vec<f32>>,
    /// Greedy continuation.
    pub greedy: Vec<u32>,
    /// By how much the best logit leads at least along the continuation.
    pub greedy_margin: f32,
}

/// Chunks of a text, each after one start token.
#[derive(Clone, Debug)]
pub struct Perplexity {
    /// Tokens of the text; empty where the fixture names a text file instead.
    pub ids: Vec<u32>,
    /// Tokens of a chunk, without the start token.
    pub chunk_tokens: usize,
    /// The start token.
    pub bos: u32,
    /// By chunk.
    pub chunks: Vec<Chunk>,
    /// `exp` of the mean negative log-likelihood.
    pub perplexity: f64,
}

/// One chunk of the text.
#[derive(Clone, Copy, Debug, serde::Deserialize)]
pub struct Chunk {
    /// Its tokens.
    pub tokens: usize,
    /// Sum of `-ln p` over them.
    pub nll: f64,
}

#[derive(serde::Deserialize)]
struct File {
    model: String,
    prompts: Vec<FilePrompt>,
    perplexity: FilePerplexity,
}

#[derive(serde::Deserialize)]
struct FilePrompt {
    name: String,
    ids: Vec<u32>,
    argmax_per_position: Vec<u32>,
    #[serde(alias = "greedy_32", alias = "greedy_64")]
    greedy: Vec<u32>,
    greedy_min_margin: f32,
}

#[derive(serde::Deserialize)]
struct FilePerplexity {
    #[serde(default)]
    ids: Vec<u32>,
    chunk_tokens: usize,
    bos_id: Option<u32>,
    chunks: Vec<Chunk>,
    perplexity: f64,
}

impl Golden {
    /// Reads `NAME.json` and its `NAME.safetensors`.
    ///
    /// # Errors
    /// If a file cannot be read or lacks what a prompt needs.
    pub fn load(json: &Path) -> Result<Self, ConformanceError> {
        let fail = |path: &Path, why: String| ConformanceError::Fixture { path: path.to_owned(), why };
        let read = |path: &Path| std::fs::read(path).map_err(|e| fail(path, e.to_string()));
        let file: File = serde_json::from_slice(&read(json)?).map_err(|e| fail(json, e.to_string()))?;
        let arrays = json.with_extension("safetensors");
        let bytes = read(&arrays)?;
        let tensors = SafeTensors::deserialize(&bytes).map_err(|e| fail(&arrays, e.to_string()))?;
        let prompts = file
            .prompts
            .into_iter()
            .map(|p| prompt(p, &tensors).map_err(|why| fail(&arrays, why)))
            .collect::<Result<Vec<_>, _>>()?;
        let first = prompts.first().and_then(|p| p.ids.first().copied());
        let p = file.perplexity;
        let Some(bos) = p.bos_id.or(first) else {
            return Err(fail(json, "it has no prompt, so no start token".to_owned()));
        };
        let perplexity = Perplexity {
            ids: p.ids,
            chunk_tokens: p.chunk_tokens,
            bos,
            chunks: p.chunks,
            perplexity: p.perplexity,
        };
        Ok(Self { name: file.model, prompts, perplexity })
    }
}

fn prompt(p: FilePrompt, tensors: &SafeTensors<'_>) -> Result<Prompt, String> {
    let (_, last_logits) = floats(tensors, &format!("{}.last_logits", p.name))?;
    let (shape, hidden) = floats(tensors, &format!("{}.hidden_last", p.name))?;
    let width = shape.last().copied().unwrap_or(0).max(1);
    Ok(Prompt {
        name: p.name,
        ids: p.ids,
        argmax: p.argmax_per_position,
        last_logits,
        hidden_last: hidden.chunks(width).map(<[f32]>::to_vec).collect(),
        greedy: p.greedy,
        greedy_margin: p.greedy_min_margin,
    })
}

fn floats(tensors: &SafeTensors<'_>, name: &str) -> Result<(Vec<usize>, Vec<f32>), String> {
    let view = tensors.tensor(name).map_err(|e| format!("tensor {name}: {e}"))?;
    if view.dtype() != Dtype::F32 {
        return Err(format!("tensor {name} is of type {:?}, expected F32", view.dtype()));
    }
    let (values, _) = view.data().as_chunks::<4>();
    Ok((view.shape().to_vec(), values.iter().map(|b| f32::from_le_bytes(*b)).collect()))
}
