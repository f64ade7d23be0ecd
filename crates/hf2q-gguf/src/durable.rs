//! A temporary file whose bytes reach the disk while more are being written.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::sync::mpsc::{SyncSender, sync_channel};
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
}

#[derive(Debug)]
struct Syncing {
    wake: SyncSender<()>,
    /// Ends with the first error: a system reports it only once.
    thread: JoinHandle<io::Result<()>>,
}

impl Durable {
    pub(crate) fn new(file: NamedTempFile) -> Self {
        Self { file: BufWriter::with_capacity(1 << 20, file), waiting: 0, syncing: None }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
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
        let file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        if let Some(Syncing { wake, thread }) = self.syncing {
            drop(wake);
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        file.as_file().sync_all()?;
        Ok(file.into_temp_path())
    }

    fn wake(&mut self) -> io::Result<()> {
        if self.syncing.is_none() {
            let file = self.file.get_ref().as_file().try_clone()?;
            self.syncing = Some(Syncing::start(file)?);
        }
        // Full or closed: it is at work already, or has an error that `finish` will report.
        let _ = self.syncing.as_ref().map(|s| s.wake.try_send(()));
        Ok(())
    }
}

impl Syncing {
    fn start(file: File) -> io::Result<Self> {
        let (wake, woken) = sync_channel(1);
        let keep_asking = move || woken.iter().try_for_each(|()| file.sync_data());
        let thread = std::thread::Builder::new().name("sync".to_owned()).spawn(keep_asking)?;
        Ok(Self { wake, thread })
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

    #[test]
    fn a_dropped_file_is_gone() {
        let mut file = Durable::new(NamedTempFile::new().unwrap());
        file.write(&vec![1; 40 << 20]).unwrap();
        let path = file.file.get_ref().path().to_owned();
        drop(file);
        assert!(!path.exists());
    }
}
