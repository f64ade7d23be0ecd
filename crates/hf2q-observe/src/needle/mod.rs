//! Facts planted in a long text, and whether a model finds them again.
//!
//! A text has one fact at each depth, so that every question has the others' codes as wrong answers, and the questions
//! to one text share all of it through the engine's caches. A question is the planted sentence up to its code: any
//! model that continues texts can be asked.

mod text;

use hf2q_engine::{Engine, LogitRows, SequenceId};

use crate::chunk::in_sequence;
use crate::error::ObserveError;
use crate::likelihood::{Likelihood, best};
use text::{Draws, facts, filler};
pub use text::{Fact, MOST_FACTS};

/// A text with facts, and its questions.
#[derive(Clone, Debug)]
pub struct Haystack {
    /// In the order of the depths.
    pub questions: Vec<Question>,
    /// Tokens that all questions begin with.
    shared: usize,
}

/// A text that ends with a question and its answer.
#[derive(Clone, Debug)]
pub struct Question {
    /// Where the fact is planted: 0 at the beginning, 1 at the end.
    pub depth: f64,
    /// What is planted.
    pub fact: Fact,
    /// The whole text.
    pub tokens: Vec<u32>,
    /// Where the answer begins, up to the end.
    pub answer: usize,
}

/// What a model answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answer {
    /// Whether the most likely token is that of the code each time.
    pub exact: bool,
    /// Of the code's tokens: nothing is less than 0, and guessing digits gives `-ln 10` each.
    pub mean_log_likelihood: f64,
}

/// What a text is made of.
#[derive(Clone, Copy, Debug)]
pub struct Recipe<'a> {
    /// Most tokens, question and answer included.
    pub length: usize,
    /// Where facts are planted, each from 0 to 1; at most [`MOST_FACTS`].
    pub depths: &'a [f64],
    /// The same seed gives the same text.
    pub seed: u64,
    /// Lines between the facts, again and again from a line that the seed chooses; of none sentences are made up.
    pub lines: &'a [String],
}

impl Haystack {
    /// Makes a text. `encode` gives the tokens of a whole text.
    ///
    /// # Errors
    /// The length has no room for facts and question.
    pub fn new(recipe: Recipe<'_>, encode: &dyn Fn(&str) -> Vec<u32>) -> Result<Self, ObserveError> {
        let mut draws = Draws::new(recipe.seed);
        let facts = facts(&mut draws, recipe.depths.len());
        // What a text of any content begins with.
        let start = encode("").len();
        let cost = |text: &str| encode(&format!("{text}\n")).len().saturating_sub(start).max(1);
        let sentences: usize = facts.iter().map(|f| cost(&f.sentence())).sum();
        let question = facts.iter().map(|f| cost(&f.sentence())).max().unwrap_or(0);
        let fixed = start + sentences + question;
        let mut room = recipe.length.saturating_sub(fixed);
        loop {
            let lines = hay(recipe, draws, room, &cost).map_err(|line| ObserveError::Haystack {
                length: recipe.length,
                facts: facts.len(),
                least: (fixed + line).max(recipe.length + 1),
            })?;
            let found = Self::build(recipe.depths, &facts, &lines, encode);
            let longest = found.questions.iter().map(|q| q.tokens.len()).max().unwrap_or(0);
            // Lines by themselves may have fewer tokens than within the text.
            match longest.saturating_sub(recipe.length) {
                0 => return Ok(found),
                over => room = room.saturating_sub(over),
            }
        }
    }

