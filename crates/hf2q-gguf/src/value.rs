//! Metadata values: the thirteen types of GGUF.

use std::fmt;

/// The type of a metadata value as a file stores it. The ids are those of the GGUF specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum ValueType {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    String = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

/// Every type with its name and the fewest bytes that one value takes in a file (of a string, its length field; of an
/// array, its type and count).
const TYPES: [(ValueType, &str, usize); 13] = [
    (ValueType::U8, "u8", 1),
    (ValueType::I8, "i8", 1),
    (ValueType::U16, "u16", 2),
    (ValueType::I16, "i16", 2),
    (ValueType::U32, "u32", 4),
    (ValueType::I32, "i32", 4),
    (ValueType::F32, "f32", 4),
    (ValueType::Bool, "bool", 1),
    (ValueType::String, "string", 8),
    (ValueType::Array, "array", 12),
    (ValueType::U64, "u64", 8),
    (ValueType::I64, "i64", 8),
    (ValueType::F64, "f64", 8),
];

impl ValueType {
    pub(crate) fn from_id(id: u32) -> Option<Self> {
        TYPES.get(usize::try_from(id).ok()?).map(|row| row.0)
    }

    pub(crate) fn id(self) -> u32 {
        self as u32
    }

    pub(crate) fn name(self) -> &'static str {
        TYPES[self as usize].1
    }

    pub(crate) fn min_bytes(self) -> usize {
        TYPES[self as usize].2
    }
}

/// A metadata value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// 8 bits, unsigned.
    U8(u8),
    /// 8 bits, signed.
    I8(i8),
    /// 16 bits, unsigned.
    U16(u16),
    /// 16 bits, signed.
    I16(i16),
    /// 32 bits, unsigned.
    U32(u32),
    /// 32 bits, signed.
    I32(i32),
    /// IEEE single precision.
    F32(f32),
    /// 64 bits, unsigned.
    U64(u64),
    /// 64 bits, signed.
    I64(i64),
    /// IEEE double precision.
    F64(f64),
    /// One byte, 0 or 1.
    Bool(bool),
    /// UTF-8 text. Files with other bytes are refused, with the key named.
    String(String),
    /// Values of one type.
    Array(Array),
}

/// An array of metadata values of one type. Arrays of arrays exist in the format, not in known models: refused.
#[derive(Clone, Debug, PartialEq)]
pub enum Array {
    /// 8 bits, unsigned.
    U8(Vec<u8>),
    /// 8 bits, signed.
    I8(Vec<i8>),
    /// 16 bits, unsigned.
    U16(Vec<u16>),
    /// 16 bits, signed.
    I16(Vec<i16>),
    /// 32 bits, unsigned.
    U32(Vec<u32>),
    /// 32 bits, signed.
    I32(Vec<i32>),
    /// IEEE single precision.
    F32(Vec<f32>),
    /// 64 bits, unsigned.
    U64(Vec<u64>),
    /// 64 bits, signed.
    I64(Vec<i64>),
    /// IEEE double precision.
    F64(Vec<f64>),
    /// One byte each, 0 or 1.
    Bool(Vec<bool>),
    /// UTF-8 texts.
    String(Vec<String>),
}

impl Value {
    pub(crate) fn ty(&self) -> ValueType {
        match self {
            Self::U8(_) => ValueType::U8,
            Self::I8(_) => ValueType::I8,
            Self::U16(_) => ValueType::U16,
            Self::I16(_) => ValueType::I16,
            Self::U32(_) => ValueType::U32,
            Self::I32(_) => ValueType::I32,
            Self::F32(_) => ValueType::F32,
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F64(_) => ValueType::F64,
            Self::Bool(_) => ValueType::Bool,
            Self::String(_) => ValueType::String,
            Self::Array(_) => ValueType::Array,
        }
    }

    /// What the value is, for messages: `u32`, or `array of 12 string`.
    pub fn type_name(&self) -> String {
        match self {
            Self::Array(array) => format!("array of {} {}", array.len(), array.element_name()),
            other => other.ty().name().to_owned(),
        }
    }

    /// The value of any integer type.
    pub fn as_integer(&self) -> Option<i128> {
        match *self {
            Self::U8(v) => Some(v.into()),
            Self::I8(v) => Some(v.into()),
            Self::U16(v) => Some(v.into()),
            Self::I16(v) => Some(v.into()),
            Self::U32(v) => Some(v.into()),
            Self::I32(v) => Some(v.into()),
            Self::U64(v) => Some(v.into()),
            Self::I64(v) => Some(v.into()),
            _ => None,
        }
    }
}

impl Array {
    pub(crate) fn ty(&self) -> ValueType {
        match self {
            Self::U8(_) => ValueType::U8,
            Self::I8(_) => ValueType::I8,
            Self::U16(_) => ValueType::U16,
            Self::I16(_) => ValueType::I16,
            Self::U32(_) => ValueType::U32,
            Self::I32(_) => ValueType::I32,
            Self::F32(_) => ValueType::F32,
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F64(_) => ValueType::F64,
            Self::Bool(_) => ValueType::Bool,
            Self::String(_) => ValueType::String,
        }
    }

