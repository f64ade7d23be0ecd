//! Counts and times, as Prometheus reads them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use hf2q_engine::{Histogram as Counts, SchedulerStats};

/// Seconds until an answer's first token, or its end.
const LONG: &[f64] =
    &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];
/// Seconds between tokens.
const SHORT: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5];

/// Values by size; any thread may add one.
pub(crate) struct Histogram {
    bounds: &'static [f64],
    counts: Vec<AtomicU64>,
    /// In millionths.
    sum: AtomicU64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, sum: AtomicU64::new(0) }
    }

    pub(crate) fn record(&self, value: f64) {
        let at = self.bounds.partition_point(|&b| b < value);
        self.counts[at].fetch_add(1, Relaxed);
        self.sum.fetch_add((value * 1e6) as u64, Relaxed);
    }

    fn counts(&self) -> Counts {
        Counts {
            bounds: self.bounds,
            counts: self.counts.iter().map(|c| c.load(Relaxed)).collect(),
            sum: self.sum.load(Relaxed) as f64 / 1e6,
        }
    }
}

/// What the server itself counts.
pub(crate) struct Metrics {
    /// From a job's submission to its first token.
    pub(crate) first_token: Histogram,
    /// Between tokens of one answer.
    pub(crate) next_token: Histogram,
    /// From a request to the end of its answer.
    pub(crate) latency: Histogram,
    pub(crate) connections: AtomicU64,
    pub(crate) in_flight: AtomicU64,
    /// Answers that were lost because their reader was too slow.
    pub(crate) slow_readers: AtomicU64,
    requests: Mutex<BTreeMap<(&'static str, u16), u64>>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        Self {
            first_token: Histogram::new(LONG),
            next_token: Histogram::new(SHORT),
            latency: Histogram::new(LONG),
            connections: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            slow_readers: AtomicU64::new(0),
            requests: Mutex::new(BTreeMap::new()),
        }
    }

    /// Counts a response. `route` is one of the server's own, never a client's text.
    pub(crate) fn request(&self, route: &'static str, status: u16) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests.entry((route, status)).or_default() += 1;
    }

    /// Everything, with what the engines of loaded models count.
    pub(crate) fn text(&self, models: &[(String, SchedulerStats)]) -> String {
        let mut page = Page(String::new());
        page.head("hf2q_requests_total", "counter", "Requests by route and status.");
        for ((route, status), n) in self.requests.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            page.value("hf2q_requests_total", &format!("route=\"{route}\",status=\"{status}\""), *n as f64);
        }
        for (name, help, histogram) in [
            (
                "hf2q_time_to_first_token_seconds",
                "From a job's submission to its first token.",
                &self.first_token,
            ),
            ("hf2q_inter_token_seconds", "Between tokens of one answer.", &self.next_token),
            ("hf2q_request_seconds", "From a request to the end of its answer.", &self.latency),
        ] {
            page.head(name, "histogram", help);
            page.histogram(name, "", &histogram.counts());
        }
        for (name, kind, help, value) in [
            ("hf2q_connections", "gauge", "Open connections.", &self.connections),
            ("hf2q_requests_in_flight", "gauge", "Requests that are being answered.", &self.in_flight),
            (
                "hf2q_slow_readers_total",
                "counter",
                "Answers lost because of slow readers.",
                &self.slow_readers,
            ),
        ] {
            page.head(name, kind, help);
            page.value(name, "", value.load(Relaxed) as f64);
        }
        engines(&mut page, models);
        page.0
    }
}

