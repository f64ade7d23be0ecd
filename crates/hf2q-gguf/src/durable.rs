//! A temporary file whose bytes reach the disk while more are being written.

use std::io::{self, BufWriter, Write};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use tempfile::{NamedTempFile, TempPath};

/// Bytes after which the disk is asked again to take what there is.
const STRIDE: u64 = 32 << 20;

/// Left to itself, a system collects gigabytes of written pages and then halts the writer until the disk has them. A
/// second thread that keeps asking for them makes disk and processor work at the same time, and the end short.
#[derive(Debug)]
pub(crate) struct Durable {
    file: BufWriter<NamedTempFile>,
    /// Bytes written since the disk was last asked.
    waiting: u64,
    syncing: Option<Syncing>,
    /// The disk did not take something, which nothing that is done later can mend.
    failed: bool,
}

#[derive(Debug)]
struct Syncing {
    wake: SyncSender<()>,
    /// Ends with the first error: a system reports it only once.
    thread: JoinHandle<io::Result<()>>,
}

impl Durable {
    pub(crate) fn new(file: NamedTempFile) -> Self {
        Self { file: BufWriter::with_capacity(1 << 20, file), waiting: 0, syncing: None, failed: false }
    }

    /// Fails soon after the disk did, not at the end of all that is still to be written.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.refuse_after_failure()?;
        self.file.write_all(bytes)?;
        self.waiting += bytes.len() as u64;
        if self.waiting >= STRIDE {
            self.waiting = 0;
            self.wake()?;
        }
        Ok(())
    }

    /// Waits until everything is on the disk.
    pub(crate) fn finish(self) -> io::Result<TempPath> {
        self.refuse_after_failure()?;
        let file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        if let Some(syncing) = self.syncing {
            syncing.end()?;
        }
        file.as_file().sync_all()?;
        Ok(file.into_temp_path())
    }

    fn wake(&mut self) -> io::Result<()> {
        let syncing = match self.syncing.take() {
            Some(syncing) => syncing,
            None => {
                let file = self.file.get_ref().as_file().try_clone()?;
                Syncing::start(move || file.sync_data())?
            }
        };
        match syncing.wake.try_send(()) {
            Err(TrySendError::Disconnected(())) => {
                self.failed = true;
                syncing.end()
            }
            // Full: it is at work already.
            Ok(()) | Err(TrySendError::Full(())) => {
                self.syncing = Some(syncing);
                Ok(())
            }
        }
    }

    fn refuse_after_failure(&self) -> io::Result<()> {
        if self.failed { Err(io::Error::other("an earlier part did not reach the disk")) } else { Ok(()) }
    }
}

impl Syncing {
    fn start(mut sync: impl FnMut() -> io::Result<()> + Send + 'static) -> io::Result<Self> {
        let (wake, woken) = sync_channel(1);
        let keep_asking = move || woken.iter().try_for_each(|()| sync());
        let thread = std::thread::Builder::new().name("sync".to_owned()).spawn(keep_asking)?;
        Ok(Self { wake, thread })
    }

    /// Waits until the disk has taken what it was asked to.
    fn end(self) -> io::Result<()> {
        drop(self.wake);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_files_are_whole() {
        let mut file = Durable::new(NamedTempFile::new().unwrap());
        let piece: Vec<u8> = (0..3_000_001_u32).map(|i| (i % 251) as u8).collect();
        for _ in 0..25 {
            file.write(&piece).unwrap();
        }
        assert!(file.syncing.is_some());
        let path = file.finish().unwrap();
        let written = std::fs::read(&path).unwrap();
        assert!(written.chunks(piece.len()).all(|part| part == piece) && written.len() == 25 * piece.len());
    }

    /// A file on a disk that takes nothing, which the syncing thread has noticed.
    fn on_a_bad_disk() -> Durable {
        let mut file = Durable::new(NamedTempFile::new().unwrap());
        file.syncing = Some(Syncing::start(|| Err(io::Error::other("the disk is gone"))).unwrap());
        file.waiting = STRIDE - 1;
        file.write(b"a").unwrap();
        while !file.syncing.as_ref().unwrap().thread.is_finished() {
            std::thread::yield_now();
        }
        file
    }

    #[test]
    fn an_error_of_the_disk_ends_the_writing() {
        let mut file = on_a_bad_disk();
        file.write(b"a").unwrap();
        file.waiting = STRIDE - 1;
        assert_eq!(file.write(b"a").unwrap_err().to_string(), "the disk is gone");
        // What the system says only once must not be forgotten.
        let path = file.file.get_ref().path().to_owned();
        file.write(b"a").unwrap_err();
        file.finish().unwrap_err();
        assert!(!path.exists());
    }

    #[test]
    fn an_error_of_the_disk_is_reported_at_the_end_too() {
        assert_eq!(on_a_bad_disk().finish().unwrap_err().to_string(), "the disk is gone");
    }

    #[test]
    fn a_dropped_file_is_gone() {
        let mut file = Durable::new(NamedTempFile::new().unwrap());
        file.write(&vec![1; 40 << 20]).unwrap();
        let path = file.file.get_ref().path().to_owned();
        drop(file);
        assert!(!path.exists());
    }
}
