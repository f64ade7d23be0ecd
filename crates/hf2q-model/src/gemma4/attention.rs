//! Attention whose values are normalized per head, perhaps made of the key projection, perhaps shared by later layers.

use hf2q_plan::View;

use crate::attention::{attend, keys, queries};
use crate::builder::Builder;

/// `x` is the residual stream, `h` the normalized input, both `[rows, hidden]`. Returns the residual stream and what the
/// queries see, both of the rows that go on.
pub(super) fn attention(b: &mut Builder<'_>, x: View, h: View) -> (View, View) {
    let (x, wanted) = b.wanted(x, h);
    let q = queries(b, wanted);
    if b.layer().kv_from.is_none() {
        store(b, h);
    }
    (x, attend(b, q))
}

/// Keys and values of a layer that makes its own: those of all rows.
fn store(b: &mut Builder<'_>, h: View) {
    let projected = b.linear("k_proj", h, "attn_k");
    // Without a V projection the values are the projected keys as they are before the keys' norm and rotation.
    let v = if b.layer().v_from_k { projected } else { b.linear("v_proj", h, "attn_v") };
    let k = if b.forms_keys() { None } else { Some(keys(b, projected)) };
    let norm = b.plain_norm();
    let v = b.r.head_norm("v_norm", v, norm, b.layer().head_dim);
    b.store(k, v);
}
