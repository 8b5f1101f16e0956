//! IP addresses: which one to bind to, and how to print what libfabric bound.

use core::ffi::CStr;
use core::ptr;
use std::ffi::CString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ofi_sys as fi;
use rma_core::provider::ProviderError;

use crate::discover::c_string;
use crate::Options;

/// The address that IP providers must bind to, if the options say so.
pub(crate) fn wanted_address(options: &Options) -> Result<Option<CString>, ProviderError> {
    match &options.interface {
        None if options.single_host => Ok(Some(c"127.0.0.1".to_owned())),
        None => Ok(None),
        Some(_) if wanted_family(options).is_some() => Ok(None),
        Some(name) if name.parse::<IpAddr>().is_ok() => c_string(name).map(Some),
        Some(name) => address_of_interface(name).map(Some),
    }
}

/// The kind of addresses that the options want in the place of an interface.
fn wanted_family(options: &Options) -> Option<Family> {
    match options.interface.as_deref()? {
        "ipv4" => Some(Family::V4),
        "ipv6" => Some(Family::V6),
        _ => None,
    }
}

/// A kind of IP addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// As people write it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }
}

/// Why an offer's address is none that the options want.
pub(crate) fn objection(info: &fi::fi_info, options: &Options) -> Option<String> {
    let (wanted, address) = (wanted_family(options)?, source(info)?.ip());
    (Family::of(address) != wanted)
        .then(|| format!("RMA_INTERFACE={} was asked for", wanted.name().to_ascii_lowercase()))
}

/// The address by which the launcher has reached this host or been reached from it, if nobody has chosen another
/// one: of several interfaces some may lead nowhere, and this one does not.
fn proven_address(options: &Options) -> Option<IpAddr> {
    let address = options.host_address.as_deref()?.parse().ok()?;
    let is_open = options.interface.is_none() || wanted_family(options) == Some(Family::of(address));
    (is_open && !options.single_host).then_some(address)
}

/// How far an offer's address reaches, the larger the better. Offers that name no IP address come before others but
/// the proven one: their fabric knows better.
pub(crate) fn reach(info: &fi::fi_info, domain: &str, options: &Options) -> u8 {
    if info.addr_format == fi::FI_SOCKADDR_IB {
        return GLOBAL_IDENTIFIER;
    }
    reach_of(source(info).map(|address| address.ip()), domain, options)
}

