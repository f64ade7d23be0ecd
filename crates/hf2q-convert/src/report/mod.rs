//! One page that shows what a conversion did: an HTML file by itself, without scripts and links to elsewhere. What
//! other pages need to look the same is public.

mod errors;
mod grid;
mod lists;
mod palette;
mod summary;
mod tensors;
mod text;

use hf2q_arch::Config;

use crate::record::Record;
pub use summary::tile;
use tensors::Tensors;
pub use text::{bytes, count, duration, escape, plural};

const STYLE: &str = include_str!("style.css");

/// What a report is made from.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// The model's name.
    pub name: &'a str,
    /// The model's architecture and sizes.
    pub config: &'a Config,
    /// Where the tensors came from, for people.
    pub source: &'a str,
    /// Bytes of all tensors in the source.
    pub source_bytes: u64,
    /// The files that were written, for people.
    pub outputs: &'a [String],
    /// Name of the recipe.
    pub recipe: &'a str,
    /// Which importance guided the quantization, for people; `None`: none did.
    pub importance: Option<&'a str>,
    /// How long it took.
    pub seconds: f64,
    /// What became of each tensor, in the order of the file.
    pub records: &'a [Record],
    /// What a user should know.
    pub warnings: &'a [String],
}

/// The page. Texts come from files of strangers and are escaped; no part of them can become markup.
pub fn html(report: &Report<'_>) -> String {
    let tensors = Tensors::new(report.records);
    let sections = [
        summary::section(report, &tensors),
        lists::warnings(report.warnings),
        summary::types(report, &tensors),
        grid::section(&tensors),
        errors::section(&tensors),
        lists::outside(&tensors),
        lists::exceptions(report.records),
        lists::all(report.records),
    ];
    let title = format!("{} as {}", report.name, report.recipe);
    page(&title, &palette::rules(&tensors.types()), &sections.concat())
}

/// A page by itself in the style of all pages: `title` is text, `rules` are more style rules, `body` is markup.
pub fn page(title: &str, rules: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{title}</title>\n<style>\n{STYLE}{rules}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n"
    )
}
