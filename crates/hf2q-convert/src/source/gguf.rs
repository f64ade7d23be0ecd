//! A GGUF file as a source.

use std::path::Path;

use hf2q_arch::Config;
use hf2q_gguf::{Gguf, TensorInfo};

use super::{Kind, Source, SourceTensor};
use crate::error::ConvertError;
use crate::rows::Rows;
use crate::verify::check_model;

pub(super) fn open(path: &Path) -> Result<Source, ConvertError> {
    let gguf = Gguf::open(path)?;
    let config = Config::from_metadata(gguf.metadata(), &|name| gguf.tensor(name).is_some())?;
    let tensors = gguf.tensors().iter().map(|t| tensor(&gguf, t)).collect();
    let mut warnings = Vec::new();
    let lossy = |t: &&TensorInfo| t.ty.block_len() > 1;
    if let Some(first) = gguf.tensors().iter().find(lossy) {
        let count = gguf.tensors().iter().filter(lossy).count();
        warnings.push(format!(
            "{count} tensors are quantized already ({} is {}): quantizing again adds to their error; start from f16, bf16 or f32 where you can",
            first.name, first.ty
        ));
    }
    let shapes = gguf.tensors().iter().map(|t| (t.name.clone(), t.shape.clone())).collect();
    let problems = check_model(gguf.metadata(), &shapes).problems;
    if let Some(first) = problems.first() {
        let more =
            if problems.len() > 1 { format!(" (and {} more)", problems.len() - 1) } else { String::new() };
        warnings.push(format!("this is no whole model, and what is written will not be: {first}{more}"));
    }
    let (metadata, inputs) = (gguf.metadata().clone(), gguf.paths().to_vec());
    Ok(Source { kind: Kind::Gguf, config, metadata, tensors, inputs, warnings })
}

fn tensor(gguf: &Gguf, info: &TensorInfo) -> SourceTensor {
    SourceTensor {
        name: info.name.clone(),
        shape: info.shape.clone(),
        natural: info.ty,
        rows: Rows::blocks(info.ty, &gguf.bytes(info), &info.shape),
    }
}
