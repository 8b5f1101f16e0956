//! On which processors each rank runs.

use std::collections::BTreeSet;

use clap::ValueEnum;

use crate::topology::{list_text, Core, Topology};

/// In which order ranks take their places.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum MapBy {
    /// Fill one host after the other
    Slot,
    /// One rank for each host in turn
    Node,
    /// One core after the other
    Core,
    /// One NUMA node after the other, in turn
    Numa,
}

/// What a rank is kept on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum BindTo {
    /// Anything: the operating system moves ranks
    None,
    /// A core of its own
    Core,
    /// A NUMA node
    Numa,
    /// A socket
    Socket,
}

impl MapBy {
    /// What ranks are bound to when the user does not say.
    pub(crate) fn binding(self) -> BindTo {
        match self {
            Self::Slot | Self::Node => BindTo::None,
            Self::Core => BindTo::Core,
            Self::Numa => BindTo::Numa,
        }
    }
}

/// Where a rank runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Binding {
    /// Its processors, in order.
    pub(crate) processors: Vec<usize>,
    /// What they are, in words.
    pub(crate) place: String,
}

/// The bindings of `ranks` ranks, one for each unless they are not bound.
///
/// # Errors
/// When there are more ranks than cores and each is to have one of its own.
pub(crate) fn bindings(
    topology: &Topology,
    map_by: MapBy,
    bind_to: BindTo,
    ranks: u32,
) -> Result<Vec<Binding>, String> {
    let order = cores_in_order(topology, map_by);
    if bind_to == BindTo::Core && ranks as usize > order.len() {
        return Err(format!(
            "--bind-to core: {ranks} ranks and {} cores that may be used; use fewer ranks, or --bind-to numa, socket or \
             none",
            order.len()
        ));
    }
    if bind_to == BindTo::None {
        return Ok(Vec::new());
    }
    let binding = |core: &Core| {
        let is_same = |other: &&Core| match bind_to {
            BindTo::None | BindTo::Core => *other == core,
            BindTo::Numa => other.numa == core.numa,
            BindTo::Socket => other.socket == core.socket,
        };
        let cores = topology.cores.iter().filter(is_same);
        let mut processors: Vec<usize> = cores.flat_map(|core| core.processors.iter().copied()).collect();
        processors.sort_unstable();
        let place = match bind_to {
            BindTo::None | BindTo::Core => {
                format!("a core of NUMA node {}, socket {}", core.numa, core.socket)
            }
            BindTo::Numa => format!("NUMA node {}", core.numa),
            BindTo::Socket => format!("socket {}", core.socket),
        };
        Binding { processors, place }
    };
    Ok(order.iter().copied().cycle().take(ranks as usize).map(binding).collect())
}

/// How many processors the ranks of a host have together, if they are bound: each alone sees only its own.
pub(crate) fn processors_together(bindings: &[Binding]) -> Option<usize> {
    let together: BTreeSet<usize> =
        bindings.iter().flat_map(|binding| binding.processors.iter().copied()).collect();
    (!bindings.is_empty()).then_some(together.len())
}

/// The line that `--report-bindings` prints.
pub(crate) fn report(rank: u32, binding: Option<&Binding>) -> String {
    match binding {
        Some(Binding { processors, place }) => {
            format!("rank {rank} is bound to processors {} ({place})", list_text(processors))
        }
        None => format!("rank {rank} is not bound"),
    }
}

fn cores_in_order(topology: &Topology, map_by: MapBy) -> Vec<&Core> {
    let mut cores: Vec<&Core> = topology.cores.iter().collect();
    if map_by == MapBy::Numa {
        // The first core of each node, then the second of each, and so on.
        let number_in_node = |core: &Core| {
            let before = topology.cores.iter().take_while(|other| *other != core);
            before.filter(|other| other.numa == core.numa).count()
        };
        cores.sort_by_key(|core| (number_in_node(core), core.numa));
    }
    cores
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2 sockets, 2 cores each, 2 processors each.
    fn topology() -> Topology {
        let core =
            |index: usize| Core { socket: index / 2, numa: index / 2, processors: vec![index, index + 4] };
        Topology { cores: (0..4).map(core).collect() }
    }

    fn processors(map_by: MapBy, bind_to: BindTo, ranks: u32) -> Vec<String> {
        let bindings = bindings(&topology(), map_by, bind_to, ranks).unwrap();
        bindings.iter().map(|binding| list_text(&binding.processors)).collect()
    }

    #[test]
    fn the_table() {
        for (map_by, bind_to, expected) in [
            (MapBy::Slot, BindTo::Core, &["0,4", "1,5", "2,6"]),
            (MapBy::Core, BindTo::Core, &["0,4", "1,5", "2,6"]),
            (MapBy::Numa, BindTo::Core, &["0,4", "2,6", "1,5"]),
            (MapBy::Slot, BindTo::Numa, &["0-1,4-5", "0-1,4-5", "2-3,6-7"]),
            (MapBy::Numa, BindTo::Numa, &["0-1,4-5", "2-3,6-7", "0-1,4-5"]),
            (MapBy::Numa, BindTo::Socket, &["0-1,4-5", "2-3,6-7", "0-1,4-5"]),
        ] {
            assert_eq!(processors(map_by, bind_to, 3), expected, "{map_by:?} {bind_to:?}");
        }
        assert!(processors(MapBy::Core, BindTo::None, 9).is_empty());
        assert_eq!(processors(MapBy::Slot, BindTo::Numa, 5)[4], "0-1,4-5", "the fifth begins again");
    }

    #[test]
    fn what_bound_ranks_have_together() {
        let together = |bind_to, ranks| {
            processors_together(&bindings(&topology(), MapBy::Slot, bind_to, ranks).unwrap())
        };
        assert_eq!(together(BindTo::Core, 3), Some(6));
        assert_eq!(together(BindTo::Numa, 2), Some(4));
        assert_eq!(together(BindTo::Numa, 9), Some(8));
        assert_eq!(together(BindTo::None, 3), None);
    }

    #[test]
    fn a_core_of_its_own_for_too_many() {
        let error = bindings(&topology(), MapBy::Slot, BindTo::Core, 5).unwrap_err();
        assert!(error.contains("5 ranks and 4 cores"), "{error}");
    }

    #[test]
    fn in_words() {
        let bindings = bindings(&topology(), MapBy::Slot, BindTo::Core, 1).unwrap();
        let line = "rank 0 is bound to processors 0,4 (a core of NUMA node 0, socket 0)";
        assert_eq!(report(0, bindings.first()), line);
        assert_eq!(report(1, None), "rank 1 is not bound");
    }
}
