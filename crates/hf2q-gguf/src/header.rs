//! Parses what comes before the tensor data: counts, metadata, tensor descriptions.

use std::collections::HashSet;

use crate::cursor::{Cursor, Place};
use crate::error::GgufError;
use crate::extent;
use crate::magic;
use crate::metadata::Metadata;
use crate::tensor::{MAX_DIMENSIONS, TensorInfo, foreign_type_name, size};
use crate::types::TensorType;
use crate::value::{Array, Value, ValueType};

/// Key of the alignment of tensor data, in bytes.
pub(crate) const ALIGNMENT_KEY: &str = "general.alignment";
/// Alignment of files without the key.
pub(crate) const DEFAULT_ALIGNMENT: u64 = 32;

/// Alignments that are accepted. Less would misalign 64-bit values; more only wastes space, and padding of a size
/// from the file is a way to make a writer fill the disk.
const ALIGNMENTS: std::ops::RangeInclusive<u64> = 8..=1 << 20;

/// Fewest bytes of a key: name length, value type, a value of one byte.
const MIN_KEY_BYTES: u64 = 8 + 4 + 1;
/// Fewest bytes of a tensor's description: name length, dimension count, one dimension, type, offset.
const MIN_TENSOR_BYTES: u64 = 8 + 4 + 8 + 4 + 8;

/// One file's header. The tensors' extents are checked.
pub(crate) struct Header {
    pub(crate) version: u32,
    pub(crate) alignment: u64,
    pub(crate) metadata: Metadata,
    pub(crate) tensors: Vec<TensorInfo>,
}

impl Header {
    /// Parses and checks the header of a whole file.
    pub(crate) fn parse(file: &[u8]) -> Result<Self, GgufError> {
        let mut cursor = Cursor::new(file);
        let version = magic::version(&mut cursor, file)?;
        let counts = Counts::read(&mut cursor)?;
        let metadata = metadata(&mut cursor, counts.keys)?;
        let alignment = alignment(&metadata)?;
        let mut tensors = each_tensor(&mut cursor, counts.tensors, tensor)?;
        extent::place(&mut tensors, cursor.at() as u64, alignment, file.len() as u64)?;
        Ok(Self { version, alignment, metadata, tensors })
    }
}

/// How much the header announces.
pub(crate) struct Counts {
    pub(crate) tensors: u64,
    pub(crate) keys: u64,
}

impl Counts {
    /// Reads what follows the version. There is room for the keys; the tensors' is looked at when they come.
    pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<Self, GgufError> {
        let tensors = cursor.u64(Place::Header)?;
        let keys = cursor.u64(Place::Header)?;
        let left = cursor.left() as u64;
        let most = left / MIN_KEY_BYTES;
        if keys > most {
            return Err(GgufError::KeyCount { found: keys, left, most });
        }
        Ok(Self { tensors, keys })
    }
}

/// The alignment that metadata asks for.
pub(crate) fn alignment(metadata: &Metadata) -> Result<u64, GgufError> {
    match metadata.opt_u64(ALIGNMENT_KEY)? {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(found) if found.is_power_of_two() && ALIGNMENTS.contains(&found) => Ok(found),
        Some(found) => Err(GgufError::Alignment { found }),
    }
}

/// Reads keys and values.
pub(crate) fn metadata(cursor: &mut Cursor<'_>, count: u64) -> Result<Metadata, GgufError> {
    let mut metadata = Metadata::new();
    for number in 0..count {
        let key = cursor.string(Place::Key(number))?;
        let value = value(cursor, key)?;
        if metadata.insert(key, value).is_some() {
            return Err(GgufError::DuplicateKey { key: key.to_owned() });
        }
    }
    Ok(metadata)
}

fn value(cursor: &mut Cursor<'_>, key: &str) -> Result<Value, GgufError> {
    let place = Place::Value(key);
    let found = cursor.u32(place)?;
    let ty = ValueType::from_id(found).ok_or_else(|| GgufError::ValueType { key: key.to_owned(), found })?;
    Ok(match ty {
        ValueType::U8 => Value::U8(u8::from_le_bytes(cursor.array(place)?)),
        ValueType::I8 => Value::I8(i8::from_le_bytes(cursor.array(place)?)),
        ValueType::U16 => Value::U16(u16::from_le_bytes(cursor.array(place)?)),
        ValueType::I16 => Value::I16(i16::from_le_bytes(cursor.array(place)?)),
        ValueType::U32 => Value::U32(u32::from_le_bytes(cursor.array(place)?)),
        ValueType::I32 => Value::I32(i32::from_le_bytes(cursor.array(place)?)),
        ValueType::F32 => Value::F32(f32::from_le_bytes(cursor.array(place)?)),
        ValueType::U64 => Value::U64(u64::from_le_bytes(cursor.array(place)?)),
        ValueType::I64 => Value::I64(i64::from_le_bytes(cursor.array(place)?)),
        ValueType::F64 => Value::F64(f64::from_le_bytes(cursor.array(place)?)),
        ValueType::Bool => Value::Bool(boolean(key, 0, cursor.array::<1>(place)?[0])?),
        ValueType::String => Value::String(cursor.string(place)?.to_owned()),
        ValueType::Array => Value::Array(array(cursor, key)?),
    })
}

