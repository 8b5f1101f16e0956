//! Which of a host's NICs a rank uses: of those of one fabric that are up, the fastest; of these, the nearest to
//! the processors that the rank may use; of equally near ones, by local rank, so that the ranks of a host share
//! them out. `RMA_NIC` names those to be taken instead.
//!
//! Choosing is a function of a list and a place ([`choose`]). What is read for it is what libfabric says of a NIC
//! and what the kernel says in `/sys`.

use std::fs;
use std::path::Path;

/// A NIC, as far as choosing needs to know it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Nic {
    /// Its name, such as `mlx5_0`: `domain_attr.name` where libfabric names no device.
    pub(crate) name: String,
    /// Its PCI address, such as `0000:3b:00.0`.
    pub(crate) pci: Option<String>,
    /// The NUMA node it is attached to, if the host has any and says so.
    pub(crate) node: Option<usize>,
    /// Whether its link is known to be down.
    pub(crate) is_down: bool,
    /// Bits per second; 0 if unknown.
    pub(crate) speed: u64,
}

/// Where a rank runs.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Place {
    /// The NUMA nodes of the processors that it may use.
    pub(crate) nodes: Vec<usize>,
    /// The kernel's distances between the host's nodes, each row with the node's number in front; 10 is a node's
    /// distance to itself.
    pub(crate) distances: Vec<(usize, Vec<u32>)>,
    /// Its rank among those on its host.
    pub(crate) local_rank: u32,
}

/// A NIC that was chosen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Pick {
    /// Its index in the list.
    pub(crate) index: usize,
    /// Why this one, for people.
    pub(crate) reason: String,
}

impl Nic {
    /// Whether a word of `RMA_NIC` means this one: its name or its PCI address, the latter also without its
    /// domain.
    pub(crate) fn is_called(&self, word: &str) -> bool {
        let is_at = |pci: &String| pci == word || pci.split_once(':').is_some_and(|(_, rest)| rest == word);
        self.name == word || self.pci.as_ref().is_some_and(is_at)
    }

    /// The NIC in words.
    pub(crate) fn describe(&self) -> String {
        let mut parts = Vec::new();
        parts.extend(self.pci.as_ref().map(|pci| format!("PCI {pci}")));
        parts.extend(self.node.map(|node| format!("NUMA node {node}")));
        parts.extend((self.speed > 0).then(|| format!("{} Gbit/s", self.speed / 1_000_000_000)));
        parts.extend(self.is_down.then(|| "link down".to_owned()));
        match parts.is_empty() {
            true => self.name.clone(),
            false => format!("{} ({})", self.name, parts.join(", ")),
        }
    }
}

impl Place {
    /// Where this thread may run on this host.
    pub(crate) fn of_this_thread(local_rank: u32) -> Self {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        Self::read(Path::new("/sys/devices/system/node"), allowed.unwrap_or_default(), local_rank)
    }

    /// The nodes that `root` describes and the `allowed` processors belong to.
    fn read(root: &Path, allowed: &str, local_rank: u32) -> Self {
        let allowed = numbers(allowed);
        let mut place = Self { local_rank, ..Self::default() };
        for entry in fs::read_dir(root).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let node = name.to_str().and_then(|name| name.strip_prefix("node")?.parse::<usize>().ok());
            let Some(node) = node else { continue };
            let text = |file| fs::read_to_string(entry.path().join(file)).unwrap_or_default();
            let distances = text("distance").split_whitespace().map_while(|word| word.parse().ok()).collect();
            place.distances.push((node, distances));
            if numbers(&text("cpulist")).iter().any(|processor| allowed.contains(processor)) {
                place.nodes.push(node);
            }
        }
        place.distances.sort_unstable();
        place.nodes.sort_unstable();
        place
    }

    /// How far a NIC is from the nearest of the rank's processors; where nobody knows, all are as far.
    fn distance(&self, nic: &Nic) -> u32 {
        let Some(column) = nic.node.and_then(|node| self.distances.iter().position(|row| row.0 == node))
        else {
            return FAR;
        };
        let rows = self.distances.iter().filter(|row| self.nodes.contains(&row.0));
        rows.filter_map(|(_, row)| row.get(column).copied()).min().unwrap_or(FAR)
    }

    /// The rank's number among those that find the same NICs near. Ranks take the NUMA nodes in turn or fill one
    /// after the other; the sum lets those of a node count on by ones or nearly so in both cases.
    fn turn(&self) -> usize {
        let (rank, nodes) = (self.local_rank as usize, self.distances.len().max(1));
        match self.nodes.len() < nodes {
            true => rank / nodes + rank % nodes,
            false => rank,
        }
    }
}

