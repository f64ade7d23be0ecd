//! What is asked and when, from a seed: the same for every server.

use std::time::Duration;

use crate::args::{Length, LoadArgs};

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Work {
    pub(super) prompt: String,
    pub(super) max_tokens: usize,
    /// When it is sent, from the start on.
    pub(super) at: Duration,
}

pub(super) struct Workload {
    works: Vec<(usize, usize, Duration)>,
    seed: u64,
    shared: usize,
    prefixes: usize,
}

/// Common words, each one token in most vocabularies.
const WORDS: [&str; 64] = [
    "the", "of", "and", "to", "in", "is", "that", "for", "it", "as", "was", "with", "be", "by", "on", "not",
    "he", "this", "are", "or", "his", "from", "at", "which", "but", "have", "an", "had", "they", "you",
    "were", "their", "one", "all", "we", "can", "her", "has", "there", "been", "if", "more", "when", "will",
    "would", "who", "so", "no", "time", "people", "water", "house", "year", "day", "work", "life", "way",
    "man", "world", "school", "state", "family", "group", "country",
];

impl Workload {
    pub(super) fn new(args: &LoadArgs) -> Self {
        let mut random = Random(args.seed);
        let mut at = 0.0;
        let works = (0..args.requests.get()).map(|_| {
            let prompt = random.length(args.prompt).max(args.shared_prefix + 1);
            let answer = random.length(args.answer);
            // The time between arrivals that do not know of one another.
            at += args.rate.map_or(0.0, |rate| random.exponential() / rate);
            (prompt, answer, Duration::from_secs_f64(at))
        });
        Self {
            works: works.collect(),
            seed: args.seed,
            shared: args.shared_prefix,
            prefixes: args.prefixes.get(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.works.len()
    }

    pub(super) fn get(&self, i: usize) -> Option<Work> {
        let (words, max_tokens, at) = *self.works.get(i)?;
        Some(Work { prompt: self.prompt(words, i, self.seed), max_tokens, at })
    }

    /// A request of the same kind that is none of those.
    pub(super) fn warm_up(&self, i: usize) -> Work {
        let (words, max_tokens, _) = self.works[i % self.works.len()];
        Work { prompt: self.prompt(words, i, !self.seed), max_tokens, at: Duration::ZERO }
    }

    fn prompt(&self, words: usize, i: usize, seed: u64) -> String {
        let mut text = String::new();
        let mut prefix = Random(seed ^ 0x5bd1_e995 ^ ((i % self.prefixes) as u64) << 32);
        let mut own = Random(seed.wrapping_mul(31).wrapping_add(i as u64 + 1));
        for word in 0..words {
            let random = if word < self.shared { &mut prefix } else { &mut own };
            if word > 0 {
                text.push(' ');
            }
            text.push_str(WORDS[random.next() as usize % WORDS.len()]);
        }
        text
    }
}

/// SplitMix64 (Steele et al. 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In [0, 1).
    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn exponential(&mut self) -> f64 {
        -(1.0 - self.uniform()).ln()
    }

    fn length(&mut self, length: Length) -> usize {
        match length {
            Length::Fixed(n) => n,
            Length::Even(least, most) => least + (self.uniform() * (most - least + 1) as f64) as usize,
            Length::Exponential(mean) => (self.exponential() * mean).clamp(1.0, 10.0 * mean) as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;

    fn args() -> LoadArgs {
        LoadArgs {
            requests: NonZeroUsize::new(400).unwrap(),
            warmup: 0,
            concurrency: NonZeroUsize::MIN,
            rate: Some(10.0),
            prompt: Length::Even(5, 9),
            answer: Length::Exponential(20.0),
            shared_prefix: 3,
            prefixes: NonZeroUsize::new(2).unwrap(),
            no_stream: false,
            body: None,
            seed: 3,
            timeout: 1.0,
        }
    }

    #[test]
    fn lengths_moments_and_prefixes_are_as_asked() {
        let workload = Workload::new(&args());
        let works: Vec<Work> = (0..400).filter_map(|i| workload.get(i)).collect();
        assert_eq!(works, (0..400).filter_map(|i| Workload::new(&args()).get(i)).collect::<Vec<_>>());
        let words = |w: &Work| w.prompt.split(' ').count();
        assert_eq!((works.iter().map(words).min(), works.iter().map(words).max()), (Some(5), Some(9)));
        let mean = works.iter().map(|w| w.max_tokens).sum::<usize>() as f64 / 400.0;
        assert!((15.0..25.0).contains(&mean), "{mean}");
        // 400 arrivals at 10 a second.
        let end = works[399].at.as_secs_f64();
        assert!((30.0..50.0).contains(&end), "{end}");
        assert!(works.is_sorted_by_key(|w| w.at));
        let prefix = |w: &Work| w.prompt.split(' ').take(3).collect::<Vec<_>>().join(" ");
        assert_eq!(prefix(&works[0]), prefix(&works[2]));
        assert_ne!(prefix(&works[0]), prefix(&works[1]));
        assert_ne!(works[0].prompt, works[2].prompt);
        assert_ne!(prefix(&workload.warm_up(0)), prefix(&works[0]));
    }
}
