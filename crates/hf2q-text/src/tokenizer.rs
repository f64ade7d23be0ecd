//! The tokenizer: text to ids and back.

use std::borrow::Cow;
use std::ops::Range;

use hf2q_gguf::Metadata;
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

use crate::added::Added;
use crate::detokenize::{Controls, Detokenizer};
use crate::error::TextError;
use crate::merge::{Merger, Merges, Scores};
use crate::parts::TokenizerParts;
use crate::special::{Special, is_marker};
use crate::split::{RULES, Rule};
use crate::vocab::{SPACE_MARK, Spelling, TokenKind, Vocab};

/// What the spelling of a control token in a text means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Specials {
    /// It becomes the control token. For prompts whose author may use them.
    Parse,
    /// It stays text. For what users write.
    AsText,
}

/// Turns text into token ids and back, as the model was trained.
///
/// Built once per model; all methods take `&self` and may run in several threads.
pub struct Tokenizer {
    pub(crate) vocab: Vocab,
    model: Model,
    /// Control, unknown and user-defined tokens: matched in the text before merging.
    added: Added,
    special: Special,
    /// A space is put before each run of text between added tokens, and taken from the start of decoded text.
    pub(crate) space_prefix: bool,
}

enum Model {
    /// SentencePiece: merges by score.
    Scores(Scores),
    /// Merge rules over text that is not cut into words.
    Merges(Merges),
    /// Merge rules over the bytes of words.
    Words(Merges, &'static Rule),
}

/// Longer runs of text are cut, so that 32-bit offsets suffice.
const MAX_RUN: usize = 1 << 30;

impl Tokenizer {
    /// Builds the tokenizer that a file describes.
    ///
    /// # Errors
    /// Missing keys, an unknown model or pre-tokenizer (named), damaged vocabularies.
    pub fn from_metadata(metadata: &Metadata) -> Result<Self, TextError> {
        Self::from_parts(&TokenizerParts::from_metadata(metadata)?)
    }

    /// Builds a tokenizer from its parts.
    ///
    /// # Errors
    /// As [`Tokenizer::from_metadata`].
    pub fn from_parts(parts: &TokenizerParts<'_>) -> Result<Self, TextError> {
        // Some writers name Gemma 4 as a pre-tokenizer of `gpt2`.
        let model = if parts.pre == Some("gemma4") { "gemma4" } else { parts.model };
        let spelling = if model == "gpt2" { Spelling::ByteLevel } else { Spelling::Spaces };
        let rule = match model {
            "llama" | "gemma4" => None,
            "gpt2" => Some(rule(parts.pre)?),
            found => return Err(TextError::UnknownModel { found: found.into() }),
        };
        let mut vocab = Vocab::new(parts.tokens, parts.kinds.as_deref(), spelling)?;
        let special = Special::new(parts, &mut vocab, rule.map_or(model != "gpt2", |r| r.add_bos))?;
        let merges = || -> Result<Merges, TextError> {
            let missing = || TextError::Length { key: "tokenizer.ggml.merges", found: 0, expected: 1 };
            Merges::new(parts.merges.ok_or_else(missing)?, &vocab, spelling)
        };
        let model = match (model, rule) {
            ("llama", _) => Model::Scores(Scores::new(parts.scores.unwrap_or(&[]), parts.tokens)?),
            (_, Some(rule)) => Model::Words(merges()?, rule),
            _ => Model::Merges(merges()?),
        };
        let added = added(&vocab, parts.tokens, spelling);
        let scores = matches!(model, Model::Scores(_));
        Ok(Self {
            vocab,
            model,
            added,
            special,
            space_prefix: parts.add_space_prefix.unwrap_or(scores) && scores,
        })
    }

    /// Encodes a text, with nothing added at its ends. User-defined tokens are matched either way.
    pub fn encode(&self, text: &str, specials: Specials) -> Vec<u32> {
        self.encode_where(text, |_| specials == Specials::Parse)
    }

    /// Encodes a raw prompt: as [`Tokenizer::encode`], with the beginning- and end-of-text tokens that the file
    /// asks for. Each is there once: a text that is parsed and starts with the token's own spelling gets no second.
    pub fn encode_prompt(&self, text: &str, specials: Specials) -> Vec<u32> {
        let mut ids = self.encode(text, specials);
        self.add_ends(&mut ids);
        ids
    }

