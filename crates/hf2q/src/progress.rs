//! How far a text is read, where that takes long.

use std::time::{Duration, Instant};

use hf2q_observe::Likelihood;
use indicatif::ProgressBar;

use crate::terminal;

/// Where nobody looks at a bar, a line is printed this often.
const NOTE_EVERY: Duration = Duration::from_secs(10);

/// A bar where a person looks, else a line now and then.
pub(crate) struct Progress {
    bar: ProgressBar,
    started: Instant,
    noted: Instant,
    tokens: usize,
}

impl Progress {
    /// Of so many chunks.
    pub(crate) fn new(chunks: usize) -> Self {
        let bar = terminal::counting_bar(chunks, "chunks");
        bar.tick();
        Self { bar, started: Instant::now(), noted: Instant::now(), tokens: 0 }
    }

    /// One chunk more, of so many tokens; what is known of all, if anything is.
    pub(crate) fn advance(&mut self, tokens: usize, likelihood: &Likelihood) {
        self.tokens += tokens;
        let (done, all) = (self.bar.position() + 1, self.bar.length().unwrap_or(0));
        let seconds = self.started.elapsed().as_secs_f64();
        let left = seconds / done as f64 * all.saturating_sub(done) as f64;
        let mut message =
            format!("{:.0} tokens/s  {} left", self.tokens as f64 / seconds.max(1e-9), clock(left));
        if likelihood.tokens > 0 {
            message += &format!("  perplexity {:.4}", likelihood.perplexity());
        }
        self.bar.set_position(done);
        if self.bar.is_hidden() && self.noted.elapsed() >= NOTE_EVERY {
            self.noted = Instant::now();
            terminal::note(&format!("{done} of {all} chunks  {message}"));
        }
        self.bar.set_message(message);
    }

    /// Takes the bar away.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// Hours, minutes and seconds.
fn clock(seconds: f64) -> String {
    let s = seconds.round() as u64;
    let (h, m, s) = (s / 3600, s / 60 % 60, s % 60);
    if h > 0 { format!("{h}:{m:02}:{s:02}") } else { format!("{m}:{s:02}") }
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_are_read_as_on_a_clock() {
        assert_eq!([0.4, 61.0, 3600.0, 36_065.0].map(super::clock), ["0:00", "1:01", "1:00:00", "10:01:05"]);
    }
}
