//! Which rank runs on which host. Pure.

use std::collections::BTreeMap;

use crate::binding::MapBy;
use crate::cli::RANKS_MAX;
use crate::hosts::Host;

/// A host of the job and its ranks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Placed {
    /// Its name, as the user gave it.
    pub(crate) name: String,
    /// Its ranks, in order; at least one.
    pub(crate) ranks: Vec<u32>,
}

/// Places ranks on `hosts`, at least one of them: as many as `ranks`, if given, else as `ppn` or the hosts' slots say.
/// Hosts that get no rank are left out.
///
/// Hosts without a number of slots share what the others leave evenly; nobody having said how many ranks there are,
/// they take one each. A host that is named several times counts as often.
///
/// # Errors
/// A message that says which of these do not agree, and what to do.
pub(crate) fn place(
    hosts: &[Host],
    ranks: Option<u32>,
    ppn: Option<u32>,
    map_by: MapBy,
) -> Result<Vec<Placed>, String> {
    let hosts = merged(hosts);
    let count = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
    let by_default = |host: &Named| match (host.slots, ppn) {
        (Some(slots), Some(ppn)) => slots.min(ppn),
        (slots, ppn) => slots.or(ppn).unwrap_or(host.times),
    };
    let sum = |numbers: &mut dyn Iterator<Item = u32>| numbers.fold(0, u32::saturating_add);
    let size = ranks.unwrap_or_else(|| sum(&mut hosts.iter().map(by_default)));
    if size > RANKS_MAX {
        return Err(format!("a job has at most {RANKS_MAX} ranks, and this one would have {size}"));
    }
    let numbered = sum(&mut hosts.iter().filter_map(|host| host.slots));
    let open = sum(&mut hosts.iter().filter(|host| host.slots.is_none()).map(|host| host.times));
    let share = if open > 0 { size.saturating_sub(numbered).div_ceil(open).max(1) } else { 0 };
    let slots = |host: &Named| host.slots.unwrap_or_else(|| share.saturating_mul(host.times));
    if sum(&mut hosts.iter().map(slots)) < size {
        return Err(format!(
            "{size} ranks do not fit: the hosts have {numbered} slots; give more slots or a smaller -n"
        ));
    }
    // A host without a number of slots takes what --ppn says, not only its share.
    let room = |host: &Named| match (host.slots, ppn) {
        (Some(slots), Some(ppn)) => slots.min(ppn),
        (None, Some(ppn)) => ppn,
        (_, None) => slots(host),
    };
    let rooms: Vec<u32> = hosts.iter().map(room).collect();
    if sum(&mut rooms.iter().copied()) < size {
        let ppn = ppn.unwrap_or(1);
        let (needed, verb) = (size.div_ceil(ppn), if count == 1 { "is" } else { "are" });
        return Err(format!(
            "{size} ranks with --ppn {ppn} need {needed} hosts and there {verb} {count}; raise --ppn"
        ));
    }
    let order = if map_by == MapBy::Node { in_turn(&rooms, size) } else { one_by_one(&rooms, size) };
    let mut placed: Vec<Placed> =
        hosts.into_iter().map(|host| Placed { name: host.name, ranks: Vec::new() }).collect();
    (0..size).zip(order).for_each(|(rank, host)| placed[host].ranks.push(rank));
    placed.retain(|host| !host.ranks.is_empty());
    Ok(placed)
}

/// The host of each rank, from the ranks of each host.
pub(crate) fn hosts_of_ranks(placed: &[Placed]) -> Vec<u32> {
    let size = placed.iter().map(|host| host.ranks.len()).sum();
    let mut hosts = vec![0; size];
    for (number, host) in (0..).zip(placed) {
        host.ranks.iter().for_each(|rank| hosts[*rank as usize] = number);
    }
    hosts
}

/// Whether a name means the host whose own name is `own_name`, with or without its domain.
pub(crate) fn is_own_name(name: &str, own_name: &str) -> bool {
    let first_label = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let is_short = |name: &str| !name.contains('.');
    matches!(name, "localhost" | "127.0.0.1" | "::1")
        || name.eq_ignore_ascii_case(own_name)
        || ((is_short(name) || is_short(own_name)) && first_label(name) == first_label(own_name))
}

/// A host with all that was said of it.
struct Named {
    name: String,
    /// How often it was named without a number of slots.
    times: u32,
    slots: Option<u32>,
}

/// The hosts, each once: a host that is named again has the slots of all its mentions, of which those without a number
/// count one beside one that has it.
fn merged(hosts: &[Host]) -> Vec<Named> {
    let mut indices: BTreeMap<&str, usize> = BTreeMap::new();
    let mut merged: Vec<Named> = Vec::new();
    for host in hosts {
        let index = *indices.entry(&host.name).or_insert(merged.len());
        if index == merged.len() {
            merged.push(Named { name: host.name.clone(), times: 0, slots: None });
        }
        let named = &mut merged[index];
        match host.slots {
            Some(slots) => named.slots = Some(named.slots.unwrap_or(0).saturating_add(slots)),
            None => named.times = named.times.saturating_add(1),
        }
    }
    for named in &mut merged {
        named.slots = named.slots.map(|slots| slots.saturating_add(named.times));
    }
    merged
}