    /// Adds the beginning- and end-of-text tokens that the file asks for where they are not there yet.
    pub fn add_ends(&self, ids: &mut Vec<u32>) {
        self.add_bos(ids);
        if let Some(eos) = self.special.eos.filter(|e| self.special.add_eos && ids.last() != Some(e)) {
            ids.push(eos);
        }
    }

    pub(crate) fn add_bos(&self, ids: &mut Vec<u32>) {
        if let Some(bos) = self.special.bos.filter(|b| self.special.add_bos && ids.first() != Some(b)) {
            ids.insert(0, bos);
        }
    }

    /// Encodes a text; `parse` says for the range of a control token's spelling whether it becomes the token.
    pub(crate) fn encode_where(&self, text: &str, parse: impl Fn(Range<usize>) -> bool) -> Vec<u32> {
        if self.spelling() == Spelling::ByteLevel || !text.contains(SPACE_MARK) {
            return self.encode_spaced(text, parse);
        }
        // The character that stands for a space means a space here too. What follows one moves by two bytes.
        let marks = text.match_indices(SPACE_MARK).enumerate();
        let marks: Vec<usize> = marks.map(|(i, (at, mark))| at - i * (mark.len() - 1)).collect();
        let original = |at: usize| at + 2 * marks.partition_point(|m| *m < at);
        self.encode_spaced(&text.replace(SPACE_MARK, " "), |r| parse(original(r.start)..original(r.end)))
    }

    fn encode_spaced(&self, text: &str, parse: impl Fn(Range<usize>) -> bool) -> Vec<u32> {
        let accept = |id: u32, range: Range<usize>| !self.is_control(id) || parse(range);
        let mut run =
            Run { tokenizer: self, merger: Merger::default(), ids: Vec::with_capacity(text.len() / 3) };
        let mut at = 0;
        while let Some(found) = self.added.find(text.as_bytes(), at, accept) {
            run.encode(&text[at..found.range.start]);
            run.ids.push(found.id);
            at = found.range.end;
        }
        run.encode(&text[at..]);
        run.ids
    }

    fn spelling(&self) -> Spelling {
        if matches!(self.model, Model::Words(..)) { Spelling::ByteLevel } else { Spelling::Spaces }
    }

    /// Decodes ids. Bytes that are not UTF-8 become U+FFFD. Ids outside the vocabulary are skipped.
    pub fn decode(&self, ids: &[u32], controls: Controls) -> String {
        let mut detokenizer = self.detokenizer(controls);
        let mut text = String::new();
        for &id in ids {
            detokenizer.push_to(id, &mut text);
        }
        text + &detokenizer.finish()
    }

    /// Decodes ids one by one as they are generated.
    pub fn detokenizer(&self, controls: Controls) -> Detokenizer<'_> {
        Detokenizer::new(self, controls)
    }

    /// The bytes that a token adds to a text: part of a character for some; the spelling for control tokens; empty
    /// for ids outside the vocabulary.
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        self.vocab.bytes(id)
    }

    /// A token as text, with U+FFFD for bytes that are no whole character.
    pub fn token_text(&self, id: u32) -> Cow<'_, str> {
        String::from_utf8_lossy(self.token_bytes(id))
    }

    /// What a token is for, if the id exists.
    pub fn token_kind(&self, id: u32) -> Option<TokenKind> {
        self.vocab.kind(id)
    }

    /// Number of tokens. A model may have more rows of logits; ids from here on decode to nothing.
    pub fn vocab_len(&self) -> usize {
        self.vocab.len()
    }

    /// The id of the beginning-of-text token.
    pub fn bos(&self) -> Option<u32> {
        self.special.bos
    }

    /// The id of the end-of-text token.
    pub fn eos(&self) -> Option<u32> {
        self.special.eos
    }

    /// The id of the end-of-turn token, if the file names one.
    pub fn eot(&self) -> Option<u32> {
        self.special.eot
    }

    /// All ids after which a generation ends, ascending.
    pub fn stop_ids(&self) -> &[u32] {
        &self.special.stop
    }

    /// Whether a token is structure rather than text.
    pub fn is_control(&self, id: u32) -> bool {
        matches!(self.vocab.kind(id), Some(TokenKind::Control | TokenKind::Unknown))
    }

    /// The id of a control or user-defined token with this exact text.
    pub fn special_id(&self, text: &str) -> Option<u32> {
        let whole = |_: u32, range: Range<usize>| range == (0..text.len());
        let found = self.added.find(text.as_bytes(), 0, whole)?;
        Some(found.id)
    }

    /// The first control token's spelling at or after `from`.
    pub(crate) fn find_control(&self, text: &str, from: usize) -> Option<Range<usize>> {
        self.added.find(text.as_bytes(), from, |id, _| self.is_control(id)).map(|found| found.range)
    }

    /// Spellings of the control tokens.
    pub(crate) fn control_spellings(&self) -> impl Iterator<Item = &str> {
        let controls = self.added.iter().filter(|(_, id)| self.is_control(*id));
        controls.filter_map(|(text, _)| std::str::from_utf8(text).ok())
    }
}

