//! Loading: what is accepted, and how what is not is refused.

use hf2q_text::{Controls, Specials, TextError, TokenKind, Tokenizer, TokenizerParts};

use crate::{small_vocabulary, tokenizer};

const SPECIALS: [(&str, i32); 7] = [
    ("<pad>", 3),
    ("<eos>", 3),
    ("<bos>", 3),
    ("<unk>", 2),
    ("<|channel>", 4),
    ("[toxicity=0]", 4),
    ("<turn|>", 3),
];

/// Builds a small Gemma 4 tokenizer after a change to its parts.
fn build(change: impl FnOnce(&mut TokenizerParts<'_>)) -> Result<Tokenizer, TextError> {
    let (tokens, kinds) = small_vocabulary(&SPECIALS);
    let merges = [];
    let mut parts = TokenizerParts {
        model: "gemma4",
        tokens: &tokens,
        kinds: Some(kinds),
        merges: Some(&merges),
        bos: Some(2),
        eos: Some(1),
        unknown: Some(3),
        ..TokenizerParts::default()
    };
    change(&mut parts);
    Tokenizer::from_parts(&parts)
}

fn message(change: impl FnOnce(&mut TokenizerParts<'_>)) -> String {
    build(change).err().expect("it is refused").to_string()
}

#[test]
fn refusals_name_what_was_found() {
    assert!(message(|p| p.model = "rwkv").contains("\"rwkv\""));
    let unknown = message(|p| (p.model, p.pre) = ("gpt2", Some("tekken")));
    assert!(unknown.contains("\"tekken\"") && unknown.contains("llama-bpe"), "{unknown}");
    assert!(message(|p| p.model = "llama").contains("tokenizer.ggml.scores has 0 entries"));
    assert!(message(|p| p.merges = None).contains("tokenizer.ggml.merges"));
    assert!(message(|p| p.bos = Some(100_000)).contains("tokenizer.ggml.bos_token_id is 100000"));
    assert!(message(|p| p.stop_ids = vec![100_000]).contains("100000"));
    assert!(message(|p| p.kinds = Some(vec![1])).contains("token_type has 1 entries"));
    let one = ["ab".to_owned()];
    let unsplit = Tokenizer::from_parts(&TokenizerParts {
        model: "gemma4",
        tokens: &one,
        merges: Some(&one),
        ..TokenizerParts::default()
    });
    assert!(matches!(unsplit, Err(TextError::Merge { index: 0, .. })));
    let nan = [f32::NAN];
    let scores = Tokenizer::from_parts(&TokenizerParts {
        model: "llama",
        tokens: &one,
        scores: Some(&nan),
        ..TokenizerParts::default()
    });
    assert!(matches!(scores, Err(TextError::Token { id: 0, .. })));
}

#[test]
fn merges_into_pieces_outside_the_vocabulary_are_not_applied() {
    let (mut tokens, mut kinds) = small_vocabulary(&SPECIALS);
    tokens.extend(["in", "us", "Lin"].map(String::from));
    kinds.extend([1; 3]);
    // `n u` makes no token; applied, it would leave letters that end as bytes.
    let merges = ["n u", "i n", "u s", "L in", "Lin us"].map(String::from);
    let parts = TokenizerParts {
        model: "gemma4",
        tokens: &tokens,
        kinds: Some(kinds),
        merges: Some(&merges),
        ..TokenizerParts::default()
    };
    let tokenizer = Tokenizer::from_parts(&parts).unwrap();
    let texts = tokenizer.encode("Linus", Specials::AsText);
    assert_eq!(texts.iter().map(|id| tokenizer.token_text(*id)).collect::<Vec<_>>(), ["Lin", "us"]);
}

#[test]
fn added_tokens_match_in_text_and_control_tokens_do_not() {
    let tokenizer = build(|_| ()).unwrap();
    let ids = tokenizer.encode("a[toxicity=0]<eos><|channel>", Specials::AsText);
    assert_eq!(ids[1], 5);
    assert!(ids.iter().all(|id| !tokenizer.is_control(*id)));
    assert_eq!(tokenizer.decode(&ids, Controls::Skip), "a[toxicity=0]<eos><|channel>");
    let parsed = tokenizer.encode("a[toxicity=0]<eos><|channel>", Specials::Parse);
    assert_eq!(parsed[1..], [5, 1, 4]);
    assert_eq!(tokenizer.decode(&parsed, Controls::Skip), "a[toxicity=0]");
    assert_eq!(tokenizer.decode(&parsed, Controls::Show), "a[toxicity=0]<eos><|channel>");
    // Converters mark turn structure as user-defined to have it shown; it is structure all the same.
    assert_eq!(tokenizer.token_kind(4), Some(TokenKind::Control));
    assert_eq!(tokenizer.special_id("<|channel>"), Some(4));
    assert_eq!(tokenizer.special_id("<|chan"), None);
}

#[test]
fn merges_make_no_control_token() {
    let tokens = ["<", "e", ">", "<e", "<e>", "e>"].map(String::from);
    let merges = ["< e", "<e >", "e >"].map(String::from);
    let parts = TokenizerParts {
        model: "gemma4",
        tokens: &tokens,
        merges: Some(&merges),
        eos: Some(4),
        ..TokenizerParts::default()
    };
    let tokenizer = Tokenizer::from_parts(&parts).unwrap();
    assert_eq!(tokenizer.encode("<e>", Specials::AsText), [3, 2]);
    assert_eq!(tokenizer.encode("<e>", Specials::Parse), [4]);
}

#[test]
fn a_prompt_begins_with_one_token() {
    let tokenizer = build(|_| ()).unwrap();
    let a = tokenizer.encode("a", Specials::AsText)[0];
    assert_eq!(tokenizer.encode_prompt("a", Specials::Parse), [2, a]);
    assert_eq!(tokenizer.encode_prompt("<bos>a", Specials::Parse), [2, a]);
    assert_eq!(tokenizer.encode_prompt("", Specials::Parse), [2]);
    assert_eq!(
        tokenizer.encode_prompt("<bos>a", Specials::AsText)[..2],
        [2, tokenizer.encode("<", Specials::AsText)[0]]
    );
    let without = build(|p| p.add_bos = Some(false)).unwrap();
    assert_eq!(without.encode_prompt("a", Specials::Parse), [a]);
    let both = build(|p| p.add_eos = Some(true)).unwrap();
    assert_eq!(both.encode_prompt("a", Specials::Parse), [2, a, 1]);
    assert_eq!(both.encode_prompt("<bos>a<eos>", Specials::Parse), [2, a, 1]);
}

#[test]
fn stop_ids_are_those_of_the_file_and_known_names() {
    assert_eq!(build(|_| ()).unwrap().stop_ids(), [1, 6]);
    assert_eq!(build(|p| p.stop_ids = vec![0, 6]).unwrap().stop_ids(), [0, 1, 6]);
    assert_eq!(build(|p| (p.eot, p.eom) = (Some(5), Some(4))).unwrap().stop_ids(), [1, 4, 5, 6]);
    let demo = tokenizer("demo");
    assert_eq!(
        demo.stop_ids(),
        ["<eos>", "<|tool_response>", "<turn|>"].map(|t| demo.special_id(t).unwrap())
    );
}

#[test]
fn unknown_text_is_one_token_a_run() {
    let tokens = ["<unk>", "a", "b"].map(String::from);
    let parts = TokenizerParts {
        model: "llama",
        tokens: &tokens,
        kinds: Some(vec![2, 1, 1]),
        scores: Some(&[0.0, -1.0, -2.0]),
        unknown: Some(0),
        add_space_prefix: Some(false),
        ..TokenizerParts::default()
    };
    let tokenizer = Tokenizer::from_parts(&parts).unwrap();
    assert_eq!(tokenizer.encode("a??b?a", Specials::AsText), [1, 0, 2, 0, 1]);
    assert_eq!(tokenizer.encode("", Specials::AsText), [0; 0]);
    assert_eq!((tokenizer.token_bytes(99), tokenizer.token_kind(99)), (&b""[..], None));
}
