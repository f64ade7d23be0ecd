//! The closed set of operations. A backend is a `match` over [`Op`].
//!
//! Shapes are given as `[rows, columns]`; `R` is the number of rows of the step, `L` the number of rows whose
//! logits are wanted, `rows` either of them (see [`crate::RowKind`]). Every row is computed from the same row of the inputs (and, in attention, from the cache),
//! in an order of accumulation that depends on widths alone, never on `R`, `L` or the number of threads.

use crate::formed::FormedKeys;
use crate::tensor::{CacheId, TensorId, View};

/// `out[r] = scale · table[token[r]]`, dequantized.
#[derive(Clone, Debug, PartialEq)]
pub struct Embed {
    /// `[vocabulary, width]`, any block format.
    pub table: TensorId,
    /// `[R, width]`.
    pub out: View,
    /// Multiplies every value.
    pub scale: f32,
}

/// `out[r]` is what the step gives for its row `r` ([`crate::Step::inputs`]).
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// Which of the recording's inputs.
    pub index: usize,
    /// `[R, width]`.
    pub out: View,
}

/// Root-mean-square norm of each group of `group` columns: `out = x / sqrt(mean(x²) + eps) · weight`
/// (Zhang & Sennrich 2019). With `group` below the width this is a norm per head.
#[derive(Clone, Debug, PartialEq)]
pub struct RmsNorm {
    /// `[rows, width]`, width a multiple of `group`.
    pub x: View,
    /// `group` f32 values; `None`: all ones.
    pub weight: Option<TensorId>,
    /// Shape of `x`.
    pub out: View,
    /// Columns that are normalized together.
    pub group: usize,
    /// Added to the mean square.
    pub eps: f32,
}

/// `out = x · weightᵀ`.
#[derive(Clone, Debug, PartialEq)]
pub struct MatMul {
    /// `[rows, n_in]`.
    pub x: View,
    /// `[n_out, n_in]`, any block format.
    pub weight: TensorId,
    /// `[rows, n_out]`.
    pub out: View,
}

/// Which columns form a rotated pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// `(i, i + dims/2)`.
    Halves,
    /// `(2i, 2i + 1)`.
    Adjacent,
}

/// YaRN (Peng et al. 2023, arXiv 2309.00071): interpolates low frequencies, keeps high ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Yarn {
    /// Weight of the extrapolated part, usually 1.
    pub ext_factor: f32,
    /// Turns over the original context above which a pair is not interpolated, usually 32.
    pub beta_fast: f32,
    /// Turns below which a pair is fully interpolated, usually 1.
    pub beta_slow: f32,
    /// Context length the model was first trained for.
    pub original_context: u32,
}

/// Rotary position embedding (Su et al. 2021): pair `i` of the first `dims` columns of a head turns by
/// `position · freq_scale · base^(-2i/dims) / factor[i]`; columns from `dims` on are copied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeParams {
    /// Rotated columns of a head; even.
    pub dims: usize,
    /// Which columns form a pair.
    pub pairing: Pairing,
    /// Base of the frequencies (theta).
    pub base: f32,
    /// Multiplies every angle: the reciprocal of a linear scaling factor.
    pub freq_scale: f32,
    /// `dims/2` f32 divisors of the angles.
    pub factors: Option<TensorId>,
    /// YaRN parameters; it takes `freq_scale` as the reciprocal of its factor.
    pub yarn: Option<Yarn>,
    /// Multiplies sine and cosine; 1 without YaRN.
    pub magnitude: f32,
}

/// Rotates every head of `x`, each row by its own position; see [`RopeParams`].
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// `[rows, heads · head_dim]`.
    pub x: View,
    /// Shape of `x`.
    pub out: View,
    /// Columns of a head.
    pub head_dim: usize,
    /// Angles.
    pub rope: RopeParams,
}

/// Stores each row's key and value at the row's slot ([`crate::GroupStep::slots`]).
#[derive(Clone, Debug, PartialEq)]
pub struct KvStore {
    /// `[R, kv_heads · head_dim]`; `None` where the cache forms keys of values ([`crate::Cache::formed_keys`]).
    pub k: Option<View>,
    /// `[R, kv_heads · head_dim]`.
    pub v: View,
    /// Where.
    pub cache: CacheId,
    /// The cache as a tensor, for the accesses.
    pub cache_tensor: TensorId,
}

