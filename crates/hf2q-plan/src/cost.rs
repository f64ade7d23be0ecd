//! What an operation moves and computes, and how fast a machine could do that at best.

use std::time::Duration;

use hf2q_gguf::TensorType;

use crate::op::{Attention, ExpertInput, Op};
use crate::plan::Recording;
use crate::span::Span;
use crate::tensor::{Cache, CacheId, PAGE, RowKind, TensorId, TensorKind, View};

/// The size of a step whose rows are successive positions of one sequence; those that want logits are the last ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepSize {
    /// Rows of the step.
    pub rows: usize,
    /// Rows whose logits are wanted.
    pub logit_rows: usize,
    /// Positions that the sequence holds before the step.
    pub held: usize,
}

/// Work of one operation in a step. Bytes are counted once, as if what several rows read were read together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Bytes of weights read.
    pub weight_bytes: u64,
    /// Bytes of activations read and written.
    pub activation_bytes: u64,
    /// Bytes of caches read and written.
    pub cache_bytes: u64,
    /// Multiplications and additions of matrix products and of attention; other operations count none.
    pub flops: u64,
    /// Those of `flops` that multiply with quantized weights, which backends do with integers.
    pub quantized_flops: u64,
}

impl Cost {
    /// Bytes of any kind.
    pub fn bytes(&self) -> u64 {
        self.weight_bytes + self.activation_bytes + self.cache_bytes
    }
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.weight_bytes += other.weight_bytes;
        self.activation_bytes += other.activation_bytes;
        self.cache_bytes += other.cache_bytes;
        self.flops += other.flops;
        self.quantized_flops += other.quantized_flops;
    }
}

/// What a machine can do at best (Williams et al. 2009), with the threads that it was measured with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Roofline {
    /// Bytes a second read from memory, one after another.
    pub bytes: f64,
    /// Multiplications and additions of f32 values a second.
    pub flops: f64,
    /// Multiplications and additions of signed bytes a second.
    pub int8_ops: f64,
}

impl Roofline {
    /// The least time that work of this cost takes if all of it comes from memory: that of the bytes or that of the
    /// arithmetic, whichever is longer.
    pub fn bound(&self, cost: &Cost) -> Duration {
        let floats = cost.flops.saturating_sub(cost.quantized_flops) as f64 / self.flops;
        let seconds =
            (cost.bytes() as f64 / self.bytes).max(floats + cost.quantized_flops as f64 / self.int8_ops);
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}

impl Recording {
    /// The cost of an operation. Of expert stacks at most `rows · top_k` matrices are read, of caches what the rows see.
    pub fn cost(&self, op: &Op, size: StepSize) -> Cost {
        let activation_bytes = self.moved(op).into_iter().map(|v| self.view_bytes(v, size)).sum();
        let (flops, weight) = self.flops(op, size);
        let is_quantized = weight.is_some_and(|w| !self.is_float(w));
        Cost {
            weight_bytes: self.weights_read(op, size),
            activation_bytes,
            cache_bytes: self.cache_moved(op, size),
            flops,
            quantized_flops: if is_quantized { flops } else { 0 },
        }
    }

    fn weights_read(&self, op: &Op, size: StepSize) -> u64 {
        match op {
            Op::Embed(o) => {
                let rows = self.count(o.out, size) as u64;
                self.weight_bytes(o.table) / self.weight(o.table).rows.max(1) as u64 * rows
            }
            Op::ExpertMatMul(o) => {
                let w = self.weight(o.weight);
                let used = (self.count(o.x, size) * o.experts.width).min(w.experts);
                self.weight_bytes(o.weight) / w.experts.max(1) as u64 * used as u64
            }
            _ => op.access().reads.iter().map(|&t| self.weight_bytes(t)).sum(),
        }
    }

