use super::*;

fn draw(logits: &[f32], sampling: Sampling) -> Result<u32, SampleError> {
    Sampler::new(sampling)?.sample(logits, &[1, 2, 2], 0).map(|d| d.token)
}

fn warm(f: impl FnOnce(&mut Sampling)) -> Sampling {
    let mut s = Sampling { temperature: 1.0, ..Sampling::default() };
    f(&mut s);
    s
}

/// Tokens seen in many draws.
fn support(logits: &[f32], sampling: &Sampling) -> Vec<u32> {
    let mut seen: Vec<u32> =
        (0..400).map(|seed| draw(logits, Sampling { seed, ..sampling.clone() }).unwrap()).collect();
    seen.sort_unstable();
    seen.dedup();
    seen
}

const LOGITS: &[f32] = &[1.0, 3.0, 2.5, -1.0, 2.9];

#[test]
fn greedy_takes_the_first_of_equals() {
    assert_eq!(draw(&[0.0, 2.0, 2.0], Sampling::default()), Ok(1));
}

#[test]
fn broken_logits_are_never_drawn() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for at in 0..3 {
            let mut logits = [1.0, 1.5, 1.2];
            logits[at] = bad;
            for sampling in [Sampling::default(), warm(|_| ())] {
                let drawn = Sampler::new(sampling).unwrap().sample(&logits, &[], 0).unwrap();
                assert_ne!(drawn.token as usize, at);
                assert_eq!(drawn.non_finite, 1);
            }
        }
    }
    let all = [f32::NAN; 4];
    assert_eq!(draw(&all, Sampling::default()), Err(SampleError::NoFiniteLogit { vocabulary: 4 }));
    assert_eq!(draw(&all, warm(|_| ())), Err(SampleError::NoFiniteLogit { vocabulary: 4 }));
}

#[test]
fn disabled_filters_keep_every_token() {
    for sampling in [
        warm(|s| s.top_k = 0),
        warm(|s| s.top_k = -1),
        warm(|s| s.top_k = 1_000_000_000),
        warm(|s| s.top_p = 1.0),
        warm(|s| s.min_p = 0.0),
        warm(|s| s.typical_p = 1.0),
    ] {
        let hot = Sampling { temperature: 5.0, ..sampling };
        assert_eq!(support(LOGITS, &hot), [0, 1, 2, 3, 4]);
    }
}

#[test]
fn the_strictest_filters_keep_one_token() {
    for sampling in [
        warm(|s| s.top_k = 1),
        warm(|s| s.top_p = 0.0),
        warm(|s| s.min_p = 1.0),
        warm(|s| s.temperature = 1e-6),
    ] {
        assert_eq!(support(LOGITS, &sampling), [1]);
    }
    assert_eq!(support(LOGITS, &warm(|s| s.typical_p = 0.0)).len(), 1);
}

#[test]
fn filters_keep_what_their_formulas_say() {
    // Probabilities of LOGITS: 0.045, 0.333, 0.202, 0.006, 0.301 times 1.127.
    assert_eq!(support(LOGITS, &warm(|s| s.top_k = 2)), [1, 4]);
    assert_eq!(support(LOGITS, &warm(|s| s.top_p = 0.7)), [1, 4]);
    assert_eq!(support(LOGITS, &warm(|s| s.top_p = 0.72)), [1, 2, 4]);
    assert_eq!(support(LOGITS, &warm(|s| s.min_p = 0.5)), [1, 2, 4]);
}

#[test]
fn draws_follow_the_probabilities() {
    let n = 20_000;
    let sampler = |seed| Sampler::new(warm(|s| s.seed = seed)).unwrap();
    let ones =
        (0..n).filter(|&i| sampler(i).sample(&[0.0, 3.0_f32.ln()], &[], 0).unwrap().token == 1).count();
    let share = ones as f64 / n as f64;
    assert!((share - 0.75).abs() < 0.015, "{share}");
}

#[test]
fn penalties_lower_recent_tokens() {
    let logits = [0.0, 2.0, 2.1, -1.0];
    let greedy = |f: fn(&mut Sampling)| {
        let mut s = Sampling::default();
        f(&mut s);
        draw(&logits, s).unwrap()
    };
    assert_eq!(greedy(|s| s.frequency_penalty = 0.2), 1);
    assert_eq!(greedy(|s| s.presence_penalty = 3.0), 0);
    assert_eq!(greedy(|s| s.repetition_penalty = 1.5), 2);
    assert_eq!(greedy(|s| (s.repetition_penalty, s.penalty_last_n) = (1.5, 1)), 1);
    assert_eq!(greedy(|s| s.logit_bias = [(3, 50.0), (900, 1.0)].into()), 3);
    assert_eq!(greedy(|s| s.logit_bias = [(2, f32::NEG_INFINITY)].into()), 1);
}

#[test]
fn odd_parameters_are_refused_by_name() {
    for (name, sampling) in [
        ("temperature", warm(|s| s.temperature = -0.1)),
        ("temperature", warm(|s| s.temperature = f32::NAN)),
        ("top_p", warm(|s| s.top_p = -0.1)),
        ("min_p", warm(|s| s.min_p = 1.5)),
        ("repetition_penalty", warm(|s| s.repetition_penalty = 0.0)),
        ("logit_bias", warm(|s| s.logit_bias = [(0, f32::NAN)].into())),
    ] {
        match Sampler::new(sampling) {
            Err(SampleError::Parameter { name: found, .. }) => assert_eq!(found, name),
            other => panic!("{name}: {other:?}"),
        }
    }
}

