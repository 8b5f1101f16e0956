//! How much memory the host, and the control groups that this process is in, can still give.

use std::fmt;
use std::fs::read_to_string;
use std::iter::successors;

/// Memory that can be had, and by whose word.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Available {
    pub(crate) bytes: u64,
    /// The control group whose limit it is (`/`: that of the group that a container takes for the root); `None`: the
    /// host has no more.
    group: Option<String>,
}

impl fmt::Display for Available {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.group {
            Some(group) => write!(f, "{} bytes can be had in control group {group} (memory.max)", self.bytes),
            None => write!(f, "{} bytes can be had on this host (MemAvailable)", self.bytes),
        }
    }
}

/// The least that anybody says there is; `None`: nobody says anything. Takes the same few calls whatever there is.
pub(crate) fn available() -> Option<Available> {
    let host = read_to_string("/proc/meminfo").ok().and_then(|text| of_host(&text));
    let group = read_to_string("/proc/self/cgroup").ok();
    let group = group.as_deref().and_then(group_of);
    let of_groups = group
        .and_then(|group| left_in_groups(group, |path| read_to_string(format!("/sys/fs/cgroup{path}")).ok()));
    let host = host.map(|bytes| Available { bytes, group: None });
    host.into_iter().chain(of_groups).min_by_key(|available| available.bytes)
}

/// What `/proc/meminfo` says: memory, and room to swap some out.
fn of_host(text: &str) -> Option<u64> {
    let field = |name| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1024)
    };
    Some(field("MemAvailable:")?.saturating_add(field("SwapFree:").unwrap_or(0)))
}

/// The group of version 2 in `/proc/self/cgroup`. A name that leads out of the tree is that of a group which this
/// process cannot see: then the root of what it sees has to do.
fn group_of(text: &str) -> Option<&str> {
    let group = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    let is_inside = group.starts_with('/') && !group.split('/').any(|part| part == "..");
    Some(if is_inside { group.trim_end_matches('/') } else { "" })
}

/// The least that the group and those above it leave, of those that have a limit and can be read.
fn left_in_groups(group: &str, read: impl Fn(&str) -> Option<String>) -> Option<Available> {
    let groups = successors(Some(group), |group| group.rfind('/').map(|end| &group[..end]));
    let left = groups.filter_map(|group| {
        let bytes = left_of(&read, group, "memory.max", "memory.current")?;
        let cached = read(&format!("{group}/memory.stat")).map_or(0, |text| cached(&text));
        let swap = left_of(&read, group, "memory.swap.max", "memory.swap.current").unwrap_or(0);
        let bytes = bytes.saturating_add(cached).saturating_add(swap);
        let group = Some(if group.is_empty() { "/" } else { group }.to_owned());
        Some(Available { bytes, group })
    });
    left.min_by_key(|available| available.bytes)
}

/// The same by the names of the two files.
fn left_of(read: impl Fn(&str) -> Option<String>, group: &str, max: &str, current: &str) -> Option<u64> {
    left(&read(&format!("{group}/{max}"))?, &read(&format!("{group}/{current}"))?)
}

/// What is left of `memory.max` beside `memory.current`; `None`: there is no limit.
fn left(max: &str, current: &str) -> Option<u64> {
    let max: u64 = max.trim().parse().ok()?;
    Some(max.saturating_sub(current.trim().parse().ok()?))
}

/// Bytes of files and of the kernel's own that the group is charged for, and that the kernel lets go when memory is wanted.
fn cached(stat: &str) -> u64 {
    let field = |name: &str| {
        let value = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0)
    };
    ["inactive_file", "active_file", "slab_reclaimable"].into_iter().map(field).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_says_what_it_has_or_nothing() {
        let text =
            "MemTotal:       24683940 kB\nMemFree:        22870540 kB\nMemAvailable:   23477164 kB\nSwapFree: 5 kB\n";
        assert_eq!(of_host(text), Some((23_477_164 + 5) * 1024));
        assert_eq!(of_host("MemAvailable: 3 kB\nSwapFree: many kB\n"), Some(3 * 1024));
        for garbage in [
            "",
            "MemAvailable:",
            "MemAvailable: kB",
            "MemAvailable: -1 kB",
            "MemAvailable: 12",
            "MemAvailable: 12 MB",
            "MemAvailable: 18446744073709551615 kB",
            "MemAvailable: 99999999999999999999999 kB",
            "memavailable: 12 kB",
            "\0\u{fffd}MemAvailable: 12 kB",
        ] {
            assert_eq!(of_host(garbage), None, "{garbage:?}");
        }
    }

    #[test]
    fn the_group_is_that_of_version_2() {
        assert_eq!(group_of("0::/user.slice/job_7\n"), Some("/user.slice/job_7"));
        assert_eq!(group_of("4:memory:/old\n0::/\n"), Some(""));
        assert_eq!(group_of("0::/../../elsewhere\n"), Some(""));
        assert_eq!(group_of("0::relative\n"), Some(""));
        for garbage in ["", "4:memory:/old\n", "::", "0:/", "00::/a"] {
            assert_eq!(group_of(garbage), None, "{garbage:?}");
        }
    }

    #[test]
    fn the_least_of_all_groups_counts() {
        let of = |files: &[(&str, &str)]| {
            let read =
                |path: &str| files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned());
            left_in_groups("/a/b", read).map(|available| (available.bytes, available.group))
        };
        let group = |name: &str| Some(name.to_owned());
        let inner = [("/a/b/memory.max", "1000\n"), ("/a/b/memory.current", "400\n")];
        assert_eq!(of(&inner), Some((600, group("/a/b"))));
        let outer = [inner[0], inner[1], ("/a/memory.max", "500\n"), ("/a/memory.current", "450\n")];
        assert_eq!(of(&outer), Some((50, group("/a"))));
        let unlimited = [inner[0], inner[1], ("/a/memory.max", "max\n"), ("/a/memory.current", "450\n")];
        assert_eq!(of(&unlimited), Some((600, group("/a/b"))));
        let cache =
            [inner[0], inner[1], ("/a/b/memory.stat", "anon 9\ninactive_file 30\nactive_file 4\nfile 99\n")];
        assert_eq!(of(&cache), Some((634, group("/a/b"))));
        let swap =
            [inner[0], inner[1], ("/a/b/memory.swap.max", "50\n"), ("/a/b/memory.swap.current", "8\n")];
        assert_eq!(of(&swap), Some((642, group("/a/b"))));
        for garbage in ["", "inactive_file", "inactive_file -1", "inactive_files 3", "active_file 1 2"] {
            assert_eq!(cached(garbage), 0, "{garbage:?}");
        }
        // In a container the root has a limit.
        assert_eq!(of(&[("/memory.max", "70\n"), ("/memory.current", "80\n")]), Some((0, group("/"))));
        assert_eq!(of(&[]), None);
        for (max, current) in [("", "1"), ("1", ""), ("-5", "1"), ("5", "many"), ("5 6", "1"), ("max", "1")] {
            assert_eq!(of(&[("/a/b/memory.max", max), ("/a/b/memory.current", current)]), None, "{max:?}");
        }
    }

    #[test]
    fn this_host_says_something() {
        let available = available().unwrap();
        assert!(available.bytes > 0 && available.to_string().contains("can be had"), "{available}");
    }
}
