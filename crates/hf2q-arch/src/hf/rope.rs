//! The two ways in which `config.json` describes rotation: `rope_theta` with `rope_scaling`, and `rope_parameters`.

use super::json::Object;
use crate::error::ArchError;
use crate::rope::{RopeFactors, RopeScaling, yarn_magnitude};

/// Rotation of the layers of one kind.
pub(super) struct HfRope {
    pub(super) base: f32,
    pub(super) scaling: RopeScaling,
    pub(super) factors: Option<RopeFactors>,
}

/// What a rotation is read with.
#[derive(Clone, Copy)]
pub(super) struct Usual {
    /// Base where none is given.
    pub(super) base: f32,
    /// Columns of a head.
    pub(super) head_dim: usize,
    /// `max_position_embeddings`.
    pub(super) context: usize,
}

/// Rotation of models whose layers are all of one kind.
pub(super) fn single(text: &Object<'_>, usual: Usual) -> Result<HfRope, ArchError> {
    text.refuse_number_unless("partial_rotary_factor", 1.0)?;
    let usual = Usual { base: text.number("rope_theta")?.unwrap_or(usual.base), ..usual };
    let old = text.object("rope_scaling")?;
    let new = text.object("rope_parameters")?;
    // Both may be there; `transformers` prefers the old one.
    match old.or(new) {
        Some(parameters) => parse(&parameters, usual),
        None => Ok(HfRope { base: usual.base, scaling: RopeScaling::None, factors: None }),
    }
}

/// The parameters of one kind of layers.
pub(super) fn parse(p: &Object<'_>, usual: Usual) -> Result<HfRope, ArchError> {
    let base = p.number("rope_theta")?.unwrap_or(usual.base);
    let rope_type = match p.text("rope_type")? {
        Some(name) => name,
        None => p.text("type")?.unwrap_or("default"),
    };
    let mut factors = None;
    let mut scaling = RopeScaling::None;
    match rope_type {
        "default" => p.refuse_number_unless("partial_rotary_factor", 1.0)?,
        "linear" => {
            p.refuse_number_unless("partial_rotary_factor", 1.0)?;
            scaling = linear(p.required("factor", p.number("factor")?)?);
        }
        "proportional" => {
            let part = p.number("partial_rotary_factor")?.unwrap_or(1.0);
            if !(0.0..=1.0).contains(&part) {
                return Err(p.error("partial_rotary_factor", part, "a number from 0 to 1"));
            }
            let pairs = usual.head_dim / 2;
            let rotated = ((part * usual.head_dim as f32 / 2.0).floor() as usize).min(pairs);
            factors = Some(RopeFactors::Proportional { rotated, pairs });
            scaling = linear(p.number("factor")?.unwrap_or(1.0));
        }
        "llama3" => factors = Some(llama3(p, base, usual)?),
        "yarn" => scaling = yarn(p, usual)?,
        other => {
            return Err(p.error("rope_type", other, "default, linear, proportional, llama3 or yarn"));
        }
    }
    if rope_type != "default" {
        p.refuse_unknown()?;
    }
    Ok(HfRope { base, scaling, factors })
}

fn linear(factor: f32) -> RopeScaling {
    if factor == 1.0 { RopeScaling::None } else { RopeScaling::Linear { factor } }
}

fn llama3(p: &Object<'_>, base: f32, usual: Usual) -> Result<RopeFactors, ArchError> {
    p.refuse_number_unless("partial_rotary_factor", 1.0)?;
    let number = |key: &str| p.required(key, p.number(key)?);
    let (low, high) = (number("low_freq_factor")?, number("high_freq_factor")?);
    let factor = number("factor")?;
    for (key, value) in [("factor", factor), ("low_freq_factor", low), ("high_freq_factor", high)] {
        if !(value.is_finite() && value > 0.0) {
            return Err(p.error(key, value, "a positive number"));
        }
    }
    if low >= high {
        return Err(p.error("low_freq_factor", low, format!("below high_freq_factor, {high}")));
    }
    Ok(RopeFactors::Llama3 {
        base,
        dims: usual.head_dim,
        factor,
        low_freq_factor: low,
        high_freq_factor: high,
        original_context: original_context(p, usual)?,
    })
}

fn yarn(p: &Object<'_>, usual: Usual) -> Result<RopeScaling, ArchError> {
    p.refuse_number_unless("partial_rotary_factor", 1.0)?;
    p.refuse_unless_empty("mscale")?;
    p.refuse_unless_empty("mscale_all_dim")?;
    if p.flag("truncate")? == Some(false) {
        return Err(p.error("truncate", false, "true"));
    }
    let factor = p.required("factor", p.number("factor")?)?;
    let magnitude = p.number("attention_factor")?;
    Ok(RopeScaling::Yarn {
        factor,
        attention_factor: magnitude.map_or(1.0, |m| m / yarn_magnitude(factor)),
        beta_fast: p.number("beta_fast")?.unwrap_or(32.0),
        beta_slow: p.number("beta_slow")?.unwrap_or(1.0),
        original_context: original_context(p, usual)?,
    })
}

fn original_context(p: &Object<'_>, usual: Usual) -> Result<u32, ArchError> {
    const KEY: &str = "original_max_position_embeddings";
    let found = p.size(KEY)?.unwrap_or(usual.context);
    u32::try_from(found).map_err(|_| p.error(KEY, found, "a context length"))
}
