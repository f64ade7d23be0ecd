//! The product as a whole: row blocks, panels, ranges of k.

use std::marker::PhantomData;
use std::ops::Range;

use hf2q_gguf::TensorType;

use super::activations::Picked;
use super::formats;
#[cfg(target_arch = "x86_64")]
use super::many::Engine;
use super::output::OutputRows;
use super::panel::Panel;
use super::portable::Portable;
use super::simd::Simd;
use super::single::Single;
use super::stream;
use super::tile::Tiles;
use super::unpack::{Format, Kind, Unpack};
use crate::isa::Isa;
#[cfg(target_arch = "x86_64")]
use crate::isa::{Amx, Avx512};
use crate::lines::Lines;

/// Columns come in panels of this size.
pub const PANEL: usize = 16;

/// Records of 32 k that are unpacked at a time: with 16 lanes about 20 kB, half of a first-level cache.
const RANGE: usize = 32;

/// Panels whose sums are written together.
const CHUNK: usize = 64;

/// Words of activations that one block of rows may take, so that they stay in a second-level cache.
const BLOCK_WORDS: usize = 160 << 10;

/// Fewest rows that are multiplied in octets; fewer are bound by reading weights rather than by arithmetic.
#[cfg(target_arch = "x86_64")]
const MANY: usize = 9;

/// The same for matrix tiles.
#[cfg(target_arch = "x86_64")]
const MANY_FOR_TILES: usize = 9;

/// Whether a matrix of this type with rows of `n_in` weights can be multiplied.
pub fn supports(ty: TensorType, n_in: usize) -> bool {
    formats::known(ty) && n_in > 0 && n_in.is_multiple_of(ty.block_len())
}

/// Whether products of so many rows read activations in octets: see [`QuantMatMul::run_laid_out`].
pub fn in_octets(isa: Isa, rows: usize) -> bool {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Amx(_) => rows >= MANY_FOR_TILES,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512(_) => rows >= MANY,
        _ => false,
    }
}

/// What codes in octets are exclusive-ored with for an instruction set.
#[cfg(target_arch = "x86_64")]
pub(super) fn flip(isa: Isa) -> u8 {
    match isa {
        Isa::Amx(_) => <Amx as Engine>::FLIP,
        Isa::Avx512(_) => <Avx512 as Engine>::FLIP,
        _ => 0,
    }
}

/// A quantized weight matrix `[n_out][n_in]` in the layout of the file.
#[derive(Clone, Copy, Debug)]
pub struct QuantMatMul<'a> {
    isa: Isa,
    ty: TensorType,
    pub(super) weight: &'a [u8],
    pub(super) n_in: usize,
    n_out: usize,
    pub(super) row_bytes: usize,
}

/// Memory that products need, one for each thread, to be reused.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(super) stream: Lines<u32>,
    pub(super) records: Lines<u32>,
    pub(super) sums: Lines<u32>,
    pub(super) ragged: Vec<u8>,
    /// Integer sums of matrix tiles.
    pub(super) tiles: Lines<u32>,
    /// What `stream` holds, if that may be used again.
    laid: Option<Laid>,
}

/// Activations as they are laid out: of which rows (where they and their list lie, and how many), for which weights and
/// instruction set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Laid {
    x: usize,
    rows: (usize, usize),
    ty: TensorType,
    isa: &'static str,
}

impl Scratch {
    /// No memory yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets the activations of the products before: whoever changes some calls it before the next product.
    pub fn renew(&mut self) {
        self.laid = None;
    }
}

impl<'a> QuantMatMul<'a> {
    /// Looks at one matrix; cheap enough to be made for each call.
    ///
    /// # Panics
    ///
    /// If the type is not [supported](supports) or `weight` is not `n_out` rows long.
    pub fn new(isa: Isa, ty: TensorType, weight: &'a [u8], (n_out, n_in): (usize, usize)) -> Self {
        assert!(supports(ty, n_in), "no quantized product for {ty} rows of {n_in}");
        let row_bytes = n_in / ty.block_len() * ty.block_bytes();
        assert_eq!(
            n_out.checked_mul(row_bytes),
            Some(weight.len()),
            "bytes of a {ty} matrix {n_out} x {n_in}"
        );
        Self { isa, ty, weight, n_in, n_out, row_bytes }
    }