/// `out = softmax(scale · q·K) V` for each query head over the positions the row sees: those of its sequence up to its own,
/// inside the group's window, the last ones along its own ancestors ([`crate::Step::tree_base`]). Query head `h` reads KV head
/// `h / (heads / kv_heads)`. Where the cache stores values only, keys are formed of them, each at its position
/// ([`crate::FormedKeys`]). Keys are visited in ascending position, in blocks of [`crate::PAGE`] aligned to
/// absolute positions. Where the last positions are kept a second time, a row reads its blocks there as far as the span
/// of that cache's group reaches: what a row reads where is determined by its position.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// `[rows, heads · head_dim]`; the cache has the keys of all rows, whichever of them ask.
    pub q: View,
    /// What is attended to; written by an earlier [`KvStore`] of the step, perhaps of another layer.
    pub cache: CacheId,
    /// The cache as a tensor, for the accesses.
    pub cache_tensor: TensorId,
    /// `[rows, heads · head_dim]`.
    pub out: View,
    /// Query heads.
    pub heads: usize,
    /// Multiplies the scores.
    pub scale: f32,
    /// Scores become `cap · tanh(score / cap)`.
    pub softcap: Option<f32>,
    /// What the cache says: how keys are formed where only values are stored.
    pub formed_keys: Option<FormedKeys>,
    /// A cache of the same heads, with its tensor, whose group sees whole pages ([`crate::Span::Pages`]): there rows find
    /// the keys and values of these pages, others in `cache`.
    pub recent: Option<(CacheId, TensorId)>,
}

/// `out = a + b`.
#[derive(Clone, Debug, PartialEq)]
pub struct Add {
    /// `[rows, width]`.
    pub a: View,
    /// `[rows, width]`.
    pub b: View,
    /// `[rows, width]`.
    pub out: View,
}

/// `out = factor · by[0] · x`.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    /// `[rows, width]`.
    pub x: View,
    /// `[rows, width]`.
    pub out: View,
    /// A constant.
    pub factor: f32,
    /// One f32 value of the model; `None`: 1.
    pub by: Option<TensorId>,
}

/// `out = cap · tanh(x / cap)`.
#[derive(Clone, Debug, PartialEq)]
pub struct SoftCap {
    /// `[rows, width]`.
    pub x: View,
    /// `[rows, width]`.
    pub out: View,
    /// Largest magnitude that comes out.
    pub cap: f32,
}

/// Non-linearity of a gated linear unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x/2 · (1 + tanh(sqrt(2/π) · (x + 0.044715 x³)))` (Hendrycks & Gimpel 2016).
    GeluTanh,
    /// `x / (1 + exp(-x))`.
    Silu,
}

/// `out = act(gate) · up`, for each of `groups` equal parts of the columns. With `groups` above one, `gate` and `up`
/// are `stride` columns apart per group (the chosen experts, each with its gate and up part side by side).
#[derive(Clone, Debug, PartialEq)]
pub struct Glu {
    /// `[rows, width]` within the first group.
    pub gate: View,
    /// `[rows, width]` within the first group.
    pub up: View,
    /// `[rows, groups · width]`, contiguous.
    pub out: View,
    /// The non-linearity.
    pub act: Activation,
    /// Number of groups; 1 for a dense layer.
    pub groups: usize,
    /// Columns from one group to the next, in `gate` and in `up`.
    pub stride: usize,
}

/// How the weights of the chosen experts are made from the router's softmax.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renormalize {
    /// Divide by the sum over the chosen experts.
    Chosen,
    /// Keep the probabilities over all experts.
    Keep,
}

/// Softmax over the experts, then the `top_k` largest in descending order (ties: the lower index first).
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// `[rows, experts]`.
    pub logits: View,
    /// i32 `[rows, top_k]`: chosen experts.
    pub experts: View,
    /// `[rows, top_k]`: their weights.
    pub weights: View,
    /// How the weights are normalized.
    pub renormalize: Renormalize,
    /// `experts` f32 values that multiply the final weights.
    pub expert_scale: Option<TensorId>,
}

