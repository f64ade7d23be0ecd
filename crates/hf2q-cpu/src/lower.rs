//! One operation becomes one call.

use std::sync::Arc;

use hf2q_gguf::TensorType;
use hf2q_plan::{
    Add, Attention, BackendError, CacheId, Embed, ExpertInput, ExpertMatMul, ExpertSum, FormedKeys, Glu,
    Input, KvFormat, KvStore, MatMul, NamedOp, NormAdd, NormRope, Op, RmsNorm, Rope, RopeParams, Route,
    Scale, SelectRows, SoftCap, TensorId, View,
};
use hf2q_quant::kv::back_factors;

use crate::backend::NAME;
use crate::call::Call;
use crate::compile::Compiler;
use crate::kernels::attention::{
    self, Basis, Combine, Former, Keys, Partials, Parts, Rotations, ScoreParams, Shape, Source,
};
use crate::kernels::float_mat_mul::{FloatExpertMatMul, FloatMatMul, Matrix, is_float};
use crate::kernels::norm::NormParams;
use crate::kernels::picks::ExpertShape;
use crate::kernels::quantized::{QuantizedExpertMatMul, QuantizedMatMul};
use crate::kernels::rope::Turn;
use crate::kernels::{
    elementwise, embed, expert_sum, glu, input, kv_store, norm, quant_mat_mul, rope, route, select_rows,
};

type Lowered = Result<Box<dyn Call>, BackendError>;

/// Prepares an operation, and what it needs beforehand.
pub(crate) fn lower(c: &mut Compiler<'_>, op: &NamedOp) -> Lowered {
    match &op.op {
        Op::Embed(o) => embed(c, op, o),
        Op::Input(o) => input(c, o),
        Op::RmsNorm(o) => rms_norm(c, o),
        Op::NormAdd(o) => norm_add(c, o),
        Op::NormRope(o) => norm_rope(c, o),
        Op::Rope(o) => rotate(c, o),
        Op::MatMul(o) => mat_mul(c, op, o),
        Op::ExpertMatMul(o) => expert_mat_mul(c, op, o),
        Op::KvStore(o) => kv_store(c, o),
        Op::Attention(o) => attention(c, o),
        Op::Add(o) => add(c, o),
        Op::Scale(o) => scale(c, o),
        Op::SoftCap(o) => soft_cap(c, o),
        Op::Glu(o) => glu(c, o),
        Op::Route(o) => route(c, o),
        Op::ExpertSum(o) => expert_sum(c, o),
        Op::SelectRows(o) => select_rows(c, o),
    }
}

fn rms_norm(c: &Compiler<'_>, o: &RmsNorm) -> Lowered {
    let params = norm_params(c, o.weight, o.eps)?;
    Ok(Box::new(norm::RmsNorm { x: c.operand(o.x)?, out: c.operand(o.out)?, group: o.group, params }))
}

fn norm_add(c: &Compiler<'_>, o: &NormAdd) -> Lowered {
    Ok(Box::new(norm::NormAdd {
        x: c.operand(o.x)?,
        residual: c.operand(o.residual)?,
        out: c.operand(o.out)?,
        params: norm_params(c, o.weight, o.eps)?,
    }))
}

fn norm_rope(c: &mut Compiler<'_>, o: &NormRope) -> Lowered {
    Ok(Box::new(rope::NormRope {
        x: c.operand(o.x)?,
        out: c.operand(o.out)?,
        params: norm_params(c, o.weight, o.eps)?,
        turn: turn(c, o.head_dim, &o.rope)?,
    }))
}

fn rotate(c: &mut Compiler<'_>, o: &Rope) -> Lowered {
    let turn = turn(c, o.head_dim, &o.rope)?;
    Ok(Box::new(rope::Rope { x: c.operand(o.x)?, out: c.operand(o.out)?, turn }))
}

fn add(c: &Compiler<'_>, o: &Add) -> Lowered {
    Ok(Box::new(elementwise::Add { a: c.operand(o.a)?, b: c.operand(o.b)?, out: c.operand(o.out)? }))
}

fn soft_cap(c: &Compiler<'_>, o: &SoftCap) -> Lowered {
    Ok(Box::new(elementwise::SoftCap { x: c.operand(o.x)?, out: c.operand(o.out)?, cap: o.cap }))
}

fn route(c: &Compiler<'_>, o: &Route) -> Lowered {
    Ok(Box::new(route::Route {
        logits: c.operand(o.logits)?,
        experts: c.operand(o.experts)?,
        weights: c.operand(o.weights)?,
        renormalize: o.renormalize,
        expert_scale: o.expert_scale.map(|id| c.values(id)).transpose()?,
    }))
}

