//! Sizes before and after, and where the bytes are.

use hf2q_arch::Config;

use super::Report;
use super::palette::class;
use super::tensors::{Sum, Tensors, sum};
use super::text::{bits, bytes, count, duration, error, escape, percent, plural};

/// Name, numbers, facts.
pub(super) fn section(report: &Report<'_>, tensors: &Tensors<'_>) -> String {
    let total = tensors.total();
    let smaller = report.source_bytes as f64 / total.bytes.max(1) as f64;
    let times = match smaller {
        0.0 => String::new(),
        s if s >= 2.0 => format!("{s:.1} times smaller"),
        s if s >= 1.0 => format!("{s:.2} times smaller"),
        s => format!("{:.2} times larger", 1.0 / s),
    };
    let size =
        format!("{} <span class=\"arrow\">→</span> {}", bytes(report.source_bytes), bytes(total.bytes));
    let importance = match report.importance {
        Some(what) => ("used", escape(what)),
        None => ("not used", "all columns count the same".to_owned()),
    };
    let tiles = [
        tile("Size", &size, &times),
        tile(
            "Bits per weight",
            &bits(total.bytes, total.elements),
            &format!("recipe {}", escape(report.recipe)),
        ),
        tile("Weights", &count(total.elements), &format!("in {}", plural(total.tensors, "tensor"))),
        error_tile(tensors),
        tile("Importance", importance.0, &importance.1),
        tile("Time", &duration(report.seconds), &rate(report)),
    ];
    format!(
        "<header>\n<p class=\"kicker\">hf2q conversion report</p>\n<h1><bdi>{}</bdi></h1>\n<p class=\"facts\">{}</p>\n\
         <dl class=\"paths\"><div><dt>from</dt><dd>{}</dd></div><div><dt>to</dt><dd>{}</dd></div></dl>\n</header>\n\
         <section class=\"tiles\">\n{}</section>\n",
        escape(report.name),
        facts(report.config),
        escape(report.source),
        outputs(report.outputs),
        tiles.concat(),
    )
}

fn outputs(paths: &[String]) -> String {
    match paths {
        [] => "nothing".to_owned(),
        [one] => escape(one),
        [first, .., last] => format!("{} … {} ({} files)", escape(first), escape(last), paths.len()),
    }
}

/// A number in a box of its own. All three are markup.
pub fn tile(label: &str, value: &str, detail: &str) -> String {
    format!(
        "<div class=\"tile\"><h2>{label}</h2><p class=\"value\">{value}</p><p class=\"detail\">{detail}</p></div>\n"
    )
}

/// Median and largest relative error of the matrices that are not kept exactly.
fn error_tile(tensors: &Tensors<'_>) -> String {
    let matrices = tensors.roles.iter().flat_map(|(_, layers)| layers.values()).chain(&tensors.outside);
    let mut errors: Vec<(f64, &str)> =
        matrices.filter_map(|r| Some((r.relative_error?, r.name.as_str()))).collect();
    errors.sort_by(|a, b| a.0.abs().total_cmp(&b.0.abs()));
    let measured = !errors.is_empty();
    errors.retain(|(error, _)| *error != 0.0);
    match (errors.get(errors.len() / 2), errors.last()) {
        (Some((median, _)), Some((worst, name))) => tile(
            "Median relative error",
            &error(*median),
            &format!("largest {} in <bdi>{}</bdi>", error(*worst), escape(name)),
        ),
        _ if measured => tile("Relative error", "0", "every value is kept exactly"),
        _ => tile("Relative error", "not measured", "distance of the stored values from the source"),
    }
}

fn rate(report: &Report<'_>) -> String {
    if report.seconds > 0.05 && report.seconds.is_finite() {
        format!("{}/s of the source", bytes((report.source_bytes as f64 / report.seconds) as u64))
    } else {
        String::new()
    }
}

fn facts(config: &Config) -> String {
    let mut facts = vec![
        escape(config.architecture.name()),
        plural(config.layers.len(), "layer"),
        format!("width {}", config.hidden),
        format!("{} tokens", config.vocab),
    ];
    if let Some(experts) = &config.experts {
        facts.push(format!("{} experts, {} at a time", experts.count, experts.top_k));
    }
    if config.tied_output {
        facts.push("output tied to the embedding".to_owned());
    }
    facts.join(" · ")
}

/// Bars of the sizes before and after, and a table of the types.
pub(super) fn types(report: &Report<'_>, tensors: &Tensors<'_>) -> String {
    let total = tensors.total();
    let of_type: Vec<_> = tensors
        .types()
        .into_iter()
        .map(|ty| (ty, sum(tensors.records.iter().filter(|r| r.ty == ty))))
        .collect();
    let rows: String = of_type.iter().map(|(ty, s)| type_row(&class(*ty), ty.name(), *s, total)).collect();
    let after: Vec<(String, String, u64)> =
        of_type.iter().map(|(ty, s)| (class(*ty), ty.name().to_owned(), s.bytes)).collect();
    format!(
        "<section>\n<h2>Where the bytes are</h2>\n{}<div class=\"scroll\"><table class=\"numbers\">\n\
         <thead><tr><th>Type</th><th>Tensors</th><th class=\"wide\">Weights</th><th>Size</th><th>Share</th><th>Bits</th></tr></thead>\n\
         <tbody>\n{rows}</tbody></table></div>\n</section>\n",
        bars(report.source_bytes, &after),
    )
}

fn type_row(class: &str, name: &str, s: Sum, total: Sum) -> String {
    format!(
        "<tr><th><span class=\"swatch {class}\"></span>{name}</th><td>{}</td><td class=\"wide\">{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
        s.tensors,
        count(s.elements),
        bytes(s.bytes),
        percent(s.bytes, total.bytes),
        bits(s.bytes, s.elements),
    )
}

/// Two bars of one scale, in percent of the larger.
fn bars(before: u64, after: &[(String, String, u64)]) -> String {
    let sum: u64 = after.iter().fold(0, |n: u64, a| n.saturating_add(a.2));
    let scale = 100.0 / before.max(sum).max(1) as f64;
    let mut x = 0.0;
    let mut parts = String::new();
    for (class, name, size) in after {
        let width = *size as f64 * scale;
        parts += &format!(
            "<rect class=\"fill {class}\" x=\"{x:.3}%\" y=\"44\" width=\"{width:.3}%\" height=\"22\"><title>{name}: {}</title></rect>",
            bytes(*size)
        );
        x += width;
    }
    format!(
        "<svg class=\"bars\" role=\"img\" aria-label=\"Size before {}, after {}\" width=\"100%\" height=\"72\">\
         <text class=\"label\" x=\"0\" y=\"10\">before: {}</text>\
         <rect class=\"before\" x=\"0\" y=\"14\" width=\"{:.3}%\" height=\"8\" rx=\"2\"/>\
         <text class=\"label\" x=\"0\" y=\"40\">after: {}</text>{parts}</svg>\n",
        bytes(before),
        bytes(sum),
        bytes(before),
        before as f64 * scale,
        bytes(sum),
    )
}
