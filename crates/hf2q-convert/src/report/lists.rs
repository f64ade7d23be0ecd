//! Warnings, exceptions and tables of tensors.

use std::collections::HashMap;

use hf2q_gguf::TensorType;

use super::palette::class;
use super::tensors::{Tensors, place};
use super::text::{bits, bytes, error, escape, plural, shape};
use crate::record::{Record, Why};

pub(super) fn warnings(warnings: &[String]) -> String {
    if warnings.is_empty() {
        return String::new();
    }
    let items: String = warnings.iter().map(|w| format!("<li>{}</li>\n", escape(w))).collect();
    let title = plural(warnings.len(), "warning");
    format!("<section class=\"warnings\">\n<h2>{title}</h2>\n<ul>\n{items}</ul>\n</section>\n")
}

/// Matrices of no layer.
pub(super) fn outside(tensors: &Tensors<'_>) -> String {
    if tensors.outside.is_empty() {
        return String::new();
    }
    format!("<section>\n<h2>Outside the layers</h2>\n{}</section>\n", table(&tensors.outside))
}

/// Tensors that got another type than the recipe alone gives them, with the reason. Those of one role and reason share a row.
pub(super) fn exceptions(records: &[Record]) -> String {
    let mut groups: Vec<Group<'_>> = Vec::new();
    // Where the group of a role, type and reason is.
    let mut places: HashMap<(&str, TensorType, String), usize> = HashMap::new();
    let mut count = 0;
    for record in records {
        let Some(reason) = reason(record) else { continue };
        count += 1;
        let (layer, role) = place(&record.name).map_or((None, record.name.as_str()), |(l, r)| (Some(l), r));
        let at = *places.entry((role, record.ty, reason.clone())).or_insert(groups.len());
        if at == groups.len() {
            groups.push(Group { role, first: record, reason, layers: Vec::new() });
        }
        groups[at].layers.extend(layer);
    }
    if groups.is_empty() {
        return "<section>\n<h2>Exceptions</h2>\n<p class=\"note\">None: every tensor has the type that the recipe gives it.</p>\n</section>\n"
            .to_owned();
    }
    let rows: String = groups.into_iter().map(Group::row).collect();
    format!(
        "<section>\n<h2>Exceptions</h2>\n<p class=\"note\">{} with another type than the recipe gives by itself.</p>\n\
         <div class=\"scroll\"><table class=\"tensors\">\n<thead><tr><th>Tensor</th><th>Layers</th><th>Type</th><th>Reason</th></tr></thead>\n\
         <tbody>\n{rows}</tbody></table></div>\n</section>\n",
        plural(count, "tensor"),
    )
}

/// Exceptions of one role, type and reason.
struct Group<'a> {
    role: &'a str,
    first: &'a Record,
    reason: String,
    layers: Vec<u32>,
}

impl Group<'_> {
    fn row(mut self) -> String {
        self.layers.sort_unstable();
        let layers = ranges(&self.layers);
        format!(
            "<tr><th><bdi>{}</bdi></th><td class=\"layers\">{layers}</td><td>{}</td><td class=\"text\">{}</td></tr>\n",
            escape(self.role),
            chip(self.first),
            self.reason
        )
    }
}

/// `0–3, 7, 9–12`.
fn ranges(sorted: &[u32]) -> String {
    let runs = sorted.chunk_by(|a, b| a.checked_add(1) == Some(*b));
    let text = runs.map(|run| match run {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}–{last}"),
        [] => String::new(),
    });
    text.collect::<Vec<_>>().join(", ")
}

fn reason(r: &Record) -> Option<String> {
    match r.why {
        Why::Override => Some("asked for".to_owned()),
        Why::Fallback { wanted } => Some(format!(
            "{} was wanted; rows of {} are no multiple of its {} values a block",
            wanted.name(),
            r.shape.first().copied().unwrap_or(0),
            wanted.block_len()
        )),
        Why::Lattice => {
            Some(format!("its values are those of {} already, which keeps them exactly", r.ty.name()))
        }
        Why::Recipe | Why::Mixture | Why::Kept => None,
    }
}

/// Every tensor, folded.
pub(super) fn all(records: &[Record]) -> String {
    let records: Vec<&Record> = records.iter().collect();
    let title = plural(records.len(), "tensor");
    format!(
        "<section>\n<details>\n<summary><h2>All {title}</h2></summary>\n{}</details>\n</section>\n",
        table(&records)
    )
}

fn table(records: &[&Record]) -> String {
    let rows: String = records.iter().map(|r| row(r)).collect();
    format!(
        "<div class=\"scroll\"><table class=\"tensors\">\n<thead><tr><th>Tensor</th><th>Type</th><th>Source</th><th>Why</th><th>Shape</th>\
         <th class=\"number\">Size</th><th class=\"number\">Bits</th><th class=\"number\">Relative error</th></tr></thead>\n\
         <tbody>\n{rows}</tbody></table></div>\n"
    )
}

fn row(r: &Record) -> String {
    let why = match r.why {
        Why::Recipe => "recipe",
        Why::Mixture => "mixture",
        Why::Lattice => "exact already",
        Why::Override => "asked for",
        Why::Fallback { .. } => "fallback",
        Why::Kept => "kept",
    };
    format!(
        "<tr><th><bdi>{}</bdi></th><td>{}</td><td>{}</td><td>{why}</td><td>{}</td><td class=\"number\">{}</td>\
         <td class=\"number\">{}</td><td class=\"number\">{}</td></tr>\n",
        escape(&r.name),
        chip(r),
        escape(&r.source),
        shape(&r.shape),
        bytes(r.bytes),
        bits(r.bytes, r.elements()),
        r.relative_error.map_or("not measured".to_owned(), error),
    )
}

fn chip(r: &Record) -> String {
    format!("<span class=\"chip fill {}\">{}</span>", class(r.ty), r.ty.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_written_as_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 3, 7, 9, 10]), "0–3, 7, 9–10");
        assert_eq!(ranges(&[u32::MAX]), u32::MAX.to_string());
        assert_eq!(ranges(&[]), "");
    }
}
