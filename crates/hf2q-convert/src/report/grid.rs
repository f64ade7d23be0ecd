//! Types by layer and role, as a table whose cells have the types' colours.

use std::collections::BTreeMap;

use super::palette::class;
use super::tensors::{Tensors, sum};
use super::text::{bits, bytes, error, escape, plural, shape};
use crate::record::{Record, Why};

/// With more layers the cells are too narrow for a type's name.
const NAMED: usize = 24;
/// Widths in pixels: names of the rows and their sums, and the widest cell.
const SIDES: usize = 230;
const WIDEST: usize = 72;

pub(super) fn section(tensors: &Tensors<'_>) -> String {
    if tensors.layers.is_empty() {
        return String::new();
    }
    let named = tensors.layers.len() <= NAMED;
    let (step, cell) = if named { (1, 40) } else { (5, 12) };
    let heads: String = tensors
        .layers
        .iter()
        .enumerate()
        .map(|(i, layer)| match i % step {
            0 => format!("<th scope=\"col\" class=\"tick\"><span>{layer}</span></th>"),
            _ => "<th></th>".to_owned(),
        })
        .collect();
    let rows: String =
        tensors.roles.iter().map(|(role, layers)| row(role, layers, &tensors.layers)).collect();
    let vectors = sum(tensors.vectors.iter().copied());
    let hidden = match vectors.tensors {
        0 => String::new(),
        n => format!(
            " {} with one row (norms, scales) are not shown: {} in all.",
            plural(n, "tensor"),
            bytes(vectors.bytes)
        ),
    };
    let legend: String = tensors
        .types()
        .into_iter()
        .map(|ty| format!("<li><span class=\"swatch {}\"></span>{}</li>", class(ty), ty.name()))
        .collect();
    format!(
        "<section>\n<h2>Types by layer</h2>\n<p class=\"note\">Each row is one kind of matrix, each column a layer. A dot marks a type \
         that the recipe did not choose by itself: asked for, or another than wanted.{hidden}</p>\n<ul class=\"legend\">{legend}</ul>\n<div class=\"scroll\"><table class=\"grid{}\" style=\"min-width: {}px; max-width: {}px\">\n\
         <thead><tr><th class=\"role\"></th>{heads}<th class=\"end\">bits</th></tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n</section>\n",
        if named { "" } else { " narrow" },
        SIDES + cell * tensors.layers.len(),
        SIDES + WIDEST * tensors.layers.len(),
    )
}

fn row(role: &str, by_layer: &BTreeMap<u32, &Record>, layers: &[u32]) -> String {
    let cells: String = layers.iter().map(|layer| cell(by_layer.get(layer).copied())).collect();
    let s = sum(by_layer.values().copied());
    format!(
        "<tr><th scope=\"row\"><bdi>{}</bdi></th>{cells}<td class=\"end\">{}</td></tr>\n",
        escape(role),
        bits(s.bytes, s.elements)
    )
}

fn cell(record: Option<&Record>) -> String {
    let Some(r) = record else { return "<td></td>".to_owned() };
    let marked = if matches!(r.why, Why::Override | Why::Fallback { .. }) { " marked" } else { "" };
    format!("<td class=\"fill {}{marked}\" title=\"{}\">{}</td>", class(r.ty), describe(r), r.ty.name())
}

/// A tensor in one line, for a tooltip.
pub(super) fn describe(r: &Record) -> String {
    let error = r.relative_error.map_or(String::new(), |e| format!(", relative error {}", error(e)));
    format!("{}: {}, {}, {}{error}", escape(&r.name), r.ty.name(), shape(&r.shape), bytes(r.bytes))
}
