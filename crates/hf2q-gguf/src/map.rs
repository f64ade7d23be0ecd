//! Memory-maps a file; the only unsafe code of this crate.

use std::fs::File;
use std::io;

use memmap2::Mmap;

/// Maps all of `file` for reading.
#[expect(unsafe_code, reason = "a memory map is how gigabytes of weights are used without being copied")]
pub(crate) fn map(file: &File) -> io::Result<Mmap> {
    // SAFETY: the map is read-only and private, and every access goes through a slice of the length the map has.
    // What remains is the operating system's part: while the map lives, nobody may shorten or change the file.
    // This crate never does (its writer replaces files by renaming); another process that does makes reads see
    // changed bytes or end in a signal. The crate's documentation says so.
    unsafe { Mmap::map(file) }
}