fn expert_sum(c: &Compiler<'_>, o: &ExpertSum) -> Lowered {
    let (x, weights) = (c.operand(o.x)?, c.operand(o.weights)?);
    Ok(Box::new(expert_sum::ExpertSum { x, weights, out: c.operand(o.out)? }))
}

fn select_rows(c: &Compiler<'_>, o: &SelectRows) -> Lowered {
    Ok(Box::new(select_rows::SelectRows { x: c.operand(o.x)?, out: c.operand(o.out)? }))
}

fn embed(c: &Compiler<'_>, op: &NamedOp, o: &Embed) -> Lowered {
    let w = c.recording.weight(o.table);
    let row_bytes = w.ty.row_bytes(w.cols).filter(|_| hf2q_quant::can_decode(w.ty));
    let Some(row_bytes) = row_bytes else {
        let name = &c.recording.tensors[o.table.index()].name;
        return Err(Compiler::unsupported(op, format!("tensor {name} is {}, which cannot be decoded", w.ty)));
    };
    let (table, out) = (c.bytes(o.table)?, c.operand(o.out)?);
    Ok(Box::new(embed::Embed { table, ty: w.ty, row_bytes, out, scale: o.scale }))
}

fn input(c: &Compiler<'_>, o: &Input) -> Lowered {
    Ok(Box::new(input::Input { index: o.index, out: c.operand(o.out)? }))
}

fn norm_params(c: &Compiler<'_>, weight: Option<TensorId>, eps: f32) -> Result<NormParams, BackendError> {
    Ok(NormParams { weight: weight.map(|id| c.values(id)).transpose()?, eps })
}

fn turn(c: &mut Compiler<'_>, head_dim: usize, rope: &RopeParams) -> Result<Turn, BackendError> {
    Ok(Turn { head_dim, pairing: rope.pairing, half: rope.dims / 2, table: c.angles(rope)? })
}

fn matrix(c: &Compiler<'_>, id: TensorId) -> Result<Matrix, BackendError> {
    let w = c.recording.weight(id);
    Ok(Matrix { bytes: c.bytes(id)?, ty: w.ty, n_in: w.cols, n_out: w.rows })
}

/// A weight of a type or row length that no product is written for.
fn no_product(c: &Compiler<'_>, op: &NamedOp, id: TensorId) -> BackendError {
    /// A multiple of every block.
    const ROW: usize = 256;
    let (w, name) = (c.recording.weight(id), &c.recording.tensors[id.index()].name);
    let known = TensorType::all().filter(|&ty| is_float(ty) || quant_mat_mul::supports(ty, ROW));
    let known: Vec<_> = known.map(TensorType::name).collect();
    let why = format!(
        "tensor {name} is {} in rows of {}, which has no product here; whole blocks of {} have one: convert the file \
         to one of these types",
        w.ty,
        w.cols,
        known.join(", ")
    );
    Compiler::unsupported(op, why)
}

fn mat_mul(c: &mut Compiler<'_>, op: &NamedOp, o: &MatMul) -> Lowered {
    let (x, out, weight) = (c.operand(o.x)?, c.operand(o.out)?, matrix(c, o.weight)?);
    if is_float(weight.ty) {
        return Ok(Box::new(FloatMatMul { x, weight, out }));
    }
    if !quant_mat_mul::supports(weight.ty, weight.n_in) {
        return Err(no_product(c, op, o.weight));
    }
    let from = c.quantize(o.x, 1)?;
    Ok(Box::new(QuantizedMatMul { x, from, weight, out, plan: (c.threads, c.isa) }))
}

fn expert_mat_mul(c: &mut Compiler<'_>, op: &NamedOp, o: &ExpertMatMul) -> Lowered {
    let (x, out, weight) = (c.operand(o.x)?, c.operand(o.out)?, matrix(c, o.weight)?);
    let top_k = o.experts.width;
    let table = c.expert_rows(o.experts, c.recording.weight(o.weight).experts)?;
    let shape = ExpertShape { top_k, input: o.input, n_out: weight.n_out };
    if is_float(weight.ty) {
        return Ok(Box::new(FloatExpertMatMul { x, weight, out, shape, table }));
    }
    if !quant_mat_mul::supports(weight.ty, weight.n_in) {
        return Err(no_product(c, op, o.weight));
    }
    if out.place.stride != out.place.width {
        return Err(Compiler::unsupported(op, "the result is a part of a tensor, not all of it".to_owned()));
    }
    let parts = if o.input == ExpertInput::Shared { 1 } else { top_k };
    let from = c.quantize(o.x, parts)?;
    Ok(Box::new(QuantizedExpertMatMul { x, from, weight, out, shape, table }))
}