    fn build(
        depths: &[f64],
        facts: &[Fact],
        hay: &[(String, usize)],
        encode: &dyn Fn(&str) -> Vec<u32>,
    ) -> Self {
        let total: usize = hay.iter().map(|(_, cost)| cost).sum();
        let mut order: Vec<usize> = (0..depths.len()).collect();
        order.sort_by(|&a, &b| depths[a].total_cmp(&depths[b]));
        let mut waiting = order.into_iter().peekable();
        let (mut text, mut before) = (String::new(), 0);
        for (line, cost) in hay {
            while let Some(i) = waiting.next_if(|&i| depths[i] * total as f64 <= before as f64) {
                text += &format!("{}\n", facts[i].sentence());
            }
            text += &format!("{line}\n");
            before += cost;
        }
        for i in waiting {
            text += &format!("{}\n", facts[i].sentence());
        }
        let question = |(fact, &depth): (&Fact, &f64)| {
            let asked = encode(&format!("{text}{}", fact.question()));
            let tokens = encode(&format!("{text}{} {}", fact.question(), fact.code));
            // Where a token has a part of both, it is the answer's.
            let answer = common(&asked, &tokens).max(1);
            Question { depth, fact: fact.clone(), tokens, answer }
        };
        let questions: Vec<Question> = facts.iter().zip(depths).map(question).collect();
        let asked = |q: &Question| q.tokens[..q.answer].to_vec();
        let first = questions.first().map(asked).unwrap_or_default();
        let shared = questions.iter().map(|q| common(&first, &q.tokens[..q.answer])).min().unwrap_or(0);
        Self { questions, shared }
    }

    /// Asks all questions; `go_on` is asked between steps, `None` if it said no. The text is computed once, if the
    /// engine's caches hold it until the last question.
    ///
    /// # Errors
    /// The text does not fit the engine's context, or the backend fails.
    pub fn ask(
        &self,
        engine: &mut Engine,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Vec<Answer>>, ObserveError> {
        let Some(first) = self.questions.first() else { return Ok(Some(Vec::new())) };
        let shared = &first.tokens[..self.shared];
        if !shared.is_empty() {
            in_sequence(engine, shared, |engine, sequence, held| {
                engine.extend(sequence, &shared[held..], LogitRows::None, |_| go_on())?;
                Ok(engine.remember(sequence)?)
            })?;
        }
        let mut answers = Vec::new();
        for question in &self.questions {
            if !go_on() {
                return Ok(None);
            }
            let given = &question.tokens[..question.answer];
            let answer = in_sequence(engine, given, |engine, sequence, held| {
                question.ask(engine, sequence, held, go_on)
            })?;
            let Some(answer) = answer else { return Ok(None) };
            answers.push(answer);
        }
        Ok(Some(answers))
    }
}

impl Question {
    /// The answer, in a sequence that holds a part of the question, is read as a text: as long as each of its tokens is the most likely one, the model would have said it.
    fn ask(
        &self,
        engine: &mut Engine,
        sequence: SequenceId,
        held: usize,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Answer>, ObserveError> {
        let (given, answer) = self.tokens.split_at(self.answer);
        let mut go = true;
        engine.extend(sequence, &given[held..given.len() - 1], LogitRows::None, |_| {
            go = go_on();
            go
        })?;
        let mut likelihood = Likelihood::default();
        let mut exact = true;
        if go {
            // Each row predicts the token after it.
            let mut wanted = answer.iter();
            let rows = &self.tokens[given.len() - 1..self.tokens.len() - 1];
            engine.extend(sequence, rows, LogitRows::All, |logits| {
                if let Some(&token) = wanted.next() {
                    likelihood.add(logits, &[token]);
                    exact &= best(logits) == token as usize;
                }
                true
            })?;
        }
        Ok(go.then(|| Answer { exact, mean_log_likelihood: -likelihood.mean() }))
    }
}

/// Lines of at most `room` tokens in all, each with its own number; `Err` with the least of a line, if none fits.
fn hay(
    recipe: Recipe<'_>,
    mut draws: Draws,
    room: usize,
    cost: &dyn Fn(&str) -> usize,
) -> Result<Vec<(String, usize)>, usize> {
    let mut hay = Vec::new();
    let mut next = draws.below(recipe.lines.len());
    let (mut left, mut least, mut too_long) = (room, usize::MAX, 0);
    loop {
        let line = match recipe.lines {
            [] => filler(&mut draws),
            lines => lines[next % lines.len()].clone(),
        };
        next += 1;
        let tokens = cost(&line);
        if tokens <= left {
            left -= tokens;
            hay.push((line, tokens));
            continue;
        }
        if !hay.is_empty() {
            return Ok(hay);
        }
        // Another line of the text may be a shorter one.
        (least, too_long) = (least.min(tokens), too_long + 1);
        if too_long >= recipe.lines.len() {
            return Err(least);
        }
    }
}

/// How many tokens two texts begin with in common.
fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
