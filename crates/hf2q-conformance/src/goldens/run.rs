//! Runs a model over goldens and says how far it is from them.

use hf2q_plan::{
    Backend, Limits, NamedOp, Observer, PAGE, Passes, Program, Row, RowKind, TensorKind, Tensors,
};

use super::fixture::{Golden, Perplexity, Prompt};
use crate::compare::relative_l2;
use crate::error::ConformanceError;
use crate::paging::Pages;
use crate::random::Random;
use crate::subject::Subject;

/// How one prompt went.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PromptFindings {
    /// The prompt's name.
    pub name: String,
    /// Relative L2 distance of the logits after the last position.
    pub last_logits: f64,
    /// Positions whose most likely token differs.
    pub argmax: Vec<usize>,
    /// First token of the greedy continuation that differs.
    pub greedy: Option<usize>,
    /// Relative L2 distances of the hidden states of the last position, in the order of the golden; empty where the
    /// model's operations do not tell its layers.
    pub hidden: Vec<f64>,
}

/// How all went.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// By prompt.
    pub prompts: Vec<PromptFindings>,
    /// `found / golden - 1` of the perplexity, over the chunks that were run.
    pub perplexity: Option<f64>,
}

impl Findings {
    /// What misses the limits, in words: `last_logits` is the largest relative distance, `perplexity` the largest
    /// relative deviation; every argmax and every greedy token must be equal.
    pub fn misses(&self, last_logits: f64, perplexity: f64) -> Vec<String> {
        let mut misses = vec![];
        for p in &self.prompts {
            if p.last_logits.is_nan() || p.last_logits >= last_logits {
                misses.push(format!("{}: last logits are {:.1e} off", p.name, p.last_logits));
            }
            if !p.argmax.is_empty() {
                misses.push(format!("{}: other argmax at positions {:?}", p.name, p.argmax));
            }
            if let Some(at) = p.greedy {
                misses.push(format!("{}: the greedy continuation differs from token {at} on", p.name));
            }
        }
        if let Some(off) = self.perplexity
            && (off.is_nan() || off.abs() >= perplexity)
        {
            misses.push(format!("perplexity is {:+.4} % off", off * 100.0));
        }
        misses
    }
}

/// A model opened for one sequence.
pub struct Runner {
    program: Box<dyn Program>,
    subject: Subject,
    context: usize,
    rows: usize,
    vocabulary: usize,
    layers: Vec<String>,
}

impl Runner {
    /// Opens `subject` for `context` positions, computed `rows` at a time.
    ///
    /// # Errors
    /// If the backend cannot run it.
    pub fn open(
        backend: &dyn Backend,
        subject: Subject,
        (context, rows): (usize, usize),
    ) -> Result<Self, ConformanceError> {
        let pages = vec![context.div_ceil(PAGE); subject.recording.groups.len()];
        let limits = Limits { max_rows: rows, max_logit_rows: rows, pages };
        let program = subject.open(backend, Passes::ALL, &limits)?;
        let vocabulary = subject.recording.logits.width;
        let layers = hidden_states(&subject);
        Ok(Self { program, subject, context, rows, vocabulary, layers })
    }

    /// Runs all prompts, and as many chunks of the perplexity text as `chunks` says. `text` are the text's tokens
    /// where the golden has none.
    ///
    /// # Errors
    /// If a program fails or something does not fit the context.
    pub fn compare(
        &mut self,
        golden: &Golden,
        text: Option<&[u32]>,
        chunks: usize,
    ) -> Result<Findings, ConformanceError> {
        let prompts = golden.prompts.iter().map(|p| self.prompt(p)).collect::<Result<Vec<_>, _>>()?;
        let text = text.unwrap_or(&golden.perplexity.ids);
        let perplexity = if text.is_empty() || chunks == 0 {
            None
        } else {
            Some(self.perplexity(&golden.perplexity, text, chunks)?)
        };
        Ok(Findings { prompts, perplexity })
    }

    fn prompt(&mut self, p: &Prompt) -> Result<PromptFindings, ConformanceError> {
        let len = p.ids.len() + p.greedy.len();
        if len > self.context {
            let what = format!("prompt {} with its continuation", p.name);
            return Err(ConformanceError::Context { what, found: len, context: self.context });
        }
        let mut pages = self.pages();
        let mut hidden =
            Hidden { names: &self.layers, subject: &self.subject, states: vec![None; self.layers.len()] };
        let mut argmaxes = vec![];
        let mut last = vec![];
        let mut at = 0;
        for chunk in p.ids.chunks(self.rows) {
            let step = pages.step(&chunk_rows(chunk, at), &all(chunk.len()), &Default::default())?;
            let logits = self.program.run(&step, Some(&mut hidden))?;
            argmaxes.extend(logits.chunks_exact(self.vocabulary).map(argmax));
            last = logits[logits.len() - self.vocabulary..].to_vec();
            at += chunk.len();
        }
        let distance = |(found, expected): (&Option<Vec<f32>>, &Vec<f32>)| {
            found.as_ref().map_or(f64::INFINITY, |f| relative_l2(f, expected))
        };
        let hidden = if hidden.states.len() == p.hidden_last.len() {
            hidden.states.iter().zip(&p.hidden_last).map(distance).collect()
        } else {
            vec![]
        };
        let mut found = PromptFindings {
            name: p.name.clone(),
            last_logits: relative_l2(&last, &p.last_logits),
            argmax: (0..p.argmax.len()).filter(|&i| argmaxes.get(i) != Some(&p.argmax[i])).collect(),
            greedy: None,
            hidden,
        };
        for (i, &expected) in p.greedy.iter().enumerate() {
            if argmax(&last) != expected {
                found.greedy = Some(i);
                break;
            }
            let step = pages.step(&chunk_rows(&[expected], at), &[0], &Default::default())?;
            last = self.program.run(&step, None)?.to_vec();
            at += 1;
        }
        Ok(found)
    }

