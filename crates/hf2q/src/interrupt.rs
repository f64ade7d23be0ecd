//! Ctrl-C: the first one ends what is being done, a second one the program.

use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};

static PRESSED: AtomicUsize = AtomicUsize::new(0);

/// Exit status of a program that was interrupted.
pub(crate) const INTERRUPTED: u8 = 130;

static INSTALLED: Once = Once::new();

/// Takes Ctrl-C over from the system; later calls do nothing.
pub(crate) fn install_once() -> Result<()> {
    let mut result = Ok(());
    INSTALLED.call_once(|| {
        result = ctrlc::set_handler(|| {
            if PRESSED.fetch_add(1, Ordering::SeqCst) > 0 {
                leave();
            }
        });
    });
    result.context("Ctrl-C cannot be taken over")
}

#[expect(clippy::exit, reason = "a second Ctrl-C asks for just that")]
fn leave() {
    std::process::exit(INTERRUPTED.into());
}

/// Whether Ctrl-C was pressed since the last [`clear`].
pub(crate) fn pressed() -> bool {
    PRESSED.load(Ordering::SeqCst) > 0
}

/// Forgets what was pressed.
pub(crate) fn clear() {
    PRESSED.store(0, Ordering::SeqCst);
}
