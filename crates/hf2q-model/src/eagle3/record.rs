//! The head as operations.

use hf2q_plan::{KvFormat, Norm, PlanError, Recording, Weight};

use super::{EMBEDDING, Eagle3};
use crate::attention::self_attention;
use crate::builder::Builder;
use crate::error::ModelError;
use crate::feed_forward::gated;
use crate::options::RecordOptions;

/// The operation whose result is the state of the next row.
const STATE: &str = "L00.ffn.add";

pub(super) fn fusion(eagle: &Eagle3) -> Result<Recording, PlanError> {
    let mut b = Builder::new(&eagle.head, RecordOptions::default());
    let x = b.r.input("features", eagle.features());
    let mut x = b.r.select_rows("select_rows", x);
    if eagle.eagle.norm_before_fc {
        let norm = whole_norm(&mut b, "enc.output_norm.weight");
        x = b.r.rms_norm("norm", x, norm);
    }
    let matrix = b.model_weight("fc.weight");
    let state = b.r.mat_mul("fuse", x, matrix);
    b.r.finish(state)
}

pub(super) fn layer(eagle: &Eagle3, format: KvFormat) -> Result<Recording, ModelError> {
    let options = RecordOptions { recent: None, ..RecordOptions::uniform(format) };
    let mut b = Builder::new(&eagle.head, options);
    let width = eagle.width();
    let state = b.r.input("state", width);
    let table = b.r.weight(EMBEDDING, embedding(eagle));
    let token = b.r.embed("embed", table, 1.0);
    b.go_to(0);
    b.part("attn");
    let both = b.r.in_parts("norms", 2 * width);
    let (of_token, of_state) = (both.columns(0, width), both.columns(width, width));
    let norm = b.norm_of("attn_norm");
    b.r.rms_norm_to("token_norm", token, norm, of_token);
    let norm = b.norm_of("attn_norm_2");
    b.r.rms_norm_to("state_norm", state, norm, of_state);
    let residual = if eagle.eagle.norm_before_residual { of_state } else { state };
    let (x, h) = self_attention(&mut b, residual, both);
    let x = b.r.add("add", x, h);

    b.part("ffn");
    let h = b.norm("norm", x, "ffn_norm");
    let h = gated(&mut b, h);
    let x = b.r.add("add", x, h);

    b.r.prefix("");
    let norm = whole_norm(&mut b, "output_norm.weight");
    let x = b.r.rms_norm("output_norm", x, norm);
    let matrix = b.model_weight("output.weight");
    let logits = b.r.mat_mul("output", x, matrix);
    let mut recording = b.r.finish(logits)?;
    recording.keep(&[STATE])?;
    Ok(recording)
}

fn whole_norm(b: &mut Builder<'_>, name: &str) -> Norm {
    Norm { weight: Some(b.model_weight(name)), eps: b.config.norm_eps }
}

fn embedding(eagle: &Eagle3) -> Weight {
    let stored = &eagle.embedding;
    let dim = |i: usize| stored.shape.get(i).copied().unwrap_or(1);
    Weight { ty: stored.ty, cols: dim(0), rows: dim(1), experts: 1 }
}