    /// Writes columns `cols` of the product of the picked rows: `cols` starts at a multiple of [`PANEL`] and ends
    /// at another or at `n_out`.
    ///
    /// Activations are laid out in a call, which costs as much as a fraction of a panel, unless the call before had the
    /// same and the same memory: see [`Scratch::renew`].
    ///
    /// # Panics
    ///
    /// If shapes do not fit.
    pub fn run(&self, input: Picked<'_>, cols: Range<usize>, out: &OutputRows<'_>, scratch: &mut Scratch) {
        self.start(Call { matrix: self, input, cols, out, scratch, laid_out: false });
    }

    /// [`QuantMatMul::run`] with the first rows of `x`, which lie in octets already: see `QuantRows::row_in_octets`.
    /// For as many rows as [`in_octets`] accepts; a call costs no more than its columns.
    ///
    /// # Panics
    ///
    /// If shapes do not fit.
    pub fn run_laid_out(
        &self,
        input: Picked<'_>,
        cols: Range<usize>,
        out: &OutputRows<'_>,
        scratch: &mut Scratch,
    ) {
        assert!(in_octets(self.isa, input.rows.len()), "{} rows in octets", input.rows.len());
        self.start(Call { matrix: self, input, cols, out, scratch, laid_out: true });
    }

    fn start(&self, mut call: Call<'_>) {
        let Call { input, cols, out, .. } = &call;
        assert_eq!(input.x.n_in(), self.n_in, "length of the activations");
        assert_eq!(input.rows.len(), out.len(), "rows read and written");
        assert!(
            cols.start.is_multiple_of(PANEL) && cols.end <= self.n_out,
            "columns {cols:?} of {}",
            self.n_out
        );
        assert!(
            cols.end.is_multiple_of(PANEL) || cols.end == self.n_out,
            "columns {cols:?} end inside a panel"
        );
        formats::dispatch(self.ty, &mut call);
    }
}

/// The arguments of one product.
pub(super) struct Call<'a> {
    pub(super) matrix: &'a QuantMatMul<'a>,
    pub(super) input: Picked<'a>,
    pub(super) cols: Range<usize>,
    pub(super) out: &'a OutputRows<'a>,
    pub(super) scratch: &'a mut Scratch,
    /// Whether the rows are the first ones of the set, and lie in octets.
    pub(super) laid_out: bool,
}

/// Computes a product of weights of one format.
pub(super) fn product<F: Format>(call: &mut Call<'_>) {
    debug_assert_eq!((F::BYTES, 32 * F::RECORDS), (F::TYPE.block_bytes(), F::TYPE.block_len()));
    let many = in_octets(call.matrix.isa, call.input.rows.len());
    match call.matrix.isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Amx(token) if many => super::many::product::<_, F>(token, call),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512(token) if many => super::many::product::<_, F>(token, call),
        #[cfg(target_arch = "x86_64")]
        Isa::Amx(token) => call.blocks::<_, F>(token.avx512()),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512(token) => call.blocks::<_, F>(token),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(token) => call.blocks::<_, F>(token),
        Isa::Portable => call.blocks::<_, F>(Portable),
    }
}

