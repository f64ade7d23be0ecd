use hf2q_plan::Attention;

use super::{State, dot, round};
use crate::cache::CacheData;

pub(super) fn run(o: &Attention, s: &mut State<'_>) {
    let group = s.recording.cache(o.cache).group.index();
    let window = s.recording.groups[group].window;
    let cache = &s.caches[o.cache.index()];
    let heads_per_kv = o.heads / cache.kv_heads();
    for (i, r) in s.step_rows(o.q).into_iter().enumerate() {
        let row = s.step.rows[r];
        let first = window.map_or(0, |w| (row.position + 1).saturating_sub(w));
        let slot = |position| {
            s.step.slot(group, r, position).expect("Step::check saw a slot for every visible position")
        };
        let slots: Vec<u32> = (first..=row.position).map(slot).collect();
        let mut out = Vec::with_capacity(o.out.width);
        for (h, q) in s.memory.row(o.q, i).chunks_exact(cache.head_dim()).enumerate() {
            out.extend(attend(o, q, (cache, h / heads_per_kv), &slots));
        }
        s.memory.set_row(o.out, i, &out);
    }
}

/// One query head over the keys at `slots`.
fn attend(o: &Attention, q: &[f32], (cache, head): (&CacheData, usize), slots: &[u32]) -> Vec<f32> {
    let score = |&slot: &u32| {
        let score = f64::from(o.scale) * dot(q, cache.key(slot, head));
        match o.softcap.map(f64::from) {
            Some(cap) => cap * (score / cap).tanh(),
            None => score,
        }
    };
    let scores: Vec<f64> = slots.iter().map(score).collect();
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut total = 0.0;
    let mut out = vec![0.0; q.len()];
    for (&slot, score) in slots.iter().zip(scores) {
        let p = (score - largest).exp();
        total += p;
        for (out, &v) in out.iter_mut().zip(cache.value(slot, head)) {
            *out += p * f64::from(v);
        }
    }
    out.into_iter().map(|x| round(x / total)).collect()
}
