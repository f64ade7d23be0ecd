//! Do two paths lead to one file?

use std::fs;
use std::path::Path;

/// True if both paths lead to the same existing file: equal paths, symbolic links, hard links. A path that leads
/// nowhere is no file, so the answer is false.
pub fn same_file(a: &Path, b: &Path) -> bool {
    let (Ok(a_meta), Ok(b_meta)) = (fs::metadata(a), fs::metadata(b)) else { return false };
    identical(a, b, &a_meta, &b_meta)
}

#[cfg(unix)]
fn identical(_: &Path, _: &Path, a: &fs::Metadata, b: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// Without inode numbers hard links are not seen; paths and symbolic links are.
#[cfg(not(unix))]
fn identical(a: &Path, b: &Path, _: &fs::Metadata, _: &fs::Metadata) -> bool {
    matches!((fs::canonicalize(a), fs::canonicalize(b)), (Ok(a), Ok(b)) if a == b)
}
