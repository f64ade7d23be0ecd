//! Rotary position embedding: parameters of a layer, and the factors that some models store as a tensor.

use std::f32::consts::PI;

/// How a layer rotates queries and keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// Base of the frequencies (theta).
    pub base: f32,
    /// Rotated columns of a head; even.
    pub dims: usize,
    /// How the model was stretched to longer contexts.
    pub scaling: RopeScaling,
    /// Whether the angles are divided by the `dims/2` values of `rope_freqs.weight`.
    pub factors: bool,
}

/// How the angles are changed for longer contexts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// Every angle is divided by `factor`.
    Linear {
        /// At least 1 in practice.
        factor: f32,
    },
    /// YaRN (Peng et al. 2023, arXiv 2309.00071).
    Yarn {
        /// Length of the stretched context over that of the original one.
        factor: f32,
        /// Multiplies the magnitude of [`RopeScaling::magnitude`]; usually 1.
        attention_factor: f32,
        /// Turns over the original context above which a pair is not interpolated; usually 32.
        beta_fast: f32,
        /// Turns below which a pair is fully interpolated; usually 1.
        beta_slow: f32,
        /// Context length the model was first trained for.
        original_context: u32,
    },
}

impl RopeScaling {
    /// Multiplies every (interpolated) angle.
    pub fn freq_scale(self) -> f32 {
        match self {
            Self::None => 1.0,
            Self::Linear { factor } | Self::Yarn { factor, .. } => 1.0 / factor,
        }
    }

    /// Multiplies sine and cosine: `(1 + ln(factor)/10) · attention_factor` for YaRN, else 1.
    pub fn magnitude(self) -> f32 {
        match self {
            Self::Yarn { factor, attention_factor, .. } => yarn_magnitude(factor) * attention_factor,
            Self::None | Self::Linear { .. } => 1.0,
        }
    }
}

/// The magnitude that the YaRN paper recommends for a factor.
pub(crate) fn yarn_magnitude(factor: f32) -> f32 {
    if factor > 1.0 { 0.1 * factor.ln() + 1.0 } else { 1.0 }
}

/// Divisors of the angles of all layers with [`Rope::factors`].
#[derive(Clone, Debug, PartialEq)]
pub enum RopeFactors {
    /// `rope_freqs.weight` of a file holds them.
    Stored,
    /// 1 for the first `rotated` pairs; the rest is not rotated (its factor is so large that its angle vanishes).
    Proportional {
        /// Pairs that rotate.
        rotated: usize,
        /// Pairs of a head.
        pairs: usize,
    },
    /// Llama 3.1: low frequencies are slowed down by `factor`, high ones kept, those between interpolated.
    Llama3 {
        /// Base of the frequencies.
        base: f32,
        /// Rotated columns of a head.
        dims: usize,
        /// Stretch of the low frequencies.
        factor: f32,
        /// Turns over the original context below which a frequency is low.
        low_freq_factor: f32,
        /// Turns over the original context above which a frequency is high.
        high_freq_factor: f32,
        /// Context length the model was first trained for.
        original_context: u32,
    },
}

/// Stands for infinity in `rope_freqs.weight`; `position / 1e30` is zero for every position.
const NOT_ROTATED: f32 = 1e30;

impl RopeFactors {
    /// The values of `rope_freqs.weight`, one for each pair; empty for [`RopeFactors::Stored`].
    pub fn values(&self) -> Vec<f32> {
        match *self {
            Self::Stored => Vec::new(),
            Self::Proportional { rotated, pairs } => {
                (0..pairs).map(|i| if i < rotated { 1.0 } else { NOT_ROTATED }).collect()
            }
            Self::Llama3 { base, dims, factor, low_freq_factor, high_freq_factor, original_context } => {
                let context = original_context as f32;
                let (low_wavelen, high_wavelen) = (context / low_freq_factor, context / high_freq_factor);
                let divisor = |i: usize| {
                    let wavelen = 2.0 * PI * base.powf((2 * i) as f32 / dims as f32);
                    if wavelen < high_wavelen {
                        1.0
                    } else if wavelen > low_wavelen {
                        factor
                    } else {
                        let smooth =
                            (context / wavelen - low_freq_factor) / (high_freq_factor - low_freq_factor);
                        1.0 / ((1.0 - smooth) / factor + smooth)
                    }
                };
                (0..dims / 2).map(divisor).collect()
            }
        }
    }
}
