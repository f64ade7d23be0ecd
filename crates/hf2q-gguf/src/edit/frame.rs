//! A file as an edit sees it: metadata that is read, and tensors that are carried along.

use crate::cursor::{Cursor, Place};
use crate::encode;
use crate::error::GgufError;
use crate::extent;
use crate::header::{self, Counts};
use crate::magic::{self, MAGIC};
use crate::metadata::Metadata;
use crate::tensor::TensorInfo;
use crate::types::TensorType;

/// What is known of a tensor whose type need not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FramedTensor {
    /// Its name, unique in the file.
    pub name: String,
    /// Dimensions in GGUF order.
    pub shape: Vec<u64>,
    /// Id of its type; see [`TensorType::from_id`].
    pub ty: u32,
    /// Bytes from the start of the data section.
    offset: u64,
}

/// The parts of one file.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) version: u32,
    pub(crate) alignment: u64,
    pub(crate) metadata: Metadata,
    pub(crate) tensors: Vec<FramedTensor>,
    /// The tensors' descriptions as stored.
    pub(crate) descriptions: Vec<u8>,
    /// Where the data section begins.
    pub(crate) data_start: u64,
    /// Length of the file.
    len: u64,
}

impl Frame {
    /// Parses a whole file. Tensors of known types are checked as on opening; of others, the places.
    pub(crate) fn parse(file: &[u8]) -> Result<Self, GgufError> {
        let mut cursor = Cursor::new(file);
        let version = magic::version(&mut cursor, file)?;
        let counts = Counts::read(&mut cursor)?;
        let metadata = header::metadata(&mut cursor, counts.keys)?;
        let alignment = header::alignment(&metadata)?;
        let start = cursor.at();
        let tensors = header::each_tensor(&mut cursor, counts.tensors, tensor)?;
        let end = cursor.at();
        let descriptions = file[start..end].to_vec();
        let len = file.len() as u64;
        check_places(&tensors, end as u64, alignment, len)?;
        // Cannot overflow: the alignment is small, and files are far shorter than 2^63.
        let data_start = (end as u64).next_multiple_of(alignment);
        Ok(Self { version, alignment, metadata, tensors, descriptions, data_start, len })
    }

    /// Everything before the data section, with other metadata.
    pub(crate) fn header(&self, metadata: &Metadata) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&(self.tensors.len() as u64).to_le_bytes());
        encode::put_metadata(&mut out, metadata);
        out.extend_from_slice(&self.descriptions);
        out.resize(out.len().next_multiple_of(self.alignment as usize), 0);
        out
    }

    /// Everything from the first tensor to the end of the file. A file without tensors may end before the padding.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.len.saturating_sub(self.data_start)
    }
}

fn tensor(cursor: &mut Cursor<'_>, name: &str) -> Result<FramedTensor, GgufError> {
    let shape = header::shape(cursor, name)?;
    let place = Place::Tensor(name);
    let (ty, offset) = (cursor.u32(place)?, cursor.u64(place)?);
    Ok(FramedTensor { name: name.to_owned(), shape, ty, offset })
}

fn check_places(
    tensors: &[FramedTensor],
    header_bytes: u64,
    alignment: u64,
    len: u64,
) -> Result<(), GgufError> {
    let mut known = Vec::new();
    for t in tensors {
        let Some(ty) = TensorType::from_id(t.ty) else {
            // As if it were empty: where it begins is all that is known.
            let info = TensorInfo { ty: TensorType::I8, bytes: 0, ..info(t) };
            extent::place(&mut [info], header_bytes, alignment, len)?;
            continue;
        };
        let bytes = crate::tensor::size(&t.name, ty, &t.shape)?;
        known.push(TensorInfo { ty, bytes, ..info(t) });
    }
    extent::place(&mut known, header_bytes, alignment, len)
}

fn info(t: &FramedTensor) -> TensorInfo {
    let (name, shape) = (t.name.clone(), t.shape.clone());
    TensorInfo { name, ty: TensorType::I8, shape, offset: t.offset, bytes: 0, file: 0 }
}