    /// Views that an operation reads and writes.
    fn moved(&self, op: &Op) -> Vec<View> {
        match op {
            Op::Embed(o) => vec![o.out],
            Op::Input(o) => vec![o.out],
            Op::RmsNorm(o) => vec![o.x, o.out],
            Op::MatMul(o) => vec![o.x, o.out],
            Op::Rope(o) => vec![o.x, o.out],
            Op::KvStore(o) => {
                let cache = self.cache(o.cache);
                let width = cache.kv_heads * cache.head_dim;
                let read = op.access().reads.into_iter().filter(|&t| self.activation(t).is_some());
                read.map(|tensor| View { tensor, offset: 0, width }).collect()
            }
            Op::Attention(o) => vec![o.q, o.out],
            Op::Add(o) => vec![o.a, o.b, o.out],
            Op::Scale(o) => vec![o.x, o.out],
            Op::SoftCap(o) => vec![o.x, o.out],
            Op::Glu(o) => vec![o.out; 3],
            Op::Route(o) => vec![o.logits, o.experts, o.weights],
            Op::ExpertMatMul(o) => vec![o.x, o.experts, o.out],
            Op::ExpertSum(o) => vec![o.x, o.weights, o.out],
            // Only rows that are kept are read.
            Op::SelectRows(o) => vec![o.out; 2],
            Op::NormAdd(o) => vec![o.x, o.residual, o.out],
            Op::NormRope(o) => vec![o.x, o.out],
        }
    }

    fn cache_moved(&self, op: &Op, size: StepSize) -> u64 {
        let position = |cache: &Cache| cache.page_bytes() / PAGE;
        let bytes = match op {
            Op::KvStore(o) => size.rows * position(self.cache(o.cache)),
            Op::Attention(o) => {
                let end = size.held + size.rows;
                let first = end.saturating_sub(self.count(o.q, size));
                if first == end {
                    return 0;
                }
                let start = self.visible(o, first).start;
                // The first row reads most of what is recent, the last one most of the others.
                let (others, recent) = match o.recent.map(|(id, _)| (id, self.span(id))) {
                    Some((id, span)) => {
                        let recent = end - span.first(first).max(start);
                        (span.first(end - 1).max(start), recent * position(self.cache(id)))
                    }
                    None => (end, 0),
                };
                (others - start) * position(self.cache(o.cache)) + recent
            }
            _ => 0,
        };
        bytes as u64
    }

    fn span(&self, cache: CacheId) -> Span {
        self.groups[self.cache(cache).group.index()].span
    }

    /// Positions that a row at `position` sees.
    fn visible(&self, o: &Attention, position: usize) -> std::ops::Range<usize> {
        self.span(o.cache).seen(position)
    }

    /// Multiplications and additions, and the weight that they are with.
    fn flops(&self, op: &Op, size: StepSize) -> (u64, Option<TensorId>) {
        let product = |x: View, width: usize, out: View| 2 * (self.count(x, size) * width * out.width) as u64;
        match op {
            Op::MatMul(o) => (product(o.x, o.x.width, o.out), Some(o.weight)),
            Op::ExpertMatMul(o) => {
                let width = match o.input {
                    ExpertInput::Shared => o.x.width,
                    ExpertInput::PerExpert => o.x.width / o.experts.width.max(1),
                };
                (product(o.x, width, o.out), Some(o.weight))
            }
            Op::Attention(o) => {
                let end = size.held + size.rows;
                let rows = end.saturating_sub(self.count(o.q, size))..end;
                let pairs: usize = rows.map(|position| self.visible(o, position).len()).sum();
                // A score and a share of the value for every pair of row and position, each of one product a column.
                (4 * (pairs * o.q.width) as u64, None)
            }
            _ => (0, None),
        }
    }

    /// Rows of an activation.
    fn count(&self, view: View, size: StepSize) -> usize {
        match self.activation(view.tensor) {
            Some((RowKind::Logits, _)) => size.logit_rows,
            _ => size.rows,
        }
    }

    fn view_bytes(&self, view: View, size: StepSize) -> u64 {
        (self.count(view, size) * view.width * size_of::<f32>()) as u64
    }

    fn is_float(&self, weight: TensorId) -> bool {
        matches!(self.weight(weight).ty, TensorType::F32 | TensorType::F16 | TensorType::Bf16)
    }

