use std::collections::HashMap;

use hf2q_plan::{Attention, FormedKeys};

use super::{State, dot, rope, round};
use crate::cache::CacheData;

pub(super) fn run(o: &Attention, s: &mut State<'_>) {
    let group = s.recording.cache(o.cache).group.index();
    let window = s.recording.groups[group].window;
    let cache = &s.caches[o.cache.index()];
    let heads_per_kv = o.heads / cache.kv_heads();
    let mut formed = o.formed_keys.as_ref().map(|keys| Formed::new(keys, s));
    for (i, r) in s.step_rows(o.q).into_iter().enumerate() {
        let row = s.step.rows[r];
        let first = window.map_or(0, |w| (row.position + 1).saturating_sub(w));
        let slot = |position| {
            s.step.slot(group, r, position).expect("Step::check saw a slot for every visible position")
        };
        let slots: Vec<(u32, u32)> = (first..=row.position).map(|p| (slot(p), p)).collect();
        if let Some(formed) = &mut formed {
            slots.iter().for_each(|&at| formed.form(cache, at));
        }
        let mut out = Vec::with_capacity(o.out.width);
        for (h, q) in s.memory.row(o.q, i).chunks_exact(cache.head_dim()).enumerate() {
            out.extend(attend(o, q, (cache, formed.as_ref(), h / heads_per_kv), &slots));
        }
        s.memory.set_row(o.out, i, &out);
    }
}

/// Keys that are made of values, as far as a step needs them.
struct Formed<'a> {
    keys: &'a FormedKeys,
    weight: Option<Vec<f32>>,
    frequencies: Vec<f64>,
    /// All heads, by slot and position.
    made: HashMap<(u32, u32), Vec<f32>>,
}

impl<'a> Formed<'a> {
    fn new(keys: &'a FormedKeys, s: &State<'_>) -> Self {
        let weight = keys.weight.map(|id| s.memory.weight(id).to_vec());
        let frequencies = rope::frequencies(&keys.rope, keys.rope.factors.map(|id| s.memory.weight(id)));
        Self { keys, weight, frequencies, made: HashMap::new() }
    }

    fn form(&mut self, cache: &CacheData, (slot, position): (u32, u32)) {
        let Self { keys, weight, frequencies, made } = self;
        made.entry((slot, position)).or_insert_with(|| {
            let mut all = Vec::new();
            for head in 0..cache.kv_heads() {
                let value = cache.value(slot, head).iter().enumerate();
                all.extend(value.map(|(i, &v)| weight.as_ref().map_or(v, |w| v * w[i])));
            }
            rope::rotated(&all, cache.head_dim(), (&keys.rope, frequencies), position)
        });
    }

    fn key(&self, at: (u32, u32), head: usize, head_dim: usize) -> &[f32] {
        let all = self.made.get(&at).expect("every visible key has been formed");
        &all[head * head_dim..(head + 1) * head_dim]
    }
}

/// One query head over the keys at slots, given with their positions.
fn attend(
    o: &Attention,
    q: &[f32],
    (cache, formed, head): (&CacheData, Option<&Formed<'_>>, usize),
    slots: &[(u32, u32)],
) -> Vec<f32> {
    let score = |&at: &(u32, u32)| {
        let key = match formed {
            Some(formed) => formed.key(at, head, cache.head_dim()),
            None => cache.key(at.0, head),
        };
        let score = f64::from(o.scale) * dot(q, key);
        match o.softcap.map(f64::from) {
            Some(cap) => cap * (score / cap).tanh(),
            None => score,
        }
    };
    let scores: Vec<f64> = slots.iter().map(score).collect();
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut total = 0.0;
    let mut out = vec![0.0; q.len()];
    for (&(slot, _), score) in slots.iter().zip(scores) {
        let p = (score - largest).exp();
        total += p;
        for (out, &v) in out.iter_mut().zip(cache.value(slot, head)) {
            *out += p * f64::from(v);
        }
    }
    out.into_iter().map(|x| round(x / total)).collect()
}
