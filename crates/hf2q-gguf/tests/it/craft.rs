//! Files put together byte by byte, so that each field can lie.

use hf2q_gguf::{Bytes, Gguf, GgufError};

/// A file's fields. Counts follow from the lists unless they are given.
#[derive(Clone, Default)]
pub(crate) struct Craft {
    pub(crate) version: u32,
    pub(crate) key_count: Option<u64>,
    pub(crate) tensor_count: Option<u64>,
    /// Keys with the bytes after them: value type and value.
    pub(crate) keys: Vec<(String, Vec<u8>)>,
    pub(crate) tensors: Vec<Tensor>,
    pub(crate) data_bytes: usize,
}

#[derive(Clone)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) dimensions: Option<u32>,
    pub(crate) shape: Vec<u64>,
    pub(crate) ty: u32,
    pub(crate) offset: u64,
}

impl Craft {
    pub(crate) fn new() -> Self {
        Self { version: 3, ..Self::default() }
    }

    pub(crate) fn key(mut self, key: &str, value: Vec<u8>) -> Self {
        self.keys.push((key.to_owned(), value));
        self
    }

    /// An f32 tensor and room for the data that its end asks for.
    pub(crate) fn f32(self, name: &str, shape: &[u64], offset: u64) -> Self {
        let bytes: u64 = shape.iter().product::<u64>() * 4;
        self.tensor(name, shape, 0, offset).data((offset + bytes) as usize)
    }

    pub(crate) fn tensor(mut self, name: &str, shape: &[u64], ty: u32, offset: u64) -> Self {
        self.tensors.push(Tensor {
            name: name.to_owned(),
            dimensions: None,
            shape: shape.to_vec(),
            ty,
            offset,
        });
        self
    }

    /// At least so many bytes of data.
    pub(crate) fn data(mut self, bytes: usize) -> Self {
        self.data_bytes = self.data_bytes.max(bytes);
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend(self.tensor_count.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.key_count.unwrap_or(self.keys.len() as u64).to_le_bytes());
        for (key, value) in &self.keys {
            out.extend(string(key));
            out.extend(value);
        }
        for t in &self.tensors {
            out.extend(string(&t.name));
            out.extend(t.dimensions.unwrap_or(t.shape.len() as u32).to_le_bytes());
            out.extend(t.shape.iter().flat_map(|d| d.to_le_bytes()));
            out.extend(t.ty.to_le_bytes());
            out.extend(t.offset.to_le_bytes());
        }
        out.resize(out.len().next_multiple_of(32) + self.data_bytes, 0);
        out
    }

    pub(crate) fn open(&self) -> Result<Gguf, GgufError> {
        parse(self.bytes())
    }

    /// The message with which it is refused.
    pub(crate) fn refusal(&self) -> String {
        self.open().expect_err("the file must be refused").to_string()
    }
}

pub(crate) fn parse(bytes: Vec<u8>) -> Result<Gguf, GgufError> {
    Gguf::parse(Bytes::from_vec(bytes))
}

pub(crate) fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

/// Value type and value.
pub(crate) fn value(ty: u32, bytes: &[u8]) -> Vec<u8> {
    [&ty.to_le_bytes()[..], bytes].concat()
}

/// An array's value type, element type, count and elements.
pub(crate) fn array(ty: u32, count: u64, bytes: &[u8]) -> Vec<u8> {
    [&9_u32.to_le_bytes()[..], &ty.to_le_bytes(), &count.to_le_bytes(), bytes].concat()
}

pub(crate) fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}
