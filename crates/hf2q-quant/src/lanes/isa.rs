//! The instruction sets that lanes are compiled for, and the proof that this processor has them.

use super::Kernel;
use super::portable::Portable;

/// An instruction set of this processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isa {
    /// Lanes are one register.
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    /// Lanes are two registers.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// Lanes are an array.
    Portable,
}

/// Proof that the processor has AVX-512 F, BW, DQ and VL, and what they imply: AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Avx512(());

/// Proof that the processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Avx2(());

#[cfg(target_arch = "x86_64")]
impl Avx512 {
    fn detect() -> Option<Self> {
        let has = std::arch::is_x86_feature_detected!("avx512f")
            && std::arch::is_x86_feature_detected!("avx512bw")
            && std::arch::is_x86_feature_detected!("avx512dq")
            && std::arch::is_x86_feature_detected!("avx512vl")
            && std::arch::is_x86_feature_detected!("avx2")
            && std::arch::is_x86_feature_detected!("fma");
        has.then_some(Self(()))
    }
}

#[cfg(target_arch = "x86_64")]
impl Avx2 {
    fn detect() -> Option<Self> {
        std::arch::is_x86_feature_detected!("avx2").then_some(Self(()))
    }
}

impl Isa {
    /// The best instruction set of this processor. Cheap: the features are looked up once per process.
    pub(crate) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if let Some(proof) = Avx512::detect() {
                return Self::Avx512(proof);
            }
            if let Some(proof) = Avx2::detect() {
                return Self::Avx2(proof);
            }
        }
        Self::Portable
    }

    /// Every instruction set of this processor.
    #[cfg(test)]
    pub(crate) fn available() -> Vec<Self> {
        let mut found = vec![Self::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            found.extend(Avx2::detect().map(Self::Avx2));
            found.extend(Avx512::detect().map(Self::Avx512));
        }
        found
    }

    /// Runs a kernel as compiled for this instruction set.
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(proof) => super::avx512::enter(proof, kernel),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(proof) => super::avx2::enter(proof, kernel),
            Self::Portable => kernel.run(Portable),
        }
    }
}