    /// Bytes of a weight in the file; 0 for anything else.
    pub fn weight_bytes(&self, id: TensorId) -> u64 {
        match &self.tensors[id.index()].kind {
            TensorKind::Weight(w) => {
                let row = w.ty.row_bytes(w.cols).unwrap_or(0);
                (row * w.rows * w.experts) as u64
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AttentionParams, KvFormat, Recorder, Weight};

    /// Two heads of 32 over one that is cached, in a window of 100.
    fn recording(window: Option<u32>) -> Recording {
        let mut r = Recorder::default();
        let mut weight = |name: &str, ty, rows| r.weight(name, Weight { ty, cols: 64, rows, experts: 1 });
        let table = weight("table", TensorType::F32, 10);
        let quantized = weight("quantized", TensorType::Q8_0, 128);
        let group = r.group("group", window);
        let cache = r.cache(group, 1, 32, (KvFormat::F16, KvFormat::Q8_0));
        let x = r.embed("embed", table, 1.0);
        let y = r.mat_mul("product", x, quantized);
        r.kv_store("store", y.columns(64, 32), y.columns(96, 32), cache);
        let params = AttentionParams { heads: 2, scale: 1.0, softcap: None };
        let out = r.attention("attention", y.columns(0, 64), cache, params);
        let logits = r.select_rows("select", out);
        r.finish(logits).unwrap()
    }

    #[track_caller]
    fn cost(window: Option<u32>, name: &str, (rows, held): (usize, usize)) -> Cost {
        let r = recording(window);
        let op = r.ops.iter().find(|op| op.name == name).unwrap();
        r.cost(&op.op, StepSize { rows, logit_rows: 1, held })
    }

    #[test]
    fn what_rows_have_in_common_is_read_once() {
        let got = cost(None, "product", (4, 0));
        let flops = 2 * 4 * 64 * 128;
        assert_eq!((got.weight_bytes, got.activation_bytes), (128 * 68, 4 * (64 + 128) * 4));
        assert_eq!((got.flops, got.quantized_flops, got.cache_bytes), (flops, flops, 0));
        // Parts of a wider activation count as what they are.
        assert_eq!(cost(None, "attention", (4, 0)).activation_bytes, 4 * (64 + 64) * 4);
        assert_eq!(cost(None, "select", (4, 0)).activation_bytes, 2 * 64 * 4);
        assert_eq!(cost(None, "embed", (4, 0)).weight_bytes, 4 * 64 * 4);
    }

    #[test]
    fn caches_are_read_as_far_as_rows_see() {
        let position = 64 + 34;
        assert_eq!(cost(None, "store", (4, 1000)).cache_bytes, 4 * position);
        let whole = cost(None, "attention", (4, 1000));
        assert_eq!(whole.cache_bytes, 1004 * position);
        assert_eq!((whole.flops, whole.quantized_flops), (4 * 64 * (1001 + 1002 + 1003 + 1004), 0));
        let part = cost(Some(100), "attention", (4, 1000));
        assert_eq!((part.cache_bytes, part.flops), (103 * position, 4 * 64 * 400));
        assert_eq!(cost(Some(100), "attention", (4, 0)).cache_bytes, 4 * position);
    }

    #[test]
    fn recent_positions_are_read_where_they_are_exact() {
        let recording = |window: Option<u32>| {
            let mut r = Recorder::default();
            let table = Weight { ty: TensorType::F32, cols: 64, rows: 10, experts: 1 };
            let table = r.weight("table", table);
            let (group, exact) = (r.group("group", window), r.group("recent", Span::Pages(1)));
            let cache = r.cache(group, 1, 64, (KvFormat::Tq4, KvFormat::Tq4));
            let recent = r.recent_cache(cache, exact, (KvFormat::F16, KvFormat::F16));
            let x = r.embed("embed", table, 1.0);
            r.kv_store("store", x, x, cache);
            r.kv_store("store_recent", x, x, recent);
            let params = AttentionParams { heads: 1, scale: 1.0, softcap: None };
            let out = r.attention("attention", x, cache, params);
            let logits = r.select_rows("select", out);
            r.finish(logits).unwrap()
        };
        for (window, rows, held, (codes, exact)) in [
            (None, 1, 1000, (960, 41)),
            (None, 1, 63, (0, 64)),
            (None, 1, 64, (64, 1)),
            (None, 100, 0, (64, 100)),
            // Positions 150 to 169: the first row sees those from 51 on, of its page those from 128 on.
            (Some(100), 20, 150, (128 - 51, 170 - 128)),
            (Some(10), 1, 150, (0, 10)),
        ] {
            let r = recording(window);
            let cost = r.cost(&r.ops[3].op, StepSize { rows, logit_rows: 1, held });
            assert_eq!(cost.cache_bytes, codes * 68 + exact * 256, "{window:?} {rows} {held}");
        }
    }

    #[test]
    fn the_slower_of_memory_and_arithmetic_bounds() {
        let roof = Roofline { bytes: 100.0, flops: 50.0, int8_ops: 200.0 };
        let cost =
            Cost { weight_bytes: 60, cache_bytes: 40, flops: 250, quantized_flops: 200, ..Cost::default() };
        assert_eq!(roof.bound(&cost), Duration::from_secs(2));
        assert_eq!(roof.bound(&Cost { activation_bytes: 200, ..cost }), Duration::from_secs(3));
    }
}
