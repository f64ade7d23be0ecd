//! The instruction sets that kernels are written for, and the proof that this processor has them.

#[cfg(target_arch = "x86_64")]
mod amx;

/// An instruction set of this processor. The x86 variants carry a token that only detection can make, so a
/// kernel that receives one may use the instructions without asking again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// Matrix tiles of bytes for products of many rows, [`Isa::Avx512`] for everything else.
    #[cfg(target_arch = "x86_64")]
    Amx(Amx),
    /// 512-bit vectors with byte dot products.
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    /// 256-bit vectors.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// Plain Rust.
    Portable,
}

/// Proof that the processor has AMX with products of bytes, that this process may use it, and all of [`Avx512`].
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amx(Avx512);

/// Proof that the processor has AVX-512 F, BW, DQ, VL and VNNI, and all of [`Avx2`]:
/// `#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]`.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Avx512(());

/// Proof that the processor has AVX2, FMA and F16C: `#[target_feature(enable = "avx2,fma,f16c")]`.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Avx2(());

/// A computation written in plain Rust that gains from being compiled for each instruction set. Its result must
/// not depend on the instruction set, which holds as long as it neither fuses nor reorders float operations.
pub(crate) trait Vectorize {
    /// What the computation gives.
    type Output;
    /// Runs it. Implementations are `#[inline(always)]`, else they are compiled for the baseline only.
    fn call(self) -> Self::Output;
}

impl Isa {
    /// The best instruction set of this processor.
    pub fn detect() -> Self {
        Self::available()[0]
    }

    /// Every instruction set of this processor, the best first.
    pub fn available() -> Vec<Self> {
        let mut found = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            found.extend(Amx::detect().map(Self::Amx));
            found.extend(Avx512::detect().map(Self::Avx512));
            found.extend(Avx2::detect().map(Self::Avx2));
        }
        found.push(Self::Portable);
        found
    }

    /// Lower-case name for reports.
    pub fn name(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Amx(_) => "amx",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => "avx512",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => "avx2",
            Self::Portable => "portable",
        }
    }

    /// Runs a computation as compiled for this instruction set.
    pub(crate) fn vectorize<O: Vectorize>(self, op: O) -> O::Output {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Amx(token) => x86::in_avx512(token.avx512(), op),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(token) => x86::in_avx512(token, op),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(token) => x86::in_avx2(token, op),
            Self::Portable => op.call(),
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl Amx {
    /// The proof, if the processor has the features and the system lets this process use them.
    pub fn detect() -> Option<Self> {
        Avx512::detect().filter(|_| amx::permitted()).map(Self)
    }

    /// The proof of what it includes.
    pub fn avx512(self) -> Avx512 {
        self.0
    }
}

#[cfg(target_arch = "x86_64")]
impl Avx512 {
    /// The proof, if the processor has the features.
    pub fn detect() -> Option<Self> {
        let wide = std::arch::is_x86_feature_detected!("avx512f")
            && std::arch::is_x86_feature_detected!("avx512bw")
            && std::arch::is_x86_feature_detected!("avx512dq")
            && std::arch::is_x86_feature_detected!("avx512vl")
            && std::arch::is_x86_feature_detected!("avx512vnni");
        (wide && Avx2::detect().is_some()).then_some(Self(()))
    }
}

#[cfg(target_arch = "x86_64")]
impl Avx2 {
    /// The proof, if the processor has the features.
    pub fn detect() -> Option<Self> {
        let has = std::arch::is_x86_feature_detected!("avx2")
            && std::arch::is_x86_feature_detected!("fma")
            && std::arch::is_x86_feature_detected!("f16c");
        has.then_some(Self(()))
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    #![expect(unsafe_code, reason = "enters code compiled for features that a token proves")]

    use super::{Avx2, Avx512, Vectorize};

    pub(super) fn in_avx512<O: Vectorize>(_proof: Avx512, op: O) -> O::Output {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
        fn inner<O: Vectorize>(op: O) -> O::Output {
            op.call()
        }
        // SAFETY: the token exists only where detection found the features.
        unsafe { inner(op) }
    }

    pub(super) fn in_avx2<O: Vectorize>(_proof: Avx2, op: O) -> O::Output {
        #[target_feature(enable = "avx2,fma,f16c")]
        fn inner<O: Vectorize>(op: O) -> O::Output {
            op.call()
        }
        // SAFETY: the token exists only where detection found the features.
        unsafe { inner(op) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portable_is_always_there_and_the_best_comes_first() {
        let all = Isa::available();
        assert_eq!(all.last(), Some(&Isa::Portable));
        assert_eq!(all[0], Isa::detect());
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn tiles_are_a_level_above_the_vectors_that_they_come_with() {
        if let Some(token) = Amx::detect() {
            assert_eq!(Isa::available()[..2], [Isa::Amx(token), Isa::Avx512(token.avx512())]);
            assert_eq!(Isa::detect().name(), "amx");
        }
    }
}