    /// Type of the elements.
    pub fn element_name(&self) -> &'static str {
        self.ty().name()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::U8(v) => v.len(),
            Self::I8(v) => v.len(),
            Self::U16(v) => v.len(),
            Self::I16(v) => v.len(),
            Self::U32(v) => v.len(),
            Self::I32(v) => v.len(),
            Self::F32(v) => v.len(),
            Self::U64(v) => v.len(),
            Self::I64(v) => v.len(),
            Self::F64(v) => v.len(),
            Self::Bool(v) => v.len(),
            Self::String(v) => v.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements of any integer type.
    pub fn as_integers(&self) -> Option<Vec<i128>> {
        fn all<T: Copy + Into<i128>>(values: &[T]) -> Option<Vec<i128>> {
            Some(values.iter().map(|&v| v.into()).collect())
        }
        match self {
            Self::U8(v) => all(v),
            Self::I8(v) => all(v),
            Self::U16(v) => all(v),
            Self::I16(v) => all(v),
            Self::U32(v) => all(v),
            Self::I32(v) => all(v),
            Self::U64(v) => all(v),
            Self::I64(v) => all(v),
            Self::F32(_) | Self::F64(_) | Self::Bool(_) | Self::String(_) => None,
        }
    }
}

/// Scalars as they read best: strings bare; of an array the first values, then its length.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::U8(v) => v.fmt(f),
            Self::I8(v) => v.fmt(f),
            Self::U16(v) => v.fmt(f),
            Self::I16(v) => v.fmt(f),
            Self::U32(v) => v.fmt(f),
            Self::I32(v) => v.fmt(f),
            Self::F32(v) => v.fmt(f),
            Self::U64(v) => v.fmt(f),
            Self::I64(v) => v.fmt(f),
            Self::F64(v) => v.fmt(f),
            Self::Bool(v) => v.fmt(f),
            Self::String(v) => v.fmt(f),
            Self::Array(v) => v.fmt(f),
        }
    }
}

impl fmt::Display for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::U8(v) => list(f, v),
            Self::I8(v) => list(f, v),
            Self::U16(v) => list(f, v),
            Self::I16(v) => list(f, v),
            Self::U32(v) => list(f, v),
            Self::I32(v) => list(f, v),
            Self::F32(v) => list(f, v),
            Self::U64(v) => list(f, v),
            Self::I64(v) => list(f, v),
            Self::F64(v) => list(f, v),
            Self::Bool(v) => list(f, v),
            Self::String(v) => list(f, v),
        }
    }
}

fn list<T: fmt::Debug>(f: &mut fmt::Formatter<'_>, values: &[T]) -> fmt::Result {
    const SHOWN: usize = 8;
    f.write_str("[")?;
    for (i, value) in values.iter().take(SHOWN).enumerate() {
        let comma = if i > 0 { ", " } else { "" };
        write!(f, "{comma}{value:?}")?;
    }
    match values.len() {
        n if n > SHOWN => write!(f, ", … {n} values]"),
        _ => f.write_str("]"),
    }
}

macro_rules! from {
    ($($source:ty => $value:ident => $make:expr;)*) => {
        $(impl From<$source> for Value {
            fn from($value: $source) -> Self {
                $make
            }
        })*
    };
}

from! {
    u8 => v => Self::U8(v);
    u16 => v => Self::U16(v);
    u32 => v => Self::U32(v);
    i32 => v => Self::I32(v);
    u64 => v => Self::U64(v);
    f32 => v => Self::F32(v);
    bool => v => Self::Bool(v);
    String => v => Self::String(v);
    &str => v => Self::String(v.to_owned());
    Array => v => Self::Array(v);
    Vec<u32> => v => Self::Array(Array::U32(v));
    Vec<i32> => v => Self::Array(Array::I32(v));
    Vec<f32> => v => Self::Array(Array::F32(v));
    Vec<bool> => v => Self::Array(Array::Bool(v));
    Vec<String> => v => Self::Array(Array::String(v));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_of_the_specification() {
        let names: Vec<&str> = (0..13).map(|id| ValueType::from_id(id).unwrap().name()).collect();
        let expected =
            ["u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"];
        assert_eq!(names, expected);
        assert!((0..13).all(|id| ValueType::from_id(id).unwrap().id() == id));
        assert_eq!(ValueType::from_id(13), None);
    }

    #[test]
    fn long_arrays_are_shown_by_their_start() {
        assert_eq!(Value::from(vec![1_u32, 2]).to_string(), "[1, 2]");
        let long = Value::from((0..20).collect::<Vec<u32>>());
        assert_eq!(long.to_string(), "[0, 1, 2, 3, 4, 5, 6, 7, … 20 values]");
        assert_eq!(long.type_name(), "array of 20 u32");
    }
}
