//! Reads numbers and strings from bytes, never beyond their end.

use std::fmt;

use crate::error::GgufError;

/// What is being read, for error messages. Costs nothing until one is made.
#[derive(Clone, Copy)]
pub(crate) enum Place<'a> {
    Header,
    Key(u64),
    Value(&'a str),
    Element(&'a str, usize),
    TensorName(u64),
    Tensor(&'a str),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header => f.write_str("the header"),
            Self::Key(number) => write!(f, "the name of metadata key number {number}"),
            Self::Value(key) => write!(f, "the value of `{key}`"),
            Self::Element(key, index) => write!(f, "`{key}`[{index}]"),
            Self::TensorName(number) => write!(f, "the name of tensor number {number}"),
            Self::Tensor(name) => write!(f, "the description of tensor `{name}`"),
        }
    }
}

/// A position in bytes.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bytes read so far.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Bytes not read yet.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    #[inline]
    pub(crate) fn take(&mut self, len: usize, place: Place<'_>) -> Result<&'a [u8], GgufError> {
        let Some(taken) = self.bytes[self.at..].get(..len) else { return Err(self.truncated(len, place)) };
        self.at += len;
        Ok(taken)
    }

    #[cold]
    fn truncated(&self, need: usize, place: Place<'_>) -> GgufError {
        let (at, need, len) = (self.at as u64, need as u64, self.bytes.len() as u64);
        GgufError::Truncated { place: place.to_string(), at, need, len }
    }

    pub(crate) fn array<const N: usize>(&mut self, place: Place<'_>) -> Result<[u8; N], GgufError> {
        let taken = self.take(N, place)?;
        Ok(taken.try_into().expect("take returns as many bytes as asked for"))
    }

    pub(crate) fn u32(&mut self, place: Place<'_>) -> Result<u32, GgufError> {
        self.array(place).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self, place: Place<'_>) -> Result<u64, GgufError> {
        self.array(place).map(u64::from_le_bytes)
    }

    /// A string: its length in 8 bytes, then UTF-8.
    #[inline]
    pub(crate) fn string(&mut self, place: Place<'_>) -> Result<&'a str, GgufError> {
        let found = self.u64(place)?;
        let start = self.at;
        match usize::try_from(found) {
            Ok(len) if len <= self.left() => {
                let taken = self.take(len, place)?;
                std::str::from_utf8(taken).map_err(|error| not_text(place, start + error.valid_up_to()))
            }
            _ => Err(self.too_long(found, place)),
        }
    }

    #[cold]
    fn too_long(&self, found: u64, place: Place<'_>) -> GgufError {
        let (at, left) = (self.at as u64, self.left() as u64);
        GgufError::StringLength { place: place.to_string(), at, found, left }
    }
}

#[cold]
fn not_text(place: Place<'_>, at: usize) -> GgufError {
    GgufError::Utf8 { place: place.to_string(), at: at as u64 }
}
