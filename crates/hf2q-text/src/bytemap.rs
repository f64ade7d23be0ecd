//! The GPT-2 alphabet: printable characters that stand for bytes.

/// Bytes that are printable in Latin-1 stand for themselves; the others, in ascending order, are the characters
/// from U+0100 on.
const fn printable(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff)
}

/// `FROM[c]` is the byte that character `c` stands for, or `NONE`.
const FROM: [u16; 0x144] = {
    let mut table = [NONE; 0x144];
    let (mut byte, mut next) = (0u16, 0x100usize);
    while byte < 256 {
        if printable(byte as u8) {
            table[byte as usize] = byte;
        } else {
            table[next] = byte;
            next += 1;
        }
        byte += 1;
    }
    table
};
const NONE: u16 = u16::MAX;

/// Appends the bytes that `text` stands for. Text with a character outside the alphabet is taken literally.
pub(crate) fn decode(text: &str, out: &mut Vec<u8>) {
    let start = out.len();
    for c in text.chars() {
        match FROM.get(c as usize) {
            Some(&byte) if byte != NONE => out.push(byte as u8),
            _ => {
                out.truncate(start);
                out.extend_from_slice(text.as_bytes());
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alphabet_covers_each_byte_once() {
        let mut bytes: Vec<u16> = FROM.iter().copied().filter(|b| *b != NONE).collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..256).collect::<Vec<u16>>());
    }

    #[test]
    fn decodes_known_spellings() {
        let decoded = |s: &str| {
            let mut out = vec![7];
            decode(s, &mut out);
            out
        };
        assert_eq!(decoded("Ġthe"), b"\x07 the");
        assert_eq!(decoded("Ċ"), b"\x07\n");
        assert_eq!(decoded("ðŁĺ"), b"\x07\xf0\x9f\x98");
        assert_eq!(decoded("a b"), b"\x07a b");
    }
}
