//! Keys that are made of values when they are read.

use hf2q_plan::{AttentionParams, FormedKeys, KvFormat, Pairing, RopeParams, Row, SlotMove, View};

use crate::harness::{Toy, step};

const DIM: usize = 64;

fn rope() -> RopeParams {
    RopeParams {
        dims: 32,
        pairing: Pairing::Halves,
        base: 100.0,
        freq_scale: 1.0,
        factors: None,
        yarn: None,
        magnitude: 1.0,
    }
}

/// Two query heads on one KV head; tokens `0 .. 100` have values of length `√DIM`.
fn record(t: &mut Toy, format: KvFormat, one: bool) -> View {
    let row = |i: usize, turn: f32| -> Vec<f32> {
        (0..DIM).map(|d| (turn * (i * DIM + d) as f32).sin() * std::f32::consts::SQRT_2).collect()
    };
    let input = |t: &mut Toy, name: &str, rows: Vec<Vec<f32>>| {
        let rows: Vec<&[f32]> = rows.iter().map(Vec::as_slice).collect();
        t.input(name, &rows)
    };
    let weights: Vec<f32> = (0..DIM).map(|d| 1.0 + 0.01 * d as f32).collect();
    let values: Vec<Vec<f32>> = (0..100).map(|i| row(i, 0.7)).collect();
    let weighted = |v: &Vec<f32>| v.iter().zip(&weights).map(|(v, w)| v * w).collect();
    let keys = values.iter().map(weighted).collect();
    let q = input(t, "q", (0..100).map(|i| [row(i, 0.3), row(i, 0.9)].concat()).collect());
    let (k, v) = (input(t, "k", keys), input(t, "v", values));
    let weight = Some(t.weight("norm", (DIM, 1, 1), &weights));
    let group = t.r.group("g", None);
    let cache = if one {
        let cache = t.r.value_cache(group, 1, DIM, (format, FormedKeys { weight, rope: rope(), pairs: 16 }));
        t.r.value_store("store", v, cache);
        cache
    } else {
        let cache = t.r.cache(group, 1, DIM, (format, format));
        let k = t.r.rope("k_rope", k, DIM, rope());
        t.r.kv_store("store", k, v, cache);
        cache
    };
    t.r.attention("out", q, cache, AttentionParams { heads: 2, scale: 0.2, softcap: None })
}

#[test]
fn they_are_those_that_would_have_been_stored() {
    let run = |one| {
        let mut t = Toy::default();
        let out = record(&mut t, KvFormat::F32, one);
        t.run(90, out)
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn a_moved_value_becomes_the_key_of_its_new_position() {
    let mut t = Toy::default();
    let out = record(&mut t, KvFormat::F32, true);
    let (recording, mut program) = t.open(out);
    let row = |position, token| Row { sequence: 0, token, position, parent: None };
    let group = recording.caches[0].group;
    program.run(&step(&recording, vec![row(0, 5)]), None).unwrap();
    program.run(&step(&recording, vec![row(1, 6)]), None).unwrap();
    let straight = program.run(&step(&recording, vec![row(2, 7)]), None).unwrap().to_vec();
    let mut apart = step(&recording, vec![row(1, 6)]);
    apart.groups[0].slots = vec![200];
    let apart = hf2q_plan::Step::new(apart.rows, apart.groups, apart.logit_rows).unwrap();
    program.run(&step(&recording, vec![row(1, 9)]), None).unwrap();
    program.run(&apart, None).unwrap();
    program.move_slots(group, &[SlotMove { from: 200, to: 1 }]).unwrap();
    assert_eq!(program.run(&step(&recording, vec![row(2, 7)]), None).unwrap(), straight);
}

#[test]
fn unit_values_keep_their_length_without_a_scale() {
    for (format, error) in [(KvFormat::Tq4, 0.02), (KvFormat::Tq8, 1e-3)] {
        let mut t = Toy::default();
        let value: Vec<f32> = (0..DIM).map(|d| if d % 2 == 0 { 1.0 } else { -1.0 }).collect();
        let v = t.input("v", &[&value]);
        let group = t.r.group("g", None);
        let cache = t.r.unit_cache(group, 1, DIM, (KvFormat::F32, format));
        t.r.kv_store("store", v, v, cache);
        let out = t.r.attention("out", v, cache, AttentionParams { heads: 1, scale: 1.0, softcap: None });
        let (recording, mut program) = t.open(out);
        assert_eq!(recording.caches[0].position_bytes(), 4 * DIM + DIM * format.bits() / 8);
        let rows = vec![Row { sequence: 0, token: 0, position: 0, parent: None }];
        let found = program.run(&step(&recording, rows), None).unwrap();
        let distance: f32 = found.iter().zip(&value).map(|(a, b)| (a - b).powi(2)).sum();
        assert!(distance > 0.0 && distance / (DIM as f32) < error, "{}: {distance}", format.name());
    }
}

#[test]
fn what_is_no_number_comes_out_through_keys() {
    let mut t = Toy::default();
    let mut value = vec![1.0; DIM];
    let good = t.input("good", &[&value]);
    value[3] = f32::NAN;
    let bad = t.input("bad", &[&value]);
    let group = t.r.group("g", None);
    let cache = t.r.unit_cache(group, 1, DIM, (KvFormat::Tq4, KvFormat::Tq4));
    t.r.kv_store("store", bad, bad, cache);
    let out = t.r.attention("out", good, cache, AttentionParams { heads: 1, scale: 1.0, softcap: None });
    assert!(t.run(1, out).iter().all(|x| x.is_nan()));
}
