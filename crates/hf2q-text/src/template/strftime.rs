//! Python's `strftime` in the C locale.

use minijinja::{Error, ErrorKind};

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// A calendar date with its time of day.
struct Moment {
    year: i64,
    month: usize,
    day: i64,
    /// Days since the first of January.
    yearday: i64,
    /// Days since Sunday.
    weekday: i64,
    hour: i64,
    minute: i64,
    second: i64,
}

impl Moment {
    /// The moment a number of seconds after 1970 began, in the proleptic Gregorian calendar.
    fn new(seconds: i64) -> Self {
        let (days, time) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        // Years that start in March end with the leap day, so that months have fixed offsets.
        let from_march = days + 719_468;
        let (era, day) = (from_march.div_euclid(146_097), from_march.rem_euclid(146_097));
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let shifted = (5 * day + 2) / 153;
        let month = (shifted + 2) % 12;
        let year = era * 400 + year + i64::from(month < 2);
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let yearday = if month < 2 { day - 306 } else { day + 59 + i64::from(leap) };
        Self {
            year,
            month: month as usize,
            day: day - (153 * shifted + 2) / 5 + 1,
            yearday,
            weekday: (days + 4).rem_euclid(7),
            hour: time / 3_600,
            minute: time / 60 % 60,
            second: time % 60,
        }
    }

    /// The text of one conversion, or `None` if it is not supported.
    fn field(&self, conversion: char, pad: Pad) -> Option<String> {
        let hour12 = (self.hour + 11) % 12 + 1;
        let two = |n: i64| pad.apply(n, 2, '0');
        Some(match conversion {
            'Y' => self.year.to_string(),
            'y' => two(self.year.rem_euclid(100)),
            'm' => two(self.month as i64 + 1),
            'd' => two(self.day),
            'e' => pad.apply(self.day, 2, ' '),
            'j' => pad.apply(self.yearday + 1, 3, '0'),
            'H' => two(self.hour),
            'I' => two(hour12),
            'k' => pad.apply(self.hour, 2, ' '),
            'l' => pad.apply(hour12, 2, ' '),
            'M' => two(self.minute),
            'S' => two(self.second),
            'f' => "000000".into(),
            'p' => if self.hour < 12 { "AM" } else { "PM" }.into(),
            'A' => DAYS[self.weekday as usize].into(),
            'a' => DAYS[self.weekday as usize][..3].into(),
            'B' => MONTHS[self.month].into(),
            'b' | 'h' => MONTHS[self.month][..3].into(),
            'u' => ((self.weekday + 6) % 7 + 1).to_string(),
            'w' => self.weekday.to_string(),
            'U' => two((self.yearday + 7 - self.weekday) / 7),
            'W' => two((self.yearday + 7 - (self.weekday + 6) % 7) / 7),
            'Z' | 'z' => String::new(),
            'n' => "\n".into(),
            't' => "\t".into(),
            '%' => "%".into(),
            'F' => self.fields("%Y-%m-%d"),
            'T' | 'X' => self.fields("%H:%M:%S"),
            'R' => self.fields("%H:%M"),
            'D' | 'x' => self.fields("%m/%d/%y"),
            'c' => self.fields("%a %b %e %H:%M:%S %Y"),
            'r' => self.fields("%I:%M:%S %p"),
            _ => return None,
        })
    }

    /// A format of supported conversions.
    fn fields(&self, format: &str) -> String {
        self.format(format).unwrap_or_default()
    }

    fn format(&self, format: &str) -> Result<String, char> {
        let mut out = String::new();
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let mut conversion = chars.next().ok_or('%')?;
            let pad = match conversion {
                '-' => Pad::Never,
                '_' => Pad::Space,
                '0' => Pad::Zero,
                _ => Pad::Default,
            };
            if pad != Pad::Default {
                conversion = chars.next().ok_or('%')?;
            }
            out.push_str(&self.field(conversion, pad).ok_or(conversion)?);
        }
        Ok(out)
    }
}

/// How a number is padded: as its conversion says, or as a flag before it does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pad {
    Default,
    Never,
    Space,
    Zero,
}

impl Pad {
    fn apply(self, n: i64, width: usize, fill: char) -> String {
        match (self, fill) {
            (Self::Never, _) => n.to_string(),
            (Self::Space, _) | (Self::Default, ' ') => format!("{n:width$}"),
            _ => format!("{n:0width$}"),
        }
    }
}

/// Formats a number of seconds since 1970.
///
/// # Errors
/// A conversion that is not supported, named.
pub(super) fn format(seconds: i64, format: &str) -> Result<String, Error> {
    Moment::new(seconds)
        .format(format)
        .map_err(|c| Error::new(ErrorKind::InvalidOperation, format!("strftime_now does not support %{c}")))
}

#[cfg(test)]
mod tests {
    #[test]
    fn known_moments() {
        let all = "%Y-%m-%d %H:%M:%S|%y %-d %e %j %I %-I %p %a %A %b %B %u %w %U %W %%";
        let expected = [
            (0, "1970-01-01 00:00:00|70 1  1 001 12 12 AM Thu Thursday Jan January 4 4 00 00 %"),
            (951_782_399, "2000-02-28 23:59:59|00 28 28 059 11 11 PM Mon Monday Feb February 1 1 09 09 %"),
            (951_868_800, "2000-03-01 00:00:00|00 1  1 061 12 12 AM Wed Wednesday Mar March 3 3 09 09 %"),
            (1_735_689_599, "2024-12-31 23:59:59|24 31 31 366 11 11 PM Tue Tuesday Dec December 2 2 52 53 %"),
        ];
        for (seconds, text) in expected {
            assert_eq!(super::format(seconds, all).unwrap(), text);
        }
        assert!(super::format(0, "%Q").is_err());
    }
}
