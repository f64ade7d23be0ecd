//! Compiled kernels on disk, and those that are a part of the program.
//!
//! A kept file is a cubin with a checksum behind it: what ends early or was changed is compiled again, and the driver, which is
//! not told the length of a cubin, never sees it.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::CudaError;
use crate::sources::{Variant, checksum};

const CHECKSUM: usize = 16;

/// The cubin of a file; `None`: there is none, or not what was written.
pub(crate) fn read(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = fs::read(path).ok()?;
    let cubin = bytes.len().checked_sub(CHECKSUM)?;
    let is_whole = bytes.starts_with(b"\x7fELF") && checksum(&bytes[..cubin]) == bytes[cubin..];
    bytes.truncate(cubin);
    is_whole.then_some(bytes)
}

/// Writes a cubin so that others see it whole or not at all.
///
/// # Errors
/// What the system said.
pub fn keep(path: &Path, cubin: &[u8]) -> Result<(), CudaError> {
    let bytes = [cubin, &checksum(cubin)].concat();
    write_whole(path, &bytes).map_err(|error| CudaError::Cache { path: path.to_owned(), error })
}

fn write_whole(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    static DRAFTS: AtomicUsize = AtomicUsize::new(0);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
    let draft = path.with_extension(format!("{}-{number}.part", std::process::id()));
    fs::write(&draft, bytes).and_then(|()| fs::rename(&draft, path)).inspect_err(|_| {
        let _ = fs::remove_file(&draft);
    })
}

/// The file of `cargo xtask kernels --embed`, which builds with the feature `embed-kernels` have in them.
pub const EMBEDDED_FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/kernels.bin");

#[cfg(feature = "embed-kernels")]
static EMBEDDED: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/kernels.bin"));
#[cfg(not(feature = "embed-kernels"))]
static EMBEDDED: &[u8] = &[];

/// Many cubins in one piece: for each its key's length, the key, its length and its bytes. Lengths are 4 bytes, little endian.
///
/// # Panics
/// If a key or a cubin has 4 GiB.
pub fn bundle<'a>(cubins: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Vec<u8> {
    let mut out = Vec::new();
    for part in cubins.into_iter().flat_map(|(key, cubin)| [key.as_bytes(), cubin]) {
        let len = u32::try_from(part.len()).expect("kernels are small");
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(part);
    }
    out
}

/// Keys and cubins of a bundle, as far as it is whole.
fn unbundle(mut bundle: &[u8]) -> impl Iterator<Item = (&str, &[u8])> {
    let mut part = move || {
        let (len, rest) = bundle.split_first_chunk()?;
        let (part, rest) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*len)).ok()?)?;
        bundle = rest;
        Some(part)
    };
    std::iter::from_fn(move || Some((std::str::from_utf8(part()?).ok()?, part()?)))
}

/// A variant for one of the architectures, the best first, if the program has it.
pub(crate) fn embedded(variant: &Variant, arches: &[String]) -> Option<&'static [u8]> {
    if EMBEDDED.is_empty() {
        return None;
    }
    let of = |arch: &String| {
        let key = variant.key(arch);
        unbundle(EMBEDDED).find(|(found, _)| *found == key).map(|(_, cubin)| cubin)
    };
    arches.iter().find_map(of)
}

/// Architectures and numbers of the kernels that are a part of this program and of its sources; none in most builds.
pub fn embedded_kernels() -> Vec<(String, usize)> {
    let mut counts: Vec<(String, usize)> = Vec::new();
    for (key, _) in unbundle(EMBEDDED) {
        let Some(arch) = key.split('.').nth(1) else { continue };
        match counts.iter_mut().find(|(known, _)| known == arch) {
            Some((_, count)) => *count += 1,
            None => counts.push((arch.to_owned(), 1)),
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_damaged_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep").join("a.sm_90a.cubin");
        let cubin = [b"\x7fELF".as_slice(), &[7; 100]].concat();
        keep(&path, b"not a kernel").unwrap();
        assert_eq!(read(&path), None);
        keep(&path, &cubin).unwrap();
        assert_eq!(read(&path), Some(cubin.clone()));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no draft is left");
        let whole = fs::read(&path).unwrap();
        for (at, len) in [(50, whole.len()), (whole.len() - 1, whole.len()), (0, 60), (0, 5), (0, 0)] {
            let mut damaged = whole[..len].to_vec();
            if let Some(byte) = damaged.get_mut(at).filter(|_| at > 0) {
                *byte ^= 1;
            }
            fs::write(&path, damaged).unwrap();
            assert_eq!(read(&path), None, "byte {at} of {len}");
        }
        assert_eq!(read(folder.path()), None);
    }

    #[test]
    fn bundles_are_read_as_far_as_they_are_whole() {
        let cubins: [(&str, &[u8]); 3] =
            [("a.sm_80.1", b"one"), ("b.sm_80.2", b""), ("c.sm_90a.3", b"three")];
        let bundle = bundle(cubins);
        assert_eq!(unbundle(&bundle).collect::<Vec<_>>(), cubins);
        for len in 0..bundle.len() {
            assert!(unbundle(&bundle[..len]).count() < 3);
        }
        assert_eq!(unbundle(&[255; 9]).count(), 0);
    }

    #[test]
    fn a_program_with_kernels_has_all_of_them() {
        let variants = crate::sources::variants();
        for (arch, count) in embedded_kernels() {
            assert_eq!(count, variants.len(), "{arch}: run cargo xtask kernels --embed again");
            assert!(variants.iter().all(|v| embedded(v, std::slice::from_ref(&arch)).is_some()), "{arch}");
        }
    }
}
