//! Reads the binary form that preceded GGUF.
//!
//! `i32 entries`, then for each: `i32 length, name, i32 calls, i32 values, f32 sums`; a sum is the mean square of a
//! column times `calls`. At the end may follow `i32 chunks, i32 length, name of the text`. All little-endian.

use std::collections::BTreeMap;

use super::Importance;
use super::entry::Entry;
use super::error::ImportanceError;

pub(super) fn read(bytes: &[u8]) -> Result<Importance, ImportanceError> {
    let mut rest = Cursor { bytes };
    let mut entries = BTreeMap::new();
    let count = rest.number("the number of tensors")?;
    if count == 0 {
        return Err(wrong("it holds no tensors".to_owned()));
    }
    for i in 0..count {
        let what = format!("tensor {i} of {count}");
        let name = rest.text(&what)?;
        let calls = rest.number(&format!("the calls of {name}"))?;
        let values = rest.number(&format!("the number of values of {name}"))?;
        let squares = rest.values(values, &name)?;
        // Without calls the values are taken as they are.
        let entry = Entry { squares, sums: None, counts: vec![u64::from(calls.max(1))] };
        entry.check(&name)?;
        if entries.insert(name.clone(), entry).is_some() {
            return Err(wrong(format!("{name} is there twice")));
        }
    }
    let (mut chunks, mut datasets) = (0, Vec::new());
    if !rest.bytes.is_empty() {
        chunks = rest.number("the number of chunks")?;
    }
    if !rest.bytes.is_empty() {
        let len = rest.number("the length of the text's name")?;
        let name = rest.take(len as usize, "the text's name")?;
        datasets.extend((len > 0).then(|| String::from_utf8_lossy(name).into_owned()));
    }
    Ok(Importance { entries, datasets, chunk_count: chunks, chunk_size: None, warnings: Vec::new() })
}

fn wrong(why: String) -> ImportanceError {
    ImportanceError::Legacy { why }
}

struct Cursor<'a> {
    bytes: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn take(&mut self, len: usize, what: &str) -> Result<&'a [u8], ImportanceError> {
        let (taken, rest) = self
            .bytes
            .split_at_checked(len)
            .ok_or_else(|| wrong(format!("{what} needs {len} bytes, {} are left", self.bytes.len())))?;
        self.bytes = rest;
        Ok(taken)
    }

    fn number(&mut self, what: &str) -> Result<u32, ImportanceError> {
        let bytes = self.take(4, what)?;
        let number = i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        u32::try_from(number).map_err(|_| wrong(format!("{what} is {number}")))
    }

    fn text(&mut self, what: &str) -> Result<String, ImportanceError> {
        let len = self.number(&format!("the length of the name of {what}"))?;
        let bytes = self.take(len as usize, &format!("the name of {what}"))?;
        match std::str::from_utf8(bytes) {
            Ok(name) if !name.is_empty() => Ok(name.to_owned()),
            _ => Err(wrong(format!("the name of {what} is no text"))),
        }
    }

    fn values(&mut self, len: u32, tensor: &str) -> Result<Vec<f32>, ImportanceError> {
        let bytes = (len as usize)
            .checked_mul(size_of::<f32>())
            .ok_or_else(|| wrong(format!("{tensor} has {len} values")))?;
        let bytes = self.take(bytes, tensor)?;
        Ok(bytes.as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b)).collect())
    }
}
