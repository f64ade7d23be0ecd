//! Ctrl-C: the first one ends what is being done, a second one the program, unless files must be tidied up first.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context, Result};

use crate::keyboard;

static PRESSED: AtomicUsize = AtomicUsize::new(0);

/// Exit status of a program that was interrupted.
pub(crate) const INTERRUPTED: u8 = 130;

/// Something must be undone before the program may end.
static TIDYING: AtomicBool = AtomicBool::new(false);

static INSTALLED: Once = Once::new();

/// Takes Ctrl-C over from the system; later calls do nothing.
pub(crate) fn install_once() -> Result<()> {
    let mut result = Ok(());
    INSTALLED.call_once(|| {
        result = ctrlc::set_handler(|| {
            if PRESSED.fetch_add(1, Ordering::SeqCst) > 0 && !TIDYING.load(Ordering::SeqCst) {
                leave();
            }
        });
    });
    result.context("Ctrl-C cannot be taken over")
}

#[expect(clippy::exit, reason = "a second Ctrl-C asks for just that")]
fn leave() {
    keyboard::restore();
    std::process::exit(INTERRUPTED.into());
}

/// Runs `work`, which looks at [`pressed`] often and leaves nothing behind; no number of Ctrl-C ends it halfway.
pub(crate) fn tidily<T>(work: impl FnOnce() -> T) -> T {
    TIDYING.store(true, Ordering::SeqCst);
    let result = work();
    TIDYING.store(false, Ordering::SeqCst);
    result
}

/// Whether Ctrl-C was pressed since the last [`clear`].
pub(crate) fn pressed() -> bool {
    PRESSED.load(Ordering::SeqCst) > 0
}

/// Forgets what was pressed.
pub(crate) fn clear() {
    PRESSED.store(0, Ordering::SeqCst);
}
