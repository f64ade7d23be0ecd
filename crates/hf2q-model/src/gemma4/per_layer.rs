//! Per-layer embeddings: each layer gets a small input of its own, made of the token and of its embedding.

use hf2q_plan::{Norm, Recorder, View};

use crate::builder::Builder;

/// Inputs of some layers and all behind them.
#[derive(Clone, Copy)]
pub(crate) struct PerLayer {
    /// `[rows, layers · width]`: side by side.
    view: View,
    /// The first of the layers.
    first: usize,
    /// Columns of a layer.
    width: usize,
}

impl PerLayer {
    /// What is left of them from layer `i` on, of the rows whose logits are wanted.
    pub(crate) fn wanted(self, r: &mut Recorder, i: usize) -> Self {
        let left = self.from(i);
        Self { view: r.select_rows("select_per_layer", left.view), ..left }
    }

    /// Those of layer `i` and the layers behind it.
    fn from(self, i: usize) -> Self {
        let skipped = (i - self.first) * self.width;
        Self { view: self.view.columns(skipped, self.view.width - skipped), first: i, ..self }
    }
}

/// The inputs of all layers, `[R, layers · width]`, from the scaled embeddings `x`; `None` for models without.
///
/// `(table[token] · √width + norm(projection · x / √hidden)) / √2`, the norm over each layer's `width` columns.
pub(crate) fn inputs(b: &mut Builder<'_>, x: View) -> Option<PerLayer> {
    let width = b.config.per_layer_embedding?;
    b.r.prefix("per_layer");
    let table = b.model_weight("per_layer_token_embd.weight");
    let of_token = b.r.embed("embed", table, (width as f32).sqrt());
    let projection = b.model_weight("per_layer_model_proj.weight");
    let h = b.r.mat_mul("proj", x, projection);
    let h = b.r.scale("proj_scale", h, (b.config.hidden as f32).powf(-0.5), None);
    let weight = Some(b.model_weight("per_layer_proj_norm.weight"));
    let h = b.r.head_norm("proj_norm", h, Norm { weight, eps: b.config.norm_eps }, width);
    let h = b.r.add("add", h, of_token);
    Some(PerLayer { view: b.r.scale("scale", h, 0.5_f32.sqrt(), None), first: 0, width })
}

/// Adds the current layer's share of `inputs`, gated by the residual stream `x`.
pub(super) fn add(b: &mut Builder<'_>, x: View, inputs: PerLayer) -> View {
    let input = inputs.from(b.index()).view.columns(0, inputs.width);
    b.part("per_layer");
    let gate = b.linear("gate_proj", x, "inp_gate");
    let h = b.r.glu("glu", gate, input, b.activation());
    let h = b.linear("out_proj", h, "proj");
    let h = b.norm("post_norm", h, "post_norm");
    b.r.add("add", x, h)
}
