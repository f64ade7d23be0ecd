//! Stop strings in streamed text.

/// Watches a text that arrives in pieces for any of several strings.
///
/// Text that could be the beginning of a stop string is held back, so none of it is shown if the string completes.
/// The joined output is the text up to where the stop string starts that is complete first, however the text was
/// cut; of two that end together the longer counts.
#[derive(Clone, Debug)]
pub struct StopStrings {
    stops: Vec<String>,
    pending: String,
    stopped: Option<usize>,
}

impl StopStrings {
    /// Watches for `stops`; empty strings never match.
    pub fn new(stops: impl IntoIterator<Item = String>) -> Self {
        let stops = stops.into_iter().filter(|s| !s.is_empty()).collect();
        Self { stops, pending: String::new(), stopped: None }
    }

    /// Takes text and returns what may be shown.
    pub fn push(&mut self, text: &str) -> String {
        if self.stopped.is_some() {
            return String::new();
        }
        self.pending.push_str(text);
        let starts = |(i, s): (usize, &String)| self.pending.find(s.as_str()).map(|at| (at + s.len(), at, i));
        if let Some((_, at, which)) = self.stops.iter().enumerate().filter_map(starts).min() {
            self.stopped = Some(which);
            self.pending.truncate(at);
            return std::mem::take(&mut self.pending);
        }
        let keep = self.stops.iter().map(|s| overlap(&self.pending, s)).max().unwrap_or(0);
        let shown = self.pending.len() - keep;
        let rest = self.pending.split_off(shown);
        std::mem::replace(&mut self.pending, rest)
    }

    /// Ends the text: what was held back and is no stop string after all.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.pending)
    }

    /// Whether a stop string was found; later text is dropped.
    pub fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// The stop string that was found.
    pub fn found(&self) -> Option<&str> {
        self.stopped.map(|i| self.stops[i].as_str())
    }
}

/// Length of the longest end of `text` with which `stop` starts, shorter than `stop` itself.
fn overlap(text: &str, stop: &str) -> usize {
    let longest = text.len().min(stop.len() - 1);
    let (text, stop) = (text.as_bytes(), stop.as_bytes());
    (1..=longest).rev().find(|n| text.ends_with(&stop[..*n])).unwrap_or(0)
}
