//! One page that shows what a comparison found: an HTML file by itself, without scripts and links to elsewhere.

mod plot;

use hf2q_convert::report::{duration, escape, page, plural, tile};

use crate::compare::{Bar, CacheSize, Compared, Comparison, Failure, LayerCosine};
use plot::{Line, Plot, Point, Scale};

/// Style of the lines: that of the other pages has dots and fields only.
const STYLE: &str = ".curve { fill: none; stroke: oklch(var(--dot) var(--chroma) var(--hue)); stroke-width: 1.6; }\n\
                     .plot { display: block; width: 100%; min-width: 640px; height: auto; }\n";

/// Hues of the candidates, far from their neighbours; then they begin again.
const HUES: [u32; 8] = [262, 30, 148, 320, 88, 205, 352, 120];

/// What a page is made from.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// The text and how it was read, for people.
    pub facts: &'a [String],
    /// What was found.
    pub comparison: &'a Comparison,
    /// Limits that were not kept.
    pub failures: &'a [Failure],
    /// How long it took.
    pub seconds: f64,
}

/// The page. Texts come from files and command lines and are escaped.
pub fn html(found: &Page<'_>) -> String {
    let comparison = found.comparison;
    let sections = [
        header(found),
        failures(found.failures),
        table(comparison),
        cosines(comparison),
        positions(comparison),
        histogram(comparison),
        layers(comparison),
    ];
    let rule =
        |i: usize| format!(".c-{i} {{ --hue: {}; --chroma: 0.15; --lighter: 0; }}\n", HUES[i % HUES.len()]);
    let rules: String = (0..comparison.candidates.len()).map(rule).collect();
    let title = format!("Compared with {}", comparison.reference.name);
    page(&title, &format!("{STYLE}{rules}"), &sections.concat())
}

fn header(found: &Page<'_>) -> String {
    let c = found.comparison;
    let likelihood = c.reference.likelihood;
    let error = likelihood.error().map(|e| format!("± {e:.4}")).unwrap_or_default();
    let least = |what: fn(&Compared) -> f64| c.candidates.iter().map(what).fold(f64::INFINITY, f64::min);
    let most = |what: fn(&Compared) -> f64| c.candidates.iter().map(what).fold(0.0, f64::max);
    let tiles = [
        tile("Perplexity of the reference", &format!("{:.4}", likelihood.perplexity()), &error),
        tile("Scored", &plural(likelihood.tokens, "token"), &format!("in {}", plural(c.chunks, "chunk"))),
        tile("Time", &duration(found.seconds), ""),
        tile("Mean KL", &range(least(|c| c.kl.mean), most(|c| c.kl.mean), small), "least to most, in nats"),
        tile("Same top token", &range(least(|c| c.same_top), most(|c| c.same_top), percent), "least to most"),
        tile("Perplexity ratio", &range(least(|c| c.ratio), most(|c| c.ratio), four), "least to most"),
    ];
    let facts: Vec<String> = found.facts.iter().map(|f| escape(f)).collect();
    format!(
        "<header>\n<p class=\"kicker\">hf2q comparison</p>\n<h1><bdi>{}</bdi></h1>\n<p class=\"facts\">{}</p>\n</header>\n\
         <section class=\"tiles\">\n{}</section>\n",
        escape(&c.reference.name),
        facts.join(" · "),
        tiles.concat()
    )
}

fn range(least: f64, most: f64, show: fn(f64) -> String) -> String {
    let (least, most) = (show(least), show(most));
    if least == most { least } else { format!("{least} to {most}") }
}

fn failures(failures: &[Failure]) -> String {
    if failures.is_empty() {
        return String::new();
    }
    let items: String = failures.iter().map(|f| format!("<li>{}</li>\n", escape(&f.to_string()))).collect();
    let title = plural(failures.len(), "limit");
    format!("<section class=\"warnings\">\n<h2>{title} not kept</h2>\n<ul>\n{items}</ul>\n</section>\n")
}

