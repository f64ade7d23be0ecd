//! What drafts did for the answers of a request.

use hf2q_engine::DraftUse;
use serde_json::{Value as Json, json};

/// Levels that are told.
const LEVELS: usize = 32;

/// Of all answers of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Speculation {
    /// Steps that gave tokens.
    steps: usize,
    /// By level: drafts that had it, and those whose token there was drawn.
    levels: [(u64, u64); LEVELS],
    /// Seconds of those answers for which they are known, and how many these are.
    saved: (f64, usize),
}

impl Speculation {
    pub(crate) fn add(&mut self, drafts: &DraftUse) {
        self.steps += drafts.steps;
        for (sum, level) in self.levels.iter_mut().zip(&drafts.levels) {
            *sum = (sum.0 + level.0, sum.1 + level.1);
        }
        if let Some(saved) = drafts.saved {
            self.saved = (self.saved.0 + saved, self.saved.1 + 1);
        }
    }

    /// Puts it into the object that counts tokens, `answer` of them drawn; nothing where nothing was guessed.
    pub(crate) fn tell(&self, answer: usize, usage: &mut Json) {
        let had: Vec<_> = self.levels.iter().take_while(|level| level.0 > 0).collect();
        if had.is_empty() {
            return;
        }
        let (saved, known) = self.saved;
        // Answers of a request are computed in the same steps: what one waits less all of them do.
        let saved = (known > 0).then(|| saved / known as f64);
        let share = |level: &&(u64, u64)| level.1 as f64 / level.0 as f64;
        usage["speculation"] = json!({
            "steps": self.steps,
            "tokens_per_step": answer as f64 / self.steps.max(1) as f64,
            "accepted_by_depth": had.iter().map(share).collect::<Vec<_>>(),
            "saved_seconds": saved,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_answers_are_one_request() {
        let mut all = Speculation::default();
        let mut usage = json!({});
        all.tell(0, &mut usage);
        assert_eq!(usage, json!({}));
        all.add(&DraftUse { steps: 4, levels: vec![(2, 1), (2, 0)], saved: None });
        all.tell(4, &mut usage);
        assert!(usage["speculation"]["saved_seconds"].is_null(), "{usage}");
        all.add(&DraftUse { steps: 2, levels: vec![(2, 2)], saved: Some(-0.5) });
        all.add(&DraftUse { steps: 2, levels: vec![], saved: Some(2.0) });
        all.tell(12, &mut usage);
        // The mean of those for which it is known.
        let expected = json!({
            "steps": 8, "tokens_per_step": 1.5, "accepted_by_depth": [0.75, 0.0], "saved_seconds": 0.75,
        });
        assert_eq!(usage["speculation"], expected);
    }
}
