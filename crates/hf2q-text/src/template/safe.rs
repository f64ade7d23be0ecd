//! Prompts whose control tokens come from the template alone.
//!
//! A message may hold the spelling of a control token, such as the end of a turn. In the rendered text the two
//! cannot be told apart, so the prompt is rendered once more with an invisible mark inside each spelling that the
//! request holds, whole or in part: where the second text has a mark, the first has text from a message. Marks
//! are a character that occurs nowhere in the request.
//!
//! A template may look into a message (cut out a thought that ends with a control token, say), and then a mark
//! inside the spelling changes what it does. So the second text, without its marks, must equal the first. If not,
//! each spelling is tried alone, with the mark inside, before and after it. If none of these leaves the text as it
//! was, the text with all marks inside is used: the message stays text, the template just does not see the
//! spelling there.

use std::collections::HashSet;

use serde_json::Value as Json;

use super::{ChatRequest, ChatTemplate};
use crate::error::TextError;
use crate::tokenizer::Tokenizer;

/// Spellings that are tried one by one; beyond that many, the text with all marks is used.
const MAX_TRIALS: usize = 16;

/// A spelling, or part of one, in a string of the request.
struct Hazard {
    /// Which string, in the order of [`for_each_string`].
    string: usize,
    /// Where the spelling starts, the place inside it for a mark, and where it ends.
    places: [usize; 3],
}

impl ChatTemplate {
    /// Renders and encodes a prompt. Control tokens come from the template only: their spelling inside messages,
    /// tools and extra variables stays text. The text that is encoded equals [`ChatTemplate::render`]'s. There is
    /// one beginning-of-text token if the file asks for one, whether the template writes it or not.
    ///
    /// The value of `role` may complete a spelling, as templates write `<|role|>`, but not hold a whole one.
    ///
    /// # Errors
    /// As [`ChatTemplate::render`].
    pub fn encode_chat(
        &self,
        tokenizer: &Tokenizer,
        request: &ChatRequest<'_>,
    ) -> Result<Vec<u32>, TextError> {
        let (text, barred) = self.render_safe(tokenizer, request)?;
        let free = |range: std::ops::Range<usize>| {
            let next = barred.partition_point(|at| *at <= range.start);
            barred.get(next).is_none_or(|at| *at >= range.end)
        };
        let mut ids = tokenizer.encode_where(&text, free);
        tokenizer.add_bos(&mut ids);
        Ok(ids)
    }

    /// A prompt, and the places inside it, ascending, that no control token may span.
    fn render_safe(
        &self,
        tokenizer: &Tokenizer,
        request: &ChatRequest<'_>,
    ) -> Result<(String, Vec<usize>), TextError> {
        let plain = self.render(request)?;
        let hazards = Scanner::new(tokenizer).scan(request);
        if hazards.is_empty() {
            return Ok((plain, Vec::new()));
        }
        let mark = free_character(request, &plain);
        let all = hazards.iter().map(|h| (h.string, h.places[1])).collect();
        let marked = self.render_marked(request, all, mark);
        if let Ok((text, places)) = &marked
            && *text == plain
        {
            return Ok((plain, places.clone()));
        }
        match self.try_each(request, &hazards, (&plain, mark)) {
            Some(places) => Ok((plain, places)),
            None => marked,
        }
    }

    /// Finds where each hazard alone ends up in the plain text.
    fn try_each(
        &self,
        request: &ChatRequest<'_>,
        hazards: &[Hazard],
        (plain, mark): (&str, char),
    ) -> Option<Vec<usize>> {
        if hazards.len() > MAX_TRIALS {
            return None;
        }
        let mut barred = Vec::new();
        for hazard in hazards {
            let [start, inside, end] = hazard.places;
            let found = [inside, start, end].into_iter().find_map(|place| {
                let (text, places) = self.render_marked(request, vec![(hazard.string, place)], mark).ok()?;
                // The spelling surrounds the mark as it did in the message, unless the template took it away.
                let shift = |at: usize| (at + inside).checked_sub(place);
                (text == plain).then(|| places.into_iter().filter_map(shift).collect::<Vec<_>>())
            })?;
            barred.extend(found);
        }
        barred.sort_unstable();
        Some(barred)
    }

    /// Renders with marks at places in the request's strings; returns the text without marks, and where they were.
    fn render_marked(
        &self,
        request: &ChatRequest<'_>,
        mut marks: Vec<(usize, usize)>,
        mark: char,
    ) -> Result<(String, Vec<usize>), TextError> {
        marks.sort_unstable();
        marks.dedup();
        let mut marker = Marker { marks: &marks, mark, string: 0 };
        let messages: Json = request.messages.iter().map(|m| marker.value(m)).collect();
        let tools: Json = request.tools.iter().map(|t| marker.value(t)).collect();
        let extra = marker.fields(&request.extra);
        let request = ChatRequest { extra, ..request.clone() };
        let text = self.render_messages(&request, &messages, &tools)?;
        let mut places = Vec::new();
        let mut plain = String::with_capacity(text.len());
        for (i, part) in text.split(mark).enumerate() {
            if i > 0 {
                places.push(plain.len());
            }
            plain.push_str(part);
        }
        Ok((plain, places))
    }
}

