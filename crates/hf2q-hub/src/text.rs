//! Texts from others, made safe to use.

/// Characters of a foreign text that are shown.
const SHOWN: usize = 200;

/// A foreign text for a message: what would steer a terminal is escaped, a long one is cut.
pub(crate) fn shown(text: &str) -> String {
    let escape =
        |c: char| if c.is_control() || is_bidi(c) { c.escape_unicode().to_string() } else { c.into() };
    let cut = text.chars().nth(SHOWN).is_some();
    let text: String = text.chars().take(SHOWN).map(escape).collect();
    if cut { text + "…" } else { text }
}

/// A URL for a message, less what may be secret in it: user name and password, and the query of a signed link.
pub(crate) fn address(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = url.split_once("//") else { return shown(url) };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    shown(&format!("{scheme}//{host}{path}"))
}

/// Characters that change the order in which others are shown.
fn is_bidi(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A part of a URL's path: everything but unreserved characters becomes `%XX`.
pub(crate) fn encoded(part: &str) -> String {
    let encode = |b: u8| match b {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(b).to_string(),
        _ => format!("%{b:02X}"),
    };
    part.bytes().map(encode).collect()
}

/// The first few of a list of names, and how many more there are.
pub(crate) fn some(names: &[String]) -> String {
    const FIRST: usize = 5;
    let first: Vec<String> = names.iter().take(FIRST).map(|n| shown(n)).collect();
    match names.len().saturating_sub(FIRST) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// Bytes in a unit that fits.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = n as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if n < 1024 { format!("{n} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_cannot_steer_a_terminal() {
        assert_eq!(shown("a\u{1b}[2J\u{202e}b"), "a\\u{1b}[2J\\u{202e}b");
        assert_eq!(shown(&"x".repeat(300)).chars().count(), SHOWN + 1);
    }

    #[test]
    fn addresses_are_shown_without_secrets() {
        for (url, expected) in [
            ("https://u:p@cdn.co:1/a/b@c?Signature=x", "https://cdn.co:1/a/b@c"),
            ("//u@cdn.co", "//cdn.co"),
            ("http://hub#x", "http://hub"),
            ("/a?x", "/a"),
            ("org/model: model.safetensors.index.json", "org/model: model.safetensors.index.json"),
            ("", ""),
        ] {
            assert_eq!(address(url), expected, "{url}");
        }
        assert_eq!(address("http://a/\u{1b}"), "http://a/\\u{1b}");
    }

    #[test]
    fn urls_are_encoded() {
        assert_eq!(encoded("refs/pr/1"), "refs%2Fpr%2F1");
        assert_eq!(encoded("a b?#%ä"), "a%20b%3F%23%25%C3%A4");
    }

    #[test]
    fn lists_are_shortened_and_bytes_rounded() {
        let names: Vec<String> = (0..7).map(|n| n.to_string()).collect();
        assert_eq!(some(&names), "0, 1, 2, 3, 4 and 2 more");
        assert_eq!(some(&names[..2]), "0, 1");
        assert_eq!((bytes(1023), bytes(5 << 30)), ("1023 B".into(), "5.0 GiB".into()));
    }
}