fn table(c: &Comparison) -> String {
    let reference = format!(
        "<tr><th><bdi>{}</bdi></th>{}<td></td><td></td><td></td><td></td><td>{:.4}</td><td></td><td></td><td></td></tr>\n",
        escape(&c.reference.name),
        size(c.reference.cache),
        c.reference.likelihood.perplexity()
    );
    let rows: String = c.candidates.iter().enumerate().map(|(i, c)| row(i, c)).collect();
    format!(
        "<section>\n<h2>Candidates</h2>\n<p class=\"note\">KL is the divergence of the next-token distribution from that of the reference, \
         in nats. Bits are those of a stored component of a key or value at the end of a chunk, in brackets without the \
         exact copies of recent positions; a vector that serves as key and as value counts once. Cosine is that of the attention outputs: the mean over rows in the layer where it is least. Runs are greedy \
         continuations: tokens until the first other one.</p>\n<div class=\"scroll\"><table class=\"numbers\">\n\
         <thead><tr><th>Configuration</th><th>Bits</th><th>Bytes a token</th><th>KL mean</th><th>KL 99 %</th><th>KL max</th>\
         <th>Same top</th><th>Perplexity</th><th>Ratio</th><th>Cosine</th><th>Runs</th></tr></thead>\n\
         <tbody>\n{reference}{rows}</tbody></table></div>\n</section>\n"
    )
}

fn size(cache: CacheSize) -> String {
    format!("<td>{}</td><td>{:.0}</td>", cache.bits(), cache.bytes_per_token)
}

fn row(i: usize, c: &Compared) -> String {
    let runs = c.greedy.as_ref().map_or(String::new(), |g| match g.median() {
        Some(median) => format!("median {median}, {} never", percent(g.never())),
        None => format!("{} never", percent(g.never())),
    });
    let cells = [
        small(c.kl.mean),
        small(c.kl.p99),
        small(c.kl.max),
        percent(c.same_top),
        four(c.measured.likelihood.perplexity()),
        four(c.ratio),
        c.least_cosine().map_or(String::new(), |l| format!("{:.6}", l.mean)),
        runs,
    ];
    let cells: String = cells.iter().map(|cell| format!("<td>{cell}</td>")).collect();
    format!(
        "<tr><th><span class=\"swatch c-{i}\"></span><bdi>{}</bdi></th>{}{cells}</tr>\n",
        escape(&c.measured.name),
        size(c.measured.cache)
    )
}

/// `1 - cosine` by layer: what differs between good formats is far behind the comma.
fn cosines(c: &Comparison) -> String {
    let lines: Vec<Line> = c.candidates.iter().enumerate().filter_map(|(i, c)| cosine_line(i, c)).collect();
    let Some(layers) = lines.iter().map(|l| l.points.len()).max() else { return String::new() };
    let step = layers.div_ceil(16).max(1);
    let ticks = (0..layers).step_by(step).map(|i| (i as f64, i.to_string())).collect();
    section(
        "Attention outputs by layer",
        "1 − cosine of the outputs of attention and those of the reference, mean over the scored rows. Lower is closer.",
        &Plot {
            label: "layer",
            ticks,
            from: 0.0,
            to: layers.saturating_sub(1) as f64,
            y: Scale::Powers,
            lines,
        },
        c,
    )
}

fn cosine_line(i: usize, c: &Compared) -> Option<Line> {
    let point = |(x, l): (usize, &LayerCosine)| Point {
        x: x as f64,
        y: 1.0 - l.mean,
        title: format!("{} {}: cosine {:.6}, least {:.6}", c.measured.name, l.op, l.mean, l.least),
    };
    let points = c.layers.as_ref()?.iter().enumerate().map(point).collect();
    Some(Line { class: i, points, dots: true })
}

fn positions(c: &Comparison) -> String {
    let line = |(i, c): (usize, &Compared)| {
        let points = c.positions.iter().map(|p| Point {
            x: (p.from + p.to) as f64 / 2.0,
            y: p.mean,
            title: format!("{} {} to {}: {}", c.measured.name, p.from, p.to - 1, small(p.mean)),
        });
        Line { class: i, points: points.collect(), dots: true }
    };
    let ends = c.candidates.iter().filter_map(|c| Some((c.positions.first()?.from, c.positions.last()?.to)));
    let Some((from, to)) = ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))) else { return String::new() };
    let step = ((to - from) / 8).next_power_of_two();
    let ticks = (from..to).step_by(step).map(|p| (p as f64, p.to_string())).collect();
    section(
        "KL by position",
        "Mean divergence by position in the chunk, in nats.",
        &Plot {
            label: "position",
            ticks,
            from: from as f64,
            to: to as f64,
            y: Scale::Powers,
            lines: c.candidates.iter().enumerate().map(line).collect(),
        },
        c,
    )
}