fn array(cursor: &mut Cursor<'_>, key: &str) -> Result<Array, GgufError> {
    let place = Place::Value(key);
    let id = cursor.u32(place)?;
    let ty = ValueType::from_id(id).ok_or_else(|| GgufError::ArrayType { key: key.to_owned(), found: id })?;
    let found = cursor.u64(place)?;
    if ty == ValueType::Array {
        return Err(GgufError::NestedArray { key: key.to_owned() });
    }
    let left = cursor.left();
    let len = usize::try_from(found).ok().filter(|len| *len <= left / ty.min_bytes());
    let Some(len) = len else {
        return Err(GgufError::ArrayLength { key: key.to_owned(), found, ty: ty.name(), left: left as u64 });
    };
    if ty == ValueType::String {
        return strings(cursor, key, len).map(Array::String);
    }
    // Cannot overflow: the array was just found to fit the rest of the file.
    let bytes = cursor.take(len * ty.min_bytes(), place)?;
    Ok(match ty {
        ValueType::U8 => Array::U8(bytes.to_vec()),
        ValueType::I8 => Array::I8(fixed(bytes, i8::from_le_bytes)),
        ValueType::U16 => Array::U16(fixed(bytes, u16::from_le_bytes)),
        ValueType::I16 => Array::I16(fixed(bytes, i16::from_le_bytes)),
        ValueType::U32 => Array::U32(fixed(bytes, u32::from_le_bytes)),
        ValueType::I32 => Array::I32(fixed(bytes, i32::from_le_bytes)),
        ValueType::F32 => Array::F32(fixed(bytes, f32::from_le_bytes)),
        ValueType::U64 => Array::U64(fixed(bytes, u64::from_le_bytes)),
        ValueType::I64 => Array::I64(fixed(bytes, i64::from_le_bytes)),
        ValueType::F64 => Array::F64(fixed(bytes, f64::from_le_bytes)),
        ValueType::Bool | ValueType::String | ValueType::Array => {
            let bools = bytes.iter().enumerate().map(|(index, byte)| boolean(key, index, *byte));
            Array::Bool(bools.collect::<Result<_, _>>()?)
        }
    })
}

/// Values of `N` bytes each.
fn fixed<const N: usize, T>(bytes: &[u8], convert: fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks::<N>().0.iter().map(|chunk| convert(*chunk)).collect()
}

fn strings(cursor: &mut Cursor<'_>, key: &str, len: usize) -> Result<Vec<String>, GgufError> {
    // Grows with the strings that are really there: `len` strings could all be empty, or the file damaged.
    let mut strings = Vec::new();
    for index in 0..len {
        strings.push(cursor.string(Place::Element(key, index))?.to_owned());
    }
    Ok(strings)
}

fn boolean(key: &str, index: usize, found: u8) -> Result<bool, GgufError> {
    match found {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(GgufError::Bool { key: key.to_owned(), index, found }),
    }
}

/// Reads the descriptions of all tensors, each by `read` after its name.
pub(crate) fn each_tensor<T>(
    cursor: &mut Cursor<'_>,
    count: u64,
    read: fn(&mut Cursor<'_>, &str) -> Result<T, GgufError>,
) -> Result<Vec<T>, GgufError> {
    let left = cursor.left() as u64;
    let most = left / MIN_TENSOR_BYTES;
    if count > most {
        return Err(GgufError::TensorCount { found: count, left, most });
    }
    let mut names = HashSet::new();
    let mut tensors = Vec::new();
    for number in 0..count {
        let name = cursor.string(Place::TensorName(number))?;
        if !names.insert(name) {
            return Err(GgufError::DuplicateTensor { tensor: name.to_owned() });
        }
        tensors.push(read(cursor, name)?);
    }
    Ok(tensors)
}

/// A tensor's dimensions.
pub(crate) fn shape(cursor: &mut Cursor<'_>, name: &str) -> Result<Vec<u64>, GgufError> {
    let place = Place::Tensor(name);
    let found = cursor.u32(place)?;
    if !(1..=MAX_DIMENSIONS as u32).contains(&found) {
        return Err(GgufError::Dimensions { tensor: name.to_owned(), found: found.into() });
    }
    (0..found).map(|_| cursor.u64(place)).collect()
}

/// Reads one description; the offset is still relative to the data section.
fn tensor(cursor: &mut Cursor<'_>, name: &str) -> Result<TensorInfo, GgufError> {
    let tensor = || name.to_owned();
    let shape = shape(cursor, name)?;
    let place = Place::Tensor(name);
    let id = cursor.u32(place)?;
    let offset = cursor.u64(place)?;
    let unknown = || GgufError::UnknownType { tensor: tensor(), id, name: foreign_type_name(id) };
    let ty = TensorType::from_id(id).ok_or_else(unknown)?;
    let bytes = size(name, ty, &shape)?;
    Ok(TensorInfo { name: tensor(), ty, shape, offset, bytes, file: 0 })
}
