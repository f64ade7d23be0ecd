//! The first bytes of a file: is it GGUF, of which version, and if not, what is it?

use crate::cursor::{Cursor, Place};
use crate::error::GgufError;

/// The four bytes every GGUF file begins with.
pub(crate) const MAGIC: [u8; 4] = *b"GGUF";

/// Reads magic and version. Returns the version, 2 or 3: they are laid out alike.
pub(crate) fn version(cursor: &mut Cursor<'_>, file: &[u8]) -> Result<u32, GgufError> {
    if file.is_empty() {
        return Err(GgufError::Empty);
    }
    if !MAGIC.starts_with(&file[..file.len().min(MAGIC.len())]) {
        return Err(other_format(file));
    }
    cursor.take(MAGIC.len(), Place::Header)?;
    match cursor.u32(Place::Header)? {
        1 => Err(GgufError::Version1),
        version @ 2..=3 => Ok(version),
        other if (1..=0xff).contains(&other.swap_bytes()) => Err(GgufError::BigEndian),
        found => Err(GgufError::Version { found }),
    }
}

/// Magics of the formats before GGUF, as the bytes of little-endian files.
const OLD: &[(&[u8], &str)] = &[(b"lmgg", "GGML"), (b"fmgg", "GGMF"), (b"tjgg", "GGJT"), (b"algg", "GGLA")];

/// How files that people mistake for GGUF begin.
const OTHERS: &[(&[u8], &str)] = &[
    (
        b"version https://git-lfs",
        " (a Git LFS pointer: the file itself was not downloaded; run `git lfs pull`)",
    ),
    (b"PK\x03\x04", " (a PyTorch or ZIP archive)"),
    (b"\x80\x02", " (a Python pickle)"),
    (b"<!", " (a web page: the download failed)"),
    (b"<html", " (a web page: the download failed)"),
    (b"\x1f\x8b", " (compressed with gzip: unpack it first)"),
    (b"\x28\xb5\x2f\xfd", " (compressed with zstd: unpack it first)"),
];

fn other_format(file: &[u8]) -> GgufError {
    let start = &file[..file.len().min(4)];
    if start == b"FUGG" {
        return GgufError::BigEndian;
    }
    for (magic, name) in OLD {
        let reversed: Vec<u8> = magic.iter().rev().copied().collect();
        if start == *magic || start.to_ascii_lowercase() == reversed {
            return GgufError::OldFormat { name };
        }
    }
    // A safetensors file is the length of a JSON text in 8 bytes, then the text.
    let safetensors = file.get(8) == Some(&b'{');
    let text = start.iter().all(|b| b.is_ascii_graphic() || b.is_ascii_whitespace());
    let known = OTHERS.iter().find(|(magic, _)| file.starts_with(magic)).map(|(_, guess)| *guess);
    let guess = match known {
        Some(guess) => guess,
        None if safetensors => " (looks like safetensors: convert the model's folder)",
        None if text => " (looks like text)",
        None => "",
    };
    GgufError::NotGguf { found: start.escape_ascii().to_string(), guess }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(bytes: &[u8]) -> String {
        match version(&mut Cursor::new(bytes), bytes) {
            Ok(version) => version.to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn every_start_has_its_answer() {
        let cases: &[(&[u8], &str)] = &[
            (b"", "empty"),
            (b"GG", "ends within the header"),
            (b"GGUF\x03\0\0", "ends within the header"),
            (b"GGUF\x02\0\0\0", "2"),
            (b"GGUF\x03\0\0\0", "3"),
            (b"GGUF\x01\0\0\0", "version 1:"),
            (b"GGUF\x04\0\0\0", "version 4:"),
            (b"GGUF\0\0\0\0", "version 0:"),
            (b"GGUF\0\0\0\x03", "big-endian"),
            (b"FUGG\0\0\0\x03", "big-endian"),
            (b"lmgg\0\0\0\x03", "GGML"),
            (b"ggml\0\0\0\x03", "GGML"),
            (b"GGJT\0\0\0\x03", "GGJT"),
            (b"tjgg\x03\0\0\0", "GGJT"),
            (b"fmgg\x03\0\0\0", "GGMF"),
            (b"version https://git-lfs.github.com/spec/v1", "git lfs pull"),
            (b"\x60\0\0\0\0\0\0\0{\"a\":", "safetensors"),
            (b"PK\x03\x04", "PyTorch"),
            (b"{\n \"a\": 1}", "looks like text"),
            (b"\xff\xfe\0\0", "\\xff\\xfe"),
        ];
        for (bytes, expected) in cases {
            let text = answer(bytes);
            assert!(text.contains(expected), "{}: {text}", bytes.escape_ascii());
        }
    }
}
