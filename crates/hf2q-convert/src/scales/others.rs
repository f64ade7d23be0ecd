//! Tensors of quantized checkpoints that are no weights, and weights that cannot be read.

use safetensors::Dtype;

use super::QuantizedError;
use crate::checkpoint::CheckpointTensor;

/// Ends of names of what concerns activations and caches alone: the scale by which inputs, outputs, keys or values
/// would be quantized at run time. Weights do not depend on them.
const ACTIVATIONS: &[&str] = &[
    ".input_scale",
    ".input_scale_ub",
    ".input_global_scale",
    ".input_zero_point",
    ".output_scale",
    ".output_zero_point",
    ".activation_scale",
    "_activation_scale",
    ".qscale_act",
    ".scale_input",
    ".q_scale",
    ".k_scale",
    ".v_scale",
    ".kv_scale",
    ".prob_scale",
    ".k_cache_scale",
    ".v_cache_scale",
];

/// Ends of names that only one way of storing quantized weights has, and whose it is.
const PACKED: &[(&str, &str)] = &[
    (".qweight", "GPTQ or AWQ"),
    (".weight_packed", "compressed-tensors, packed into integers"),
    (".weight_scale_2", "NVFP4"),
    (".weight_global_scale", "NVFP4"),
    ("_proj_blocks", "MXFP4"),
    (".weight.quant_map", "bitsandbytes"),
    (".SCB", "bitsandbytes, 8 bits"),
    (".weight._data", "quanto"),
    (".W_q", "HQQ"),
    (".codebooks", "AQLM"),
    (".Qidxs", "QuIP"),
];

/// Whether a tensor is the scale of an activation, to be left out of a checkpoint with quantized weights.
pub(crate) fn is_activation_scale(name: &str) -> bool {
    ACTIVATIONS.iter().any(|end| name.ends_with(end))
}

/// Refuses a checkpoint by the first of its tensors that shows weights which cannot be read.
///
/// # Errors
/// [`QuantizedError::Packed`].
pub(crate) fn refuse_packed<'a>(
    tensors: impl Iterator<Item = (&'a str, &'a CheckpointTensor)>,
) -> Result<(), QuantizedError> {
    for (name, tensor) in tensors {
        let by_name = PACKED.iter().find(|(end, _)| name.ends_with(end)).map(|&(_, format)| format);
        if let Some(format) = by_name.or_else(|| by_type(tensor.dtype)) {
            let (tensor, shard, dtype) =
                (name.to_owned(), tensor.shard.clone(), format!("{:?}", tensor.dtype));
            return Err(QuantizedError::Packed { tensor, shard, dtype, format });
        }
    }
    Ok(())
}

fn by_type(dtype: Dtype) -> Option<&'static str> {
    match dtype {
        Dtype::F4 => Some("floats of 4 bits"),
        Dtype::F6_E2M3 | Dtype::F6_E3M2 => Some("floats of 6 bits"),
        Dtype::F8_E4M3FNUZ | Dtype::F8_E5M2FNUZ => Some("floats of 8 bits without negative zero"),
        _ => None,
    }
}
