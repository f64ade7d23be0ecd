//! How keys and values are stored.

use hf2q_quant::kv::{INT8_BLOCK, MAX_BLOCK, Turbo};

/// Storage of the keys or the values of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KvFormat {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// bfloat16.
    Bf16,
    /// Signed bytes, a scale for each 32 values.
    Q8_0,
    /// TurboQuant of 2 bits: see [`hf2q_quant::kv`]. A scale for each block of the head's values, at most 256.
    Tq2,
    /// TurboQuant of 3 bits.
    Tq3,
    /// TurboQuant of 4 bits.
    Tq4,
    /// TurboQuant of 5 bits.
    Tq5,
    /// TurboQuant of 6 bits.
    Tq6,
    /// TurboQuant of 8 bits.
    Tq8,
}

impl KvFormat {
    /// All formats.
    pub const ALL: [Self; 10] = [
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::Q8_0,
        Self::Tq2,
        Self::Tq3,
        Self::Tq4,
        Self::Tq5,
        Self::Tq6,
        Self::Tq8,
    ];

    /// Head sizes that TurboQuant takes.
    pub const TURBO_HEADS: [usize; 4] = [64, 128, 256, 512];

    /// Lower-case name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Q8_0 => "q8_0",
            Self::Tq2 => "tq2",
            Self::Tq3 => "tq3",
            Self::Tq4 => "tq4",
            Self::Tq5 => "tq5",
            Self::Tq6 => "tq6",
            Self::Tq8 => "tq8",
        }
    }

    /// The format of a [`KvFormat::name`].
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|f| f.name() == name)
    }

    /// The codec, for formats that have one.
    pub fn turbo(self) -> Option<Turbo> {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 | Self::Q8_0 => None,
            Self::Tq2 => Some(Turbo::Tq2),
            Self::Tq3 => Some(Turbo::Tq3),
            Self::Tq4 => Some(Turbo::Tq4),
            Self::Tq5 => Some(Turbo::Tq5),
            Self::Tq6 => Some(Turbo::Tq6),
            Self::Tq8 => Some(Turbo::Tq8),
        }
    }

    /// Whether vectors of `head_dim` values can be stored: any in float formats, multiples of 32 in `q8_0`,
    /// [`KvFormat::TURBO_HEADS`] in TurboQuant.
    pub fn accepts(self, head_dim: usize) -> bool {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => true,
            Self::Q8_0 => head_dim.is_multiple_of(INT8_BLOCK),
            _ => Self::TURBO_HEADS.contains(&head_dim),
        }
    }

    /// Values of a vector of `head_dim` that share a scale; `None` for float formats, which have no scales.
    pub fn block(self, head_dim: usize) -> Option<usize> {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => None,
            Self::Q8_0 => Some(INT8_BLOCK),
            _ => Some(head_dim.min(MAX_BLOCK)),
        }
    }

    /// Scales of a vector of `head_dim` values, each in half precision.
    pub fn scales(self, head_dim: usize) -> usize {
        self.block(head_dim).map_or(0, |block| head_dim.div_ceil(block.max(1)))
    }

    /// Bits of a stored value, scales not counted.
    pub fn bits(self) -> usize {
        match self {
            Self::F32 => 32,
            Self::F16 | Self::Bf16 => 16,
            Self::Q8_0 => 8,
            _ => self.turbo().map_or(0, Turbo::bits),
        }
    }

    /// Bytes of a vector of `head_dim` values that the format accepts.
    pub fn bytes(self, head_dim: usize) -> usize {
        KvVector { format: self, head_dim, unit: false, cut: None }.bytes()
    }
}

/// How one vector of a head is stored: a key, a value, or what both are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KvVector {
    /// Storage of its values.
    pub format: KvFormat,
    /// Number of its values.
    pub head_dim: usize,
    /// Whether every vector is as long as a norm without weights makes it: `√head_dim`. Where one block of TurboQuant
    /// spans such a vector its codes need no scale of their own: it is 1.
    pub unit: bool,
    /// Values of a block of TurboQuant, where it has fewer than the format's blocks have: see [`crate::Cut`].
    pub cut: Option<usize>,
}

impl KvVector {
    /// Values that share a scale, stored or not; `None` for float formats.
    pub fn block(self) -> Option<usize> {
        self.cut.or(self.format.block(self.head_dim))
    }

    /// Whether the codes stand for themselves, without a stored scale.
    pub fn has_unit_scale(self) -> bool {
        self.unit && self.format.turbo().is_some() && self.block() == Some(self.head_dim)
    }

    /// Scales that are stored, each in half precision.
    pub fn scales(self) -> usize {
        match self.block() {
            Some(block) if !self.has_unit_scale() => self.head_dim.div_ceil(block.max(1)),
            _ => 0,
        }
    }

    /// Bytes of the vector.
    pub fn bytes(self) -> usize {
        self.head_dim * self.format.bits() / 8 + 2 * self.scales()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        for format in KvFormat::ALL {
            assert_eq!(KvFormat::from_name(format.name()), Some(format));
        }
        assert_eq!(KvFormat::from_name("tq7"), None);
    }

    #[test]
    fn sizes_are_those_of_codes_and_scales() {
        for (format, bytes) in [
            (KvFormat::F32, [256, 512, 1024, 2048]),
            (KvFormat::F16, [128, 256, 512, 1024]),
            (KvFormat::Bf16, [128, 256, 512, 1024]),
            (KvFormat::Q8_0, [68, 136, 272, 544]),
            (KvFormat::Tq2, [18, 34, 66, 132]),
            (KvFormat::Tq3, [26, 50, 98, 196]),
            (KvFormat::Tq4, [34, 66, 130, 260]),
            (KvFormat::Tq5, [42, 82, 162, 324]),
            (KvFormat::Tq6, [50, 98, 194, 388]),
            (KvFormat::Tq8, [66, 130, 258, 516]),
        ] {
            assert_eq!(KvFormat::TURBO_HEADS.map(|n| format.bytes(n)), bytes, "{}", format.name());
            assert!(KvFormat::TURBO_HEADS.into_iter().all(|n| format.accepts(n)));
        }
        for (format, bytes) in [(KvFormat::F16, [128, 256, 512, 1024]), (KvFormat::Q8_0, [68, 136, 272, 544])]
        {
            let unit = KvFormat::TURBO_HEADS
                .map(|head_dim| KvVector { format, head_dim, unit: true, cut: None }.bytes());
            assert_eq!(unit, bytes, "{}", format.name());
        }
        // Two blocks share the length of the vector, so each keeps its scale.
        for (format, bytes) in [(KvFormat::Tq3, [24, 48, 96, 196]), (KvFormat::Tq8, [64, 128, 256, 516])] {
            let unit = KvFormat::TURBO_HEADS
                .map(|head_dim| KvVector { format, head_dim, unit: true, cut: None }.bytes());
            assert_eq!(unit, bytes, "{}", format.name());
        }
        assert!(!KvFormat::Tq4.accepts(96) && KvFormat::Q8_0.accepts(96) && !KvFormat::Q8_0.accepts(80));
    }
}
