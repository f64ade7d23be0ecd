//! Trying again, saying so, and stopping at once when asked to.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use crate::config::Patience;
use crate::error::HubError;
use crate::progress::Event;
use crate::text::shown;

/// Between looks at the stop sign.
const NAP: Duration = Duration::from_millis(20);

/// Tries where nothing was ever heard of the hub: a wrong name or no network, rather than one that fails now and then.
const UNHEARD: u32 = 2;

/// What workers and the caller tell each other.
#[derive(Debug)]
pub(crate) struct Signals {
    stop: AtomicBool,
    /// Somebody answered.
    heard: AtomicBool,
    events: Sender<Event>,
}

impl Signals {
    pub(crate) fn new(events: Sender<Event>) -> Self {
        Self { stop: AtomicBool::new(false), heard: AtomicBool::new(false), events }
    }

    /// Asks every worker to stop.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Notes that somebody answered.
    pub(crate) fn hear(&self) {
        self.heard.store(true, Ordering::SeqCst);
    }

    /// An error once stopping was asked for.
    pub(crate) fn check(&self) -> Result<(), HubError> {
        if self.stopped() { Err(HubError::Cancelled) } else { Ok(()) }
    }

    pub(crate) fn tell(&self, event: Event) {
        // Nobody listens once the caller is gone; the stop sign ends the work.
        let _ = self.events.send(event);
    }

    pub(crate) fn note(&self, text: String) {
        self.tell(Event::Note(text));
    }

    fn sleep(&self, time: Duration) -> Result<(), HubError> {
        let end = Instant::now() + time;
        loop {
            self.check()?;
            let rest = end.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return Ok(());
            }
            std::thread::sleep(rest.min(NAP));
        }
    }
}

/// Why an attempt failed.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// Trying again may help.
    Passing {
        why: String,
        /// How long the server asks to wait.
        wait: Option<Duration>,
    },
    /// No connection: the host has no address here, or refuses.
    Away { why: String },
    /// It will not.
    Lasting(HubError),
}

impl Trouble {
    pub(crate) fn passing(why: impl Into<String>) -> Self {
        Self::Passing { why: why.into(), wait: None }
    }
}

impl From<HubError> for Trouble {
    fn from(error: HubError) -> Self {
        Self::Lasting(error)
    }
}

/// Counts attempts in a row that brought nothing.
#[derive(Debug)]
pub(crate) struct Attempts<'a> {
    signals: &'a Signals,
    patience: Patience,
    failures: u32,
}

impl<'a> Attempts<'a> {
    pub(crate) fn new(signals: &'a Signals, patience: Patience) -> Self {
        Self { signals, patience, failures: 0 }
    }

    /// The last attempt brought something.
    pub(crate) fn renew(&mut self) {
        self.failures = 0;
    }

    /// Waits before the next attempt at `what` at `url`; an error if there is none.
    pub(crate) fn again(&mut self, what: &str, url: &str, trouble: Trouble) -> Result<(), HubError> {
        self.signals.check()?;
        let heard = self.signals.heard.load(Ordering::SeqCst);
        let (why, wait, away) = match trouble {
            Trouble::Lasting(error) => return Err(error),
            Trouble::Passing { why, wait } => (why, wait, false),
            Trouble::Away { why } => (why, None, !heard),
        };
        self.failures += 1;
        if away && self.failures >= UNHEARD.min(self.patience.attempts) {
            return Err(HubError::Away { url: url.to_owned(), why });
        }
        if self.failures >= self.patience.attempts {
            return Err(HubError::Unreachable { url: url.to_owned(), why, attempts: self.failures });
        }
        let doubled = self.patience.first_pause.saturating_mul(1 << (self.failures - 1).min(16));
        let pause = wait.unwrap_or(doubled).min(self.patience.longest_pause);
        self.signals.note(format!(
            "{}: {}; trying again in {:.0} s",
            shown(what),
            shown(&why),
            pause.as_secs_f64().ceil()
        ));
        self.signals.sleep(pause)
    }

    /// Repeats `attempt` until it succeeds or there is no hope.
    pub(crate) fn run<T>(
        mut self,
        what: &str,
        url: &str,
        mut attempt: impl FnMut() -> Result<T, Trouble>,
    ) -> Result<T, HubError> {
        loop {
            self.signals.check()?;
            match attempt() {
                Ok(value) => return Ok(value),
                Err(trouble) => self.again(what, url, trouble)?,
            }
        }
    }
}
