//! The torture set: texts with ids from the reference tokenizers.

use hf2q_text::{Controls, Specials};

use crate::{VOCABULARIES, json, tokenizer};

/// Compares every text of one vocabulary with its goldens.
fn check(name: &str) {
    let tokenizer = tokenizer(name);
    let texts: Vec<String> = serde_json::from_value(json("tokenizer/texts.json")).unwrap();
    let golden = json(&format!("tokenizer/{name}.json"));
    let key = |i: usize| i.to_string();
    assert_eq!(golden["ids"].as_array().unwrap().len(), texts.len());
    for (i, text) in texts.iter().enumerate() {
        let ids: Vec<u32> = serde_json::from_value(golden["ids"][i].clone()).unwrap();
        assert_eq!(tokenizer.encode(text, Specials::Parse), ids, "{name} {i} {text:?}");
        let plain = golden["plain"].get(key(i)).unwrap_or(&golden["ids"][i]).clone();
        let plain: Vec<u32> = serde_json::from_value(plain).unwrap();
        assert_eq!(tokenizer.encode(text, Specials::AsText), plain, "{name} {i} {text:?} as text");
        // SentencePiece's own decoding was recorded of the plain ids, and puts no spelling for control tokens.
        let ids = if name.starts_with("spm") { plain } else { ids };
        let decoded = golden["decoded"].get(key(i)).map_or(text.as_str(), |d| d.as_str().unwrap());
        assert_eq!(tokenizer.decode(&ids, Controls::Show), decoded, "{name} {i} decoded");
    }
}

#[test]
fn texts_encode_and_decode_as_in_the_reference() {
    VOCABULARIES.into_iter().for_each(check);
}

#[test]
fn long_texts_take_no_quadratic_time() {
    for name in VOCABULARIES {
        let tokenizer = tokenizer(name);
        let words = "the quick brown fox ".repeat(10_000);
        for text in [
            words.as_str(),
            &"a".repeat(200_000),
            &" ".repeat(200_000),
            &"\n".repeat(200_000),
            &"'".repeat(200_000),
        ] {
            let ids = tokenizer.encode(text, Specials::AsText);
            assert_eq!(tokenizer.decode(&ids, Controls::Show), text, "{name}");
        }
    }
}
