//! Which addresses a listening side offers, and in which order the other side tries them.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::str::FromStr;

use rma_bootstrap::interfaces::Interface;

/// Most addresses that a side listens on.
const ADDRESSES_MAX: usize = 32;

/// Where somebody listens: an address and a port. Link-local addresses travel without their scope, which means
/// something on their own host only.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Candidate(SocketAddr);

impl Candidate {
    /// Of a listening socket.
    pub(super) fn of(address: SocketAddr) -> Self {
        // Without scope and flow, whatever the socket has.
        Self(SocketAddr::new(address.ip(), address.port()))
    }

    /// The addresses to connect to for this candidate: itself, or for a link-local one a copy for each link of
    /// this host.
    pub(super) fn ways(self, own: &[Interface]) -> Vec<SocketAddr> {
        match self.0 {
            SocketAddr::V6(address) if address.ip().is_unicast_link_local() => {
                let is_link = |one: &&Interface| one.address.is_ipv6() && is_link_local(one.address);
                let mut links: Vec<u32> = own.iter().filter(is_link).map(|link| link.index).collect();
                links.sort_unstable();
                links.dedup();
                links.iter().map(|&link| scoped(*address.ip(), address.port(), link)).collect()
            }
            address => vec![address],
        }
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Candidate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let address: SocketAddr = text
            .parse()
            .map_err(|_| format!("{text:?} is not an address and a port, such as 10.0.0.1:4711"))?;
        if address.port() == 0 || address.ip().is_unspecified() {
            return Err(format!("{text:?} is no address that can be connected to"));
        }
        Ok(Self::of(address))
    }
}

/// An address to listen on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) address: SocketAddr,
    pub(super) interface: String,
}

/// The addresses to listen on, in the order in which the other side should try them, with port 0.
///
/// `wanted` is the name of an interface or an address, and then nothing else is listened on. Otherwise: loopback,
/// if all ranks are here; or else addresses that can be routed, then bridges to containers and virtual machines of
/// this host, then link-local ones; and loopback if there is nothing else.
///
/// # Errors
/// When `wanted` is not there; the message lists what is.
pub(super) fn places(
    all: &[Interface],
    wanted: Option<&str>,
    all_ranks_here: bool,
) -> Result<Vec<Place>, String> {
    if let Some(wanted) = wanted {
        let address: Option<IpAddr> = wanted.parse().ok();
        let of_wanted = all.iter().filter(|one| one.name == wanted || Some(one.address) == address);
        let places = in_order(of_wanted.collect());
        return if places.is_empty() { Err(not_there(all, wanted)) } else { Ok(places) };
    }
    let (loopback, others): (Vec<&Interface>, Vec<&Interface>) =
        all.iter().filter(|one| one.is_running).partition(|one| one.address.is_loopback());
    let places = in_order(if all_ranks_here || others.is_empty() { loopback } else { others });
    if places.is_empty() {
        return Err("no network interface of this host has an address and is up, not even lo".into());
    }
    Ok(places)
}

fn in_order(mut interfaces: Vec<&Interface>) -> Vec<Place> {
    // Stable: among equals the operating system's order stays.
    interfaces.sort_by_key(|one| remoteness(one));
    let place = |one: &Interface| {
        let address = match one.address {
            IpAddr::V6(address) if address.is_unicast_link_local() => scoped(address, 0, one.index),
            address => SocketAddr::new(address, 0),
        };
        Place { address, interface: one.name.clone() }
    };
    interfaces.into_iter().take(ADDRESSES_MAX).map(place).collect()
}

/// How unlikely it is that another host gets here by this address; small is likely.
fn remoteness(interface: &Interface) -> u8 {
    match interface.address {
        address if address.is_loopback() => 4,
        address if is_link_local(address) => 3,
        _ if is_bridge_of_this_host(&interface.name) => 2,
        IpAddr::V6(_) => 1,
        IpAddr::V4(_) => 0,
    }
}