impl Call<'_> {
    fn blocks<S: Simd, F: Format>(&mut self, simd: S) {
        let records = self.matrix.n_in / 32;
        let per_row = stream::stream_words::<F::Kind>(1, records);
        let rows = (BLOCK_WORDS / per_row).next_multiple_of(S::TILE).max(4 * S::TILE);
        let picked = self.input.rows;
        for start in (0..picked.len()).step_by(rows) {
            let range = start..picked.len().min(start + rows);
            let input = Picked { x: self.input.x, rows: &picked[range.clone()] };
            self.lay_out::<S, F>(input, per_row);
            if picked.len() == 1 {
                return self.single::<S, F>(simd);
            }
            for column in self.cols.clone().step_by(S::LANES) {
                self.panel::<S, F>(simd, range.clone(), column);
            }
        }
    }

    /// Lays out some rows, if they are not.
    fn lay_out<S: Simd, F: Format>(&mut self, input: Picked<'_>, per_row: usize) {
        let rows = (input.rows.as_ptr() as usize, input.rows.len());
        let laid = Some(Laid {
            x: std::ptr::from_ref(input.x) as usize,
            rows,
            ty: F::TYPE,
            isa: self.matrix.isa.name(),
        });
        if self.scratch.laid != laid {
            stream::fill::<S, F>(input, self.scratch.stream.get(per_row * input.rows.len()));
            self.scratch.laid = laid;
        }
    }

    /// Multiplies all panels with the one row whose activations are laid out.
    fn single<S: Simd, F: Format>(&mut self, simd: S) {
        let (m, cols) = (self.matrix, self.cols.clone());
        let Scratch { stream, sums, ragged, .. } = &mut *self.scratch;
        let (stream, sums) =
            (stream.get(stream::stream_words::<F::Kind>(1, m.n_in / 32)), sums.get(PANEL * CHUNK));
        let panel = S::LANES * m.row_bytes;
        for first in cols.clone().step_by(PANEL * CHUNK) {
            let width = (PANEL * CHUNK).min(cols.end - first);
            let weights = &m.weight[first * m.row_bytes..][..width * m.row_bytes];
            let whole = weights.len() / panel * panel;
            let (sums, last) = sums.split_at_mut(whole / m.row_bytes);
            simd.enter(Single::<F> {
                weights: &weights[..whole],
                row_bytes: m.row_bytes,
                stream,
                sums,
                format: PhantomData,
            });
            self.out.write(0, first, sums);
            if whole < weights.len() {
                let weights = padded(ragged, &weights[whole..], panel);
                let sums = &mut last[..S::LANES];
                simd.enter(Single::<F> {
                    weights,
                    row_bytes: m.row_bytes,
                    stream,
                    sums,
                    format: PhantomData,
                });
                self.out.write(0, first + whole / m.row_bytes, &sums[..width - whole / m.row_bytes]);
            }
        }
    }

    /// Multiplies one panel with a block of rows whose activations are laid out.
    fn panel<S: Simd, F: Format>(&mut self, simd: S, rows: Range<usize>, column: usize) {
        let (m, n) = (self.matrix, rows.len());
        let total = m.n_in / 32;
        let width = S::LANES.min(self.cols.end - column);
        let weights = &m.weight[column * m.row_bytes..][..width * m.row_bytes];
        let Scratch { stream, records, sums, ragged, .. } = &mut *self.scratch;
        let bytes = if width < S::LANES { padded(ragged, weights, S::LANES * m.row_bytes) } else { weights };
        let panel = Panel::new(bytes, m.row_bytes);
        let stream = stream.get(stream::stream_words::<F::Kind>(n, total));
        let sums = sums.get(n * S::LANES);
        sums.fill(0);
        for first in (0..total).step_by(RANGE) {
            let count = RANGE.min(total - first);
            let records = records.get(count * S::LANES * (8 + F::Kind::FLOATS));
            let per_block = F::TYPE.block_len() / 32;
            let blocks = first / per_block..(first + count) / per_block;
            simd.enter(Unpack::<F> { panel, blocks, records, format: PhantomData });
            simd.enter(Tiles::<F::Kind> { records, stream, first, total, sums, kind: PhantomData });
        }
        let out = self.out.part(rows);
        for (i, row) in sums.chunks_exact(S::LANES).enumerate() {
            out.write(i, column, &row[..width]);
        }
    }
}

/// The last rows of a matrix, followed by zeros up to `len` bytes.
pub(super) fn padded<'a>(ragged: &'a mut Vec<u8>, rows: &[u8], len: usize) -> &'a [u8] {
    ragged.clear();
    ragged.extend_from_slice(rows);
    ragged.resize(len, 0);
    ragged
}
