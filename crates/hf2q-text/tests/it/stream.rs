//! Streams: whatever comes in pieces equals what comes at once.

use hf2q_text::{Controls, StopStrings};
use proptest::prelude::*;

use crate::{VOCABULARIES, tokenizer};

#[test]
fn random_ids_stream_as_they_decode() {
    for name in VOCABULARIES {
        let tokenizer = tokenizer(name);
        let top = tokenizer.vocab_len() as u32 + 3;
        let config = ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() };
        let ids = proptest::collection::vec(prop_oneof![0..top, 0..400.min(top)], 0..40);
        proptest!(config, |(ids in ids)| {
            for controls in [Controls::Show, Controls::Skip] {
                let mut detokenizer = tokenizer.detokenizer(controls);
                let mut text: String = ids.iter().map(|id| detokenizer.push(*id)).collect();
                text += &detokenizer.finish();
                prop_assert_eq!(&text, &tokenizer.decode(&ids, controls));
                // The definition: all bytes at once, lossily.
                let shown = ids.iter().filter(|id| controls == Controls::Show || !tokenizer.is_control(**id));
                let bytes: Vec<u8> = shown.flat_map(|id| tokenizer.token_bytes(*id)).copied().collect();
                let whole = String::from_utf8_lossy(&bytes);
                prop_assert!(text == whole || whole.replacen(' ', "", 1) == text, "{}", name);
            }
        });
    }
}

#[test]
fn a_split_character_is_whole_or_one_replacement() {
    let tokenizer = tokenizer("demo");
    let ids = tokenizer.encode("😀", hf2q_text::Specials::AsText);
    assert_eq!(ids.len(), 4);
    let mut detokenizer = tokenizer.detokenizer(Controls::Show);
    let texts: Vec<String> = ids.iter().map(|id| detokenizer.push(*id)).collect();
    assert_eq!(texts, ["", "", "", "😀"]);
    assert_eq!(detokenizer.finish(), "");

    let mut detokenizer = tokenizer.detokenizer(Controls::Show);
    let letter = tokenizer.encode("a", hf2q_text::Specials::AsText)[0];
    assert_eq!(
        [detokenizer.push(ids[0]), detokenizer.push(ids[1]), detokenizer.push(letter)],
        ["", "", "\u{fffd}a"]
    );
    assert_eq!([detokenizer.push(ids[2]), detokenizer.push(letter)], ["\u{fffd}", "a"]);
    assert_eq!([detokenizer.push(ids[0]), detokenizer.push(ids[1])], ["", ""]);
    assert_eq!(detokenizer.finish(), "\u{fffd}");
}

#[test]
fn the_prefix_space_is_taken_once() {
    let tokenizer = tokenizer("spm-prefix");
    let ids = tokenizer.encode("  two words", hf2q_text::Specials::AsText);
    assert_eq!(tokenizer.decode(&ids, Controls::Show), "  two words");
    let word = tokenizer.encode("a", hf2q_text::Specials::AsText);
    let mut detokenizer = tokenizer.detokenizer(Controls::Show).mid_text();
    assert_eq!(word.iter().map(|id| detokenizer.push(*id)).collect::<String>(), " a");
}

/// Cuts a text into pieces at characters.
fn pieces(text: &str, cuts: &[usize]) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let mut cuts: Vec<usize> = cuts.iter().map(|c| c % (chars.len() + 1)).chain([0, chars.len()]).collect();
    cuts.sort_unstable();
    cuts.windows(2).map(|w| chars[w[0]..w[1]].iter().collect()).collect()
}

/// What a list of stop strings leaves of a text, straight from the definition.
fn cut(text: &str, stops: &[String]) -> (String, bool) {
    let found = stops
        .iter()
        .filter(|s| !s.is_empty())
        .filter_map(|s| text.find(s.as_str()).map(|at| (at + s.len(), at)));
    found.min().map_or((text.to_owned(), false), |(_, at)| (text[..at].to_owned(), true))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn stop_strings_do_not_depend_on_the_cuts(
        text in "[abé]{0,14}",
        stops in proptest::collection::vec("[abé]{0,4}", 0..4),
        cuts in proptest::collection::vec(0usize..20, 0..8),
    ) {
        let mut watcher = StopStrings::new(stops.clone());
        let mut shown: String = pieces(&text, &cuts).iter().map(|p| watcher.push(p)).collect();
        let stopped = watcher.is_stopped();
        shown += &watcher.finish();
        prop_assert_eq!((shown, stopped), cut(&text, &stops));
        prop_assert_eq!(watcher.found().is_some(), stopped);
    }
}

#[test]
fn text_before_a_stop_string_is_shown_at_once() {
    let mut watcher = StopStrings::new(["STOP".into()]);
    assert_eq!(
        ["one S", "T", "EP two ST", "OP three"].map(|t| watcher.push(t)),
        ["one ", "", "STEP two ", ""]
    );
    assert_eq!((watcher.finish().as_str(), watcher.found()), ("", Some("STOP")));
}
