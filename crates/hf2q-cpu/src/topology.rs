//! How many threads this process has processors for.

use std::collections::HashSet;
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

/// One for each physical core that this process may use, and no more than its share of processor time allows.
///
/// Two threads of one core share its way to memory and its vector units, which one thread of these kernels keeps busy.
/// Where the system does not tell which processors belong to a core, each counts as one.
pub fn default_threads() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    processors.min(cores(Path::new("/")).unwrap_or(processors)).max(1)
}

/// Cores of the processors that this process is allowed to run on; `None` where a file is missing or odd.
fn cores(root: &Path) -> Option<usize> {
    let status = fs::read_to_string(root.join("proc/self/status")).ok()?;
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let mut cores = HashSet::new();
    for processor in ranges(allowed)?.into_iter().flatten() {
        let siblings = format!("sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list");
        cores.insert(fs::read_to_string(root.join(siblings)).ok()?);
    }
    Some(cores.len()).filter(|&n| n > 0)
}

/// The ranges of a list such as `0-3,8`.
fn ranges(list: &str) -> Option<Vec<RangeInclusive<u32>>> {
    /// More processors than a machine has.
    const MOST: u32 = 1 << 16;
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        (last < MOST).then_some(first..=last)
    };
    list.trim().split(',').map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine of two cores with two threads each, of which a process may use some.
    fn machine(allowed: &str) -> Option<usize> {
        let root = tempfile::tempdir().unwrap();
        let write = |path: String, text: String| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/self/status".into(), format!("Name:\tx\nCpus_allowed_list:\t{allowed}\nMems:\t0\n"));
        for cpu in 0..4 {
            let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            write(path, format!("{},{}\n", cpu % 2, cpu % 2 + 2));
        }
        cores(root.path())
    }

    #[test]
    fn threads_of_a_core_count_once() {
        assert_eq!(machine("0-3"), Some(2));
        assert_eq!(machine("0,2"), Some(1));
        assert_eq!(machine("1-2"), Some(2));
    }

    #[test]
    fn odd_files_say_nothing() {
        for odd in ["", "0-", "a", "0-4", "0-99999999999", "0-70000"] {
            assert_eq!(machine(odd), None, "{odd}");
        }
        assert_eq!(cores(Path::new("/nowhere")), None);
    }

    #[test]
    fn there_is_a_default() {
        assert!(default_threads() >= 1);
    }
}
