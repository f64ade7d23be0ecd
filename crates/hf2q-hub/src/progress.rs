//! What a waiting person is told.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Speed is measured over this time.
const WINDOW: Duration = Duration::from_secs(5);

/// How far a download is.
#[derive(Clone, Debug, PartialEq)]
pub struct Status<'a> {
    /// The file that got bytes last; empty before the first.
    pub file: &'a str,
    /// Bytes of that file that are there.
    pub file_done: u64,
    /// Its size in bytes.
    pub file_total: u64,
    /// Bytes of all files that are there.
    pub done: u64,
    /// Bytes of all files to load, those of an earlier attempt included; 0 before they are known.
    pub total: u64,
    /// Bytes a second, over the last few seconds.
    pub speed: f64,
    /// Time left at that speed, if it is known.
    pub left: Option<Duration>,
}

/// Follows a download. Called on the thread that called [`Hub::fetch`](crate::Hub::fetch).
pub trait Progress {
    /// Called several times a second, also while nothing happens. `false` stops the download.
    fn update(&mut self, status: &Status<'_>) -> bool;

    /// Something worth a line: a retry, a wait, the cache standing in for the hub.
    fn note(&mut self, text: &str);
}

/// What the workers report.
pub(crate) enum Event {
    Note(String),
    /// Nothing follows.
    Done,
    /// All files that are to be loaded: name, size.
    Files(Vec<(String, u64)>),
    /// Bytes of a file that are there now.
    Have {
        file: usize,
        bytes: u64,
    },
}

struct FileMeter {
    name: String,
    total: u64,
    /// What an earlier attempt left, then what is there; `None` before a worker has looked.
    have: Option<u64>,
}

/// Adds up what workers report.
#[derive(Default)]
pub(crate) struct Meter {
    files: Vec<FileMeter>,
    last: Option<usize>,
    /// Bytes that came over the network.
    loaded: u64,
    samples: VecDeque<(Instant, u64)>,
}

impl Meter {
    pub(crate) fn files(&mut self, files: Vec<(String, u64)>) {
        self.files = files.into_iter().map(|(name, total)| FileMeter { name, total, have: None }).collect();
        self.last = None;
    }

    pub(crate) fn have(&mut self, file: usize, bytes: u64) {
        let Some(entry) = self.files.get_mut(file) else { return };
        let before = entry.have.replace(bytes).unwrap_or(bytes);
        self.loaded += bytes.saturating_sub(before);
        self.last = Some(file);
    }

    pub(crate) fn status(&mut self, now: Instant) -> Status<'_> {
        self.samples.push_back((now, self.loaded));
        while self.samples.front().is_some_and(|(at, _)| now.duration_since(*at) > WINDOW) {
            self.samples.pop_front();
        }
        let (since, before) = self.samples.front().copied().unwrap_or((now, self.loaded));
        let seconds = now.duration_since(since).as_secs_f64();
        let speed = if seconds > 0.0 { (self.loaded - before) as f64 / seconds } else { 0.0 };
        let done = self.files.iter().filter_map(|f| f.have).sum();
        let total = self.files.iter().map(|f| f.total).sum::<u64>();
        let rest = total.saturating_sub(done);
        let left = (speed > 0.0).then(|| Duration::try_from_secs_f64(rest as f64 / speed).ok()).flatten();
        let last = self.last.and_then(|l| self.files.get(l));
        let (file, file_total, file_done) =
            last.map_or(("", 0, 0), |f| (&*f.name, f.total, f.have.unwrap_or(0)));
        Status { file, file_done, file_total, done, total, speed, left }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_and_time_left_count_what_came_now() {
        let start = Instant::now();
        let mut meter = Meter::default();
        assert_eq!(meter.status(start).total, 0);
        meter.files(vec![("a".into(), 1000), ("b".into(), 500)]);
        // 400 bytes are there from an earlier attempt.
        meter.have(0, 400);
        let s = meter.status(start);
        assert_eq!((s.file, s.file_done, s.file_total, s.done, s.total), ("a", 400, 1000, 400, 1500));
        assert_eq!((s.speed, s.left), (0.0, None));
        meter.have(0, 600);
        let s = meter.status(start + Duration::from_secs(2));
        assert_eq!((s.done, s.speed, s.left), (600, 100.0, Some(Duration::from_secs(9))));
    }

    #[test]
    fn a_file_that_begins_anew_is_counted_once() {
        let mut meter = Meter::default();
        meter.files(vec![("a".into(), 100)]);
        for bytes in [50, 0, 100] {
            meter.have(0, bytes);
        }
        meter.have(7, 1);
        assert_eq!(meter.status(Instant::now()).done, 100);
    }
}
