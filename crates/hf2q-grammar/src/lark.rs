//! Pieces of llguidance's Lark notation.

use crate::error::GrammarError;

/// A text as a literal; never empty.
pub(crate) fn literal(text: &str) -> String {
    // JSON leaves a character as it is that the notation does not take.
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// A regular expression as a terminal. `ascii` names the classes (`d`, `w`, `s`) that mean ASCII only.
pub(crate) fn regex(pattern: &str, ascii: &str) -> String {
    format!("/{}/", llguidance::regex_to_lark(pattern, ascii))
}

/// Refuses a client's grammar that names tokens, or other grammars: control tokens are no text.
pub(crate) fn check(text: &str) -> Result<(), GrammarError> {
    let refused = |line: usize, why: &str| {
        Err(GrammarError::Grammar { kind: "grammar", why: format!("line {line}: {why}") })
    };
    for (number, line) in (1..).zip(text.lines()) {
        let mut chars = line.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '"' => skip(&mut chars, '"'),
                '/' if chars.peek() == Some(&'/') => break,
                '/' => skip(&mut chars, '/'),
                '#' => break,
                '<' => return refused(number, "tokens cannot be named"),
                '@' => return refused(number, "there are no other grammars to refer to"),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Goes behind the end of a literal.
fn skip(chars: &mut impl Iterator<Item = char>, end: char) {
    while let Some(c) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            _ if c == end => return,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_cannot_be_named() {
        for bad in
            ["start: <|turn>", "start: \"a\" <[5]>", "start: /a/ <x>", "start: @other", "a\nstart: <x>"]
        {
            assert!(check(bad).is_err(), "{bad}");
        }
        for good in
            ["start: \"<b>\"", "start: /<[a-z]+>/ // <x>", "start: \"\\\"<\" # <x>", "s: \"a\" /\\/</"]
        {
            assert_eq!(check(good), Ok(()), "{good}");
        }
    }
}
