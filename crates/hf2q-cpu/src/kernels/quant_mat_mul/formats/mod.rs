//! One file per block format: how its codes and scales are taken out of a block. Layouts are described in
//! `hf2q_quant`.

mod iq4_nl;
mod iq4_xs;
mod k_scales;
mod mxfp4;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;

use hf2q_gguf::TensorType;

use super::product::{Call, product};

/// Whether [`dispatch`] knows a type.
pub(super) fn known(ty: TensorType) -> bool {
    runner(ty).is_some()
}

/// Computes a product with the format of a type that is [known].
pub(super) fn dispatch(ty: TensorType, call: &mut Call<'_>) {
    let run = runner(ty).expect("the constructor of the product checks the type");
    run(call);
}

fn runner(ty: TensorType) -> Option<fn(&mut Call<'_>)> {
    Some(match ty {
        TensorType::Q4_0 => product::<q4_0::Q4_0>,
        TensorType::Q4_1 => product::<q4_1::Q4_1>,
        TensorType::Q5_0 => product::<q5_0::Q5_0>,
        TensorType::Q5_1 => product::<q5_1::Q5_1>,
        TensorType::Q8_0 => product::<q8_0::Q8_0>,
        TensorType::Q2K => product::<q2_k::Q2K>,
        TensorType::Q3K => product::<q3_k::Q3K>,
        TensorType::Q4K => product::<q4_k::Q4K>,
        TensorType::Q5K => product::<q5_k::Q5K>,
        TensorType::Q6K => product::<q6_k::Q6K>,
        TensorType::Iq4Nl => product::<iq4_nl::Iq4Nl>,
        TensorType::Iq4Xs => product::<iq4_xs::Iq4Xs>,
        TensorType::Mxfp4 => product::<mxfp4::Mxfp4>,
        _ => return None,
    })
}
