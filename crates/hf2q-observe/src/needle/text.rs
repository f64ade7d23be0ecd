//! Texts in which facts are hidden.

/// Draws numbers that depend on a seed alone (splitmix64 of Steele, Lea and Flood 2014).
#[derive(Clone, Copy, Debug)]
pub(super) struct Draws(u64);

impl Draws {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `n`, which is small beside 2^64.
    pub(super) fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n.max(1) as u64).unwrap_or(0)
    }

    fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len())]
    }
}

const COLOURS: [&str; 16] = [
    "amber", "azure", "bronze", "copper", "coral", "crimson", "golden", "green", "indigo", "ivory", "orange",
    "purple", "scarlet", "silver", "violet", "yellow",
];
const ANIMALS: [&str; 16] = [
    "badger", "beaver", "camel", "dolphin", "eagle", "falcon", "heron", "horse", "lion", "lizard", "otter",
    "owl", "rabbit", "raven", "tiger", "wolf",
];
const ADJECTIVES: [&str; 16] = [
    "bright", "broad", "calm", "cold", "distant", "early", "gentle", "heavy", "narrow", "old", "pale",
    "quiet", "slow", "small", "steep", "warm",
];
const PLACES: [&str; 16] = [
    "bridge", "field", "forest", "garden", "harbour", "hill", "house", "island", "lake", "market", "meadow",
    "mountain", "river", "road", "tower", "village",
];
const PEOPLE: [&str; 16] = [
    "baker",
    "captain",
    "carpenter",
    "child",
    "doctor",
    "farmer",
    "fisherman",
    "gardener",
    "merchant",
    "miller",
    "painter",
    "sailor",
    "shepherd",
    "singer",
    "teacher",
    "traveller",
];
const VERBS: [&str; 12] = [
    "walked to",
    "looked at",
    "spoke about",
    "waited near",
    "returned from",
    "dreamed of",
    "slept beside",
    "passed by",
    "came from",
    "sang about",
    "went around",
    "rested at",
];
const TIMES: [&str; 8] = [
    "In the morning",
    "At noon",
    "Before sunset",
    "Late at night",
    "After the rain",
    "In spring",
    "Last winter",
    "Every summer",
];

/// Most facts that a text can have.
pub const MOST_FACTS: usize = COLOURS.len() * ANIMALS.len();

/// A fact that is planted and asked for: `The code of amber falcon is 48213.`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// Of what.
    pub key: String,
    /// Five digits.
    pub code: String,
}

impl Fact {
    /// The sentence that is planted.
    pub(super) fn sentence(&self) -> String {
        format!("{} {}.", self.question(), self.code)
    }

    /// The sentence up to the code.
    pub(super) fn question(&self) -> String {
        format!("The code of {} is", self.key)
    }
}

/// `count` facts with different keys, at most [`MOST_FACTS`].
pub(super) fn facts(draws: &mut Draws, count: usize) -> Vec<Fact> {
    let mut facts: Vec<Fact> = Vec::new();
    while facts.len() < count.min(MOST_FACTS) {
        let key = format!("{} {}", draws.pick(&COLOURS), draws.pick(&ANIMALS));
        let code = (10_000 + draws.below(90_000)).to_string();
        if facts.iter().all(|f| f.key != key && f.code != code) {
            facts.push(Fact { key, code });
        }
    }
    facts
}

/// A sentence that says nothing of codes.
pub(super) fn filler(draws: &mut Draws) -> String {
    let (time, person, verb) = (draws.pick(&TIMES), draws.pick(&PEOPLE), draws.pick(&VERBS));
    let (what, place) = (draws.pick(&ADJECTIVES), draws.pick(&PLACES));
    format!("{time} the {person} {verb} the {what} {place}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_differ_and_repeat_with_their_seed() {
        let found = facts(&mut Draws::new(3), 40);
        assert_eq!(found, facts(&mut Draws::new(3), 40));
        assert_ne!(found, facts(&mut Draws::new(4), 40));
        assert!(found.iter().all(|f| f.code.len() == 5));
        assert_eq!(facts(&mut Draws::new(0), MOST_FACTS + 1).len(), MOST_FACTS);
        assert!(found[0].sentence().starts_with(&found[0].question()));
    }

    #[test]
    fn filler_is_varied() {
        let mut draws = Draws::new(1);
        let lines: std::collections::HashSet<String> = (0..500).map(|_| filler(&mut draws)).collect();
        assert!(lines.len() > 450 && lines.iter().all(|l| l.ends_with('.') && !l.contains("code")));
    }
}
