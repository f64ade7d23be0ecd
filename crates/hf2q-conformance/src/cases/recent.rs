//! Attention to caches whose last pages are kept a second time: every format on either side, windows that end within a
//! page, keys formed of values, both kinds of rows.

use hf2q_plan::{AttentionParams, FormedKeys, KvFormat, Pairing, RowKind, Span, View};

use super::{Case, Feed, plain_rope};
use crate::builder::{Builder, Values};
use crate::tolerance::Precision::Single;

type Formats = (KvFormat, KvFormat);

#[derive(Clone, Copy, Debug)]
struct Shape {
    head_dim: usize,
    heads: usize,
    kv_heads: usize,
    window: Option<u32>,
    /// Pages that are kept.
    pages: u32,
    formats: Formats,
    recent: Formats,
    /// One vector for keys and values.
    formed: bool,
}

const F32: Formats = (KvFormat::F32, KvFormat::F32);
const TQ4: Formats = (KvFormat::Tq4, KvFormat::Tq4);

const BASE: Shape = Shape {
    head_dim: 64,
    heads: 4,
    kv_heads: 2,
    window: None,
    pages: 1,
    formats: TQ4,
    recent: F32,
    formed: false,
};

fn shapes() -> Vec<Shape> {
    let mut shapes = vec![];
    for window in [None, Some(1), Some(20), Some(64), Some(65), Some(129)] {
        for pages in [1, 2] {
            shapes.push(Shape { window, pages, ..BASE });
        }
    }
    for (i, format) in KvFormat::ALL.into_iter().enumerate() {
        let other = KvFormat::ALL[(i * 7 + 3) % KvFormat::ALL.len()];
        let (head_dim, formed) = (KvFormat::TURBO_HEADS[i % 4], true);
        let (formats, recent) = ((format, format), (other, other));
        shapes.push(Shape { formats, heads: 16, ..BASE });
        shapes.push(Shape { formats: (format, other), recent: (other, format), window: Some(100), ..BASE });
        shapes.push(Shape { formats: F32, recent: formats, head_dim, heads: 3, kv_heads: 1, ..BASE });
        shapes.push(Shape { formats, recent, head_dim, heads: 3, kv_heads: 1, window: Some(100), ..BASE });
        shapes.push(Shape { formats, recent, head_dim, formed, ..BASE });
    }
    shapes
}

fn record(b: &mut Builder, s: Shape, queries: RowKind) -> View {
    let (q_width, kv_width) = (s.heads * s.head_dim, s.kv_heads * s.head_dim);
    let q = b.input("q", q_width, Values::Normal(1.0));
    let k = b.input("k", kv_width, Values::Normal(1.0));
    let v = b.input("v", kv_width, Values::Normal(1.0));
    let (group, last) = (b.r.group("g", s.window), b.r.group("recent", Span::Pages(s.pages)));
    let cache = if s.formed {
        let weight = Some(b.near_one("norm", s.head_dim));
        // Of the larger heads a part turns, so that codes are cut.
        let dims = if s.head_dim < 256 { s.head_dim } else { s.head_dim / 4 };
        let keys = FormedKeys { weight, rope: plain_rope(dims, Pairing::Halves), pairs: dims / 2 };
        b.r.value_cache(group, s.kv_heads, s.head_dim, (s.formats.0, keys))
    } else {
        b.r.cache(group, s.kv_heads, s.head_dim, s.formats)
    };
    let recent = b.r.recent_cache(cache, last, s.recent);
    for (name, cache) in [("store", cache), ("store_recent", recent)] {
        if s.formed {
            b.r.value_store(name, v, cache);
        } else {
            b.r.kv_store(name, k, v, cache);
        }
    }
    let q = match queries {
        RowKind::Step => q,
        RowKind::Logits => b.r.select_rows("selected", q),
    };
    let scale = 3.0 / (s.head_dim as f32).sqrt();
    b.r.attention("out", q, cache, AttentionParams { heads: s.heads, scale, softcap: None })
}

pub(super) fn cases(cases: &mut Vec<Case>) {
    for (seed, s) in shapes().into_iter().enumerate() {
        let name = format!("recent positions, {s:?}");
        let case = Case::new("attention", name, Single, move |b| record(b, s, RowKind::Step));
        cases.push(Case { feed: Feed::Traffic(500 + seed as u64), ..case });
    }
    for (seed, formed) in [false, true].into_iter().enumerate() {
        let shape = Shape { window: Some(70), heads: 6, formed, ..BASE };
        let name = format!("recent positions, wanted rows, keys formed: {formed}");
        let case = Case::of_logits("attention", name, Single, move |b| record(b, shape, RowKind::Logits));
        cases.push(Case { feed: Feed::Traffic(600 + seed as u64), ..case });
    }
}
