//! Lines over one axis, as SVG.

use hf2q_convert::report::escape;

const WIDTH: f64 = 1040.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 34.0;

/// Most powers of ten that a plot shows; what is less lies at its bottom.
const DECADES: i32 = 8;

/// How values become heights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    /// From 0.
    Linear,
    /// By powers of ten.
    Powers,
}

/// A value.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    /// For a tooltip.
    pub(super) title: String,
}

/// The values of one candidate.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// Number of the candidate.
    pub(super) class: usize,
    pub(super) points: Vec<Point>,
    /// Whether each value is a dot that can be pointed at.
    pub(super) dots: bool,
}

/// Lines of one scale.
#[derive(Clone, Debug)]
pub(super) struct Plot {
    /// What the horizontal axis is.
    pub(super) label: &'static str,
    /// Places on it, and their names.
    pub(super) ticks: Vec<(f64, String)>,
    /// Its ends.
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) y: Scale,
    pub(super) lines: Vec<Line>,
}

/// The vertical axis: heights of values between two ends.
struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
}

impl Axis {
    fn of(plot: &Plot) -> Self {
        let values =
            || plot.lines.iter().flat_map(|l| &l.points).map(|p| p.y).filter(|y| y.is_finite() && *y > 0.0);
        let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
        let scale = plot.y;
        if most == 0.0 {
            let low = if scale == Scale::Powers { 0.1 } else { 0.0 };
            return Self { scale, low, high: 1.0 };
        }
        match scale {
            Scale::Linear => Self { scale, low: 0.0, high: (most / 5.0).ceil().max(1.0) * 5.0 },
            Scale::Powers => {
                let high = most.log10().ceil() as i32;
                let low = (least.log10().floor() as i32).clamp(high - DECADES, high - 1);
                Self { scale, low: 10_f64.powi(low), high: 10_f64.powi(high) }
            }
        }
    }

    /// What is not finite lies at the top.
    fn y(&self, value: f64) -> f64 {
        let share = match self.scale {
            _ if !value.is_finite() => 1.0,
            Scale::Linear => value / self.high,
            Scale::Powers => (value.max(self.low) / self.low).log10() / (self.high / self.low).log10(),
        };
        HEIGHT - BOTTOM - share.clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
    }

    fn marks(&self) -> Vec<(f64, String)> {
        match self.scale {
            Scale::Linear => {
                (0..=5).map(|i| self.high * f64::from(i) / 5.0).map(|v| (v, format!("{v}"))).collect()
            }
            Scale::Powers => {
                let powers = self.low.log10().round() as i32..=self.high.log10().round() as i32;
                powers.map(|p| (10_f64.powi(p), format!("1e{p}"))).collect()
            }
        }
    }
}

impl Plot {
    pub(super) fn svg(&self, title: &str) -> String {
        let axis = Axis::of(self);
        let mark = |(value, name): (f64, String)| {
            let (y, right) = (axis.y(value), WIDTH - RIGHT);
            format!(
                "<line class=\"line\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/>\
                 <text class=\"axis\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>",
                LEFT - 6.0,
                y + 3.5
            )
        };
        let marks: String = axis.marks().into_iter().map(mark).collect();
        let tick = |(value, name): &(f64, String)| {
            let (x, y) = (self.x(*value), HEIGHT - BOTTOM + 14.0);
            format!(
                "<text class=\"axis\" x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{}</text>",
                escape(name)
            )
        };
        let ticks: String = self.ticks.iter().map(tick).collect();
        let lines: String = self.lines.iter().map(|line| self.line(line, &axis)).collect();
        format!(
            "<svg class=\"plot\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">{marks}{ticks}{lines}\
             <text class=\"axis\" x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text></svg>\n",
            escape(title),
            f64::midpoint(LEFT, WIDTH - RIGHT),
            HEIGHT - 4.0,
            self.label
        )
    }

    fn x(&self, value: f64) -> f64 {
        let span = self.to - self.from;
        let share = if span > 0.0 { (value - self.from) / span } else { 0.5 };
        LEFT + 10.0 + share * (WIDTH - LEFT - RIGHT - 20.0)
    }

    fn line(&self, line: &Line, axis: &Axis) -> String {
        let place = |p: &Point| (self.x(p.x), axis.y(p.y));
        let path: Vec<String> =
            line.points.iter().map(place).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let dot = |p: &Point| {
            let (x, y) = place(p);
            format!(
                "<circle class=\"dot c-{}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"><title>{}</title></circle>",
                line.class,
                escape(&p.title)
            )
        };
        let dots: String = line.points.iter().filter(|_| line.dots).map(dot).collect();
        format!("<polyline class=\"curve c-{}\" points=\"{}\"/>{dots}", line.class, path.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(y: Scale, values: &[f64]) -> Plot {
        let point = |(x, &y): (usize, &f64)| Point { x: x as f64, y, title: String::new() };
        let points = values.iter().enumerate().map(point).collect();
        let lines = vec![Line { class: 0, points, dots: true }];
        Plot { label: "x", ticks: Vec::new(), from: 0.0, to: values.len() as f64, y, lines }
    }

    #[test]
    fn whatever_is_plotted_stays_within() {
        for scale in [Scale::Linear, Scale::Powers] {
            for values in
                [&[][..], &[0.0], &[0.5, f64::NAN], &[1e-30, 1e30], &[f64::INFINITY], &[1.0], &[-1.0, 3.0]]
            {
                let plot = plot(scale, values);
                let axis = Axis::of(&plot);
                for value in values {
                    assert!((TOP..=HEIGHT - BOTTOM).contains(&axis.y(*value)), "{scale:?} {values:?}");
                }
                assert!((2..=DECADES as usize + 1).contains(&axis.marks().len()), "{scale:?} {values:?}");
                assert!(!plot.svg("t").contains("NaN"), "{scale:?} {values:?}");
            }
        }
    }
}
