//! The vocabulary: token bytes in one flat buffer, kinds, and the way back from bytes to ids.

use crate::bytemap;
use crate::error::TextError;
use crate::hash::Index;

/// What a token is for, numbered as in `tokenizer.ggml.token_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum TokenKind {
    /// A piece of text.
    Normal = 1,
    /// Stands for text that no other token covers.
    Unknown = 2,
    /// Structure such as the end of a turn; never part of a user's text.
    Control = 3,
    /// A piece of text that is matched before everything else.
    UserDefined = 4,
    /// A placeholder without meaning.
    Unused = 5,
    /// One byte, spelled `<0xHH>` in the file.
    Byte = 6,
}

impl TokenKind {
    fn from_id(id: i32) -> Option<Self> {
        use TokenKind::{Byte, Control, Normal, Unknown, Unused, UserDefined};
        [Normal, Unknown, Control, UserDefined, Unused, Byte].into_iter().find(|k| *k as i32 == id)
    }
}

/// How text is written inside tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// A space is U+2581, bytes are `<0xHH>` tokens.
    Spaces,
    /// Every byte is one printable character (the GPT-2 alphabet).
    ByteLevel,
}

/// The character that stands for a space inside tokens.
pub(crate) const SPACE_MARK: &str = "\u{2581}";

/// Tokens as the bytes that they add to a text. Ids are places in the list.
pub(crate) struct Vocab {
    bytes: Vec<u8>,
    /// Token `i` is `bytes[ends[i]..ends[i + 1]]`.
    ends: Vec<u32>,
    kinds: Vec<TokenKind>,
    /// Finds pieces of text: normal and user-defined tokens. Control tokens are not in it, so no sequence of
    /// merges can produce one.
    index: Index,
    /// Two pieces of text have the same bytes; the first is found.
    repeated: bool,
    /// Ids of the byte tokens.
    byte_ids: [Option<u32>; 256],
}

impl Vocab {
    /// Reads a vocabulary. `kinds` may be absent: then every token is normal.
    ///
    /// # Errors
    /// Lengths that differ, unknown kinds, byte tokens that do not name a byte.
    pub(crate) fn new(
        tokens: &[String],
        kinds: Option<&[i32]>,
        spelling: Spelling,
    ) -> Result<Self, TextError> {
        let total: usize = tokens.iter().map(String::len).sum();
        if u32::try_from(total).is_err() || u32::try_from(tokens.len()).is_err() {
            return Err(TextError::VocabularySize { bytes: total });
        }
        if let Some(found) = kinds.map(<[i32]>::len).filter(|n| *n != tokens.len()) {
            return Err(TextError::Length {
                key: "tokenizer.ggml.token_type",
                found,
                expected: tokens.len(),
            });
        }
        let mut vocab = Self {
            bytes: Vec::with_capacity(total),
            ends: Vec::with_capacity(tokens.len() + 1),
            kinds: Vec::with_capacity(tokens.len()),
            index: Index::with_capacity(tokens.len()),
            repeated: false,
            byte_ids: [None; 256],
        };
        vocab.ends.push(0);
        for (id, text) in tokens.iter().enumerate() {
            let kind = kinds.map_or(Some(TokenKind::Normal), |k| TokenKind::from_id(k[id]));
            let bad = |reason| TextError::Token { id, text: text.clone(), reason };
            let kind = kind.ok_or_else(|| bad("its type is not one of 1 to 6"))?;
            vocab.push(text, kind, spelling).map_err(bad)?;
        }
        Ok(vocab)
    }

