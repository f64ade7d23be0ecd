//! Head sizes, partial rotation and every kind of scaling, in both pairings.

use hf2q_plan::{Pairing, RopeParams, Yarn};

use super::Case;
use crate::builder::{Builder, Values};
use crate::tolerance::Precision::Angle;

/// Rotation without scaling.
pub(crate) fn plain(dims: usize, pairing: Pairing) -> RopeParams {
    RopeParams { dims, pairing, base: 10_000.0, freq_scale: 1.0, factors: None, yarn: None, magnitude: 1.0 }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Plain,
    LargeBase,
    Linear,
    Factors,
    Yarn,
    YarnFactors,
}

const KINDS: [Kind; 6] =
    [Kind::Plain, Kind::LargeBase, Kind::Linear, Kind::Factors, Kind::Yarn, Kind::YarnFactors];

fn parameters(b: &mut Builder, kind: Kind, p: RopeParams) -> RopeParams {
    let yarn = Yarn { ext_factor: 1.0, beta_fast: 32.0, beta_slow: 1.0, original_context: 256 };
    // Some pairs do not turn at all: proportional rotation, as Gemma 4 stores it.
    let factors: Vec<f32> = (0..p.dims / 2)
        .map(|i| if i % 4 == 3 { 1e30 } else { 1.0 + b.random.symmetric().abs() * 7.0 })
        .collect();
    match kind {
        Kind::Plain => p,
        Kind::LargeBase => RopeParams { base: 1e6, ..p },
        Kind::Linear => RopeParams { freq_scale: 0.125, ..p },
        Kind::Factors => RopeParams { factors: Some(b.vector("factors", &factors)), ..p },
        Kind::Yarn => RopeParams { freq_scale: 0.25, yarn: Some(yarn), magnitude: 1.138_629_4, ..p },
        Kind::YarnFactors => {
            let factors = Some(b.vector("factors", &factors));
            RopeParams { freq_scale: 0.25, yarn: Some(Yarn { ext_factor: 0.5, ..yarn }), factors, ..p }
        }
    }
}

pub(super) fn cases(cases: &mut Vec<Case>) {
    // Head size, rotated columns, heads.
    let shapes =
        [(2, 2, 1), (32, 32, 3), (64, 64, 2), (96, 96, 1), (128, 128, 4), (256, 256, 2), (512, 512, 1)];
    let partial = [(64, 16, 3), (128, 2, 1), (80, 34, 2), (512, 128, 2)];
    for (head_dim, dims, heads) in shapes.into_iter().chain(partial) {
        for pairing in [Pairing::Halves, Pairing::Adjacent] {
            for kind in KINDS {
                let name = format!("{heads} heads of {head_dim}, {dims} turn, {pairing:?} {kind:?}");
                cases.push(Case::new("rope", name, Angle, move |b| {
                    let p = parameters(b, kind, plain(dims, pairing));
                    let width = heads * head_dim;
                    let x = b.input("x", width + 6, Values::Normal(1.0)).columns(5, width);
                    b.r.rope("out", x, head_dim, p)
                }));
            }
        }
    }
    cases.push(Case::of_logits("rope", "of wanted rows".to_owned(), Angle, |b| {
        let x = b.input("x", 6 + 2 * 64, Values::Normal(1.0)).columns(5, 2 * 64);
        let x = b.r.select_rows("selected", x);
        b.r.rope("out", x, 64, plain(64, Pairing::Halves))
    }));
}
