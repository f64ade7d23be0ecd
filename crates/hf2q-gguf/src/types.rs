//! Tensor types of GGUF: their ids, names and block sizes.

/// How the elements of a tensor are stored. Rows are cut into blocks of [`TensorType::block_len`] elements
/// that take [`TensorType::block_bytes`] bytes each. The ids are those of the GGUF specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
#[non_exhaustive]
pub enum TensorType {
    /// IEEE single precision.
    F32 = 0,
    /// IEEE half precision.
    F16 = 1,
    /// 4 bits, one f16 scale per 32.
    Q4_0 = 2,
    /// 4 bits, f16 scale and minimum per 32.
    Q4_1 = 3,
    /// 5 bits, one f16 scale per 32.
    Q5_0 = 6,
    /// 5 bits, f16 scale and minimum per 32.
    Q5_1 = 7,
    /// 8 bits, one f16 scale per 32.
    Q8_0 = 8,
    /// 2 bits, 4-bit scales and minimums per 16, super-blocks of 256.
    Q2K = 10,
    /// 3 bits, 6-bit scales per 16, super-blocks of 256.
    Q3K = 11,
    /// 4 bits, 6-bit scales and minimums per 32, super-blocks of 256.
    Q4K = 12,
    /// 5 bits, 6-bit scales and minimums per 32, super-blocks of 256.
    Q5K = 13,
    /// 6 bits, 8-bit scales per 16, super-blocks of 256.
    Q6K = 14,
    /// 2.06 bits: words of eight values from a grid of 256, super-blocks of 256.
    Iq2Xxs = 16,
    /// 2.31 bits: words of eight values from a grid of 512, super-blocks of 256.
    Iq2Xs = 17,
    /// 3.06 bits: words of four values from a grid of 256, super-blocks of 256.
    Iq3Xxs = 18,
    /// 1.56 bits: words of eight values from a grid of 2048, super-blocks of 256.
    Iq1S = 19,
    /// 4 bits through a fixed non-linear table, one f16 scale per 32.
    Iq4Nl = 20,
    /// 3.44 bits: words of four values from a grid of 512, super-blocks of 256.
    Iq3S = 21,
    /// 2.56 bits: words of eight values from a grid of 1024, super-blocks of 256.
    Iq2S = 22,
    /// 4 bits through a fixed non-linear table, 6-bit scales per 32, super-blocks of 256.
    Iq4Xs = 23,
    /// 8-bit integers.
    I8 = 24,
    /// 16-bit integers.
    I16 = 25,
    /// 32-bit integers.
    I32 = 26,
    /// 64-bit integers.
    I64 = 27,
    /// IEEE double precision.
    F64 = 28,
    /// 1.75 bits: words of eight values from a grid of 2048, scales per 16, super-blocks of 256.
    Iq1M = 29,
    /// The upper half of a single.
    Bf16 = 30,
    /// 1.69 bits: three levels, five values in a byte, one f16 scale per 256.
    Tq1_0 = 34,
    /// 2.06 bits: three levels, four values in a byte, one f16 scale per 256.
    Tq2_0 = 35,
    /// 4-bit floats (E2M1), one E8M0 scale per 32.
    Mxfp4 = 39,
}

/// One row of [`TABLE`].
struct Row {
    tag: TensorType,
    name: &'static str,
    block_len: usize,
    block_bytes: usize,
}

const fn row(tag: TensorType, name: &'static str, block_len: usize, block_bytes: usize) -> Row {
    Row { tag, name, block_len, block_bytes }
}

const TABLE: &[Row] = &[
    row(TensorType::F32, "f32", 1, 4),
    row(TensorType::F16, "f16", 1, 2),
    row(TensorType::Q4_0, "q4_0", 32, 18),
    row(TensorType::Q4_1, "q4_1", 32, 20),
    row(TensorType::Q5_0, "q5_0", 32, 22),
    row(TensorType::Q5_1, "q5_1", 32, 24),
    row(TensorType::Q8_0, "q8_0", 32, 34),
    row(TensorType::Q2K, "q2_k", 256, 84),
    row(TensorType::Q3K, "q3_k", 256, 110),
    row(TensorType::Q4K, "q4_k", 256, 144),
    row(TensorType::Q5K, "q5_k", 256, 176),
    row(TensorType::Q6K, "q6_k", 256, 210),
    row(TensorType::Iq2Xxs, "iq2_xxs", 256, 66),
    row(TensorType::Iq2Xs, "iq2_xs", 256, 74),
    row(TensorType::Iq3Xxs, "iq3_xxs", 256, 98),
    row(TensorType::Iq1S, "iq1_s", 256, 50),
    row(TensorType::Iq4Nl, "iq4_nl", 32, 18),
    row(TensorType::Iq3S, "iq3_s", 256, 110),
    row(TensorType::Iq2S, "iq2_s", 256, 82),
    row(TensorType::Iq4Xs, "iq4_xs", 256, 136),
    row(TensorType::I8, "i8", 1, 1),
    row(TensorType::I16, "i16", 1, 2),
    row(TensorType::I32, "i32", 1, 4),
    row(TensorType::I64, "i64", 1, 8),
    row(TensorType::F64, "f64", 1, 8),
    row(TensorType::Iq1M, "iq1_m", 256, 56),
    row(TensorType::Bf16, "bf16", 1, 2),
    row(TensorType::Tq1_0, "tq1_0", 256, 54),
    row(TensorType::Tq2_0, "tq2_0", 256, 66),
    row(TensorType::Mxfp4, "mxfp4", 32, 17),
];

impl TensorType {
    /// Every type this crate knows, in the order of their ids.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|r| r.tag)
    }

    /// The type with a GGUF id, or `None` if this crate does not know it.
    pub fn from_id(id: u32) -> Option<Self> {
        Self::all().find(|t| t.id() == id)
    }

    /// The type with a lower-case name as in [`TensorType::name`].
    pub fn from_name(name: &str) -> Option<Self> {
        TABLE.iter().find(|r| r.name == name).map(|r| r.tag)
    }

    /// The id that GGUF files use.
    pub fn id(self) -> u32 {
        self as u32
    }

    /// Lower-case name, for example `q4_k`.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Elements of one block.
    pub fn block_len(self) -> usize {
        self.row().block_len
    }

    /// Bytes of one block.
    pub fn block_bytes(self) -> usize {
        self.row().block_bytes
    }

    /// Bytes of a row of `len` elements; `None` if `len` is no multiple of the block or the size overflows.
    pub fn row_bytes(self, len: usize) -> Option<usize> {
        let r = self.row();
        if !len.is_multiple_of(r.block_len) {
            return None;
        }
        (len / r.block_len).checked_mul(r.block_bytes)
    }

    fn row(self) -> &'static Row {
        let found = TABLE.iter().find(|r| r.tag == self);
        found.expect("the table has a row for every variant")
    }
}

impl std::fmt::Display for TensorType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
