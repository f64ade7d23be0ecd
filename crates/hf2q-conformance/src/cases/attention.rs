//! Head sizes, grouped heads, windows around page borders, cache formats, caps; steps are random traffic with
//! chunks, draft trees and dropped pages.

use hf2q_plan::{AttentionParams, KvFormat, RowKind, View};

use super::{Case, Feed};
use crate::builder::{Builder, Values};
use crate::tolerance::Precision::Single;

#[derive(Clone, Copy, Debug)]
struct Shape {
    head_dim: usize,
    heads: usize,
    kv_heads: usize,
    window: Option<u32>,
    softcap: Option<f32>,
    formats: (KvFormat, KvFormat),
}

const F32: (KvFormat, KvFormat) = (KvFormat::F32, KvFormat::F32);
const F16: (KvFormat, KvFormat) = (KvFormat::F16, KvFormat::F16);

const BASE: Shape = Shape { head_dim: 64, heads: 4, kv_heads: 2, window: None, softcap: None, formats: F32 };

fn shapes() -> Vec<Shape> {
    let mut shapes = vec![];
    for head_dim in [16, 32, 64, 80, 128, 256, 512] {
        shapes.push(Shape { head_dim, ..BASE });
        shapes.push(Shape { head_dim, formats: F16, window: Some(100), ..BASE });
    }
    for (heads, kv_heads) in [(1, 1), (3, 3), (8, 1), (6, 2), (16, 2), (9, 3)] {
        shapes.push(Shape { heads, kv_heads, ..BASE });
        shapes.push(Shape { heads, kv_heads, formats: F16, window: Some(64), ..BASE });
    }
    for window in [1, 2, 3, 20, 63, 64, 65, 127, 128, 129] {
        shapes.push(Shape { window: Some(window), ..BASE });
    }
    for k in KvFormat::ALL {
        shapes
            .extend(KvFormat::ALL.into_iter().filter(|&v| v != k).map(|v| Shape { formats: (k, v), ..BASE }));
    }
    for format in KvFormat::ALL.into_iter().filter(|f| !matches!(f, KvFormat::F32 | KvFormat::F16)) {
        let formats = (format, format);
        for (head_dim, heads, window) in
            [(64, 4, None), (128, 2, Some(100)), (256, 3, None), (512, 2, Some(65))]
        {
            shapes.push(Shape { head_dim, heads, kv_heads: 1, window, formats, ..BASE });
        }
        shapes.push(Shape { heads: 16, formats, window: Some(129), ..BASE });
    }
    for formats in [
        (KvFormat::Tq6, KvFormat::Tq4),
        (KvFormat::F16, KvFormat::Tq4),
        (KvFormat::Tq8, KvFormat::F32),
        (KvFormat::Q8_0, KvFormat::Tq3),
        (KvFormat::Tq2, KvFormat::Bf16),
        (KvFormat::Bf16, KvFormat::Q8_0),
        (KvFormat::Tq5, KvFormat::Tq8),
    ] {
        shapes.push(Shape { formats, head_dim: 512, heads: 2, softcap: Some(5.0), window: Some(64), ..BASE });
    }
    for head_dim in [32, 96] {
        shapes.push(Shape { head_dim, formats: (KvFormat::Q8_0, KvFormat::Q8_0), ..BASE });
    }
    for softcap in [0.5, 5.0, 50.0] {
        shapes.push(Shape { softcap: Some(softcap), ..BASE });
        shapes.push(Shape { softcap: Some(softcap), window: Some(70), formats: F16, head_dim: 128, ..BASE });
    }
    shapes
}

fn record(b: &mut Builder, s: Shape) -> View {
    record_of(b, s, RowKind::Step)
}

/// With the queries of all rows, or of those whose logits are wanted.
fn record_of(b: &mut Builder, s: Shape, queries: RowKind) -> View {
    let (q_width, kv_width) = (s.heads * s.head_dim, s.kv_heads * s.head_dim);
    // Scores of a standard deviation of 3: some keys matter, none alone.
    let q = b.input("q", q_width + 3, Values::Normal(1.0)).columns(2, q_width);
    let kv = b.input("kv", 2 * kv_width + 1, Values::Normal(1.0));
    let (k, v) = (kv.columns(1, kv_width), kv.columns(1 + kv_width, kv_width));
    let group = b.r.group("g", s.window);
    let cache = b.r.cache(group, s.kv_heads, s.head_dim, s.formats);
    b.r.kv_store("store", k, v, cache);
    let q = match queries {
        RowKind::Step => q,
        RowKind::Logits => b.r.select_rows("selected", q),
    };
    let scale = 3.0 / (s.head_dim as f32).sqrt();
    b.r.attention("out", q, cache, AttentionParams { heads: s.heads, scale, softcap: s.softcap })
}

pub(super) fn cases(cases: &mut Vec<Case>) {
    for (seed, s) in shapes().into_iter().enumerate() {
        let Shape { head_dim, heads, kv_heads, window, softcap, formats: (k, v) } = s;
        let name = format!(
            "{heads} heads of {head_dim} on {kv_heads}, window {window:?}, cap {softcap:?}, k {} v {}",
            k.name(),
            v.name()
        );
        let case = Case::new("attention", name, Single, move |b| record(b, s));
        cases.push(Case { feed: Feed::Traffic(seed as u64), ..case });
    }
    for (seed, formats) in [F32, (KvFormat::Tq4, KvFormat::Tq4)].into_iter().enumerate() {
        let shape = Shape { window: Some(70), heads: 6, formats, ..BASE };
        let name = format!("of wanted rows, {}", formats.0.name());
        let case = Case::of_logits("attention", name, Single, move |b| record_of(b, shape, RowKind::Logits));
        cases.push(Case { feed: Feed::Traffic(100 + seed as u64), ..case });
    }
    let case = Case::new("attention", "two caches read by three layers".to_owned(), Single, |b| {
        let first = record(b, BASE);
        let group = b.r.group("sliding", Some(30));
        // Not f16: a rounding that falls the other way is larger than the tolerance.
        let cache = b.r.cache(group, 4, 64, F32);
        b.r.kv_store("store2", first, first, cache);
        let params = AttentionParams { heads: 4, scale: 0.4, softcap: None };
        let second = b.r.attention("second", first, cache, params);
        b.r.attention("third", second, cache, params)
    });
    cases.push(Case { feed: Feed::Traffic(77), ..case });
}
