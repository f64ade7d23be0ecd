//! Whether a disk has room.

use std::path::Path;

use crate::error::HubError;

/// Refuses a download of `needed` bytes into `dir` that cannot fit.
pub(crate) fn check(dir: &Path, needed: u64) -> Result<(), HubError> {
    match free(dir) {
        Some(free) if free < needed => Err(HubError::Space { path: dir.to_owned(), needed, free }),
        _ => Ok(()),
    }
}

/// Bytes an ordinary user may still write; `None` if the system does not say.
#[cfg(unix)]
fn free(dir: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(dir).ok()?;
    stat.f_bavail.checked_mul(stat.f_frsize)
}

#[cfg(not(unix))]
fn free(_dir: &Path) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_disk_holds_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(check(dir.path(), 1).is_ok());
        assert!(check(&dir.path().join("absent"), u64::MAX).is_ok());
        #[cfg(unix)]
        assert!(matches!(check(dir.path(), u64::MAX), Err(HubError::Space { .. })));
    }
}