/// One host filled after the other.
fn one_by_one(rooms: &[u32], size: u32) -> Vec<usize> {
    let hosts = rooms.iter().enumerate();
    hosts.flat_map(|(host, room)| std::iter::repeat_n(host, *room as usize)).take(size as usize).collect()
}

/// One rank for each host in turn, as long as it has room.
fn in_turn(rooms: &[u32], size: u32) -> Vec<usize> {
    let most = rooms.iter().copied().max().unwrap_or(0);
    let turn = |turn| (0..rooms.len()).filter(move |host| rooms[*host] > turn);
    (0..most).flat_map(turn).take(size as usize).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::parse_list;

    fn placed(list: &str, ranks: Option<u32>, ppn: Option<u32>, map_by: MapBy) -> Result<String, String> {
        let placed = place(&parse_list(list).unwrap(), ranks, ppn, map_by)?;
        let text = |host: &Placed| format!("{}{:?}", host.name, host.ranks).replace(", ", ",");
        Ok(placed.iter().map(text).collect::<Vec<_>>().join(" "))
    }

    fn slots(list: &str, ranks: Option<u32>, ppn: Option<u32>) -> String {
        placed(list, ranks, ppn, MapBy::Slot).unwrap_or_else(|error| error)
    }

    #[test]
    fn ranks_fill_hosts_one_by_one() {
        assert_eq!(slots("a:2,b:2", None, None), "a[0,1] b[2,3]");
        assert_eq!(slots("a:2,b:2", Some(3), None), "a[0,1] b[2]");
        assert_eq!(slots("a:2,b:2", Some(1), None), "a[0]");
        assert_eq!(slots("a,b,c", Some(7), None), "a[0,1,2] b[3,4,5] c[6]");
        assert_eq!(slots("a,b", None, None), "a[0] b[1]");
        assert_eq!(slots("a,b", None, Some(2)), "a[0,1] b[2,3]");
        assert_eq!(slots("a:4,b:4", None, Some(1)), "a[0] b[1]");
        assert_eq!(slots("a,b,c", Some(3), Some(2)), "a[0,1] b[2]");
        assert_eq!(slots("a:1,b:1,a:1", None, None), "a[0,1] b[2]");
        assert_eq!(slots("a:3,b", Some(5), None), "a[0,1,2] b[3,4]");
    }

    /// As in the files of batch systems that have a line for each slot.
    #[test]
    fn hosts_that_are_named_again_take_more() {
        assert_eq!(slots("a,a,b,a", None, None), "a[0,1,2] b[3]");
        assert_eq!(slots("a,a,b,a", Some(4), None), "a[0,1,2] b[3]");
        assert_eq!(slots("a,a,b,a", Some(8), None), "a[0,1,2,3,4,5] b[6,7]");
        assert_eq!(slots("a,a,b,a", None, Some(2)), "a[0,1] b[2,3]");
        assert_eq!(slots("a:2,a,b", None, None), "a[0,1,2] b[3]");
        assert_eq!(slots("a,a:2,b:1", None, None), "a[0,1,2] b[3]");
        assert!(slots("a,a:2", Some(4), None).contains("the hosts have 3 slots"));
    }

    #[test]
    fn ranks_take_hosts_in_turn() {
        let nodes = |list, ranks| placed(list, ranks, None, MapBy::Node).unwrap();
        assert_eq!(nodes("a:2,b:2", None), "a[0,2] b[1,3]");
        assert_eq!(nodes("a:1,b:3", None), "a[0] b[1,2,3]");
        assert_eq!(nodes("a,b,c", Some(4)), "a[0,3] b[1] c[2]");
        let hosts = place(&parse_list("a:1,b:3").unwrap(), None, None, MapBy::Node).unwrap();
        assert_eq!(hosts_of_ranks(&hosts), [0, 1, 1, 1]);
    }

    #[test]
    fn what_does_not_fit_is_said() {
        assert!(slots("a:2,b:2", Some(5), None).contains("the hosts have 4 slots"));
        assert!(slots("a,b", Some(9), Some(4)).contains("need 3 hosts and there are 2"));
        assert!(slots("a", Some(9), Some(4)).contains("need 3 hosts and there is 1"));
        assert!(slots("a:65536,b:1", None, None).contains("at most 65536 ranks"));
        assert!(slots("a:65536,b:65536", Some(70_000), None).contains("at most"));
    }

    #[test]
    fn own_names() {
        for name in ["localhost", "node1", "NODE1.cluster"] {
            assert!(is_own_name(name, "node1.cluster"), "{name}");
        }
        assert!(!is_own_name("node1.elsewhere", "node1.cluster"), "another domain is another host");
        assert!(!is_own_name("node10", "node1"));
    }
}
