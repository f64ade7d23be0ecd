//! The bytes before the tensor data of a file.

use std::collections::HashSet;

use crate::error::GgufError;
use crate::header::{ALIGNMENT_KEY, alignment};
use crate::magic::MAGIC;
use crate::metadata::Metadata;
use crate::tensor::TensorSpec;
use crate::value::{Array, Value};

/// The version that is written.
const VERSION: u32 = 3;
/// Magic, version and both counts.
const FIXED_BYTES: u64 = 4 + 4 + 8 + 8;
/// Longest tensor name, in bytes: other readers keep 64 bytes with a closing zero.
const MAX_NAME: usize = 63;

/// Metadata and tensors that have been checked, ready to be laid out in one or more files.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) metadata: Metadata,
    pub(crate) tensors: Vec<TensorSpec>,
    /// Size of each tensor's data in bytes.
    pub(crate) sizes: Vec<u64>,
    /// Alignment of tensor data in bytes.
    pub(crate) alignment: u64,
}

impl Content {
    pub(crate) fn new(mut metadata: Metadata, tensors: Vec<TensorSpec>) -> Result<Self, GgufError> {
        let alignment = alignment(&metadata)?;
        if metadata.get(ALIGNMENT_KEY).is_some() {
            // Other readers accept this type alone; what `alignment` accepts fits it.
            metadata.insert(ALIGNMENT_KEY, alignment as u32);
        }
        let mut names = HashSet::new();
        let mut sizes = Vec::with_capacity(tensors.len());
        let mut total = 0_u64;
        for t in &tensors {
            let len = t.name.len();
            if !(1..=MAX_NAME).contains(&len) {
                return Err(GgufError::TensorName { tensor: t.name.clone(), len });
            }
            if !names.insert(t.name.as_str()) {
                return Err(GgufError::DuplicateTensor { tensor: t.name.clone() });
            }
            let size = t.bytes()?;
            let padded = size.checked_next_multiple_of(alignment);
            let overflow = || GgufError::SizeOverflow { tensor: t.name.clone(), shape: t.shape.clone() };
            total = padded.and_then(|p| total.checked_add(p)).ok_or_else(overflow)?;
            sizes.push(size);
        }
        Ok(Self { metadata, tensors, sizes, alignment })
    }

    /// Bytes of a tensor's data with the padding after it.
    pub(crate) fn padded(&self, tensor: usize) -> u64 {
        // Cannot overflow: `new` has added them all up.
        self.sizes[tensor].next_multiple_of(self.alignment)
    }

    /// All bytes before the data of a file that holds `range` of the tensors, padding included.
    pub(crate) fn header(&self, metadata: &Metadata, range: std::ops::Range<usize>) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&(range.len() as u64).to_le_bytes());
        put_metadata(&mut out, metadata);
        let mut offset = 0_u64;
        for i in range {
            let t = &self.tensors[i];
            put_string(&mut out, &t.name);
            out.extend_from_slice(&(t.shape.len() as u32).to_le_bytes());
            out.extend(t.shape.iter().flat_map(|d| d.to_le_bytes()));
            out.extend_from_slice(&t.ty.id().to_le_bytes());
            out.extend_from_slice(&offset.to_le_bytes());
            offset += self.padded(i);
        }
        out.resize(out.len().next_multiple_of(self.alignment as usize), 0);
        out
    }

    /// Length of [`Content::header`] without tensors and padding.
    pub(crate) fn base_bytes(metadata: &Metadata) -> u64 {
        let value_bytes = |value: &Value| {
            let mut out = Vec::new();
            put_value(&mut out, value);
            out.len()
        };
        let keys = metadata.iter().map(|(key, value)| (8 + key.len() + 4 + value_bytes(value)) as u64);
        FIXED_BYTES + keys.sum::<u64>()
    }

    /// Length of a tensor's description in the header.
    pub(crate) fn description_bytes(&self, tensor: usize) -> u64 {
        let t = &self.tensors[tensor];
        (8 + t.name.len() + 4 + 8 * t.shape.len() + 4 + 8) as u64
    }
}

/// The number of keys, then keys and values.
pub(crate) fn put_metadata(out: &mut Vec<u8>, metadata: &Metadata) {
    out.extend_from_slice(&(metadata.len() as u64).to_le_bytes());
    for (key, value) in metadata.iter() {
        put_string(out, key);
        out.extend_from_slice(&value.ty().id().to_le_bytes());
        put_value(out, value);
    }
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u64).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

pub(crate) fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::U8(v) => out.push(*v),
        Value::I8(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::U16(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::I16(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::U32(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::I32(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::F32(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::U64(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::I64(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::F64(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::Bool(v) => out.push(u8::from(*v)),
        Value::String(v) => put_string(out, v),
        Value::Array(v) => put_array(out, v),
    }
}

fn put_array(out: &mut Vec<u8>, array: &Array) {
    out.extend_from_slice(&array.ty().id().to_le_bytes());
    out.extend_from_slice(&(array.len() as u64).to_le_bytes());
    match array {
        Array::U8(v) => out.extend_from_slice(v),
        Array::I8(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        Array::U16(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        Array::I16(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        Array::U32(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        Array::I32(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        Array::F32(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        Array::U64(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        Array::I64(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        Array::F64(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
        Array::Bool(v) => out.extend(v.iter().map(|x| u8::from(*x))),
        Array::String(v) => v.iter().for_each(|text| put_string(out, text)),
    }
}
