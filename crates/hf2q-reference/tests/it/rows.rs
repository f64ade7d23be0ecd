//! Operations that work row by row.

use hf2q_plan::{Activation, ExpertInput, Norm, Pairing, Renormalize, RopeParams, Yarn};

use crate::harness::{Toy, close};

#[test]
fn a_norm_divides_by_the_root_mean_square_of_each_group() {
    let mut t = Toy::default();
    let w = t.weight("w", (2, 1, 1), &[1.0, 10.0]);
    let x = t.input("x", &[&[3.0, 4.0, 1.0, 1.0]]);
    let y = t.r.head_norm("y", x, Norm { weight: Some(w), eps: 0.0 }, 2);
    let root = 12.5_f32.sqrt();
    close(&t.run(1, y), &[3.0 / root, 40.0 / root, 1.0, 10.0]);
}

#[test]
fn a_matrix_is_applied_to_the_columns_of_a_view() {
    let mut t = Toy::default();
    let w = t.weight("w", (2, 3, 1), &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let x = t.input("x", &[&[9.0, 1.0, 10.0, 9.0]]);
    let y = t.r.mat_mul("y", x.columns(1, 2), w);
    close(&t.run(1, y), &[21.0, 43.0, 65.0]);
}

fn rope(dims: usize, pairing: Pairing) -> RopeParams {
    RopeParams { dims, pairing, base: 100.0, freq_scale: 1.0, factors: None, yarn: None, magnitude: 1.0 }
}

#[test]
fn rope_turns_pairs_by_position() {
    for (pairing, expected) in [
        (Pairing::Halves, [1.0_f32.cos(), 0.1_f32.cos(), 1.0_f32.sin(), 0.1_f32.sin(), 7.0]),
        (Pairing::Adjacent, [1.0_f32.cos() - 1.0_f32.sin(), 1.0_f32.sin() + 1.0_f32.cos(), 0.0, 0.0, 7.0]),
    ] {
        let mut t = Toy::default();
        let row: &[f32] = &[1.0, 1.0, 0.0, 0.0, 7.0];
        let x = t.input("x", &[row, row]);
        let y = t.r.rope("y", x, 5, rope(4, pairing));
        let found = t.run(2, y);
        close(&found[..5], row);
        close(&found[5..], &expected);
    }
}

#[test]
fn rope_divides_by_factors_and_scales() {
    let mut t = Toy::default();
    let factors = t.weight("f", (1, 1, 1), &[2.0]);
    let x = t.input("x", &[&[1.0, 0.0], &[1.0, 0.0]]);
    let p =
        RopeParams { factors: Some(factors), freq_scale: 0.5, magnitude: 3.0, ..rope(2, Pairing::Halves) };
    let y = t.r.rope("y", x, 2, p);
    close(&t.run(2, y)[2..], &[3.0 * 0.25_f32.cos(), 3.0 * 0.25_f32.sin()]);
}

#[test]
fn yarn_keeps_fast_pairs_and_interpolates_slow_ones() {
    // Pair 0 turns 1000/2π times over the original context, the last one less than once.
    let yarn = Yarn { ext_factor: 1.0, beta_fast: 32.0, beta_slow: 1.0, original_context: 1000 };
    let p = RopeParams { base: 1e6, freq_scale: 0.25, yarn: Some(yarn), ..rope(8, Pairing::Halves) };
    let mut t = Toy::default();
    let row: &[f32] = &[1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0];
    let x = t.input("x", &[row, row]);
    let y = t.r.rope("y", x, 8, p);
    let found = t.run(2, y)[8..].to_vec();
    let slow = 0.25 * 1e6_f32.powf(-0.75);
    close(&found[..1], &[1.0_f32.cos()]);
    close(&found[4..5], &[1.0_f32.sin()]);
    assert!((found[7] / slow.sin() - 1.0).abs() < 1e-5, "{found:?}");
}

#[test]
fn gated_units_and_caps() {
    let mut t = Toy::default();
    let x = t.input("x", &[&[0.0, 1.0, -2.0, 2.0, 3.0, 4.0]]);
    let gelu = t.r.glu("gelu", x.columns(0, 3), x.columns(3, 3), Activation::GeluTanh);
    let capped = t.r.soft_cap("cap", gelu, 2.0);
    let sum = t.r.add("sum", capped, gelu);
    let scaled = t.r.scale("scaled", sum, 0.5, None);
    let gelu_of = |x: f32| 0.5 * x * (1.0 + (0.797_884_6 * (x + 0.044_715 * x * x * x)).tanh());
    let g = [0.0, 3.0 * gelu_of(1.0), 4.0 * gelu_of(-2.0)];
    let expected: Vec<f32> = g.iter().map(|x| (2.0 * (x / 2.0).tanh() + x) / 2.0).collect();
    close(&t.run(1, scaled), &expected);

    let mut t = Toy::default();
    let x = t.input("x", &[&[0.0, 5.0, -2.0, 2.0]]);
    let y = t.r.packed_expert_glu("y", x, 2, Activation::Silu);
    close(&t.run(1, y), &[0.0, -2.0 / (1.0 + 2.0_f32.exp()) * 2.0]);
}

#[test]
fn a_router_prefers_large_logits_and_then_low_indices() {
    let mut t = Toy::default();
    let scale = t.weight("s", (4, 1, 1), &[1.0, 2.0, 4.0, 8.0]);
    let w = t.weight("w", (1, 1, 4), &[1.0, 10.0, 100.0, 1000.0]);
    let one = t.input("one", &[&[1.0]]);
    let logits = t.input("x", &[&[0.0, 2.0, 2.0, 1.0]]);
    let (experts, weights) = t.r.route("route", logits, 2, (Renormalize::Chosen, Some(scale)));
    let outs = t.r.expert_mat_mul("experts", one, experts, (w, ExpertInput::Shared));
    let sum = t.r.expert_sum("sum", outs, weights);
    close(&t.run(1, sum), &[0.5 * 2.0 * 10.0 + 0.5 * 4.0 * 100.0]);
}

#[test]
fn experts_read_their_own_part() {
    let mut t = Toy::default();
    let w = t.weight("w", (2, 1, 2), &[1.0, 1.0, 10.0, 10.0]);
    let x = t.input("x", &[&[1.0, 2.0, 3.0, 4.0]]);
    let logits = t.input("logits", &[&[0.0, 1.0]]);
    let (experts, _) = t.r.route("route", logits, 2, (Renormalize::Keep, None));
    let y = t.r.expert_mat_mul("y", x, experts, (w, ExpertInput::PerExpert));
    close(&t.run(1, y), &[30.0, 7.0]);
}
