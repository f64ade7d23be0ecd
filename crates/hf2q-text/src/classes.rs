//! Character classes of the pre-tokenizers.

use std::sync::LazyLock;

use regex_syntax::hir::{Class, HirKind};

/// What a character is, as far as pre-tokenizers care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CharClass {
    /// `\p{L}`
    Letter,
    /// `\p{M}`
    Mark,
    /// `\p{N}`
    Number,
    /// `\s`
    Space,
    /// Anything else.
    Other,
}

/// One bit per code point.
pub(crate) struct BitSet(Vec<u64>);

impl BitSet {
    /// The members of a character class, written as a regular expression.
    pub(crate) fn property(name: &str) -> Self {
        let hir = regex_syntax::parse(name).expect("the pattern is one of our constants");
        let mut bits = vec![0; 0x11_0000 / 64];
        if let HirKind::Class(Class::Unicode(class)) = hir.kind() {
            for range in class.ranges() {
                for code in range.start() as u32..=range.end() as u32 {
                    bits[code as usize / 64] |= 1 << (code % 64);
                }
            }
        }
        Self(bits)
    }

    pub(crate) fn has(&self, c: char) -> bool {
        self.0[c as usize / 64] >> (c as u32 % 64) & 1 == 1
    }
}

static LETTERS: LazyLock<BitSet> = LazyLock::new(|| BitSet::property(r"\p{L}"));
static NUMBERS: LazyLock<BitSet> = LazyLock::new(|| BitSet::property(r"\p{N}"));
static MARKS: LazyLock<BitSet> = LazyLock::new(|| BitSet::property(r"\p{M}"));

/// The class of a character.
pub(crate) fn class(c: char) -> CharClass {
    match c {
        'a'..='z' | 'A'..='Z' => CharClass::Letter,
        '0'..='9' => CharClass::Number,
        ' ' | '\t'..='\r' => CharClass::Space,
        '\0'..='\x7f' => CharClass::Other,
        _ if LETTERS.has(c) => CharClass::Letter,
        _ if c.is_whitespace() => CharClass::Space,
        _ if NUMBERS.has(c) => CharClass::Number,
        _ if MARKS.has(c) => CharClass::Mark,
        _ => CharClass::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortcuts_agree_with_the_properties() {
        let named = [
            (r"\p{L}", CharClass::Letter),
            (r"\p{M}", CharClass::Mark),
            (r"\p{N}", CharClass::Number),
            (r"\s", CharClass::Space),
        ];
        for (name, expected) in named {
            let set = BitSet::property(name);
            let wrong = ('\0'..=char::MAX).find(|c| set.has(*c) != (class(*c) == expected));
            assert_eq!(wrong, None, "{name}");
        }
        assert_eq!(['é', '中', '\u{301}', '€'].map(class), {
            use CharClass::{Letter, Mark, Other};
            [Letter, Letter, Mark, Other]
        });
    }
}