fn histogram(c: &Comparison) -> String {
    let line = |(i, c): (usize, &Compared)| {
        let rows: usize = c.histogram.iter().map(|b| b.rows).sum();
        let point = |(x, b): (usize, &Bar)| {
            let y = 100.0 * b.rows as f64 / rows.max(1) as f64;
            let title = format!("{} {} to {}: {y:.2} %", c.measured.name, small(b.from), small(b.to));
            Point { x: x as f64, y, title }
        };
        Line { class: i, points: c.histogram.iter().enumerate().map(point).collect(), dots: false }
    };
    let Some(bars) = c.candidates.first().map(|c| &c.histogram) else { return String::new() };
    // Bar ends that are powers of ten.
    let power = |b: &Bar| b.to.is_finite() && (b.to.log10() - b.to.log10().round()).abs() < 1e-9;
    let ticks = bars.iter().enumerate().filter(|(_, b)| power(b)).map(|(i, b)| (i as f64 + 0.5, small(b.to)));
    section(
        "Histogram of KL",
        "Share of the scored rows with a divergence, in percent; each power of ten has four steps, and the first point has all \
         below them.",
        &Plot {
            label: "nats",
            ticks: ticks.collect(),
            from: 0.0,
            to: bars.len().saturating_sub(1) as f64,
            y: Scale::Linear,
            lines: c.candidates.iter().enumerate().map(line).collect(),
        },
        c,
    )
}

fn section(title: &str, note: &str, plot: &Plot, c: &Comparison) -> String {
    let legend = |(i, c): (usize, &Compared)| {
        format!("<li><span class=\"swatch c-{i}\"></span><bdi>{}</bdi></li>", escape(&c.measured.name))
    };
    let legend: String = c.candidates.iter().enumerate().map(legend).collect();
    format!(
        "<section>\n<h2>{title}</h2>\n<p class=\"note\">{note}</p>\n<ul class=\"legend\">{legend}</ul>\n<div class=\"scroll\">{}</div></section>\n",
        plot.svg(title)
    )
}

/// All cosines, folded.
fn layers(c: &Comparison) -> String {
    let with: Vec<&Compared> = c.candidates.iter().filter(|c| c.layers.is_some()).collect();
    let Some(first) = with.first().and_then(|c| c.layers.as_ref()) else { return String::new() };
    let names: String = with
        .iter()
        .map(|c| format!("<th class=\"number\"><bdi>{}</bdi></th>", escape(&c.measured.name)))
        .collect();
    let row = |(i, layer): (usize, &LayerCosine)| {
        let cell = |c: &&Compared| match c.layers.as_ref().and_then(|l| l.get(i)) {
            Some(l) => format!("<td class=\"number\">{:.6} ({:.4})</td>", l.mean, l.least),
            None => "<td></td>".to_owned(),
        };
        let cells: String = with.iter().map(cell).collect();
        format!("<tr><th>{}</th><td>{}</td>{cells}</tr>\n", escape(&layer.op), escape(&layer.group))
    };
    let rows: String = first.iter().enumerate().map(row).collect();
    format!(
        "<section>\n<details><summary><h2>Cosines by layer</h2></summary>\n<p class=\"note\">Mean over the scored rows, and in \
         parentheses the least.</p>\n<div class=\"scroll\"><table class=\"tensors\">\n\
         <thead><tr><th>Operation</th><th>Group</th>{names}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n</details>\n</section>\n"
    )
}

fn percent(share: f64) -> String {
    format!("{:.2}\u{a0}%", 100.0 * share)
}

fn four(value: f64) -> String {
    if value.is_finite() { format!("{value:.4}") } else { "not finite".to_owned() }
}

/// A number of any size in few digits.
fn small(value: f64) -> String {
    match value {
        v if !v.is_finite() => "infinite".to_owned(),
        0.0 => "0".to_owned(),
        v if v < 9.995e-4 => format!("{v:.1e}"),
        v if v < 10.0 => format!("{v:.4}").trim_end_matches('0').trim_end_matches('.').to_owned(),
        v => format!("{v:.0}"),
    }
}