/// Calls `each` with every string of a request, keys included, and whether it is the value of `role`.
fn for_each_string(request: &ChatRequest<'_>, mut each: impl FnMut(&str, bool)) {
    fn walk(value: &Json, is_role: bool, each: &mut impl FnMut(&str, bool)) {
        match value {
            Json::String(text) => each(text, is_role),
            Json::Array(items) => items.iter().for_each(|v| walk(v, false, each)),
            Json::Object(fields) => fields.iter().for_each(|(key, v)| {
                each(key, false);
                walk(v, key == "role", each);
            }),
            _ => {}
        }
    }
    request.messages.iter().chain(request.tools).for_each(|v| walk(v, false, &mut each));
    for (key, value) in &request.extra {
        each(key, false);
        walk(value, false, &mut each);
    }
}

/// Copies values with marks in their strings. Visits them in the order of [`for_each_string`].
struct Marker<'m> {
    /// String and place, ascending.
    marks: &'m [(usize, usize)],
    mark: char,
    string: usize,
}

impl Marker<'_> {
    fn value(&mut self, value: &Json) -> Json {
        match value {
            Json::String(text) => Json::String(self.text(text)),
            Json::Array(items) => items.iter().map(|v| self.value(v)).collect(),
            Json::Object(fields) => Json::Object(self.fields(fields)),
            other => other.clone(),
        }
    }

    fn fields(&mut self, fields: &serde_json::Map<String, Json>) -> serde_json::Map<String, Json> {
        fields.iter().map(|(key, value)| (self.text(key), self.value(value))).collect()
    }

    fn text(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut from = 0;
        let first = self.marks.partition_point(|(string, _)| *string < self.string);
        for (_, at) in self.marks[first..].iter().take_while(|(string, _)| *string == self.string) {
            out.push_str(&text[from..*at]);
            out.push(self.mark);
            from = *at;
        }
        self.string += 1;
        out + &text[from..]
    }
}

/// A character that neither the request nor the prompt holds, from the private use planes.
fn free_character(request: &ChatRequest<'_>, plain: &str) -> char {
    let private = ('\u{f0000}'..='\u{ffffd}').chain('\u{100000}'..='\u{10fffd}');
    let mut used: HashSet<char> = plain.chars().filter(|c| *c >= '\u{f0000}').collect();
    for_each_string(request, |text, _| used.extend(text.chars().filter(|c| *c >= '\u{f0000}')));
    private.into_iter().find(|c| !used.contains(c)).unwrap_or('\u{fdd0}')
}

/// Finds spellings of control tokens.
struct Scanner<'t> {
    tokenizer: &'t Tokenizer,
    spellings: Vec<&'t str>,
    /// All spellings, each between two zeros.
    joined: String,
    /// Characters that spellings start with, and end with, except letters and digits.
    heads: HashSet<char>,
    tails: HashSet<char>,
    longest: usize,
}

impl<'t> Scanner<'t> {
    fn new(tokenizer: &'t Tokenizer) -> Self {
        let spellings: Vec<&str> = tokenizer.control_spellings().collect();
        let sign = |c: Option<char>| c.filter(|c| !c.is_alphanumeric());
        let heads = spellings.iter().filter_map(|s| sign(s.chars().next())).collect();
        let tails = spellings.iter().filter_map(|s| sign(s.chars().next_back())).collect();
        let longest = spellings.iter().map(|s| s.len()).max().unwrap_or(0);
        let joined = format!("\0{}\0", spellings.join("\0"));
        Self { tokenizer, spellings, joined, heads, tails, longest }
    }

    fn scan(&self, request: &ChatRequest<'_>) -> Vec<Hazard> {
        let mut hazards = Vec::new();
        let mut string = 0;
        for_each_string(request, |text, is_role| {
            let mut add = |places| hazards.push(Hazard { string, places });
            self.whole(text, &mut add);
            if !is_role {
                self.partial(text, &mut add);
            }
            string += 1;
        });
        hazards
    }

    /// Whole spellings, those that overlap included.
    fn whole(&self, text: &str, add: &mut impl FnMut([usize; 3])) {
        let mut from = 0;
        while let Some(found) = self.tokenizer.find_control(text, from) {
            let first = text[found.start..].chars().next().map_or(1, char::len_utf8);
            add([found.start, found.start + first, found.end]);
            from = found.start + first;
        }
    }

    /// Parts of spellings that neighbouring text could complete: at the end, at the start, or all of a string.
    /// Parts of letters, digits and `_` alone are left out in the last case; every word would count.
    fn partial(&self, text: &str, add: &mut impl FnMut([usize; 3])) {
        let near_end = text.char_indices().rev().take_while(|(at, _)| text.len() - at < self.longest);
        for (at, _) in near_end.filter(|(_, c)| self.heads.contains(c)) {
            if self.spellings.iter().any(|s| s.len() > text.len() - at && s.starts_with(&text[at..])) {
                add([at, text.len(), text.len()]);
            }
        }
        let ends = text.char_indices().map(|(at, c)| (at + c.len_utf8(), c));
        let near_start = ends.take_while(|(end, _)| *end < self.longest);
        for (end, _) in near_start.filter(|(_, c)| self.tails.contains(c)) {
            if self.spellings.iter().any(|s| s.len() > end && s.ends_with(&text[..end])) {
                add([0, 0, end]);
            }
        }
        let short = text.len() < self.longest && text.contains(|c: char| !c.is_alphanumeric() && c != '_');
        if short && self.joined.contains(text) {
            add([0, 0, text.len()]);
        }
    }
}
