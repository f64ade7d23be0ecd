//! Quantized weights as the kernels of products read them: tiles of 16 rows, repacked on the device when a program is opened.
//! The layout is described in `quant_packed.cuh`.

use hf2q_gguf::TensorType;
use hf2q_plan::{BackendError, TensorId};

use super::mat_mul::TILE;
use super::{Arguments, Cx, Grid, launch};
use crate::compile::{Compiler, small};
use crate::shelf::Form;
use crate::sources::Variant;

/// Values of a step of k.
const STEP: usize = 256;

/// Values of a group.
const GROUP: usize = 32;

/// Bytes behind a weight that kernels may ask for before they need them.
const AHEAD: usize = 8192;

/// How a format is packed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) ty: TensorType,
    /// Bytes of the scales of 16 rows of a step.
    scales: usize,
    /// Loads of planes of 1, 2, 4 and 8 bits of a full step, of 512 bytes each.
    planes: [usize; 4],
    /// Sums of activations that a group needs: none, one, or one for each half.
    pub(super) sums: usize,
}

const fn layout(ty: TensorType, scales: usize, planes: [usize; 4], sums: usize) -> Layout {
    Layout { ty, scales, planes, sums }
}

pub(super) const LAYOUTS: [Layout; 13] = [
    layout(TensorType::Q4_0, 256, [0, 0, 4, 0], 1),
    layout(TensorType::Q4_1, 512, [0, 0, 4, 0], 1),
    layout(TensorType::Q5_0, 256, [1, 0, 4, 0], 1),
    layout(TensorType::Q5_1, 512, [1, 0, 4, 0], 1),
    layout(TensorType::Q8_0, 256, [0, 0, 0, 8], 0),
    layout(TensorType::Q2K, 320, [0, 2, 0, 0], 2),
    layout(TensorType::Q3K, 288, [1, 2, 0, 0], 2),
    layout(TensorType::Q4K, 256, [0, 0, 4, 0], 1),
    layout(TensorType::Q5K, 256, [1, 0, 4, 0], 1),
    layout(TensorType::Q6K, 288, [0, 2, 4, 0], 2),
    layout(TensorType::Iq4Nl, 256, [0, 0, 4, 0], 0),
    layout(TensorType::Iq4Xs, 160, [0, 0, 4, 0], 0),
    layout(TensorType::Mxfp4, 128, [0, 0, 4, 0], 0),
];

impl Layout {
    /// `None`: the type is not multiplied.
    pub(super) fn of(ty: TensorType) -> Option<Self> {
        LAYOUTS.into_iter().find(|layout| layout.ty == ty)
    }

    /// Bytes of a step of so many groups.
    fn step_bytes(&self, groups: usize) -> usize {
        if groups == 0 {
            return 0;
        }
        // A load holds 8, 4, 2 groups or one.
        let loads = |(plane, each): (&usize, usize)| if *plane == 0 { 0 } else { groups.div_ceil(each) };
        self.scales + 512 * self.planes.iter().zip([8, 4, 2, 1]).map(loads).sum::<usize>()
    }

    /// Bytes of a matrix; `None`: too many.
    fn matrix_bytes(&self, n_in: usize, n_out: usize) -> Option<usize> {
        let full = (n_in / STEP).checked_mul(self.step_bytes(STEP / GROUP))?;
        let tile = full.checked_add(self.step_bytes(n_in % STEP / GROUP))?;
        n_out.div_ceil(TILE).checked_mul(tile)
    }
}

pub(super) fn variant(layout: &Layout) -> Variant {
    Variant::plain("mat_mul_pack").with("WEIGHT", layout.ty.id())
}

/// A packed weight on the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed {
    pub(super) data: u64,
    /// From one matrix of a stack to the next.
    pub(super) matrix_bytes: u64,
}

/// `Pack` of the kernel.
#[derive(Clone, Copy)]
#[repr(C)]
struct Pack {
    raw: u64,
    packed: u64,
    n_in: u32,
    n_out: u32,
}

// SAFETY: the fields are those of the kernel's structure; both sides have been allocated for the whole weight.
#[expect(unsafe_code, reason = "promises the layout that a kernel reads")]
unsafe impl Arguments for Pack {}

/// A weight in its packed form, made when it is first asked for.
pub(super) fn packed(c: &mut Compiler<'_>, id: TensorId, layout: &Layout) -> Result<Packed, BackendError> {
    if let Some((_, known)) = c.quantized.packed.iter().find(|(tensor, _)| *tensor == id) {
        return Ok(*known);
    }
    let w = c.recording.weight(id).clone();
    let name = c.recording.tensors[id.index()].name.clone();
    let sizes = layout.matrix_bytes(w.cols, w.rows);
    let Some((matrix, total)) = sizes.and_then(|n| Some((n, n.checked_mul(w.experts)?))) else {
        return Err(BackendError::OutOfMemory { what: name, bytes: usize::MAX });
    };
    let function = c.function(&variant(layout), "pack_weights")?;
    let bytes = c.bytes(id)?;
    let (data, is_there) = c.shared(&name, (&bytes, Form::Packed), total.saturating_add(AHEAD))?;
    let packed = Packed { data, matrix_bytes: matrix as u64 };
    c.quantized.packed.push((id, packed));
    if is_there {
        return Ok(packed);
    }
    let temporary = match c.uploaded(id) {
        Some(_) => None,
        None => Some(c.temporary(&name, &bytes)?),
    };
    let raw = temporary.as_ref().map_or_else(|| c.uploaded(id).map_or(0, |w| w.data), |buffer| buffer.at());
    let args = Pack { raw, packed: data, n_in: small(w.cols)?, n_out: small(w.rows)? };
    let blocks = [w.rows.div_ceil(TILE), w.cols.div_ceil(STEP), w.experts];
    let cx = Cx { device: &c.device, step: data, rows: 0, logit_rows: 0 };
    launch(&cx, function, Grid::new(blocks, STEP), &args)?;
    // The bytes of the file are needed no more.
    c.device.wait("packing weights")?;
    Ok(packed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_weights_are_about_as_large_as_those_of_the_file() {
        for layout in LAYOUTS {
            let blocks = 5 * STEP / layout.ty.block_len() * 48;
            let file = blocks * layout.ty.block_bytes();
            let packed = layout.matrix_bytes(5 * STEP, 48).unwrap();
            assert!(packed >= file && packed <= file + file / 20, "{}: {packed} of {file}", layout.ty);
        }
    }

    #[test]
    fn a_last_step_takes_only_the_planes_of_its_groups() {
        let q8 = Layout::of(TensorType::Q8_0).unwrap();
        assert_eq!(q8.matrix_bytes(704, 16), Some(2 * 4352 + 256 + 6 * 512));
        let q5 = Layout::of(TensorType::Q5_0).unwrap();
        assert_eq!(q5.matrix_bytes(96, 17), Some(2 * (256 + 512 + 2 * 512)));
        assert_eq!(q5.matrix_bytes(usize::MAX, 17), None);
    }
}
