//! Packed codes of the cache to levels, for each instruction set. The layout is that of [`hf2q_quant::kv`]: the words
//! of a plane, repeated to sixteen lanes and shifted by lane, then by `8 j`, have the codes of vector `j` in their
//! low bits. Tables are small enough for registers; the highest bit of a code is the sign.

#[cfg(target_arch = "x86_64")]
pub(super) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;
pub(super) mod portable;

#[cfg(test)]
mod tests {
    use hf2q_quant::kv::{GROUP, Turbo};

    use crate::isa::Isa;
    use crate::simd::{Kernel, LANES, Simd, dispatch};

    struct Read<'a>(Turbo, &'a [u8]);

    impl Read<'_> {
        #[inline(always)]
        #[expect(unsafe_code, reason = "reads through a pointer")]
        fn all<S: Simd, const BITS: usize>(&self, s: S) -> Vec<f32> {
            let mut out = vec![];
            for j in 0..GROUP / LANES {
                let mut lanes = [0.0; LANES];
                assert!(self.1.len() == 8 * BITS);
                // SAFETY: the group has the bytes of its bits.
                s.store(unsafe { s.read_levels::<BITS>(self.1.as_ptr(), j) }, &mut lanes);
                out.extend(lanes);
            }
            out
        }
    }

    impl Kernel for Read<'_> {
        type Output = Vec<f32>;

        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> Vec<f32> {
            match self.0 {
                Turbo::Tq2 => self.all::<S, 2>(s),
                Turbo::Tq3 => self.all::<S, 3>(s),
                Turbo::Tq4 => self.all::<S, 4>(s),
                Turbo::Tq5 => self.all::<S, 5>(s),
                Turbo::Tq6 => self.all::<S, 6>(s),
                Turbo::Tq8 => self.all::<S, 8>(s),
            }
        }
    }

    #[test]
    fn every_code_in_every_place_becomes_its_level() {
        for turbo in Turbo::ALL {
            let values = turbo.values();
            for first in 0..values.len() {
                let codes: [u8; GROUP] = std::array::from_fn(|i| ((first + i * 37) % values.len()) as u8);
                let mut group = vec![0; turbo.group_bytes()];
                turbo.pack(&codes, &mut group);
                let want: Vec<f32> = codes.iter().map(|&c| values[usize::from(c)]).collect();
                for isa in Isa::available() {
                    assert_eq!(dispatch(isa, Read(turbo, &group)), want, "{turbo:?} {}", isa.name());
                }
            }
        }
    }
}