    fn push(&mut self, text: &str, kind: TokenKind, spelling: Spelling) -> Result<(), &'static str> {
        let id = self.kinds.len() as u32;
        let byte = byte_of(text);
        let spelled = spelling == Spelling::Spaces && byte.is_some() && kind == TokenKind::Normal;
        let kind = if spelled { TokenKind::Byte } else { kind };
        let start = self.bytes.len();
        match kind {
            TokenKind::Byte => {
                let byte = byte.ok_or("a byte token is spelled <0x00> to <0xFF>")?;
                self.bytes.push(byte);
                self.byte_ids[usize::from(byte)].get_or_insert(id);
            }
            TokenKind::Normal => unescape(text, spelling, &mut self.bytes),
            TokenKind::UserDefined if spelling == Spelling::Spaces => {
                unescape(text, spelling, &mut self.bytes)
            }
            _ => self.bytes.extend_from_slice(text.as_bytes()),
        }
        self.ends.push(self.bytes.len() as u32);
        self.kinds.push(kind);
        if matches!(kind, TokenKind::Normal | TokenKind::UserDefined) {
            let (bytes, ends) = (&self.bytes, &self.ends);
            self.repeated |= !self.index.insert(&bytes[start..], id, |i| slice(bytes, ends, i));
        }
        Ok(())
    }

    /// Number of tokens.
    pub(crate) fn len(&self) -> usize {
        self.kinds.len()
    }

    /// The bytes that a token adds to a text; empty for ids outside the vocabulary.
    pub(crate) fn bytes(&self, id: u32) -> &[u8] {
        if (id as usize) < self.len() { slice(&self.bytes, &self.ends, id) } else { &[] }
    }

    /// A token's kind, if the id exists.
    pub(crate) fn kind(&self, id: u32) -> Option<TokenKind> {
        self.kinds.get(id as usize).copied()
    }

    /// Changes a token's kind to [`TokenKind::Control`].
    pub(crate) fn make_control(&mut self, id: u32) {
        self.kinds[id as usize] = TokenKind::Control;
    }

    /// The piece of text with these bytes.
    pub(crate) fn find(&self, bytes: &[u8]) -> Option<u32> {
        let found = self.index.get(bytes, |i| slice(&self.bytes, &self.ends, i))?;
        // A token may have become a control token after it was indexed.
        (self.kinds[found as usize] != TokenKind::Control).then_some(found)
    }

    /// Whether it is certain, without a search, that [`Vocab::find`] gives this id for these bytes.
    pub(crate) fn is_found(&self, id: u32, bytes: &[u8]) -> bool {
        let piece = matches!(self.kind(id), Some(TokenKind::Normal | TokenKind::UserDefined));
        piece && !self.repeated && self.bytes(id) == bytes
    }

    /// The id of the byte token for a byte.
    pub(crate) fn byte(&self, byte: u8) -> Option<u32> {
        self.byte_ids[usize::from(byte)]
    }
}

fn slice<'a>(bytes: &'a [u8], ends: &[u32], id: u32) -> &'a [u8] {
    &bytes[ends[id as usize] as usize..ends[id as usize + 1] as usize]
}

/// Appends the bytes that a token's spelling means.
pub(crate) fn unescape(text: &str, spelling: Spelling, out: &mut Vec<u8>) {
    match spelling {
        Spelling::ByteLevel => bytemap::decode(text, out),
        Spelling::Spaces => {
            let mut rest = text.as_bytes();
            while let Some((&byte, tail)) = rest.split_first() {
                let after = rest.strip_prefix(SPACE_MARK.as_bytes());
                out.push(if after.is_some() { b' ' } else { byte });
                rest = after.unwrap_or(tail);
            }
        }
    }
}

/// The byte that `<0xHH>` names.
fn byte_of(text: &str) -> Option<u8> {
    let hex = text.strip_prefix("<0x")?.strip_suffix('>')?;
    let valid = hex.len() == 2 && hex.bytes().all(|b| b.is_ascii_hexdigit());
    if valid { u8::from_str_radix(hex, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vocab(tokens: &[&str], kinds: &[i32]) -> Result<Vocab, TextError> {
        let tokens: Vec<String> = tokens.iter().map(ToString::to_string).collect();
        Vocab::new(&tokens, Some(kinds), Spelling::Spaces)
    }

    #[test]
    fn byte_tokens_must_name_a_byte() {
        for bad in ["<0x-1>", "<0xZZ>", "<0x+1>", "<0x100>", "<0x1>", "<0x>", "0x41", "", "<0xé>"] {
            assert!(matches!(vocab(&["a", bad], &[1, 6]), Err(TextError::Token { id: 1, .. })), "{bad}");
        }
        assert_eq!(vocab(&["<0x41>"], &[6]).unwrap().byte(b'A'), Some(0));
    }

    #[test]
    fn kinds_and_lengths_are_checked() {
        assert!(matches!(vocab(&["a"], &[0]), Err(TextError::Token { id: 0, .. })));
        assert!(matches!(vocab(&["a"], &[1, 1]), Err(TextError::Length { found: 2, expected: 1, .. })));
    }

    #[test]
    fn only_pieces_of_text_are_found() {
        let v = vocab(&["<eos>", "\u{2581}a", "<unused>", "b", "b"], &[3, 1, 5, 4, 1]).unwrap();
        assert_eq!(
            [v.find(b"<eos>"), v.find(b" a"), v.find(b"<unused>"), v.find(b"b")],
            [None, Some(1), None, Some(3)]
        );
        assert_eq!(v.bytes(99), b"");
    }
}
