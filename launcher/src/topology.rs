//! The processors of this host: which are one core, one NUMA node, one socket. From `/sys`, which has all that
//! binding needs, on every Linux, without a library.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// Where the kernel describes the host.
pub(crate) const ROOT: &str = "/sys/devices/system";

/// Processors above this number cannot be bound to.
pub(crate) const PROCESSORS_MAX: usize = 1024;

/// A core.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Core {
    /// The socket it is in.
    pub(crate) socket: usize,
    /// The NUMA node it belongs to.
    pub(crate) numa: usize,
    /// Its processors (hardware threads), in order, those that this process may use.
    pub(crate) processors: Vec<usize>,
}

/// The cores of a host that this process may use, socket by socket and node by node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Topology {
    /// The cores; at least one.
    pub(crate) cores: Vec<Core>,
}

impl Topology {
    /// Reads what `root` describes, as far as it is `allowed`.
    ///
    /// # Errors
    /// When it does not describe any allowed processor.
    pub(crate) fn read(root: &Path, allowed: impl Fn(usize) -> bool) -> io::Result<Self> {
        let numas = numa_nodes(root);
        // Processors of one core have the same list of siblings.
        let mut cores: BTreeMap<(usize, usize, usize), Vec<usize>> = BTreeMap::new();
        for processor in indices(&root.join("cpu"), "cpu")? {
            if processor >= PROCESSORS_MAX || !allowed(processor) {
                continue;
            }
            let folder = root.join(format!("cpu/cpu{processor}/topology"));
            let siblings = fs::read_to_string(folder.join("thread_siblings_list")).unwrap_or_default();
            let core = list(&siblings).first().copied().unwrap_or(processor);
            let socket = fs::read_to_string(folder.join("physical_package_id")).unwrap_or_default();
            // Machines without sockets say -1.
            let socket = socket.trim().parse().unwrap_or(0);
            let numa = numas.get(&processor).copied().unwrap_or(0);
            cores.entry((socket, numa, core)).or_default().push(processor);
        }
        let core = |((socket, numa, _), mut processors): (_, Vec<usize>)| {
            processors.sort_unstable();
            Core { socket, numa, processors }
        };
        let cores: Vec<Core> = cores.into_iter().map(core).collect();
        if cores.is_empty() {
            return Err(io::Error::other(format!(
                "{} describes no processor that may be used",
                root.display()
            )));
        }
        Ok(Self { cores })
    }
}

/// The NUMA node of each processor; empty on a machine that has none.
fn numa_nodes(root: &Path) -> BTreeMap<usize, usize> {
    let nodes = indices(&root.join("node"), "node").unwrap_or_default();
    let processors_of = |node: usize| {
        let text = fs::read_to_string(root.join(format!("node/node{node}/cpulist"))).unwrap_or_default();
        list(&text).into_iter().map(move |processor| (processor, node))
    };
    nodes.into_iter().flat_map(processors_of).collect()
}

/// The numbers of the folders `PREFIX<number>` in `folder`, in order.
fn indices(folder: &Path, prefix: &str) -> io::Result<Vec<usize>> {
    let mut indices = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        indices.extend(name.to_str().and_then(|name| name.strip_prefix(prefix)?.parse::<usize>().ok()));
    }
    indices.sort_unstable();
    Ok(indices)
}

/// The numbers of a list of the kernel's, such as `0-3,8`. What is malformed is left out.
fn list(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse::<usize>().ok()?, last.trim().parse::<usize>().ok()?);
        Some(first..last.min(PROCESSORS_MAX).saturating_add(1))
    };
    text.split(',').filter_map(range).flatten().collect()
}

/// Numbers as the kernel writes them: `0-3,8`.
pub(crate) fn list_text(numbers: &[usize]) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => parts.push((*number, *number)),
        }
    }
    let text = |(first, last): &(usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    parts.iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a machine of 2 sockets with 2 cores of 2 threads each, as the kernel numbers them.
    fn machine(root: &Path) {
        for processor in 0..8 {
            let folder = root.join(format!("cpu/cpu{processor}/topology"));
            fs::create_dir_all(&folder).unwrap();
            let core = processor % 4;
            fs::write(folder.join("thread_siblings_list"), format!("{core},{}\n", core + 4)).unwrap();
            fs::write(folder.join("physical_package_id"), format!("{}\n", core % 2)).unwrap();
        }
        fs::create_dir_all(root.join("cpu/cpufreq")).unwrap();
        for node in 0..2 {
            let folder = root.join(format!("node/node{node}"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("cpulist"), format!("{node},{},{},{}\n", node + 2, node + 4, node + 6))
                .unwrap();
        }
    }

    #[test]
    fn a_machine_of_two_sockets() {
        let root = std::env::temp_dir().join(format!("rmarun-topology-{}", std::process::id()));
        machine(&root);
        let all = Topology::read(&root, |_| true);
        let some = Topology::read(&root, |processor| processor < 3);
        let none = Topology::read(&root, |_| false);
        fs::remove_dir_all(&root).unwrap();
        let core =
            |socket, processors: &[usize]| Core { socket, numa: socket, processors: processors.into() };
        assert_eq!(
            all.unwrap().cores,
            [core(0, &[0, 4]), core(0, &[2, 6]), core(1, &[1, 5]), core(1, &[3, 7])]
        );
        assert_eq!(some.unwrap().cores, [core(0, &[0]), core(0, &[2]), core(1, &[1])]);
        assert!(none.unwrap_err().to_string().contains("no processor"));
        assert!(Topology::read(Path::new("/nonexistent"), |_| true).is_err());
    }

    #[test]
    fn this_machine_has_a_core() {
        assert!(!Topology::read(Path::new(ROOT), |_| true).unwrap().cores.is_empty());
    }

    #[test]
    fn lists_of_numbers() {
        assert_eq!(list("0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(list("x,2-,5"), [5]);
        assert!(list("0-99999999999999").len() <= PROCESSORS_MAX + 1);
        assert_eq!(list_text(&[0, 1, 2, 4, 6, 7]), "0-2,4,6-7");
        assert_eq!(list_text(&[]), "");
    }
}
