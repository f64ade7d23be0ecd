//! The kernels: their sources and every variant that programs use. `cargo xtask kernels` compiles this table.

use crate::launch;

/// A source file of a kernel, by its name without `.cu`.
const FILES: &[(&str, &str)] = &[
    ("attention", include_str!("../kernels/attention.cu")),
    ("attention_join", include_str!("../kernels/attention_join.cu")),
    ("attention_mma", include_str!("../kernels/attention_mma.cu")),
    ("elementwise", include_str!("../kernels/elementwise.cu")),
    ("embed", include_str!("../kernels/embed.cu")),
    ("expert_sum", include_str!("../kernels/expert_sum.cu")),
    ("glu", include_str!("../kernels/glu.cu")),
    ("heads", include_str!("../kernels/heads.cu")),
    ("input", include_str!("../kernels/input.cu")),
    ("kv_store", include_str!("../kernels/kv_store.cu")),
    ("measure", include_str!("../kernels/measure.cu")),
    ("norm", include_str!("../kernels/norm.cu")),
    ("route", include_str!("../kernels/route.cu")),
    ("row_program", include_str!("../kernels/row_program.cu")),
    ("row_straight", include_str!("../kernels/row_straight.cu")),
    ("select_rows", include_str!("../kernels/select_rows.cu")),
    ("mat_mul_cols", include_str!("../kernels/mat_mul_cols.cu")),
    ("mat_mul_few", include_str!("../kernels/mat_mul_few.cu")),
    ("mat_mul_float", include_str!("../kernels/mat_mul_float.cu")),
    ("mat_mul_lists", include_str!("../kernels/mat_mul_lists.cu")),
    ("mat_mul_many", include_str!("../kernels/mat_mul_many.cu")),
    ("mat_mul_one", include_str!("../kernels/mat_mul_one.cu")),
    ("mat_mul_pack", include_str!("../kernels/mat_mul_pack.cu")),
    ("mat_mul_quantize", include_str!("../kernels/mat_mul_quantize.cu")),
];

/// What kernels include.
pub const HEADERS: &[(&str, &str)] = &[
    ("attention.cuh", include_str!("../kernels/attention.cuh")),
    ("attention_load.cuh", include_str!("../kernels/attention_load.cuh")),
    ("attention_mma.cuh", include_str!("../kernels/attention_mma.cuh")),
    ("attention_scores.cuh", include_str!("../kernels/attention_scores.cuh")),
    ("common.cuh", include_str!("../kernels/common.cuh")),
    ("kv_store.cuh", include_str!("../kernels/kv_store.cuh")),
    ("norm.cuh", include_str!("../kernels/norm.cuh")),
    ("quantize.cuh", include_str!("../kernels/quantize.cuh")),
    ("kv.cuh", include_str!("../kernels/kv.cuh")),
    ("route.cuh", include_str!("../kernels/route.cuh")),
    ("raw.cuh", include_str!("../kernels/raw.cuh")),
    ("mat_mul_spans.cuh", include_str!("../kernels/mat_mul_spans.cuh")),
    ("quant_few.cuh", include_str!("../kernels/quant_few.cuh")),
    ("quant_one.cuh", include_str!("../kernels/quant_one.cuh")),
    ("row_straight.cuh", include_str!("../kernels/row_straight.cuh")),
    ("quant_packed.cuh", include_str!("../kernels/quant_packed.cuh")),
    ("quant_product.cuh", include_str!("../kernels/quant_product.cuh")),
    ("quant_walk.cuh", include_str!("../kernels/quant_walk.cuh")),
];

/// Options of every compilation: multiply-adds are fused only where a kernel says so, since their number of roundings
/// is a part of what a row computes.
pub const OPTIONS: &[&str] = &["--std=c++17", "--fmad=false"];

/// A kernel source with the macros that it is compiled with. One variant may have several entries.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Variant {
    /// The source: a name of a file without `.cu`.
    pub file: &'static str,
    /// Macros and their values.
    pub defines: Vec<(&'static str, u32)>,
}

impl Variant {
    /// A source without macros.
    pub fn plain(file: &'static str) -> Self {
        Self { file, defines: Vec::new() }
    }

    /// With one more macro.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: u32) -> Self {
        self.defines.push((name, value));
        self
    }

    /// For example `attention-QUERIES_8-DIMS_2`.
    pub fn name(&self) -> String {
        let defines = self.defines.iter().map(|(name, value)| format!("-{name}_{value}"));
        std::iter::once(self.file.to_owned()).chain(defines).collect()
    }

    /// Its text.
    ///
    /// # Panics
    /// If the table has no such file: a mistake of ours.
    pub fn source(&self) -> &'static str {
        let found = FILES.iter().find(|(name, _)| *name == self.file);
        found.map_or_else(|| panic!("there is no kernel file {}", self.file), |(_, text)| text)
    }

    /// Options of the compiler for an architecture, for example `sm_90a`.
    pub fn options(&self, arch: &str) -> Vec<String> {
        let defines = self.defines.iter().map(|(name, value)| format!("-D{name}={value}"));
        let arch = format!("--gpu-architecture={arch}");
        OPTIONS.iter().map(|&o| o.to_owned()).chain([arch]).chain(defines).collect()
    }

    /// Names what compiling gives: by the sources and options. Which compiler made it is not a part of it, so that what is kept
    /// serves where there is none.
    pub fn key(&self, arch: &str) -> String {
        let mut hash = Fnv::default();
        hash.add(self.source());
        HEADERS.iter().for_each(|(name, text)| {
            hash.add(name);
            hash.add(text);
        });
        self.options(arch).iter().for_each(|o| hash.add(o));
        format!("{}.{arch}.{:032x}.cubin", self.name(), hash.0)
    }
}

/// All variants, each once.
pub fn variants() -> Vec<Variant> {
    launch::variants()
}

/// FNV-1a of 128 bits of some bytes.
pub(crate) fn checksum(bytes: &[u8]) -> [u8; 16] {
    let mut hash = Fnv::default();
    bytes.iter().for_each(|&byte| hash.step(byte));
    hash.0.to_le_bytes()
}

/// FNV-1a of 128 bits.
struct Fnv(u128);

impl Default for Fnv {
    fn default() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }
}

impl Fnv {
    fn add(&mut self, text: &str) {
        // A zero ends a text, so that two of them are not another two.
        text.as_bytes().iter().chain(&[0]).for_each(|&byte| self.step(byte));
    }

    fn step(&mut self, byte: u8) {
        self.0 = (self.0 ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_variant_has_a_source_and_a_name_of_its_own() {
        let all = variants();
        let names: HashSet<String> = all.iter().map(Variant::name).collect();
        assert_eq!(names.len(), all.len());
        assert!(all.iter().all(|v| v.source().contains("extern \"C\"")));
        let used: HashSet<&str> = all.iter().map(|v| v.file).collect();
        assert_eq!(used.len(), FILES.len(), "every file is used");
    }

    #[test]
    fn keys_tell_apart_what_is_compiled() {
        let plain = Variant::plain("elementwise");
        let with = plain.clone().with("A", 1);
        let keys: HashSet<String> = [plain.key("sm_80"), plain.key("sm_90a"), with.key("sm_90a")].into();
        assert_eq!(keys.len(), 3);
        assert_eq!(plain.key("sm_80"), plain.key("sm_80"));
    }

    #[test]
    fn checksums_are_those_of_the_definition() {
        assert_eq!(u128::from_le_bytes(checksum(b"a")), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    }
}
