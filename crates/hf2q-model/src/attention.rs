//! Attention as all architectures share it. `h` is the normalized input `[rows, hidden]`.

use hf2q_plan::{AttentionParams, View};

use crate::builder::Builder;

/// Self-attention: project, normalize heads (where the family does), rotate, attend, project back. Returns the residual
/// stream `x` and what the queries see, both of the rows that go on.
pub(crate) fn self_attention(b: &mut Builder<'_>, x: View, h: View) -> (View, View) {
    let (x, wanted) = b.wanted(x, h);
    let q = queries(b, wanted);
    let k = b.linear("k_proj", h, "attn_k");
    let k = keys(b, k);
    let v = b.linear("v_proj", h, "attn_v");
    b.store(Some(k), v);
    (x, attend(b, q))
}

/// Rotated queries `[rows, heads · head_dim]`.
pub(crate) fn queries(b: &mut Builder<'_>, h: View) -> View {
    let q = b.linear("q_proj", h, "attn_q");
    let q = head_norm(b, "q_norm", q, "attn_q_norm");
    b.rope("q_rope", q)
}

/// Rotated keys of the projected `k`, `[R, kv_heads · head_dim]`.
pub(crate) fn keys(b: &mut Builder<'_>, k: View) -> View {
    let k = head_norm(b, "k_norm", k, "attn_k_norm");
    b.rope("k_rope", k)
}

/// What the queries see in the layer's cache, projected to `[rows, hidden]`.
pub(crate) fn attend(b: &mut Builder<'_>, q: View) -> View {
    let cache = b.cache();
    let layer = b.layer();
    let params = AttentionParams { heads: layer.heads, scale: layer.attention_scale, softcap: None };
    let h = b.r.attention("attend", q, cache, params);
    b.linear("o_proj", h, "attn_output")
}

fn head_norm(b: &mut Builder<'_>, op: &str, x: View, name: &str) -> View {
    if !b.config.architecture.has_head_norms() {
        return x;
    }
    let norm = b.norm_of(name);
    b.r.head_norm(op, x, norm, b.layer().head_dim)
}
