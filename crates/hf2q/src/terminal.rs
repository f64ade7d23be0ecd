//! Writing to the terminal. A closed pipe ends the program quietly, as `head` expects.

use std::io::{self, IsTerminal, Read, Write};

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

/// Writes to standard output at once.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Writes a line to standard output.
pub(crate) fn print_line(text: &str) -> Result<()> {
    print(&format!("{text}\n"))
}

/// Writes JSON for programs to standard output.
pub(crate) fn print_json(value: &Value) -> Result<()> {
    print_line(&serde_json::to_string_pretty(value)?)
}

/// The members of several JSON objects.
pub(crate) fn merged<const N: usize>(objects: [Value; N]) -> Value {
    let members = objects.into_iter().filter_map(|object| match object {
        Value::Object(members) => Some(members),
        _ => None,
    });
    Value::Object(members.flatten().collect())
}

/// Writes a line to standard error; there is nobody to tell if that fails.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// A text from the command line, or all of standard input.
pub(crate) fn text_or_stdin(text: Option<&str>, name: &str) -> Result<String> {
    if let Some(text) = text {
        return Ok(text.to_owned());
    }
    if io::stdin().is_terminal() {
        bail!("{name} is missing: give it as an argument or on standard input");
    }
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes)?;
    String::from_utf8(bytes).context("standard input is not UTF-8")
}

/// Whether an error is only that the reader of our output went away.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|e| e.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe))
}

/// A text from a file or a server: what would steer a terminal, or change the order in which characters are shown, is
/// escaped.
pub(crate) fn safe(text: &str) -> String {
    let steers = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|c| if steers(c) { c.escape_debug().to_string() } else { c.to_string() }).collect()
}

/// Dims a text where a person reads standard error.
pub(crate) fn dim(text: &str) -> String {
    if io::stderr().is_terminal() { format!("\u{1b}[2m{text}\u{1b}[0m") } else { text.to_owned() }
}

/// A progress bar over bytes on standard error; silent where no person looks.
pub(crate) fn byte_bar(total: u64) -> ProgressBar {
    bar(total, "{bar:20} {bytes}/{total_bytes}  {bytes_per_sec}  {eta}  {wide_msg}")
}

/// The same, with speed and time left in the message: the bar does not know what was there before.
pub(crate) fn download_bar(total: u64) -> ProgressBar {
    bar(total, "{bar:20} {bytes}/{total_bytes}  {wide_msg}")
}

/// A progress bar over things that are counted.
pub(crate) fn counting_bar(total: usize, what: &str) -> ProgressBar {
    bar(total as u64, &format!("{{bar:20}} {{pos}}/{{len}} {what}  {{wide_msg}}"))
}

fn bar(total: u64, template: &str) -> ProgressBar {
    let bar = ProgressBar::new(total);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

/// Writes rows in columns of equal width: the first `texts` of them begin on the left, the others end on the right.
pub(crate) fn print_table(rows: &[Vec<String>], texts: usize) -> Result<()> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| rows.iter().filter_map(|r| r.get(c)).map(|t| t.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(c, (text, &width))| match c < texts {
            true => format!("{text:width$}"),
            false => format!("{text:>width$}"),
        });
        print_line(cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

/// Bytes in a unit that fits.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// A large count in a unit that fits, for parameters and operations.
pub(crate) fn count(n: u64) -> String {
    match n {
        0..1_000 => n.to_string(),
        1_000..1_000_000 => format!("{:.1}K", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1}M", n as f64 / 1e6),
        _ => format!("{:.2}B", n as f64 / 1e9),
    }
}