/// Chooses among `nics`, which are on one fabric; `wanted` are the words of `RMA_NIC`, and the list holds only
/// NICs that one of them means. `None` if there is no NIC.
pub(crate) fn choose(nics: &[Nic], wanted: &[&str], place: &Place) -> Option<Pick> {
    if !wanted.is_empty() {
        let mut asked: Vec<usize> = Vec::new();
        for word in wanted {
            asked.extend(nics.iter().position(|nic| nic.is_called(word)));
        }
        let index = *asked.get(place.local_rank as usize % asked.len().max(1))?;
        let reason = match asked.len() {
            1 => "RMA_NIC".to_owned(),
            count => format!("RMA_NIC; of {count}, by local rank {}", place.local_rank),
        };
        return Some(Pick { index, reason });
    }
    let mut left: Vec<usize> = (0..nics.len()).collect();
    let mut reasons = Vec::new();
    let mut keep = |reason: &str, key: &dyn Fn(&Nic) -> u64| {
        let best = left.iter().map(|&index| key(&nics[index])).min();
        let before = left.len();
        left.retain(|&index| Some(key(&nics[index])) == best);
        if left.len() < before {
            reasons.push(format!("{reason} of {before}"));
        }
    };
    keep("up", &|nic| u64::from(nic.is_down));
    keep("the fastest", &|nic| u64::MAX - nic.speed);
    keep("the nearest", &|nic| place.distance(nic).into());
    let index = *left.get(place.turn() % left.len().max(1))?;
    if left.len() > 1 {
        let count = left.len();
        reasons.push(format!("one of {count} that are as good, by local rank {}", place.local_rank));
    } else if reasons.is_empty() {
        reasons.push("the only one".to_owned());
    }
    let nodes: Vec<String> = place.nodes.iter().map(usize::to_string).collect();
    if nics.len() > 1 && place.distances.len() > 1 {
        reasons.push(format!("the rank's processors are in NUMA node {}", nodes.join(", ")));
    }
    Some(Pick { index, reason: reasons.join("; ") })
}

/// The words of a list such as `mlx5_0,mlx5_1`.
pub(crate) fn words(list: &str) -> Vec<&str> {
    list.split(',').map(str::trim).filter(|word| !word.is_empty()).collect()
}

/// What the kernel says of a NIC: its PCI address where libfabric does not give it, by the name of an RDMA
/// device, and its NUMA node. `sys` is `/sys`.
pub(crate) fn located(sys: &Path, name: &str, pci: Option<String>) -> Option<(String, Option<usize>)> {
    let pci = pci.or_else(|| {
        let device = sys.join("class/infiniband").join(name.strip_suffix("-rdm").unwrap_or(name));
        let device = fs::canonicalize(device.join("device")).ok()?;
        Some(device.file_name()?.to_str()?.to_owned())
    })?;
    let node = fs::read_to_string(sys.join("bus/pci/devices").join(&pci).join("numa_node"));
    // Where there are no nodes, the kernel says -1.
    Some((pci, node.ok().and_then(|node| node.trim().parse().ok())))
}

/// Distance of what nobody knows a distance of: as far as another node in the kernel's scale.
const FAR: u32 = 20;

/// The numbers of a list of the kernel's, such as `0-3,8`. What is malformed is left out.
fn numbers(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse::<usize>().ok()?, last.trim().parse::<usize>().ok()?);
        Some(first..last.min(PROCESSORS_MAX).saturating_add(1))
    };
    list.split(',').filter_map(range).flatten().collect()
}

/// Processors above this number are not looked at.
const PROCESSORS_MAX: usize = 8191;

#[cfg(test)]
mod tests {
    use super::*;

    const GBIT: u64 = 1_000_000_000;

    fn nic(index: usize, node: usize) -> Nic {
        let pci = Some(format!("0000:{index}b:00.0"));
        Nic { name: format!("mlx5_{index}"), pci, node: Some(node), is_down: false, speed: 200 * GBIT }
    }

    /// A host of two NUMA nodes with two NICs each.
    fn four() -> Vec<Nic> {
        (0..4).map(|index| nic(index, index / 2)).collect()
    }

    fn place(nodes: &[usize], local_rank: u32) -> Place {
        Place { nodes: nodes.into(), distances: vec![(0, vec![10, 21]), (1, vec![21, 10])], local_rank }
    }

    fn picked(nics: &[Nic], places: impl IntoIterator<Item = Place>) -> Vec<usize> {
        places.into_iter().map(|place| choose(nics, &[], &place).unwrap().index).collect()
    }

    #[test]
    fn a_bound_rank_takes_a_near_one_and_the_ranks_of_a_node_share_them_out() {
        // The nodes in turn, as `--map-by numa` has it.
        let in_turn = (0..8).map(|rank| place(&[rank % 2], rank as u32));
        assert_eq!(picked(&four(), in_turn), [0, 3, 1, 2, 0, 3, 1, 2]);
        // One node after the other.
        let filled = picked(&four(), (0..8).map(|rank| place(&[rank / 4], rank as u32)));
        for index in 0..4 {
            assert_eq!(filled.iter().filter(|&&picked| picked == index).count(), 2, "{filled:?}");
        }
        assert!(filled[..4].iter().all(|&index| index < 2), "{filled:?}");
    }

    #[test]
    fn a_rank_that_is_not_bound_takes_any_by_local_rank() {
        assert_eq!(picked(&four(), (0..6).map(|rank| place(&[0, 1], rank))), [0, 1, 2, 3, 0, 1]);
        let unknown = Place { local_rank: 5, ..Place::default() };
        assert_eq!(picked(&four(), [unknown]), [1], "a host without nodes");
    }

