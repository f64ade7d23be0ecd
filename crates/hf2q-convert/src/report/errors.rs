//! Relative errors: one small plot for each role, over the layers, all of one scale.

use std::collections::BTreeMap;

use super::grid::describe;
use super::palette::class;
use super::tensors::Tensors;
use super::text::{error, escape};
use crate::record::Record;

/// Size of a plot in its own units, and the area of the points within.
const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 132.0;
const LEFT: f64 = 38.0;
const RIGHT: f64 = 8.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 20.0;

pub(super) fn section(tensors: &Tensors<'_>) -> String {
    let measured: Vec<(&str, Vec<Point<'_>>)> = tensors
        .roles
        .iter()
        .map(|(role, layers)| (*role, points(layers)))
        .filter(|(_, points)| points.iter().any(|p| p.error > 0.0))
        .collect();
    let finite = measured.iter().flat_map(|(_, points)| points).map(|p| p.error).filter(|e| e.is_finite());
    let most = finite.fold(0.0, f64::max);
    if measured.is_empty() {
        return String::new();
    }
    let (Some(first), Some(last)) = (tensors.layers.first(), tensors.layers.last()) else {
        return String::new();
    };
    let scale = Scale { step: step(most), first: *first, last: *last, most };
    let plots: String = measured.iter().map(|(role, points)| plot(role, points, &scale)).collect();
    format!(
        "<section>\n<h2>Relative error by layer</h2>\n<p class=\"note\">‖x − q‖ / ‖x‖ of each matrix, x the values of the source and q those \
         stored. All plots have one scale; colours are those of the types. Roles that lost nothing are left out.</p>\n\
         <div class=\"plots\">\n{plots}</div>\n</section>\n"
    )
}

struct Point<'a> {
    layer: u32,
    error: f64,
    record: &'a Record,
}

fn points<'a>(layers: &BTreeMap<u32, &'a Record>) -> Vec<Point<'a>> {
    let point = |(&layer, record): (&u32, &&'a Record)| {
        Some(Point { layer, error: record.relative_error?.abs(), record })
    };
    layers.iter().filter_map(point).collect()
}

/// What all plots share.
struct Scale {
    /// Between two lines.
    step: f64,
    first: u32,
    last: u32,
    most: f64,
}

/// A round distance that puts two to five lines below `most`.
fn step(most: f64) -> f64 {
    if most <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf((most / 2.0).log10().floor());
    let fitting = [5.0, 2.0, 1.0].into_iter().map(|m| m * power).find(|s| s * 2.0 <= most);
    fitting.unwrap_or(power)
}

impl Scale {
    /// The highest line.
    fn top(&self) -> f64 {
        (self.most / self.step).ceil().max(1.0) * self.step
    }

    fn x(&self, layer: u32) -> f64 {
        let span = f64::from(self.last - self.first).max(1.0);
        LEFT + 6.0 + f64::from(layer - self.first) / span * (WIDTH - LEFT - RIGHT - 12.0)
    }

    /// What is no finite number lies at the top.
    fn y(&self, error: f64) -> f64 {
        let share = if error.is_finite() { (error / self.top()).min(1.0) } else { 1.0 };
        HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
    }

    fn lines(&self) -> String {
        let lines = (0..=(self.top() / self.step).round() as u32).map(|i| f64::from(i) * self.step);
        let line = |value: f64| {
            let (y, right, digits) =
                (self.y(value), WIDTH - RIGHT, (-self.step.log10().floor()).max(0.0) as usize);
            format!(
                "<line class=\"line\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/>\
                 <text class=\"axis\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{value:.digits$}</text>",
                LEFT - 5.0,
                y + 3.5
            )
        };
        lines.map(line).collect()
    }
}

fn plot(role: &str, points: &[Point<'_>], scale: &Scale) -> String {
    let path: Vec<String> =
        points.iter().map(|p| format!("{:.1},{:.1}", scale.x(p.layer), scale.y(p.error))).collect();
    let radius = if points.len() > 40 { 2.4 } else { 3.4 };
    let dots: String = points
        .iter()
        .map(|p| {
            let (class, x, y) = (class(p.record.ty), scale.x(p.layer), scale.y(p.error));
            let title = describe(p.record);
            format!(
                "<circle class=\"dot {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"><title>{title}</title></circle>"
            )
        })
        .collect();
    let errors = || points.iter().map(|p| p.error);
    let (least, most) = (errors().fold(f64::INFINITY, f64::min), errors().fold(0.0, f64::max));
    let range = format!("{} to {}", error(least), error(most));
    let (role, bottom) = (escape(role), HEIGHT - 4.0);
    let ends = if scale.last > scale.first { scale.last.to_string() } else { String::new() };
    format!(
        "<figure><figcaption><bdi>{role}</bdi> <span>{range}</span></figcaption>\
         <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"Relative error of {role} by layer: {range}\">{}\
         <polyline class=\"path\" points=\"{}\"/>{dots}\
         <text class=\"axis\" x=\"{:.1}\" y=\"{bottom}\" text-anchor=\"middle\">{}</text>\
         <text class=\"axis\" x=\"{:.1}\" y=\"{bottom}\" text-anchor=\"middle\">layer</text>\
         <text class=\"axis\" x=\"{:.1}\" y=\"{bottom}\" text-anchor=\"middle\">{ends}</text></svg></figure>\n",
        scale.lines(),
        path.join(" "),
        scale.x(scale.first),
        scale.first,
        f64::midpoint(scale.x(scale.first), WIDTH - RIGHT),
        scale.x(scale.last),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_round_and_few() {
        for (most, expected) in
            [(0.09, 0.02), (0.1, 0.05), (1.0, 0.5), (0.0031, 0.001), (7.0, 2.0), (0.0, 1.0)]
        {
            assert!((step(most) - expected).abs() < 1e-12, "{most}: {}", step(most));
        }
        for most in [1e-9, 0.0123, 0.5, 0.999, 3.3, 1e6] {
            let scale = Scale { step: step(most), first: 0, last: 9, most };
            let lines = scale.top() / scale.step;
            assert!((1.9..6.1).contains(&lines) && scale.top() >= most * 0.999, "{most}: {lines}");
        }
    }

    #[test]
    fn whatever_is_no_number_stays_within_the_plot() {
        let scale = Scale { step: 0.5, first: 3, last: 3, most: 1.0 };
        for error in [0.0, 0.4, 1.0, 9.0, f64::INFINITY, f64::NAN] {
            assert!((TOP..=HEIGHT - BOTTOM).contains(&scale.y(error)), "{error}");
        }
        assert!(scale.x(3).is_finite());
    }
}
