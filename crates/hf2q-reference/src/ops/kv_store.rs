use hf2q_plan::KvStore;

use super::State;

pub(super) fn run(o: &KvStore, s: &mut State<'_>) {
    let group = s.recording.cache(o.cache).group;
    let slots = &s.step.groups[group.index()].slots;
    for (r, &slot) in slots.iter().enumerate() {
        let k = o.k.map(|k| s.memory.row(k, r));
        s.caches[o.cache.index()].store(slot, k, s.memory.row(o.v, r));
    }
}
