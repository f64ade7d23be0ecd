//! Tests of the public interface.

#![expect(clippy::unwrap_used, reason = "a failed test may panic, in its helpers too")]

mod answers;
mod calls;
mod forms;
mod refused;

use std::sync::Arc;

use hf2q_gguf::Gguf;
use hf2q_grammar::{Constraint, Grammars};
use hf2q_text::{Controls, Specials, Tokenizer};

/// Small vocabularies of the three kinds that models have.
const VOCABULARIES: [&str; 4] = ["demo", "spm", "llama3", "qwen2"];

fn tokenizer(name: &str) -> Arc<Tokenizer> {
    let path = format!("{}/../../fixtures/tokenizer/{name}.gguf", env!("CARGO_MANIFEST_DIR"));
    let file = Gguf::open(path.as_ref()).unwrap();
    Arc::new(Tokenizer::from_metadata(file.metadata()).unwrap())
}

fn grammars(name: &str) -> (Arc<Tokenizer>, Grammars) {
    let tokenizer = tokenizer(name);
    // Models may have more logits than tokens.
    let grammars = Grammars::new(tokenizer.clone(), tokenizer.vocab_len() + 3);
    (tokenizer, grammars)
}

/// Whether an end may follow.
fn may_end(tokenizer: &Tokenizer, constraint: &mut dyn Constraint) -> bool {
    let stops = tokenizer.stop_ids();
    constraint.is_finished()
        || constraint.allowed().unwrap().is_none_or(|set| stops.iter().any(|id| set.contains(*id)))
}

/// Feeds a text; returns how many of its bytes were allowed.
fn feed(tokenizer: &Tokenizer, constraint: &mut dyn Constraint, text: &str, specials: Specials) -> usize {
    let mut taken = 0;
    for id in tokenizer.encode(text, specials) {
        if constraint.is_finished() || constraint.allowed().unwrap().is_some_and(|set| !set.contains(id)) {
            break;
        }
        constraint.push(id).unwrap();
        taken += tokenizer.token_bytes(id).len();
    }
    taken
}

/// Whether a text as a whole is allowed.
fn accepts(tokenizer: &Tokenizer, constraint: &mut dyn Constraint, text: &str) -> bool {
    feed(tokenizer, constraint, text, Specials::AsText) == text.len() && may_end(tokenizer, constraint)
}

/// A generator of numbers (Steele et al. 2014, SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Draws tokens evenly until the answer ends; the ids and whether it ended by itself. Short tokens and ends are
/// preferred, so that most answers do.
fn walk(tokenizer: &Tokenizer, constraint: &mut dyn Constraint, seed: u64, most: usize) -> (Vec<u32>, bool) {
    let mut random = Random(seed);
    let mut ids = Vec::new();
    while ids.len() < most {
        if constraint.is_finished() {
            return (ids, true);
        }
        let set = constraint.allowed().unwrap().expect("it is constrained");
        if tokenizer.stop_ids().iter().any(|id| set.contains(*id)) && random.next().is_multiple_of(2) {
            return (ids, true);
        }
        let stops = tokenizer.stop_ids();
        let allowed: Vec<u32> =
            (0..set.vocabulary() as u32).filter(|id| set.contains(*id) && !stops.contains(id)).collect();
        if allowed.is_empty() {
            return (ids, true);
        }
        // What closes a text, list or object comes more often than its share.
        let closes = |id: &&u32| {
            tokenizer.is_control(**id)
                || matches!(tokenizer.token_bytes(**id), b"\"" | b"}" | b"]" | b"0" | b"a")
        };
        let closing: Vec<&u32> = allowed.iter().filter(closes).collect();
        let choice = random.next() as usize;
        let id = if !closing.is_empty() && !random.next().is_multiple_of(3) {
            *closing[choice % closing.len()]
        } else {
            allowed[choice % allowed.len()]
        };
        constraint.push(id).unwrap();
        ids.push(id);
    }
    (ids, false)
}

fn text(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    let mut detokenizer = tokenizer.detokenizer(Controls::Show).mid_text();
    let mut text = String::new();
    ids.iter().for_each(|id| detokenizer.push_to(*id, &mut text));
    text + &detokenizer.finish()
}
