//! Pre-tokenizers: how text is cut into words before byte-pair encoding. Merges never cross a cut.
//!
//! Each is a regular expression in its model's own files; [`RULES`] lists them. They are matched by hand, which
//! takes linear time on any text; a test compares every rule with its expression.

use crate::classes::{CharClass, class};

/// One pre-tokenizer.
pub(crate) struct Rule {
    /// Values of `tokenizer.ggml.pre` that mean it.
    pub(crate) names: &'static [&'static str],
    /// The expression whose successive matches are the words.
    #[cfg_attr(not(test), expect(dead_code, reason = "it documents the rule and is the tests' oracle"))]
    pub(crate) pattern: &'static str,
    shape: Shape,
    /// Numbers are cut out one by one before the expression is applied.
    pub(crate) digits_first: bool,
    /// Text is normalized to NFC first.
    pub(crate) nfc: bool,
    /// A word that is a token is taken whole, whatever the merges say.
    pub(crate) whole_words: bool,
    /// Whether a beginning-of-text token is added where the file does not say.
    pub(crate) add_bos: bool,
}

/// The expression as parameters of the matcher.
#[derive(Clone, Copy)]
enum Shape {
    /// Words take one leading space.
    Gpt2,
    /// Words take one leading character of any kind but line breaks, letters and numbers; numbers are cut into
    /// runs of `digits`; line breaks end runs of other characters.
    Tiktoken { digits: usize, marks: Marks },
}

/// Whether combining marks count as letters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Marks {
    Letters,
    Other,
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// Every pre-tokenizer that is supported.
pub(crate) const RULES: &[Rule] = &[
    Rule {
        names: &["gpt-2", "default", "phi-2"],
        pattern: GPT2,
        shape: Shape::Gpt2,
        digits_first: false,
        nfc: false,
        whole_words: false,
        add_bos: false,
    },
    Rule {
        names: &["smollm", "starcoder", "refact"],
        pattern: GPT2,
        shape: Shape::Gpt2,
        digits_first: true,
        nfc: false,
        whole_words: false,
        add_bos: false,
    },
    Rule {
        names: &["llama-bpe", "llama3", "llama-v3"],
        pattern: r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        shape: Shape::Tiktoken { digits: 3, marks: Marks::Other },
        digits_first: false,
        nfc: false,
        whole_words: true,
        add_bos: true,
    },
    Rule {
        names: &["qwen2", "deepseek-r1-qwen"],
        pattern: r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        shape: Shape::Tiktoken { digits: 1, marks: Marks::Other },
        digits_first: false,
        nfc: true,
        whole_words: false,
        add_bos: false,
    },
    Rule {
        names: &["qwen35"],
        pattern: r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        shape: Shape::Tiktoken { digits: 1, marks: Marks::Letters },
        digits_first: false,
        nfc: true,
        whole_words: false,
        add_bos: false,
    },
];

impl Rule {
    /// The rule that a file names.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        RULES.iter().find(|rule| rule.names.contains(&name))
    }

    /// Cuts a text into words; joined they are the text.
    pub(crate) fn words<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> {
        let (mut rest, mut piece, shape, digits_first) = (text, "", self.shape, self.digits_first);
        let is_number = |c| class(c) == CharClass::Number;
        std::iter::from_fn(move || {
            if piece.is_empty() {
                let first = rest.chars().next()?;
                let end = match digits_first.then(|| rest.find(is_number)).flatten() {
                    Some(0) => first.len_utf8(),
                    Some(end) => end,
                    None => rest.len(),
                };
                (piece, rest) = rest.split_at(end);
            }
            let (word, tail) = piece.split_at(shape.word(piece));
            piece = tail;
            Some(word)
        })
    }
}

impl Shape {
    /// Length in bytes of the first word of a text that is not empty.
    fn word(self, text: &str) -> usize {
        match self {
            Self::Gpt2 => gpt2_word(text),
            Self::Tiktoken { digits, marks } => tiktoken_word(text, digits, marks),
        }
    }
}

/// Length of the longest prefix of characters that `take` accepts.
fn run(text: &str, take: impl Fn(char) -> bool) -> usize {
    text.find(|c| !take(c)).unwrap_or(text.len())
}

/// Whitespace before a word: all but its last character, which the word may take.
fn spaces(text: &str) -> usize {
    let end = run(text, |c| class(c) == CharClass::Space);
    let last = text[..end].chars().next_back().map_or(0, char::len_utf8);
    if end == text.len() || end == last { end } else { end - last }
}

fn gpt2_word(text: &str) -> usize {
    const SUFFIXES: [&str; 7] = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d"];
    if let Some(suffix) = SUFFIXES.iter().find(|s| text.starts_with(**s)) {
        return suffix.len();
    }
    let body = text.strip_prefix(' ').unwrap_or(text);
    let lead = text.len() - body.len();
    let of = |c| match class(c) {
        CharClass::Mark => CharClass::Other,
        other => other,
    };
    match body.chars().next().map(of) {
        None | Some(CharClass::Space) => spaces(text),
        Some(kind) => lead + run(body, |c| of(c) == kind),
    }
}