/// The filters and draws over a vocabulary that is sorted whole. Sums are those of the sampler, bit for bit: in this order,
/// but for that of all tokens.
fn sorted(logits: &[f32], s: &Sampling, uniform: f64) -> u32 {
    let mut all: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).filter(|l| l.1.is_finite()).collect();
    all.sort_by(|a, b| b.1.partial_cmp(&a.1).unwrap().then(a.0.cmp(&b.0)));
    let mut whole = s.top_k <= 0;
    if !whole {
        all.truncate(usize::try_from(s.top_k).unwrap());
    }
    let max = all[0].1;
    let weight = |l: &(u32, f32), max: f32, t: f32| f64::from(exp::exp((l.1 - max) / t));
    let total = |whole: bool, all: &[(u32, f32)], max: f32, t: f32| {
        if whole { exp::sum(logits, max, t) } else { all.iter().map(|l| weight(l, max, t)).sum::<f64>() }
    };
    let cut = |all: &mut Vec<(u32, f32)>, mass: f64| {
        let mut sum = 0.0;
        let n = all.iter().position(|l| (sum >= mass, sum += weight(l, max, 1.0)).0);
        all.truncate(n.unwrap_or(all.len()).max(1));
    };
    if s.typical_p < 1.0 {
        whole = false;
        let total = total(false, &all, max, 1.0);
        let information = |l: &(u32, f32)| -(weight(l, max, 1.0) / total).ln();
        let entropy: f64 = all.iter().map(|l| weight(l, max, 1.0) / total * information(l)).sum();
        all.sort_by_cached_key(|l| (information(l) - entropy).abs().to_bits());
        cut(&mut all, f64::from(s.typical_p) * total);
        all.sort_by(|a, b| b.1.partial_cmp(&a.1).unwrap().then(a.0.cmp(&b.0)));
    }
    if s.top_p < 1.0 {
        let mass = f64::from(s.top_p) * total(whole, &all, max, 1.0);
        cut(&mut all, mass);
        whole = false;
    }
    if s.min_p > 0.0 {
        let least = f64::from(s.min_p) * weight(&all[0], max, 1.0);
        all.retain(|l| weight(l, max, 1.0) >= least);
        whole = false;
    }
    let max = all[0].1;
    let mut left = uniform * total(whole, &all, max, s.temperature);
    let found = all.iter().find(|l| {
        left -= weight(l, max, s.temperature);
        left < 0.0
    });
    found.unwrap_or(&all[0]).0
}

#[test]
fn large_vocabularies_are_drawn_from_as_if_they_were_sorted() {
    // Flat and steep, with equal logits among them, around 0 and with broken ones.
    for spread in [0.01, 1.0, 6.0] {
        let logit = |i: u64| (philox::uniform(9, 9, i) * 40.0 - 20.0).round() as f32 * spread / 10.0;
        let mut logits: Vec<f32> = (0..9000).map(logit).collect();
        logits[400..403].copy_from_slice(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY]);
        for s in [
            warm(|_| ()),
            warm(|s| s.temperature = 3.0),
            warm(|s| s.top_p = 0.9),
            warm(|s| s.top_p = 0.04),
            warm(|s| s.min_p = 0.05),
            warm(|s| s.typical_p = 0.8),
            warm(|s| (s.top_k, s.top_p) = (700, 0.99)),
            warm(|s| (s.top_k, s.temperature) = (300, 2.0)),
            warm(|s| (s.top_p, s.min_p, s.temperature) = (0.95, 0.02, 0.5)),
            warm(|s| (s.typical_p, s.top_p, s.min_p, s.temperature) = (0.9, 0.8, 0.01, 1.5)),
        ] {
            for seed in 0..30 {
                let s = Sampling { seed, ..s.clone() };
                let expected = sorted(&logits, &s, philox::uniform(seed, 0, 3));
                assert_eq!(draw(&logits, s.clone()), Ok(expected), "{spread} {s:?}");
            }
        }
    }
}

#[test]
fn the_highest_are_found_in_one_pass() {
    let logits: Vec<f32> = (0..10_000).map(|i| (philox::uniform(1, 2, i) * 500.0).floor() as f32).collect();
    let mut sorted: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).collect();
    sorted.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    for n in [0, 1, 5, 511, 512, 600, 9999, 10_000, 20_000] {
        assert!(most_likely(&logits, n) == sorted[..n.min(10_000)], "{n}");
    }
    assert_eq!(
        most_likely(&[f32::NAN, f32::NEG_INFINITY, 1.0, f32::INFINITY, -0.0, 0.0], 3),
        [(2, 1.0), (4, -0.0), (5, 0.0)]
    );
}

#[test]
fn tokens_that_are_not_allowed_are_never_drawn() {
    let logits: Vec<f32> = (0..70).map(|i| i as f32 / 10.0).collect();
    let mut set = TokenSet::new(70);
    [3, 31, 32, 64].into_iter().for_each(|id| set.insert(id));
    let drawn = |sampling| {
        let sampler = Sampler::new(sampling).unwrap();
        sampler.sample_allowed(&logits, &[], 0, Some(&set)).unwrap().token
    };
    assert_eq!(drawn(Sampling::default()), 64);
    let mut seen: Vec<u32> =
        (0..300).map(|seed| drawn(warm(|s| (s.seed, s.temperature) = (seed, 9.0)))).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, [3, 31, 32, 64]);
}