/// The addresses of these offers by which other hosts may reach this one, the best first.
pub(crate) fn addresses<'a>(
    offers: impl Iterator<Item = (&'a fi::fi_info, String)>,
    options: &Options,
) -> Vec<IpAddr> {
    let reach = |(info, domain): (&fi::fi_info, String)| {
        let address = source(info)?.ip();
        Some((reach_of(Some(address), &domain, options), address))
    };
    let mut all: Vec<(u8, IpAddr)> = offers.filter_map(reach).filter(|(reach, _)| *reach > 1).collect();
    // Stable: among equals libfabric's order stays.
    all.sort_by_key(|(reach, _)| core::cmp::Reverse(*reach));
    let mut addresses: Vec<IpAddr> = Vec::new();
    for (_, address) in all {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}

/// The reach of an RDMA port's own address: libfabric names it first, but connections are made by it on InfiniBand
/// only, and by the IP address of the same port everywhere.
const GLOBAL_IDENTIFIER: u8 = 3;

fn reach_of(address: Option<IpAddr>, domain: &str, options: &Options) -> u8 {
    match address {
        None => 5,
        Some(address) if proven_address(options) == Some(address) => 6,
        Some(IpAddr::V4(address)) if address.is_loopback() => {
            if options.single_host {
                6
            } else {
                1
            }
        }
        // Every host may have the same address there.
        Some(_) if is_bridge_of_this_host(domain) => 2,
        Some(IpAddr::V4(_)) => 4,
        // Link-local addresses mean something on one link only, and only with a scope.
        Some(IpAddr::V6(address)) if address.is_loopback() || is_link_local(address) => 0,
        Some(IpAddr::V6(_)) => 3,
    }
}

/// Whether an interface has the name of one that leads to containers or virtual machines of this host.
fn is_bridge_of_this_host(name: &str) -> bool {
    ["docker", "br-", "virbr", "veth", "cni", "podman", "lxcbr", "lxdbr", "flannel"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

fn is_link_local(address: Ipv6Addr) -> bool {
    address.segments()[0] & 0xffc0 == 0xfe80
}

/// The source address of an offer, readable; libfabric's name of the format where it is not IP.
pub(crate) fn text_of_address(info: &fi::fi_info) -> String {
    source(info)
        .map_or_else(|| format!("address format {}", info.addr_format), |address| address.ip().to_string())
}

fn source(info: &fi::fi_info) -> Option<SocketAddr> {
    if info.src_addr.is_null()
        || !matches!(info.addr_format, fi::FI_SOCKADDR | fi::FI_SOCKADDR_IN | fi::FI_SOCKADDR_IN6)
    {
        return None;
    }
    // SAFETY: libfabric says that `src_addr` has `src_addrlen` bytes.
    let bytes = unsafe { core::slice::from_raw_parts(info.src_addr.cast::<u8>(), info.src_addrlen) };
    socket_address(bytes)
}

/// Reads a `sockaddr_in` or `sockaddr_in6`.
pub(crate) fn socket_address(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
    let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
    match i32::from(family) {
        libc::AF_INET => {
            let octets: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            Some(SocketAddr::new(Ipv4Addr::from(octets).into(), port))
        }
        libc::AF_INET6 => {
            let octets: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            Some(SocketAddr::new(Ipv6Addr::from(octets).into(), port))
        }
        _ => None,
    }
}

/// The first IPv4 address of a network interface, or else its first IPv6 address.
fn address_of_interface(name: &str) -> Result<CString, ProviderError> {
    let mut all = interfaces()?;
    all.sort_by_key(|(_, address)| address.is_ipv6());
    if let Some((_, address)) = all.iter().find(|(interface, _)| interface == name) {
        return c_string(&address.to_string());
    }
    let mut names: Vec<&str> = all.iter().map(|(interface, _)| interface.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    Err(ProviderError {
        message: format!(
            "no network interface {name} with an IP address; there are {}. Set RMA_INTERFACE to one of them, or to \
             an IP address",
            names.join(", ")
        ),
    })
}

fn interfaces() -> Result<Vec<(String, IpAddr)>, ProviderError> {
    let mut head = ptr::null_mut();
    // SAFETY: getifaddrs stores a list that is freed below.
    if unsafe { libc::getifaddrs(&mut head) } != 0 {
        let error = std::io::Error::last_os_error();
        return Err(ProviderError { message: format!("the network interfaces cannot be listed: {error}") });
    }
    let mut found = Vec::new();
    let mut next = head;
    while !next.is_null() {
        // SAFETY: an entry of the list.
        let entry = unsafe { &*next };
        if let Some(address) = address_in(entry) {
            // SAFETY: names in the list are terminated.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) };
            found.push((name.to_string_lossy().into_owned(), address));
        }
        next = entry.ifa_next;
    }
    // SAFETY: the list from above, freed once.
    unsafe { libc::freeifaddrs(head) };
    Ok(found)
}

fn address_in(entry: &libc::ifaddrs) -> Option<IpAddr> {
    if entry.ifa_addr.is_null() {
        return None;
    }
    // SAFETY: an address starts with its family.
    let family = i32::from(unsafe { (*entry.ifa_addr).sa_family });
    let len = match family {
        libc::AF_INET => size_of::<libc::sockaddr_in>(),
        libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
        _ => return None,
    };
    // SAFETY: an address of that family has that many bytes.
    let bytes = unsafe { core::slice::from_raw_parts(entry.ifa_addr.cast::<u8>(), len) };
    socket_address(bytes).map(|address| address.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_addresses_are_read_and_short_ones_refused() {
        let mut bytes = [0u8; 16];
        bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        bytes[2..8].copy_from_slice(&[0x1f, 0x90, 10, 0, 0, 7]);
        assert_eq!(socket_address(&bytes), Some("10.0.0.7:8080".parse().unwrap()));
        assert_eq!(socket_address(&bytes[..7]), None);
        assert_eq!(socket_address(&[]), None);
    }

    #[test]
    fn an_unknown_interface_is_an_error_that_lists_those_there_are() {
        let message = address_of_interface("nope0").unwrap_err().message;
        assert!(message.contains("nope0") && message.contains("lo"), "{message}");
        assert_eq!(address_of_interface("lo").unwrap().as_c_str(), c"127.0.0.1");
    }

    #[test]
    fn the_launchers_address_comes_first_and_bridges_to_containers_last() {
        let reach = |address: &str, domain: &str, options: &Options| {
            reach_of(Some(address.parse().unwrap()), domain, options)
        };
        let proven = Options { host_address: Some("10.66.0.2".to_owned()), ..Options::default() };
        let ordered = [
            ("10.66.0.2", "eth1"),
            ("10.77.0.2", "eth0"),
            ("fd77::2", "eth0"),
            ("172.17.0.1", "docker0"),
            ("127.0.0.1", "lo"),
            ("fe80::2", "eth0"),
        ];
        let values = ordered.map(|(address, domain)| reach(address, domain, &proven));
        assert!(values.windows(2).all(|pair| pair[0] > pair[1]), "{values:?}");

        // With a kind of addresses others come first only where it is of the other kind.
        let only_v6 = Options { interface: Some("ipv6".to_owned()), ..proven.clone() };
        assert_eq!(wanted_address(&only_v6).unwrap(), None);
        assert!(reach("fd77::2", "eth0", &only_v6) > reach("172.17.0.1", "docker0", &only_v6));
        assert_eq!(reach("10.66.0.2", "eth1", &only_v6), 4);
        let proven_v6 = Options { host_address: Some("fd66::2".to_owned()), ..only_v6 };
        assert_eq!(reach("fd66::2", "eth1", &proven_v6), 6);

        // What somebody chose overrides it, and what is no address is no hint.
        let usual = reach("10.66.0.2", "eth1", &Options::default());
        for options in [
            Options { interface: Some("eth0".to_owned()), ..proven.clone() },
            Options { single_host: true, ..proven },
            Options { host_address: Some("10.66.0.2:80".to_owned()), ..Options::default() },
        ] {
            assert_eq!(reach("10.66.0.2", "eth1", &options), usual);
        }
    }

    #[test]
    fn an_rdma_ports_own_address_comes_behind_its_ip_address() {
        // SAFETY: numbers and null pointers.
        let mut info: fi::fi_info = unsafe { core::mem::zeroed() };
        info.addr_format = fi::FI_SOCKADDR_IB;
        let options = Options::default();
        let own = reach(&info, "rxe0", &options);
        assert!(own < reach_of(Some("10.77.0.1".parse().unwrap()), "rxe0", &options));
        assert!(own > reach_of(Some("fe80::2".parse().unwrap()), "rxe0", &options));
        assert!(own > reach_of(Some("127.0.0.1".parse().unwrap()), "rxe0", &options));
    }

    #[test]
    fn one_host_means_loopback_unless_an_interface_is_named() {
        let mut options = Options { single_host: true, ..Options::default() };
        assert_eq!(wanted_address(&options).unwrap().unwrap().as_c_str(), c"127.0.0.1");
        options.interface = Some("10.1.2.3".to_owned());
        assert_eq!(wanted_address(&options).unwrap().unwrap().as_c_str(), c"10.1.2.3");
        assert_eq!(wanted_address(&Options::default()).unwrap(), None);
    }
}