fn kv_store(c: &Compiler<'_>, o: &KvStore) -> Lowered {
    let cache = c.recording.cache(o.cache);
    Ok(Box::new(kv_store::KvStore {
        k: o.k.map(|k| c.operand(k)).transpose()?,
        v: c.operand(o.v)?,
        cache: o.cache.index(),
        group: cache.group.index(),
        kv_heads: cache.kv_heads,
        per_value: cache.keys().map_or(0.0, |k| kv_store::nanoseconds(k.format))
            + kv_store::nanoseconds(cache.v_format),
    }))
}

/// Values that are rotated together in a format of vectors of `head_dim`.
fn rotation(format: KvFormat, head_dim: usize) -> Option<usize> {
    format.turbo().and_then(|_| format.block(head_dim))
}

/// What keys are formed with, where only values are stored.
fn keys(c: &mut Compiler<'_>, o: &Attention, id: CacheId) -> Result<Keys, BackendError> {
    let Some(keys) = &o.formed_keys else { return Ok(Keys::Stored) };
    let (vector, cut) = (c.recording.cache(id).values(), c.recording.cache(id).cut());
    let mut factors = match keys.weight {
        Some(id) => c.values(id)?,
        None => vec![1.0; vector.head_dim],
    };
    let FormedKeys { rope, pairs, .. } = keys;
    let angles = c.pages(rope)?;
    if let Some(cut) = cut {
        if angles.pairs() > *pairs {
            let why = format!("{} pairs turn where the plan says {pairs}", angles.pairs());
            return Err(BackendError::Failed { backend: NAME, why });
        }
        return Ok(Keys::Parts(Parts::new(cut, &factors, angles)));
    }
    if let (Some(_), Some(block)) = (vector.format.turbo(), vector.block()) {
        factors.chunks_mut(block).for_each(back_factors);
    }
    Ok(Keys::Formed(Former::new(factors, (rope.pairing, rope.dims / 2), angles)))
}

/// A cache as attention reads it.
fn source(c: &mut Compiler<'_>, o: &Attention, id: CacheId) -> Result<Source, BackendError> {
    let keys = keys(c, o, id)?;
    let cache = c.recording.cache(id);
    let group = cache.group.index();
    Ok(Source {
        cache: id.index(),
        group,
        span: c.recording.groups[group].span,
        rotations: Rotations {
            // Keys are formed in the basis of the queries.
            keys: cache.keys().and_then(|k| rotation(k.format, k.head_dim)),
            values: cache
                .v_format
                .turbo()
                .and(cache.values().block())
                .map(|block| Basis { block, cut: cache.cut() }),
        },
        keys,
    })
}

fn attention(c: &mut Compiler<'_>, o: &Attention) -> Lowered {
    let cache = c.recording.cache(o.cache);
    let pages = c.limits.pages[cache.group.index()];
    let partials = Partials::new(c, (o.heads, cache.kv_heads, cache.head_dim), pages)?;
    let call = Arc::new(attention::Attention {
        q: c.operand(o.q)?,
        out: c.operand(o.out)?,
        cache: source(c, o, o.cache)?,
        recent: o.recent.map(|(id, _)| source(c, o, id)).transpose()?,
        shape: Shape { heads: o.heads, kv_heads: cache.kv_heads, head_dim: cache.head_dim },
        scores: ScoreParams { scale: o.scale, softcap: o.softcap },
        threads: c.threads,
        partials,
    });
    if partials.is_some() {
        c.complete(Box::new(Combine(Arc::clone(&call))), "combine");
    }
    Ok(Box::new(call))
}

fn scale(c: &Compiler<'_>, o: &Scale) -> Lowered {
    let by = o.by.map(|id| c.values(id)).transpose()?.and_then(|v| v.first().copied());
    let factor = o.factor * by.unwrap_or(1.0);
    Ok(Box::new(elementwise::Scale { x: c.operand(o.x)?, out: c.operand(o.out)?, factor }))
}

fn glu(c: &Compiler<'_>, o: &Glu) -> Lowered {
    // The kernel picks each group's columns itself.
    let wide = |v: View| View { width: o.groups.saturating_sub(1) * o.stride + v.width, ..v };
    Ok(Box::new(glu::Glu {
        gate: c.operand(wide(o.gate))?,
        up: c.operand(wide(o.up))?,
        out: c.operand(o.out)?,
        act: o.act,
        groups: o.groups.max(1),
        stride: o.stride,
    }))
}
