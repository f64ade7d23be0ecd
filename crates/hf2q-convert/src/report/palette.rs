//! A colour for each tensor type: from red for one bit over yellow, green and blue to grey for floats.

use hf2q_gguf::TensorType;

/// A colour in OKLCH without its lightness, which the page's light and dark styles choose.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Colour {
    /// Degrees.
    hue: f64,
    chroma: f64,
    /// Added to the lightness of the style.
    lighter: f64,
}

/// Style rules for the types of a page.
pub(super) fn rules(types: &[TensorType]) -> String {
    let rule = |ty: &TensorType| {
        let Colour { hue, chroma, lighter } = colour(*ty);
        format!(".{} {{ --hue: {hue}; --chroma: {chroma}; --lighter: {lighter}; }}\n", class(*ty))
    };
    types.iter().map(rule).collect()
}

/// Class of elements in a type's colour.
pub(super) fn class(ty: TensorType) -> String {
    format!("t-{}", ty.name())
}

/// Names begin with a family and a number of bits: `q4_k`, `iq2_xxs`, `mxfp4`, `bf16`.
fn colour(ty: TensorType) -> Colour {
    let name = ty.name();
    let bits: u32 = name
        .chars()
        .skip_while(|c| !c.is_ascii_digit())
        .take_while(char::is_ascii_digit)
        .collect::<String>()
        .parse()
        .unwrap_or(0);
    let plain = |hue, chroma| Colour { hue, chroma, lighter: 0.0 };
    let base = match bits {
        _ if name.starts_with('i') && !name.starts_with("iq") => return plain(320.0, 0.04),
        32.. => return plain(250.0, 0.012),
        16 if name == "bf16" => return Colour { hue: 285.0, chroma: 0.05, lighter: -0.04 },
        16 => return Colour { hue: 250.0, chroma: 0.05, lighter: 0.02 },
        8 => plain(272.0, 0.14),
        6 => plain(240.0, 0.13),
        5 => plain(195.0, 0.11),
        4 => plain(148.0, 0.15),
        3 => plain(88.0, 0.15),
        2 => plain(52.0, 0.16),
        _ => plain(22.0, 0.17),
    };
    // Types of as many bits differ a little.
    let (turn, lighter) = match name {
        _ if name.ends_with("_k") || name == "q8_0" => (0.0, 0.0),
        "mxfp4" => (18.0, -0.1),
        "iq4_nl" | "iq3_s" | "iq2_s" => (-12.0, 0.07),
        _ if name.starts_with('i') => (-12.0, -0.06),
        _ if name.ends_with("_1") => (-24.0, -0.03),
        _ => (-24.0, 0.07),
    };
    Colour { hue: base.hue + turn, lighter, ..base }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_a_colour_of_its_own() {
        let quantized: Vec<TensorType> =
            TensorType::all().filter(|t| t.block_len() > 1 || t.block_bytes() == 2).collect();
        let seen: Vec<String> = quantized.iter().map(|t| format!("{:?}", colour(*t))).collect();
        for (i, a) in seen.iter().enumerate() {
            let same: Vec<&str> = seen
                .iter()
                .zip(&quantized)
                .skip(i + 1)
                .filter(|(b, _)| *b == a)
                .map(|(_, t)| t.name())
                .collect();
            // Vectors of shared bits may look alike only within the rare two-bit families.
            assert!(same.iter().all(|n| n.starts_with("iq")), "{} looks like {same:?}", quantized[i]);
        }
    }

    #[test]
    fn rules_are_plain_style() {
        let text = rules(&[TensorType::Q4K, TensorType::F32]);
        assert!(text.starts_with(".t-q4_k { --hue: 148; --chroma: 0.15; --lighter: 0; }"), "{text}");
        assert_eq!(text.lines().count(), 2);
    }
}
