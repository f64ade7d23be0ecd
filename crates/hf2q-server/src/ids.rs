//! Names of answers and calls, and seeds of draws that nobody chose.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use ring::rand::{SecureRandom, SystemRandom};

/// 64 random bits.
pub(crate) fn random() -> u64 {
    static FALLBACK: AtomicU64 = AtomicU64::new(0x9e37_79b9_7f4a_7c15);
    let mut bytes = [0; 8];
    match SystemRandom::new().fill(&mut bytes) {
        Ok(()) => u64::from_le_bytes(bytes),
        // Names need to differ, not to be secret.
        Err(_) => FALLBACK.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed),
    }
}

/// A name that no other answer has, such as `chatcmpl-0123…`.
pub(crate) fn name(prefix: &str) -> String {
    format!("{prefix}{:016x}{:08x}", random(), random() as u32)
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// Base64 with padding, as OpenAI's clients decode it.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let all = chunk.iter().enumerate().fold(0u32, |sum, (i, b)| sum | u32::from(*b) << (16 - 8 * i));
        for i in 0..4 {
            let digit = DIGITS[(all >> (18 - 6 * i) & 63) as usize];
            text.push(if i <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_padded() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xff, 0xfe, 0xfd]), "//79");
    }

    #[test]
    fn names_differ() {
        assert_ne!(name("a-"), name("a-"));
        assert_eq!(name("a-").len(), 26);
    }
}
