//! Keys that are pressed while an answer is written: they are not shown in it, and are no message.

use std::sync::{Mutex, PoisonError};

use crate::terminal;

/// How the terminal was before it was muted.
static BEFORE: Mutex<Option<State>> = Mutex::new(None);

#[cfg(unix)]
type State = rustix::termios::Termios;
#[cfg(not(unix))]
type State = ();

/// Until it is dropped, the terminal shows nothing of what is typed. Ctrl-C is heard all the same.
pub(crate) struct Muted(());

impl Muted {
    pub(crate) fn new() -> Self {
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = mute();
        Self(())
    }
}

impl Drop for Muted {
    fn drop(&mut self) {
        if restore() {
            terminal::note(&terminal::dim("what was typed during the answer is dropped"));
        }
    }
}

/// Makes a muted terminal as it was, also before the program ends in the middle of an answer. What was typed meanwhile is
/// dropped; returns whether there was any.
pub(crate) fn restore() -> bool {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    before.is_some_and(|before| unmute(&before))
}

/// `None` where standard input is no terminal.
#[cfg(unix)]
fn mute() -> Option<State> {
    use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
    let before = tcgetattr(std::io::stdin()).ok()?;
    let mut muted = before.clone();
    // Without lines, so that a half one counts as typed.
    muted.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON);
    tcsetattr(std::io::stdin(), OptionalActions::Now, &muted).ok()?;
    Some(before)
}

#[cfg(unix)]
fn unmute(before: &State) -> bool {
    use rustix::termios::{OptionalActions, QueueSelector, tcflush, tcsetattr};
    let typed = rustix::io::ioctl_fionread(std::io::stdin()).is_ok_and(|bytes| bytes > 0);
    // A terminal that is gone has nothing to drop and shows nothing.
    let _ = tcflush(std::io::stdin(), QueueSelector::IFlush);
    let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, before);
    typed
}

#[cfg(not(unix))]
fn mute() -> Option<State> {
    None
}

#[cfg(not(unix))]
fn unmute(_: &State) -> bool {
    false
}
