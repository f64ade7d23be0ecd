//! What an assistant has seen, as its engine wants it.

use hf2q_model::assistant::{Assistant, Taps};

use crate::draft::Seen;

/// Which taps give keys and values; without keys they are formed of the values.
#[derive(Clone, Copy, Debug)]
pub(super) struct KvTaps {
    k: Option<usize>,
    v: usize,
}

/// A position of the target.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) position: usize,
    /// Behind the target's last norm; zeros where it made no logits.
    pub(super) hidden: Vec<f32>,
    /// Keys and values of each source, as the recording's inputs take them.
    pub(super) kv: Vec<Vec<f32>>,
}

/// All taps, the hidden state first, and which of them are keys and values of each source.
pub(super) fn taps(found: Taps) -> (Vec<String>, Vec<KvTaps>) {
    let mut all = vec![found.hidden];
    let mut number = |name: String| {
        all.push(name);
        all.len() - 1
    };
    let kv = found.kv.into_iter().map(|tap| KvTaps { k: tap.k.map(&mut number), v: number(tap.v) }).collect();
    (all, kv)
}

/// The rows of a call, of a sequence that begins at `first`; `None` if they are not what the taps give.
pub(super) fn rows(assistant: &Assistant, kv: &[KvTaps], seen: &Seen<'_>, first: usize) -> Option<Vec<Row>> {
    let hidden = assistant.target_hidden();
    let of = |tap: usize, width: usize, i: usize| {
        let values = seen.features.get(tap)?;
        let whole = values.len() == width * seen.tokens.len();
        whole.then(|| values.get(i * width..(i + 1) * width)).flatten()
    };
    let row = |i: usize| {
        let position = seen.from + i;
        let mut all = Vec::with_capacity(2 * kv.len());
        for ((source, taps), width) in kv.iter().enumerate().zip(assistant.kv_widths()) {
            let v = of(taps.v, width, i)?.to_vec();
            let (mut k, turned) = match taps.k {
                Some(k) => (of(k, width, i)?.to_vec(), position),
                None => (assistant.form(source, &v), 0),
            };
            // The sequence begins with position 0, and queries are one position ahead of the keys of their own row.
            assistant.turn(source, &mut k, position as i64 - first as i64 - 1 - turned as i64);
            all.extend([k, v]);
        }
        Some(Row { position, hidden: of(0, hidden, i)?.to_vec(), kv: all })
    };
    (0..seen.tokens.len()).map(row).collect()
}
