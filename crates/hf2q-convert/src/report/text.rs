//! Texts and numbers as the page shows them.

/// Text that cannot become markup, in an element or in a quoted attribute. Characters that steer what is around them
/// (controls, and those that turn the direction of writing) are shown by their numbers.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                out.extend(c.escape_unicode());
            }
            c if c.is_control() => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

/// Bytes in a unit that fits, which stays on the line of its number.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{n}\u{a0}B"),
        _ if value < 10.0 => format!("{value:.2}\u{a0}{}", UNITS[unit]),
        _ => format!("{value:.1}\u{a0}{}", UNITS[unit]),
    }
}

/// A large number in a unit that fits.
pub fn count(n: u64) -> String {
    match n {
        0..10_000 => n.to_string(),
        10_000..1_000_000 => format!("{:.1} thousand", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} million", n as f64 / 1e6),
        _ => format!("{:.2} billion", n as f64 / 1e9),
    }
}

/// A duration for people.
pub fn duration(seconds: f64) -> String {
    if !(0.0..1e9).contains(&seconds) {
        return "unknown".to_owned();
    }
    let whole = seconds.round() as u64;
    match whole {
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole / 60 % 60),
    }
}

/// A relative error with three digits that count.
pub(super) fn error(value: f64) -> String {
    match value {
        v if v.is_nan() => "no number".to_owned(),
        v if v.is_infinite() => "infinite".to_owned(),
        0.0 => "0".to_owned(),
        v if v < 1e-4 => format!("{v:.1e}"),
        v => format!("{v:.4}"),
    }
}

/// Bits for each value.
pub(super) fn bits(bytes: u64, elements: u64) -> String {
    if elements == 0 { "none".to_owned() } else { format!("{:.2}", bytes as f64 * 8.0 / elements as f64) }
}

/// A share in percent.
pub(super) fn percent(part: u64, whole: u64) -> String {
    let share = 100.0 * part as f64 / whole.max(1) as f64;
    if share > 0.0 && share < 0.1 { "&lt;0.1 %".to_owned() } else { format!("{share:.1} %") }
}

/// `2816 × 704 × 128`.
pub(super) fn shape(shape: &[u64]) -> String {
    shape.iter().map(u64::to_string).collect::<Vec<_>>().join(" × ")
}

/// `1 tensor`, `2 tensors`.
pub fn plural(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_markup_comes_through() {
        assert_eq!(escape("<a b=\"c\" d='e'>&"), "&lt;a b=&quot;c&quot; d=&#39;e&#39;&gt;&amp;");
        assert_eq!(escape("a\u{1b}[2J\n\u{202e}b é"), "a\\u{1b}[2J\\u{a}\\u{202e}b é");
    }

    #[test]
    fn numbers_for_people() {
        assert_eq!(
            [bytes(17), bytes(1536), bytes(16 << 30)],
            ["17\u{a0}B", "1.50\u{a0}KiB", "16.0\u{a0}GiB"]
        );
        assert_eq!([count(4096), count(25_800_000_000)], ["4096", "25.80 billion"]);
        assert_eq!(
            [duration(4.25), duration(252.0), duration(7_260.0), duration(f64::NAN)],
            ["4.2 s", "4 min 12 s", "2 h 01 min", "unknown"]
        );
        assert_eq!([error(0.0), error(0.07123), error(1.2e-6)], ["0", "0.0712", "1.2e-6"]);
        assert_eq!([error(f64::NAN), error(f64::INFINITY)], ["no number", "infinite"]);
        assert_eq!([bits(18, 32), bits(0, 0)], ["4.50", "none"]);
        assert_eq!([percent(1, 4), percent(1, 10_000), percent(0, 0)], ["25.0 %", "&lt;0.1 %", "0.0 %"]);
    }
}
