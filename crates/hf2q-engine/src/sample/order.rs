//! Tokens in the order of their logits: the highest first, of equals the lowest id first.
//!
//! A token and its logit are one number, which ascends in that order: numbers are compared and sorted without branches.
//! Where few tokens are wanted, one pass selects them; otherwise all are sorted digit by digit.

/// Tokens that are looked at before the lowest of them are dropped.
const BUFFER: usize = 1024;

/// Logits that are looked at side by side.
const LANES: usize = 16;

/// Where more than one of so many tokens is wanted, all are sorted.
pub(super) const FEW: usize = 16;

/// The `n` highest finite logits and their tokens, in order. 0 and -0 are equal and become 0.
pub(super) fn highest(logits: &[f32], n: usize) -> Vec<(u32, f32)> {
    let mut keys = if n > logits.len() / FEW { sort(logits) } else { select(logits, n) };
    keys.truncate(n);
    keys.into_iter().map(unpack).collect()
}

/// The number of a finite logit, descending, above that of its token.
fn pack(id: u32, logit: f32) -> u64 {
    let bits = (logit + 0.0).to_bits();
    let ascending = if bits < SIGN { bits | SIGN } else { !bits };
    u64::from(!ascending) << 32 | u64::from(id)
}

fn unpack(key: u64) -> (u32, f32) {
    let ascending = !((key >> 32) as u32);
    let bits = if ascending < SIGN { !ascending } else { ascending ^ SIGN };
    ((key & u64::from(u32::MAX)) as u32, f32::from_bits(bits))
}

const SIGN: u32 = 1 << 31;

/// At least the `n` first keys, in order, if there are as many.
fn select(logits: &[f32], n: usize) -> Vec<u64> {
    let full = n.saturating_mul(2).max(BUFFER);
    let mut kept: Vec<u64> = Vec::new();
    let mut least = f32::NEG_INFINITY;
    // Of equals the first stays, and tokens come by ascending id: what equals the least of n that are kept is not.
    let above = |logit: f32, least: f32| logit > least && logit < f32::INFINITY;
    for (first, part) in (0_u32..).step_by(LANES).zip(logits.chunks(LANES)) {
        // Most parts have none.
        if !part.iter().fold(false, |any, &logit| any | above(logit, least)) {
            continue;
        }
        let new = (first..).zip(part).filter(|&(_, &logit)| above(logit, least));
        kept.extend(new.map(|(id, &logit)| pack(id, logit)));
        if kept.len() >= full {
            least = keep_first(&mut kept, n);
        }
    }
    kept.sort_unstable();
    kept
}

/// Drops all but the `n` first keys, of which there are as many; returns the least logit of them.
fn keep_first(kept: &mut Vec<u64>, n: usize) -> f32 {
    let Some(last) = n.checked_sub(1) else { return f32::INFINITY };
    let least = unpack(*kept.select_nth_unstable(last).1).1;
    kept.truncate(n);
    least
}

/// All keys in order. They are made by ascending id, and each pass leaves keys with equal digits as they were: the logit's
/// digits are enough.
fn sort(logits: &[f32]) -> Vec<u64> {
    const DIGITS: usize = 1 << 8;
    let finite = (0..).zip(logits).filter(|(_, logit)| logit.is_finite());
    let mut keys = Vec::with_capacity(logits.len());
    keys.extend(finite.map(|(id, &logit)| pack(id, logit)));
    let mut next = vec![0; keys.len()];
    for shift in [32, 40, 48, 56] {
        let digit = |key: u64| (key >> shift) as usize % DIGITS;
        let mut places = [0_usize; DIGITS];
        keys.iter().for_each(|&key| places[digit(key)] += 1);
        let mut before = 0;
        for place in &mut places {
            before += std::mem::replace(place, before);
        }
        for &key in &keys {
            let place = &mut places[digit(key)];
            next[*place] = key;
            *place += 1;
        }
        std::mem::swap(&mut keys, &mut next);
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_ascend_as_logits_fall() {
        let falling = [f32::MAX, 1.0, f32::MIN_POSITIVE, 0.0, -1e-45, -1.0, f32::MIN];
        let keys = falling.map(|logit| pack(7, logit));
        assert!(keys.is_sorted_by(|a, b| a < b), "{keys:?}");
        assert_eq!(keys.map(unpack), falling.map(|logit| (7, logit)));
        assert_eq!(pack(u32::MAX, -0.0), pack(u32::MAX, 0.0));
        assert!(pack(3, 1.5) < pack(4, 1.5));
    }

    #[test]
    fn what_is_selected_is_what_comes_first_of_all() {
        let logits: Vec<f32> =
            (0..40_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 20) as f32).collect();
        let all = sort(&logits);
        assert!(all.is_sorted_by(|a, b| a < b) && all.len() == logits.len());
        for n in [0, 1, 300, 600, 2500] {
            assert_eq!(select(&logits, n)[..n], all[..n], "{n}");
        }
    }
}
