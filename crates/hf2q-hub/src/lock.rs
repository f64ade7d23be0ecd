//! One process at a time loads a content.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;
use std::time::Duration;

use crate::error::HubError;

/// How often a lock that another process holds is tried.
const PAUSE: Duration = Duration::from_millis(100);

/// Held as long as it lives; the system gives it back even if the process is killed.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Waits for a lock. `waiting` is called between attempts, with whether this is the first wait; its error ends it.
    ///
    /// Python's `filelock` takes the same lock in the same way. Where the file system knows no locks, this one holds
    /// nothing: the check of the hash finds what two writers made of one file.
    pub(crate) fn take(
        path: &Path,
        mut waiting: impl FnMut(bool) -> Result<(), HubError>,
    ) -> Result<Self, HubError> {
        // Never truncated or removed: another process may hold it.
        let open = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file = open.map_err(HubError::io(path))?;
        let mut first = true;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => {
                    waiting(first)?;
                    first = false;
                    std::thread::sleep(PAUSE);
                }
                Err(TryLockError::Error(e)) if e.kind() == std::io::ErrorKind::Unsupported => break,
                Err(TryLockError::Error(e)) => return Err(HubError::io(path)(e)),
            }
        }
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_taker_waits_until_the_first_lets_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.lock");
        let mut held = Some(Lock::take(&path, |_| Ok(())).unwrap());
        let mut waits = Vec::new();
        let second = Lock::take(&path, |first| {
            waits.push(first);
            if waits.len() == 2 {
                held = None;
            }
            Ok(())
        });
        assert!(second.is_ok());
        assert_eq!(waits, [true, false]);
        let stopped = Lock::take(&path, |_| Err(HubError::Cancelled));
        assert!(matches!(stopped, Err(HubError::Cancelled)));
    }
}