/// A number of a scheduler.
type Number = (&'static str, &'static str, &'static str, fn(&SchedulerStats) -> f64);

const NUMBERS: &[Number] = &[
    ("hf2q_jobs_waiting", "gauge", "Jobs in the queue.", |s| s.waiting as f64),
    ("hf2q_jobs_running", "gauge", "Jobs under way.", |s| s.running as f64),
    ("hf2q_jobs_in_prompt", "gauge", "Jobs under way whose prompt is not computed yet.", |s| {
        s.prompts as f64
    }),
    ("hf2q_jobs_submitted_total", "counter", "Jobs taken.", |s| s.submitted as f64),
    ("hf2q_jobs_rejected_total", "counter", "Jobs refused because the queue was full.", |s| {
        s.rejected as f64
    }),
    ("hf2q_jobs_finished_total", "counter", "Jobs that ended by themselves.", |s| s.finished as f64),
    ("hf2q_jobs_cancelled_total", "counter", "Jobs cancelled or past their deadline.", |s| {
        s.cancelled as f64
    }),
    ("hf2q_jobs_failed_total", "counter", "Jobs that failed.", |s| s.failed as f64),
    ("hf2q_preemptions_total", "counter", "Jobs that made room for older ones.", |s| s.preemptions as f64),
    ("hf2q_steps_total", "counter", "Steps.", |s| s.steps as f64),
    ("hf2q_prompt_rows_total", "counter", "Rows of prompts computed.", |s| s.prompt_rows as f64),
    ("hf2q_answer_rows_total", "counter", "Rows that continued answers.", |s| s.answer_rows as f64),
    ("hf2q_prompt_tokens_total", "counter", "Tokens of prompts.", |s| s.prompt_tokens as f64),
    ("hf2q_cached_tokens_total", "counter", "Tokens of prompts found in the cache.", |s| {
        s.cached_tokens as f64
    }),
    ("hf2q_answer_tokens_total", "counter", "Tokens drawn.", |s| s.answer_tokens as f64),
    ("hf2q_answer_steps_total", "counter", "Steps that gave tokens, those of each answer counted.", |s| {
        s.answer_steps as f64
    }),
    ("hf2q_drafts_total", "counter", "Drafts computed.", |s| s.drafts.drafts as f64),
    ("hf2q_drafted_tokens_total", "counter", "Tokens guessed and computed.", |s| s.drafts.drafted as f64),
    ("hf2q_accepted_tokens_total", "counter", "Guessed tokens that were drawn.", |s| {
        s.drafts.accepted as f64
    }),
    ("hf2q_drafting_seconds_total", "counter", "Time that guessing took.", |s| s.drafts.seconds),
    (
        "hf2q_draft_saved_seconds",
        "gauge",
        "Time that guessing saved answers that have ended, each of several at once counted, by the time of steps without; below 0 where it cost more.",
        |s| s.drafts.saved,
    ),
    ("hf2q_drafter_failures_total", "counter", "Failures of the drafter.", |s| s.drafts.failures as f64),
    ("hf2q_prefix_lookups_total", "counter", "Prompts looked up in the cache.", |s| s.cache.lookups as f64),
    ("hf2q_prefix_hits_total", "counter", "Prompts of which the cache held a part.", |s| s.cache.hits as f64),
    ("hf2q_prefix_evictions_total", "counter", "Pages given up for others.", |s| s.cache.evictions as f64),
];

fn engines(page: &mut Page, models: &[(String, SchedulerStats)]) {
    for (name, kind, help, read) in NUMBERS {
        page.head(name, kind, help);
        for (id, stats) in models {
            page.value(name, &format!("model=\"{}\"", escape(id)), read(stats));
        }
    }
    for (name, help, read) in [
        (
            "hf2q_step_rows",
            "Rows of a step: how full batches are.",
            (|s| &s.step_rows) as fn(&SchedulerStats) -> &Counts,
        ),
        ("hf2q_step_seconds", "Time of a step.", |s| &s.step_seconds),
    ] {
        page.head(name, "histogram", help);
        for (id, stats) in models {
            page.histogram(name, &format!("model=\"{}\"", escape(id)), read(stats));
        }
    }
    drafts(page, models);
    page.head("hf2q_pages", "gauge", "Pages of the KV cache by what they are used for.");
    for (id, stats) in models {
        for group in &stats.cache.groups {
            for (state, n) in [("in_use", group.in_use), ("cached", group.cached), ("free", group.free)] {
                let labels =
                    format!("model=\"{}\",group=\"{}\",state=\"{state}\"", escape(id), escape(&group.name));
                page.value("hf2q_pages", &labels, n as f64);
            }
        }
    }
}

/// How often guesses were right, by how far ahead they were made.
fn drafts(page: &mut Page, models: &[(String, SchedulerStats)]) {
    for (name, help, which) in [
        ("hf2q_draft_levels_total", "Drafts that had a token at this depth.", 0),
        ("hf2q_draft_levels_accepted_total", "Drafts whose token at this depth was drawn.", 1),
    ] {
        page.head(name, "counter", help);
        for (id, stats) in models {
            for (depth, level) in (1..).zip(&stats.drafts.levels) {
                let drafter = escape(&stats.drafts.drafter);
                let labels = format!("model=\"{}\",drafter=\"{drafter}\",depth=\"{depth}\"", escape(id));
                page.value(name, &labels, [level.0, level.1][which] as f64);
            }
        }
    }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

struct Page(String);

impl Page {
    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        // A string takes everything.
        let _ = writeln!(self.0, "{text}");
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    fn value(&mut self, name: &str, labels: &str, value: f64) {
        match labels {
            "" => self.line(format_args!("{name} {value}")),
            _ => self.line(format_args!("{name}{{{labels}}} {value}")),
        }
    }

    fn histogram(&mut self, name: &str, labels: &str, counts: &Counts) {
        let more = if labels.is_empty() { String::new() } else { format!("{labels},") };
        let mut sum = 0;
        for (i, n) in counts.counts.iter().enumerate() {
            sum += n;
            let bound = counts.bounds.get(i).map_or("+Inf".to_owned(), f64::to_string);
            self.value(&format!("{name}_bucket"), &format!("{more}le=\"{bound}\""), sum as f64);
        }
        self.value(&format!("{name}_sum"), labels, counts.sum);
        self.value(&format!("{name}_count"), labels, sum as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_add_up_and_names_are_escaped() {
        let metrics = Metrics::new();
        metrics.first_token.record(0.02);
        metrics.first_token.record(1000.0);
        metrics.request("/v1/models", 200);
        let text = metrics.text(&[("a\"b".to_owned(), SchedulerStats::default())]);
        assert!(text.contains("hf2q_time_to_first_token_seconds_bucket{le=\"0.025\"} 1\n"), "{text}");
        assert!(text.contains("hf2q_time_to_first_token_seconds_bucket{le=\"+Inf\"} 2\n"));
        assert!(text.contains("hf2q_time_to_first_token_seconds_count 2\n"));
        assert!(text.contains("hf2q_requests_total{route=\"/v1/models\",status=\"200\"} 1\n"));
        assert!(text.contains("hf2q_jobs_waiting{model=\"a\\\"b\"} 0\n"));
        assert!(text.lines().all(|l| l.starts_with('#') || l.split_whitespace().count() == 2));
    }
}
