//! Attention over pages, windows and trees.

use hf2q_plan::{AttentionParams, BackendError, KvFormat, Row, SlotMove, StepError};

use crate::harness::{Toy, close, step};

const F32: (KvFormat, KvFormat) = (KvFormat::F32, KvFormat::F32);

/// Keys are zero, so that every visible position weighs the same; the value of token `t` is `t`.
fn mean_of_values(window: Option<u32>, formats: (KvFormat, KvFormat)) -> (Toy, hf2q_plan::View) {
    let mut t = Toy::default();
    let tokens: Vec<Vec<f32>> = (0..200).map(|i| vec![i as f32]).collect();
    let values: Vec<&[f32]> = tokens.iter().map(Vec::as_slice).collect();
    let v = t.input("v", &values);
    let k = t.r.scale("k", v, 0.0, None);
    let group = t.r.group("g", window);
    let cache = t.r.cache(group, 1, 1, formats);
    t.r.kv_store("store", k, v, cache);
    let out = t.r.attention("out", v, cache, AttentionParams { heads: 1, scale: 1.0, softcap: None });
    (t, out)
}

fn row(position: u32, token: u32, parent: Option<u32>) -> Row {
    Row { sequence: 0, token, position, parent }
}

#[test]
fn a_window_hides_what_lies_before_it() {
    let (t, out) = mean_of_values(Some(3), F32);
    close(&t.run(6, out), &[0.0, 0.5, 1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn a_chunk_continues_the_cache_across_a_page_border() {
    let (t, out) = mean_of_values(None, F32);
    let (recording, mut program) = t.open(out);
    let first: Vec<Row> = (0..60).map(|p| row(p, p, p.checked_sub(1))).collect();
    program.run(&step(&recording, first), None).unwrap();
    let second: Vec<Row> = (60..70).map(|p| row(p, p, p.checked_sub(61))).collect();
    let found = program.run(&step(&recording, second), None).unwrap();
    let expected: Vec<f32> = (60..70).map(|p| p as f32 / 2.0).collect();
    close(found, &expected);
}

#[test]
fn siblings_do_not_see_each_other() {
    let (t, out) = mean_of_values(None, F32);
    let (recording, mut program) = t.open(out);
    let rows = vec![row(0, 10, None), row(1, 20, Some(0)), row(1, 40, Some(0)), row(2, 70, Some(2))];
    let mut step = step(&recording, rows);
    step.groups[0].slots = vec![0, 1, 130, 131];
    let step = hf2q_plan::Step::new(step.rows, step.groups, step.logit_rows).unwrap();
    close(program.run(&step, None).unwrap(), &[10.0, 15.0, 25.0, 40.0]);
}

#[test]
fn moved_slots_are_found_at_their_new_place() {
    let (t, out) = mean_of_values(None, F32);
    let (recording, mut program) = t.open(out);
    let mut first = step(&recording, vec![row(0, 10, None)]);
    first.groups[0].slots = vec![130];
    let first = hf2q_plan::Step::new(first.rows, first.groups, first.logit_rows).unwrap();
    program.run(&first, None).unwrap();
    let group = recording.caches[0].group;
    program.move_slots(group, &[SlotMove { from: 130, to: 0 }]).unwrap();
    close(program.run(&step(&recording, vec![row(1, 30, None)]), None).unwrap(), &[20.0]);
    let bad = program.move_slots(group, &[SlotMove { from: 0, to: 256 }]);
    assert!(
        matches!(bad, Err(BackendError::Step(StepError::Index { found: 256, bound: 256, .. }))),
        "{bad:?}"
    );
}

#[test]
fn what_was_never_stored_reads_as_nan() {
    let (t, out) = mean_of_values(None, F32);
    let (recording, mut program) = t.open(out);
    assert!(program.run(&step(&recording, vec![row(1, 5, None)]), None).unwrap()[0].is_nan());
}

#[test]
fn f16_rounds_what_is_stored() {
    let (mut t, v) = mean_of_values(None, (KvFormat::F32, KvFormat::F16));
    let out = t.r.scale("third", v, 1.0, None);
    let (recording, mut program) = t.open(out);
    let found = program.run(&step(&recording, vec![row(0, 3, None)]), None).unwrap();
    close(found, &[3.0]);

    let mut t = Toy::default();
    let v = t.input("v", &[&[1.0 + 1.0 / 4096.0]]);
    let group = t.r.group("g", None);
    let cache = t.r.cache(group, 1, 1, (KvFormat::F32, KvFormat::F16));
    t.r.kv_store("store", v, v, cache);
    let out = t.r.attention("out", v, cache, AttentionParams { heads: 1, scale: 1.0, softcap: Some(1.0) });
    assert_eq!(t.run(1, out), [1.0]);
}

#[test]
fn malformed_steps_are_refused() {
    let (t, out) = mean_of_values(None, F32);
    let (recording, mut program) = t.open(out);
    let found = program.run(&step(&recording, vec![row(0, 200, None)]), None).unwrap_err();
    assert!(
        matches!(
            found,
            BackendError::Step(StepError::Index { what: "the token", found: 200, bound: 200, .. })
        ),
        "{found}"
    );
}