    /// Each chunk follows the start token and predicts all its tokens.
    fn perplexity(&mut self, p: &Perplexity, text: &[u32], chunks: usize) -> Result<f64, ConformanceError> {
        let (mut found, mut golden, mut tokens) = (0.0, 0.0, 0);
        for (chunk, expected) in text.chunks(p.chunk_tokens).zip(&p.chunks).take(chunks) {
            if chunk.len() != expected.tokens {
                let (what, found) = (format!("a chunk of {} in the golden", expected.tokens), chunk.len());
                return Err(ConformanceError::Context { what, found, context: self.context });
            }
            found += self.negative_log_likelihood(p.bos, chunk)?;
            golden += expected.nll;
            tokens += chunk.len();
        }
        Ok(((found - golden) / tokens as f64).exp() - 1.0)
    }

    /// Sum of `-ln p` of `text` after `bos`.
    ///
    /// # Errors
    /// If a program fails or `text` does not fit the context.
    pub fn negative_log_likelihood(&mut self, bos: u32, text: &[u32]) -> Result<f64, ConformanceError> {
        if text.len() > self.context {
            let what = "a chunk of text".to_owned();
            return Err(ConformanceError::Context { what, found: text.len(), context: self.context });
        }
        let inputs: Vec<u32> = std::iter::once(bos).chain(text.iter().copied()).take(text.len()).collect();
        let mut pages = self.pages();
        let (mut sum, mut at) = (0.0, 0);
        for chunk in inputs.chunks(self.rows) {
            let step = pages.step(&chunk_rows(chunk, at), &all(chunk.len()), &Default::default())?;
            let logits = self.program.run(&step, None)?;
            for (row, &token) in logits.chunks_exact(self.vocabulary).zip(&text[at..]) {
                sum -= log_probability(row, token);
            }
            at += chunk.len();
        }
        Ok(sum)
    }

    fn pages(&self) -> Pages {
        let count = self.context.div_ceil(PAGE);
        Pages::new(&self.subject.recording.groups, count, (1, Random::new("goldens", 1)))
    }
}

fn chunk_rows(tokens: &[u32], at: usize) -> Vec<Row> {
    let row = |(i, &token): (usize, &u32)| Row {
        sequence: 0,
        token,
        position: (at + i) as u32,
        parent: i.checked_sub(1).map(|p| p as u32),
    };
    tokens.iter().enumerate().map(row).collect()
}

fn all(rows: usize) -> Vec<u32> {
    (0..rows as u32).collect()
}

/// The lowest index of the largest.
fn argmax(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (i, &x) in logits.iter().enumerate() {
        if x > logits[best] {
            best = i;
        }
    }
    best as u32
}

fn log_probability(logits: &[f32], token: u32) -> f64 {
    let largest = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let total: f64 = logits.iter().map(|&x| (f64::from(x) - largest).exp()).sum();
    f64::from(logits[token as usize]) - largest - total.ln()
}

/// Names of the operations that write the embedding, the output of each layer and the last norm.
fn hidden_states(subject: &Subject) -> Vec<String> {
    let ops = &subject.recording.ops;
    let mut names: Vec<String> = ops.iter().take(1).map(|o| o.name.clone()).collect();
    for layer in 0.. {
        let prefix = format!("L{layer:02}.");
        let Some(last) = ops.iter().rfind(|o| o.name.starts_with(&prefix)) else { break };
        names.push(last.name.clone());
    }
    names.push("output_norm".to_owned());
    names
}

/// Keeps the last row of each hidden state.
struct Hidden<'a> {
    names: &'a [String],
    subject: &'a Subject,
    states: Vec<Option<Vec<f32>>>,
}

impl Observer for Hidden<'_> {
    fn wants(&mut self, op: &NamedOp) -> bool {
        self.names.contains(&op.name)
    }

    fn after(&mut self, op: &NamedOp, tensors: &dyn Tensors) {
        let Some(at) = self.names.iter().position(|n| *n == op.name) else { return };
        for id in op.op.access().writes {
            let kind = &self.subject.recording.tensors[id.index()].kind;
            let TensorKind::Activation { width, rows: RowKind::Step | RowKind::Logits } = *kind else {
                continue;
            };
            self.states[at] = tensors.values(id).map(|v| v[v.len() - width..].to_vec());
        }
    }
}
