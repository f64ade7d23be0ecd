//! How much memory is free: on the machine, and in the container that the program runs in.

use std::path::Path;

use anyhow::{Result, bail};

use crate::terminal;

/// Bytes that can be had without swapping, those left out that engines of this process hold but have not used yet; `None` where the
/// system does not say.
pub(crate) fn free() -> Option<u64> {
    let machine = read("/proc/meminfo").and_then(|text| field(&text, "MemAvailable:")).map(|kib| kib * 1024);
    let status = read("/proc/self/status").unwrap_or_default();
    let unused = unused(hf2q_cpu::promised() as u64, &status);
    [machine, container()].into_iter().flatten().min().map(|free| free.saturating_sub(unused))
}

/// Of so many bytes that are held those that have no pages yet, by the state of this process: all of its memory that belongs to no
/// file is taken for a part of them, so that there may be more.
fn unused(promised: u64, status: &str) -> u64 {
    promised.saturating_sub(field(status, "RssAnon:").map_or(0, |kib| kib * 1024))
}

/// Refuses what does not fit into the free memory, before the system ends the program for it.
pub(crate) fn check(what: &str, needed: u64) -> Result<()> {
    check_more(what, needed, 0)
}

/// The same where engines of this process hold so many of the needed bytes already, without having used them.
pub(crate) fn check_more(what: &str, needed: u64, held: u64) -> Result<()> {
    match free().map(|free| free.saturating_add(held)) {
        Some(free) if needed > free => {
            bail!(
                "{what} needs {}, but only {} of memory is free",
                terminal::bytes(needed),
                terminal::bytes(free)
            )
        }
        _ => Ok(()),
    }
}

/// What the control groups of this process leave: of each level its limit less what is used and cannot be given back.
fn container() -> Option<u64> {
    let groups = read("/proc/self/cgroup")?;
    let mut left = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (_, Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let (root, limit, used, reclaimable) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
            c if c.split(',').any(|c| c == "memory") => (
                "/sys/fs/cgroup/memory",
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                "total_inactive_file",
            ),
            _ => continue,
        };
        for level in Path::new(path.trim_start_matches('/')).ancestors() {
            let folder = Path::new(root).join(level);
            let number =
                |name: &str| read(folder.join(name)).and_then(|text| text.trim().parse::<u64>().ok());
            let (Some(limit), Some(used)) = (number(limit), number(used)) else { continue };
            let stat = read(folder.join("memory.stat")).and_then(|text| field(&text, reclaimable));
            left.push(limit.saturating_sub(used.saturating_sub(stat.unwrap_or(0))));
        }
    }
    left.into_iter().min()
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// The number behind a name at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let mut words = text.lines().map(str::split_whitespace);
    let mut line = words.find(|line| line.clone().next() == Some(name))?;
    line.nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn fields_are_found_by_their_whole_names() {
        let text = "MemTotal: 9 kB\nMemAvailableX: 1 kB\nMemAvailable:   24 kB\ninactive_file 7\n";
        assert_eq!(super::field(text, "MemAvailable:"), Some(24));
        assert_eq!(super::field(text, "inactive_file"), Some(7));
        assert_eq!(super::field(text, "absent"), None);
    }

    #[test]
    fn what_is_promised_and_not_used_is_not_free() {
        let status = "VmRSS:\t 900 kB\nRssAnon:\t  300 kB\nRssFile:\t 600 kB\n";
        assert_eq!(super::unused(1 << 20, status), (1 << 20) - 300 * 1024);
        assert_eq!((super::unused(300 * 1024, status), super::unused(0, status)), (0, 0));
        assert_eq!(super::unused(7, ""), 7);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn some_memory_is_free() {
        assert!(super::free().is_some_and(|bytes| bytes > 1 << 20));
        assert!(super::check("a grain of sand", 1).is_ok());
        let message = super::check("the desert", u64::MAX).unwrap_err().to_string();
        assert!(message.starts_with("the desert needs 16777216.0 TiB, but only "), "{message}");
    }
}