    #[test]
    fn three_near_ones_are_shared_out_as_well() {
        let three: Vec<Nic> = (0..3).map(|index| nic(index, 0)).collect();
        let in_turn = picked(&three, (0..6).map(|round| place(&[0], 2 * round)));
        assert_eq!(in_turn, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn what_is_down_or_slow_is_not_taken_however_near() {
        let mut nics = four();
        nics[0].is_down = true;
        nics[1].speed = 25 * GBIT;
        let pick = choose(&nics, &[], &place(&[0], 0)).unwrap();
        assert_eq!(pick.index, 2);
        let said = "up of 4; the fastest of 3; one of 2 that are as good, by local rank 0; the rank's processors are in \
                    NUMA node 0";
        assert_eq!(pick.reason, said);
        nics.iter_mut().for_each(|nic| nic.is_down = true);
        assert!(choose(&nics, &[], &place(&[0], 0)).is_some(), "the fabric will say what is wrong");
    }

    #[test]
    fn the_reason_says_why() {
        let mut nics = four();
        let reason = |nics: &[Nic], place| choose(nics, &[], &place).unwrap().reason;
        let near = "the nearest of 4; one of 2 that are as good, by local rank 3; the rank's processors are in NUMA node 1";
        assert_eq!(reason(&nics, place(&[1], 3)), near);
        nics.truncate(1);
        assert_eq!(reason(&nics, place(&[1], 3)), "the only one");
        assert_eq!(choose(&[], &[], &place(&[0], 0)), None);
    }

    #[test]
    fn unknown_places_are_as_far_as_another_node() {
        let mut nics = four();
        nics[0].node = None;
        assert_eq!(picked(&nics, [place(&[0], 0)]), [1]);
        nics.truncate(1);
        assert_eq!(picked(&nics, [place(&[0], 0)]), [0]);
    }

    #[test]
    fn those_that_are_named_are_taken_in_turn_wherever_they_are() {
        let nics = four();
        let wanted = words(" mlx5_3, 1b:00.0,");
        let named: Vec<usize> =
            (0..3).map(|rank| choose(&nics, &wanted, &place(&[0], rank)).unwrap().index).collect();
        assert_eq!(named, [3, 1, 3]);
        assert_eq!(choose(&nics, &["mlx5_9"], &place(&[0], 0)), None);
        assert!(nics[1].is_called("0000:1b:00.0") && !nics[1].is_called("00.0"));
    }

    #[test]
    fn in_words() {
        assert_eq!(nic(2, 1).describe(), "mlx5_2 (PCI 0000:2b:00.0, NUMA node 1, 200 Gbit/s)");
        let bare = Nic { name: "cxi0".into(), pci: None, node: None, is_down: true, speed: 0 };
        assert_eq!(bare.describe(), "cxi0 (link down)");
        assert_eq!(Nic { is_down: false, ..bare }.describe(), "cxi0");
    }

    #[test]
    fn what_the_kernel_says() {
        let sys = std::env::temp_dir().join(format!("rma-ofi-nic-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = sys.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("bus/pci/devices/0000:3b:00.0/numa_node", "1\n");
        write("bus/pci/devices/0000:5e:00.0/numa_node", "-1\n");
        fs::create_dir_all(sys.join("class/infiniband/mlx5_0")).unwrap();
        let device = sys.join("bus/pci/devices/0000:3b:00.0");
        std::os::unix::fs::symlink(device, sys.join("class/infiniband/mlx5_0/device")).unwrap();
        write("nodes/node0/cpulist", "0-1,4\n");
        write("nodes/node0/distance", "10 21\n");
        write("nodes/node1/cpulist", "2-3\n");
        write("nodes/node1/distance", "21 10\n");
        write("nodes/online", "0-1\n");

        let by_name = located(&sys, "mlx5_0", None);
        let by_address = located(&sys, "x", Some("0000:5e:00.0".into()));
        let unknown = located(&sys, "eth0", None);
        let bound = Place::read(&sys.join("nodes"), "\t3\n", 5);
        let free = Place::read(&sys.join("nodes"), "0-7", 5);
        let none = Place::read(&sys.join("nothing"), "0-7", 5);
        fs::remove_dir_all(&sys).unwrap();

        assert_eq!(by_name, Some(("0000:3b:00.0".into(), Some(1))));
        assert_eq!(by_address, Some(("0000:5e:00.0".into(), None)));
        assert_eq!(unknown, None);
        assert_eq!(bound, place(&[1], 5));
        assert_eq!(free, place(&[0, 1], 5));
        assert_eq!(none, Place { local_rank: 5, ..Place::default() });
    }

    #[test]
    fn this_thread_is_somewhere() {
        assert!(!numbers("0-3,8").is_empty() && numbers("0-99999999999").len() <= PROCESSORS_MAX + 1);
        let place = Place::of_this_thread(2);
        assert!(place.nodes.len() <= place.distances.len() && place.local_rank == 2, "{place:?}");
    }
}