/// The pre-tokenizer that a file names.
fn rule(pre: Option<&str>) -> Result<&'static Rule, TextError> {
    let name = pre.unwrap_or("default");
    Rule::named(name).ok_or_else(|| {
        let known: Vec<&str> = RULES.iter().flat_map(|r| r.names).copied().collect();
        TextError::UnknownPre { found: name.into(), known: known.join(", ") }
    })
}

/// Collects the tokens that are matched before merging, as they look in a text whose spaces are spaces.
fn added(vocab: &Vocab, tokens: &[String], spelling: Spelling) -> Added {
    let ids = (0..vocab.len() as u32).filter(|id| {
        let kind = vocab.kind(*id);
        matches!(kind, Some(TokenKind::Control | TokenKind::Unknown | TokenKind::UserDefined))
    });
    let text = |id: u32| {
        let text = tokens[id as usize].as_str();
        let marked = spelling == Spelling::Spaces && text.contains(SPACE_MARK);
        if marked { Cow::Owned(text.replace(SPACE_MARK, " ")) } else { Cow::Borrowed(text) }
    };
    Added::new(ids.map(|id| (text(id), id)))
}

/// One encoding in progress.
struct Run<'t> {
    tokenizer: &'t Tokenizer,
    merger: Merger,
    ids: Vec<u32>,
}

impl Run<'_> {
    /// Encodes text in which nothing is matched any more.
    fn encode(&mut self, mut text: &str) {
        while text.len() > MAX_RUN {
            let mut cut = MAX_RUN;
            while !text.is_char_boundary(cut) {
                cut -= 1;
            }
            self.encode_run(&text[..cut]);
            text = &text[cut..];
        }
        if !text.is_empty() {
            self.encode_run(text);
        }
    }

    fn encode_run(&mut self, text: &str) {
        match &self.tokenizer.model {
            Model::Words(merges, rule) if rule.nfc && is_nfc_quick(text.chars()) != IsNormalized::Yes => {
                self.words(&text.nfc().collect::<String>(), merges, rule);
            }
            Model::Words(merges, rule) => self.words(text, merges, rule),
            Model::Merges(merges) => self.pieces(text, merges),
            Model::Scores(scores) if self.tokenizer.space_prefix => self.pieces(&format!(" {text}"), scores),
            Model::Scores(scores) => self.pieces(text, scores),
        }
    }

    fn words(&mut self, text: &str, merges: &Merges, rule: &Rule) {
        let vocab = &self.tokenizer.vocab;
        let ids = &mut self.ids;
        for word in rule.words(text) {
            let bytes = word.as_bytes();
            if let Some(id) = vocab.find(bytes).filter(|_| rule.whole_words) {
                ids.push(id);
                continue;
            }
            let start = (bytes, bytes.iter().map(|_| 1));
            // A byte without a token is dropped: such a vocabulary has no token for unknown text.
            self.merger.run(start, (merges, vocab), |piece| ids.extend(vocab.find(piece)));
        }
    }

    fn pieces(&mut self, text: &str, rules: &impl crate::merge::Rules) {
        let Tokenizer { vocab, special, .. } = self.tokenizer;
        let ids = &mut self.ids;
        let start = (text.as_bytes(), text.chars().map(char::len_utf8));
        let mut in_unknown = false;
        self.merger.run(start, (rules, vocab), |piece| {
            let known = vocab.find(piece);
            let covered = known.is_some() || piece.iter().all(|b| vocab.byte(*b).is_some());
            match known {
                Some(id) => ids.push(id),
                None if covered => ids.extend(piece.iter().filter_map(|b| vocab.byte(*b))),
                // A run of unknown characters is one token.
                None if !in_unknown => ids.extend(special.unknown),
                None => {}
            }
            in_unknown = !covered;
        });
    }
}

/// Whether a user-defined token is really structure: some converters mark those of a turn as user-defined, so that
/// they are shown, and a user's text must not become them.
pub(crate) fn is_disguised_control(kind: TokenKind, text: &str) -> bool {
    kind == TokenKind::UserDefined && is_marker(text)
}