/// Whether an interface has the name of one that leads to containers or virtual machines of this host. Every host
/// may have the same address on such a one.
fn is_bridge_of_this_host(name: &str) -> bool {
    const PREFIXES: [&str; 9] =
        ["docker", "br-", "virbr", "veth", "cni", "podman", "lxcbr", "lxdbr", "flannel"];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

fn scoped(address: Ipv6Addr, port: u16, link: u32) -> SocketAddr {
    SocketAddrV6::new(address, port, 0, link).into()
}

fn not_there(all: &[Interface], wanted: &str) -> String {
    let mut there: Vec<String> = all.iter().map(|one| format!("{} ({})", one.name, one.address)).collect();
    there.dedup();
    format!(
        "{wanted} is neither an interface of this host with an address nor an address; there are {}",
        there.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, index: u32, address: &str) -> Interface {
        Interface { name: name.into(), index, address: address.parse().unwrap(), is_running: true }
    }

    fn host() -> Vec<Interface> {
        vec![
            interface("lo", 1, "127.0.0.1"),
            interface("docker0", 4, "172.17.0.1"),
            interface("eth0", 2, "fe80::1"),
            interface("eth0", 2, "fd00::5"),
            interface("eth0", 2, "10.0.0.5"),
            interface("ib0", 3, "192.168.7.5"),
            interface("lo", 1, "::1"),
            interface("ib0", 3, "fe80::2"),
        ]
    }

    fn listed(wanted: Option<&str>, all_ranks_here: bool) -> Vec<String> {
        let places = places(&host(), wanted, all_ranks_here).unwrap();
        places.iter().map(|place| place.address.ip().to_string()).collect()
    }

    #[test]
    fn the_likeliest_come_first_and_loopback_is_for_one_host() {
        let expected = ["10.0.0.5", "192.168.7.5", "fd00::5", "172.17.0.1", "fe80::1", "fe80::2"];
        assert_eq!(listed(None, false), expected);
        assert_eq!(listed(None, true), ["127.0.0.1", "::1"]);
        let mut alone = host();
        alone.retain(|one| one.name == "lo");
        assert_eq!(places(&alone, None, false).unwrap().len(), 2);
    }

    #[test]
    fn a_chosen_interface_is_the_only_one() {
        assert_eq!(listed(Some("ib0"), false), ["192.168.7.5", "fe80::2"]);
        assert_eq!(listed(Some("ib0"), true), ["192.168.7.5", "fe80::2"]);
        assert_eq!(listed(Some("fd00::5"), false), ["fd00::5"]);
        let message = places(&host(), Some("eth7"), false).unwrap_err();
        assert!(["eth7", "ib0", "10.0.0.5"].iter().all(|part| message.contains(part)), "{message}");
    }

    #[test]
    fn interfaces_that_are_down_are_left_out_unless_they_are_asked_for() {
        let mut all = host();
        all.iter_mut().filter(|one| one.name == "ib0").for_each(|one| one.is_running = false);
        assert!(!places(&all, None, false).unwrap().iter().any(|place| place.interface == "ib0"));
        assert_eq!(places(&all, Some("ib0"), false).unwrap().len(), 2);
        assert!(places(&[], None, false).unwrap_err().contains("not even lo"));
    }

    #[test]
    fn candidates_are_text_without_scope_and_back() {
        let listening = scoped("fe80::1".parse().unwrap(), 4711, 2);
        for (candidate, text) in [
            (Candidate::of("10.0.0.5:1".parse().unwrap()), "10.0.0.5:1"),
            (Candidate::of(listening), "[fe80::1]:4711"),
        ] {
            assert_eq!(candidate.to_string(), text);
            assert_eq!(text.parse(), Ok(candidate));
        }
        for text in ["", "10.0.0.5", "10.0.0.5:0", "0.0.0.0:5", "[::]:5", "host:5", "10.0.0.5:70000"] {
            assert!(text.parse::<Candidate>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_link_local_candidate_is_tried_on_every_link() {
        let candidate: Candidate = "[fe80::9]:4711".parse().unwrap();
        let ways: Vec<String> = candidate.ways(&host()).iter().map(SocketAddr::to_string).collect();
        assert_eq!(ways, ["[fe80::9%2]:4711", "[fe80::9%3]:4711"]);
        let other: Candidate = "10.0.0.9:4711".parse().unwrap();
        assert_eq!(other.ways(&host()), ["10.0.0.9:4711".parse().unwrap()]);
    }
}
