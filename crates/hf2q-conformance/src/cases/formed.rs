//! Attention over caches that store one vector for keys and values, and over values that need no stored scale.

use hf2q_plan::{AttentionParams, FormedKeys, KvFormat, Pairing, RopeParams, RowKind, View};

use super::{Case, Feed, plain_rope};
use crate::builder::{Builder, Values};
use crate::tolerance::Precision::Single;

#[derive(Clone, Copy, Debug)]
struct Shape {
    head_dim: usize,
    /// Components that turn.
    dims: usize,
    pairing: Pairing,
    /// Whether most pairs do not turn, as Gemma 4 stores it.
    proportional: bool,
    heads: usize,
    kv_heads: usize,
    window: Option<u32>,
    softcap: Option<f32>,
    format: KvFormat,
}

const BASE: Shape = Shape {
    head_dim: 64,
    dims: 64,
    pairing: Pairing::Halves,
    proportional: false,
    heads: 4,
    kv_heads: 2,
    window: None,
    softcap: None,
    format: KvFormat::F32,
};

fn shapes() -> Vec<Shape> {
    let mut shapes = vec![];
    for (head_dim, dims) in [(16, 16), (32, 8), (64, 64), (80, 34), (128, 128), (256, 64), (512, 512)] {
        for pairing in [Pairing::Halves, Pairing::Adjacent] {
            shapes.push(Shape { head_dim, dims, pairing, ..BASE });
        }
    }
    for (heads, kv_heads) in [(1, 1), (8, 1), (6, 2), (9, 3), (16, 2)] {
        shapes.push(Shape { heads, kv_heads, proportional: true, format: KvFormat::F16, ..BASE });
    }
    for window in [1, 20, 64, 65, 129] {
        shapes.push(Shape { window: Some(window), ..BASE });
    }
    for format in KvFormat::ALL {
        for (head_dim, heads, window) in [(64, 4, Some(100)), (128, 2, None), (256, 3, None)] {
            shapes.push(Shape { head_dim, dims: head_dim, heads, kv_heads: 1, window, format, ..BASE });
        }
        let (head_dim, heads, softcap) = (512, 8, Some(50.0));
        let proportional = true;
        let shape =
            Shape { head_dim, dims: head_dim, heads, kv_heads: 1, softcap, format, proportional, ..BASE };
        shapes.push(shape);
        let (head_dim, dims, pairing) = (512, 256, Pairing::Adjacent);
        shapes.push(Shape { head_dim, dims, pairing, heads: 9, kv_heads: 1, format, ..BASE });
    }
    shapes
}

fn rope(b: &mut Builder, s: Shape) -> RopeParams {
    let p = plain_rope(s.dims, s.pairing);
    if !s.proportional {
        return p;
    }
    let pairs = s.dims / 2;
    let factors: Vec<f32> = (0..pairs).map(|i| if i < pairs / 4 { 1.0 } else { 1e30 }).collect();
    RopeParams { base: 1e6, factors: Some(b.vector("factors", &factors)), ..p }
}

fn record(b: &mut Builder, s: Shape, queries: RowKind) -> View {
    let (q_width, kv_width) = (s.heads * s.head_dim, s.kv_heads * s.head_dim);
    let q = b.input("q", q_width + 3, Values::Normal(1.0)).columns(2, q_width);
    let v = b.input("v", kv_width + 1, Values::Normal(1.0)).columns(1, kv_width);
    let weight = Some(b.near_one("norm", s.head_dim));
    let pairs = s.dims / if s.proportional { 8 } else { 2 };
    let keys = FormedKeys { weight, rope: rope(b, s), pairs };
    let group = b.r.group("g", s.window);
    let cache = b.r.value_cache(group, s.kv_heads, s.head_dim, (s.format, keys));
    b.r.value_store("store", v, cache);
    let q = match queries {
        RowKind::Step => q,
        RowKind::Logits => b.r.select_rows("selected", q),
    };
    let scale = 3.0 / (s.head_dim as f32).sqrt();
    b.r.attention("out", q, cache, AttentionParams { heads: s.heads, scale, softcap: s.softcap })
}

/// Keys and values of which the latter are as long as their norm makes them.
fn record_unit(b: &mut Builder, (head_dim, formats): (usize, (KvFormat, KvFormat))) -> View {
    let q = b.input("q", 2 * head_dim, Values::Normal(1.0));
    let k = b.input("k", head_dim, Values::Normal(1.0));
    let v = b.input("v", head_dim, Values::Normal(1.0));
    let group = b.r.group("g", Some(100));
    let cache = b.r.unit_cache(group, 1, head_dim, formats);
    b.r.kv_store("store", k, v, cache);
    let scale = 3.0 / (head_dim as f32).sqrt();
    b.r.attention("out", q, cache, AttentionParams { heads: 2, scale, softcap: None })
}

pub(super) fn cases(cases: &mut Vec<Case>) {
    for (seed, s) in shapes().into_iter().enumerate() {
        let case = Case::new("attention", format!("keys of values, {s:?}"), Single, move |b| {
            record(b, s, RowKind::Step)
        });
        cases.push(Case { feed: Feed::Traffic(200 + seed as u64), ..case });
    }
    let case = Case::of_logits("attention", "keys of values, wanted rows".to_owned(), Single, |b| {
        record(b, Shape { format: KvFormat::Tq4, window: Some(70), ..BASE }, RowKind::Logits)
    });
    cases.push(Case { feed: Feed::Traffic(300), ..case });
    for (i, format) in KvFormat::ALL.into_iter().enumerate() {
        for (head_dim, k) in [(64, format), (128, KvFormat::F16), (256, KvFormat::Tq8), (512, format)] {
            let name = format!("unit values of {head_dim}, k {} v {}", k.name(), format.name());
            let case = Case::new("attention", name, Single, move |b| record_unit(b, (head_dim, (k, format))));
            cases.push(Case { feed: Feed::Traffic(400 + (head_dim + i) as u64), ..case });
        }
    }
}
