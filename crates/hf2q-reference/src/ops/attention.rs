use std::collections::HashMap;

use hf2q_plan::{Attention, FormedKeys, Span};

use super::{State, dot, rope, round};
use crate::cache::CacheData;

pub(super) fn run(o: &Attention, s: &mut State<'_>) {
    let mut sources: Vec<Source<'_>> = vec![];
    // The cache, and that of the last positions if there is one.
    for id in [Some(o.cache), o.recent.map(|(id, _)| id)].into_iter().flatten() {
        let formed = o.formed_keys.as_ref().map(|keys| Formed::new(keys, s));
        let group = s.recording.cache(id).group.index();
        let (cache, span) = (&s.caches[id.index()], s.recording.groups[group].span);
        sources.push(Source { cache, group, span, formed });
    }
    let head_dim = sources[0].cache.head_dim();
    let heads_per_kv = o.heads / sources[0].cache.kv_heads();
    for (i, r) in s.step_rows(o.q).into_iter().enumerate() {
        let position = s.step.rows[r].position as usize;
        let recent = sources.get(1).map_or(usize::MAX, |recent| recent.span.first(position));
        let find = |p: usize| {
            let (source, position) = (usize::from(p >= recent), p as u32);
            let slot = s.step.slot(sources[source].group, r, position);
            Seen { source, slot: slot.expect("Step::check saw a slot for every visible position"), position }
        };
        let seen: Vec<Seen> = sources[0].span.seen(position).map(find).collect();
        seen.iter().for_each(|seen| sources[seen.source].form(seen));
        let mut out = Vec::with_capacity(o.out.width);
        for (h, q) in s.memory.row(o.q, i).chunks_exact(head_dim).enumerate() {
            out.extend(attend(o, q, (&sources, h / heads_per_kv), &seen));
        }
        s.memory.set_row(o.out, i, &out);
    }
}

/// Where a row finds the key and the value of a position.
struct Seen {
    /// Which of the caches.
    source: usize,
    slot: u32,
    position: u32,
}

/// A cache that is attended to.
struct Source<'a> {
    cache: &'a CacheData,
    group: usize,
    span: Span,
    formed: Option<Formed<'a>>,
}

impl Source<'_> {
    fn form(&mut self, seen: &Seen) {
        if let Some(formed) = &mut self.formed {
            formed.form(self.cache, (seen.slot, seen.position));
        }
    }

    fn key(&self, seen: &Seen, head: usize) -> &[f32] {
        match &self.formed {
            Some(formed) => formed.key((seen.slot, seen.position), head, self.cache.head_dim()),
            None => self.cache.key(seen.slot, head),
        }
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

/// One query head over the keys and values of the positions it sees.
fn attend(o: &Attention, q: &[f32], (sources, head): (&[Source<'_>], usize), seen: &[Seen]) -> Vec<f32> {
    let score = |seen: &Seen| {
        let score = f64::from(o.scale) * dot(q, sources[seen.source].key(seen, head));
        match o.softcap.map(f64::from) {
            Some(cap) => cap * (score / cap).tanh(),
            None => score,
        }
    };
    let scores: Vec<f64> = seen.iter().map(score).collect();
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut total = 0.0;
    let mut out = vec![0.0; q.len()];
    for (seen, score) in seen.iter().zip(scores) {
        let p = (score - largest).exp();
        total += p;
        for (out, &v) in out.iter_mut().zip(sources[seen.source].cache.value(seen.slot, head)) {
            *out += p * f64::from(v);
        }
    }
    out.into_iter().map(|x| round(x / total)).collect()
}
