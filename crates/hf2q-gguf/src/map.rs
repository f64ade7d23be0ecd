//! Memory-maps a file; the only unsafe code of this crate.

use std::fs::File;
use std::io;
use std::ops::Range;

use memmap2::Mmap;

/// Maps all of `file` for reading.
#[expect(unsafe_code, reason = "a memory map is how gigabytes of weights are used without being copied")]
pub(crate) fn map(file: &File) -> io::Result<Mmap> {
    // SAFETY: the map is read-only and shared: no write goes through it, and it shows whatever the file holds at the
    // time of a read. Every access goes through a slice of the length the map has, which the file had when it was
    // mapped. So the slice is only as constant as the file: while the map lives, nobody may shorten or change it.
    // This crate never does (its writer replaces files by renaming); another process that does makes reads see
    // changed bytes or end in a signal. The crate's documentation says so.
    unsafe { Mmap::map(file) }
}

/// Drops the pages of a range from this process's memory; the next access maps them again.
#[cfg(unix)]
#[expect(
    unsafe_code,
    reason = "pages that were read once would count as this process's memory until it ends"
)]
pub(crate) fn release(map: &Mmap, range: Range<usize>) {
    // SAFETY: the map is of a file and read-only, so no page holds anything that the file does not.
    let advised =
        unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, range.start, range.len()) };
    // It is advice: a system that does not take it only uses more memory.
    let _ = advised;
}

#[cfg(not(unix))]
pub(crate) fn release(_: &Mmap, _: Range<usize>) {}