fn tiktoken_word(text: &str, digits: usize, marks: Marks) -> usize {
    let of = |c| match class(c) {
        CharClass::Mark if marks == Marks::Letters => CharClass::Letter,
        CharClass::Mark => CharClass::Other,
        other => other,
    };
    let letters = |text: &str| run(text, |c| of(c) == CharClass::Letter);
    let mut chars = text.chars();
    let first = chars.next().expect("the caller passes text that is not empty");
    let (rest, second) = (chars.as_str(), chars.next());
    if let Some(len) = contraction(text) {
        return len;
    }
    let kind = of(first);
    let followed = |kind| second.map(of) == Some(kind);
    match kind {
        CharClass::Letter => letters(text),
        CharClass::Number => {
            text.chars().take(digits).take_while(|c| of(*c) == kind).map(char::len_utf8).sum()
        }
        _ if !matches!(first, '\r' | '\n') && followed(CharClass::Letter) => first.len_utf8() + letters(rest),
        CharClass::Space if first == ' ' && followed(CharClass::Other) => 1 + others(rest, of),
        CharClass::Space => breaks(text),
        _ => others(text, of),
    }
}

/// Other characters and the line breaks after them.
fn others(text: &str, of: impl Fn(char) -> CharClass) -> usize {
    let end = run(text, |c| of(c) == CharClass::Other);
    end + run(&text[end..], |c| matches!(c, '\r' | '\n'))
}

/// Whitespace up to its last line break; without one, as [`spaces`].
fn breaks(text: &str) -> usize {
    let end = run(text, |c| class(c) == CharClass::Space);
    text[..end].rfind(['\r', '\n']).map_or_else(|| spaces(text), |at| at + 1)
}

/// English contractions in any case; U+017F is an `s` when case is ignored.
fn contraction(text: &str) -> Option<usize> {
    let rest = text.strip_prefix('\'')?;
    let mut chars = rest.chars().map(|c| if c == '\u{17f}' { 's' } else { c.to_ascii_lowercase() });
    let pair = (chars.next()?, chars.next());
    let letters = match pair {
        ('s' | 't' | 'm' | 'd', _) => 1,
        ('r' | 'v', Some('e')) | ('l', Some('l')) => 2,
        _ => return None,
    };
    Some(1 + rest.chars().take(letters).map(char::len_utf8).sum::<usize>())
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use fancy_regex::Regex;
    use proptest::prelude::*;

    use super::*;

    /// The rules with their compiled patterns.
    static PATTERNS: LazyLock<Vec<(&Rule, Regex)>> =
        LazyLock::new(|| RULES.iter().map(|rule| (rule, Regex::new(rule.pattern).unwrap())).collect());

    fn by_pattern<'t>((rule, pattern): &(&Rule, Regex), text: &'t str) -> Vec<&'t str> {
        let matches =
            |piece: &'t str| pattern.find_iter(piece).map(|m| m.unwrap().as_str()).collect::<Vec<_>>();
        if !rule.digits_first {
            return matches(text);
        }
        let digit = |c| class(c) == CharClass::Number;
        let pieces = text.split_inclusive(digit).flat_map(|piece| {
            let end = piece.trim_end_matches(digit).len();
            [&piece[..end], &piece[end..]]
        });
        pieces.flat_map(matches).collect()
    }

    /// Text that is rich in the characters that rules treat specially.
    fn text() -> impl Strategy<Value = String> {
        let special = proptest::sample::select(vec![
            " ",
            "  ",
            "\t",
            "\n",
            "\r",
            "\r\n",
            "'",
            "'s",
            "'LL",
            "'\u{17f}",
            "'re",
            "a",
            "Zb",
            "é",
            "e\u{301}",
            "中",
            "१",
            "1",
            "234",
            "Ⅷ",
            "½",
            ".",
            "!?",
            "\u{a0}",
            "\u{3000}",
            "\u{85}",
            "👩\u{200d}🚀",
            "\u{feff}",
            "\0",
            "_",
            "<|",
        ]);
        proptest::collection::vec(
            prop_oneof![4 => special.prop_map(String::from), 1 => any::<char>().prop_map(String::from)],
            0..24,
        )
        .prop_map(|parts| parts.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn words_are_the_matches_of_the_pattern(text in text()) {
            for case in PATTERNS.iter() {
                let words: Vec<&str> = case.0.words(&text).collect();
                prop_assert_eq!(&words, &by_pattern(case, &text), "{:?}", case.0.names);
                prop_assert_eq!(words.concat(), text.as_str());
            }
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = RULES.iter().flat_map(|r| r.names).copied().collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|w| w[0] != w[1]));
    }
}
