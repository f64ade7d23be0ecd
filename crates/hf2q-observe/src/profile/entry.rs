//! Sums of times, and what they are grouped by.

use std::collections::HashMap;
use std::time::Duration;

use hf2q_plan::{Cache, Cost, KvFormat, NamedOp, Op, Recording, TensorId};

/// What one operation took in all steps of a phase.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Name of the operation; of a preparation that serves several the first of them.
    pub op: String,
    /// What the backend prepares for it, for example `quantize`; `None`: it is the operation itself.
    pub preparation: Option<&'static str>,
    /// Kind of operation with the format of what it reads, for example `mat_mul q4_0` or `attention k=tq6,v=tq4`.
    pub kind: String,
    /// For example `L07`; the operation's name where it belongs to no layer.
    pub layer: String,
    /// How often it ran.
    pub calls: u64,
    /// How long, all together.
    pub time: Duration,
    /// What it moved and computed; nothing is counted for preparations.
    pub cost: Cost,
    /// The least time in which the machine could have done that.
    pub bound: Duration,
}

impl Entry {
    pub(super) fn new(recording: &Recording, op: &NamedOp, preparation: Option<&'static str>) -> Self {
        Self {
            op: op.name.clone(),
            preparation,
            kind: preparation.map_or_else(|| kind(recording, &op.op), str::to_owned),
            layer: layer(&op.name).unwrap_or(&op.name).to_owned(),
            calls: 0,
            time: Duration::ZERO,
            cost: Cost::default(),
            bound: Duration::ZERO,
        }
    }
}

fn kind(recording: &Recording, op: &Op) -> String {
    let of = |format: &str| format!("{} {format}", op.kind());
    let weight = |id: TensorId| of(recording.weight(id).ty.name());
    match op {
        Op::Embed(o) => weight(o.table),
        Op::MatMul(o) => weight(o.weight),
        Op::ExpertMatMul(o) => weight(o.weight),
        Op::KvStore(o) => of(&formats(recording.cache(o.cache))),
        Op::Attention(o) => of(&formats(recording.cache(o.cache))),
        _ => op.kind().to_owned(),
    }
}

fn formats(cache: &Cache) -> String {
    let (k, v): (KvFormat, KvFormat) = (cache.k_format, cache.v_format);
    if k == v { k.name().to_owned() } else { format!("k={},v={}", k.name(), v.name()) }
}

/// `L07` of `L07.attn.q_proj`.
fn layer(name: &str) -> Option<&str> {
    let (first, _) = name.split_once('.')?;
    let number = first.strip_prefix('L')?;
    (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())).then_some(first)
}

/// What the lines of a profile are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Each operation by itself.
    Op,
    /// Operations of one kind and format.
    Kind,
    /// Operations of one layer; those of none by themselves.
    Layer,
}

impl By {
    /// Lower-case name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Op => "op",
            Self::Kind => "kind",
            Self::Layer => "layer",
        }
    }
}

/// A sum over entries.
#[derive(Clone, Debug)]
pub struct Line {
    /// What they have in common.
    pub name: String,
    /// See [`Entry::calls`].
    pub calls: u64,
    /// See [`Entry::time`].
    pub time: Duration,
    /// See [`Entry::cost`].
    pub cost: Cost,
    /// See [`Entry::bound`].
    pub bound: Duration,
}

impl Line {
    /// Bytes a second, in units of 10^9.
    pub fn gigabytes(&self) -> f64 {
        self.cost.bytes() as f64 / self.time.as_secs_f64().max(1e-12) / 1e9
    }

    /// Multiplications and additions a second, in units of 10^9.
    pub fn gigaflops(&self) -> f64 {
        self.cost.flops as f64 / self.time.as_secs_f64().max(1e-12) / 1e9
    }

    /// The part of the time in which the machine could have done it at best, 1 for all of it; `None` where no work is
    /// counted. Above 1 where data came from the processor's caches.
    pub fn of_roofline(&self) -> Option<f64> {
        (!self.bound.is_zero()).then(|| self.bound.as_secs_f64() / self.time.as_secs_f64().max(1e-12))
    }
}

/// Sums, the most expensive first.
pub(super) fn lines(entries: &[Entry], by: By) -> Vec<Line> {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut lines: Vec<Line> = Vec::new();
    for e in entries {
        let name = match by {
            By::Op => e.preparation.map_or_else(|| e.op.clone(), |p| format!("{} {p}", e.op)),
            By::Kind => e.kind.clone(),
            By::Layer => e.layer.clone(),
        };
        let at = *places.entry(name.clone()).or_insert_with(|| {
            let (time, bound) = (Duration::ZERO, Duration::ZERO);
            lines.push(Line { name, calls: 0, time, cost: Cost::default(), bound });
            lines.len() - 1
        });
        let line = &mut lines[at];
        line.calls += e.calls;
        line.time += e.time;
        line.cost += e.cost;
        line.bound += e.bound;
    }
    lines.sort_by_key(|line| std::cmp::Reverse(line.time));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(op: &str, kind: &str, preparation: Option<&'static str>, millis: u64) -> Entry {
        let time = Duration::from_millis(millis);
        let cost = Cost { weight_bytes: 1_000_000, flops: 3_000_000, ..Cost::default() };
        let layer = layer(op).unwrap_or(op).to_owned();
        Entry { op: op.into(), preparation, kind: kind.into(), layer, calls: 2, time, cost, bound: time / 2 }
    }

    #[test]
    fn entries_are_summed_by_what_they_share() {
        let entries = [
            entry("L00.q", "mat_mul q8_0", None, 1),
            entry("L00.q", "quantize", Some("quantize"), 2),
            entry("L01.q", "mat_mul q8_0", None, 4),
            entry("output", "mat_mul f16", None, 3),
        ];
        let get =
            |by| lines(&entries, by).into_iter().map(|l| (l.name, l.time.as_millis())).collect::<Vec<_>>();
        let expect = |list: &[(&str, u128)]| list.iter().map(|&(n, t)| (n.to_owned(), t)).collect::<Vec<_>>();
        assert_eq!(get(By::Layer), expect(&[("L01", 4), ("L00", 3), ("output", 3)]));
        assert_eq!(get(By::Kind), expect(&[("mat_mul q8_0", 5), ("mat_mul f16", 3), ("quantize", 2)]));
        assert_eq!(get(By::Op)[2], ("L00.q quantize".to_owned(), 2));
        let both = &lines(&entries, By::Kind)[0];
        assert_eq!((both.calls, both.of_roofline()), (4, Some(0.5)));
        assert!((both.gigabytes() - 0.4).abs() < 1e-9 && (both.gigaflops() - 1.2).abs() < 1e-9);
    }

    #[test]
    fn layers_are_numbered() {
        assert_eq!(
            ["L07.attn.q", "output", "L.x", "Lx.y", "L07"].map(layer),
            [Some("L07"), None, None, None, None]
        );
    }
}