/// What the chosen experts of a row read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpertInput {
    /// All read the row's `n_in` columns.
    Shared,
    /// The `i`-th chosen reads columns `i · n_in ..`.
    PerExpert,
}

/// `out[r, i] = x · weight[experts[r, i]]ᵀ` for every chosen expert `i`.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpertMatMul {
    /// `[rows, n_in]` or `[rows, top_k · n_in]`.
    pub x: View,
    /// i32 `[rows, top_k]`.
    pub experts: View,
    /// `[experts, n_out, n_in]`, any block format.
    pub weight: TensorId,
    /// `[rows, top_k · n_out]`.
    pub out: View,
    /// How `x` is read.
    pub input: ExpertInput,
}

/// `out = Σ_i weights[r, i] · x[r, i]`, added in the order of `i`.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpertSum {
    /// `[rows, top_k · width]`.
    pub x: View,
    /// `[rows, top_k]`.
    pub weights: View,
    /// `[rows, width]`.
    pub out: View,
}

/// Keeps the rows whose logits are wanted ([`crate::Step::logit_rows`]).
#[derive(Clone, Debug, PartialEq)]
pub struct SelectRows {
    /// `[R, width]`.
    pub x: View,
    /// `[L, width]`.
    pub out: View,
}

/// [`RmsNorm`] over the whole row, then [`Add`]: `out = residual + norm(x)`.
#[derive(Clone, Debug, PartialEq)]
pub struct NormAdd {
    /// `[rows, width]`.
    pub x: View,
    /// `width` f32 values; `None`: all ones.
    pub weight: Option<TensorId>,
    /// `[rows, width]`.
    pub residual: View,
    /// `[rows, width]`.
    pub out: View,
    /// Added to the mean square.
    pub eps: f32,
}

/// [`RmsNorm`] per head, then [`Rope`].
#[derive(Clone, Debug, PartialEq)]
pub struct NormRope {
    /// `[rows, heads · head_dim]`.
    pub x: View,
    /// `head_dim` f32 values; `None`: all ones.
    pub weight: Option<TensorId>,
    /// Shape of `x`.
    pub out: View,
    /// Columns of a head.
    pub head_dim: usize,
    /// Added to the mean square.
    pub eps: f32,
    /// Angles.
    pub rope: RopeParams,
}

/// One recorded operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// See [`Embed`].
    Embed(Embed),
    /// See [`Input`].
    Input(Input),
    /// See [`RmsNorm`].
    RmsNorm(RmsNorm),
    /// See [`MatMul`].
    MatMul(MatMul),
    /// See [`Rope`].
    Rope(Rope),
    /// See [`KvStore`].
    KvStore(KvStore),
    /// See [`Attention`].
    Attention(Attention),
    /// See [`Add`].
    Add(Add),
    /// See [`Scale`].
    Scale(Scale),
    /// See [`SoftCap`].
    SoftCap(SoftCap),
    /// See [`Glu`].
    Glu(Glu),
    /// See [`Route`].
    Route(Route),
    /// See [`ExpertMatMul`].
    ExpertMatMul(ExpertMatMul),
    /// See [`ExpertSum`].
    ExpertSum(ExpertSum),
    /// See [`SelectRows`].
    SelectRows(SelectRows),
    /// See [`NormAdd`].
    NormAdd(NormAdd),
    /// See [`NormRope`].
    NormRope(NormRope),
}

impl Op {
    /// The operation's kind, as plans print it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Embed(_) => "embed",
            Self::Input(_) => "input",
            Self::RmsNorm(_) => "rms_norm",
            Self::MatMul(_) => "mat_mul",
            Self::Rope(_) => "rope",
            Self::KvStore(_) => "kv_store",
            Self::Attention(_) => "attention",
            Self::Add(_) => "add",
            Self::Scale(_) => "scale",
            Self::SoftCap(_) => "soft_cap",
            Self::Glu(_) => "glu",
            Self::Route(_) => "route",
            Self::ExpertMatMul(_) => "expert_mat_mul",
            Self::ExpertSum(_) => "expert_sum",
            Self::SelectRows(_) => "select_rows",
            Self::NormAdd(_) => "norm_add",
            Self::NormRope(_) => "norm_rope",
        }
    }
}
