//! The network interfaces of this host and their addresses, as the operating system lists them.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

/// One address of a network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name of the interface, such as `eth0`; one with several addresses is listed once for each.
    pub name: String,
    /// The number by which this host knows the interface; it is the scope of link-local addresses.
    pub index: u32,
    /// An address of the interface.
    pub address: IpAddr,
    /// It is switched on and has a carrier.
    pub is_running: bool,
}

/// Every address of every interface, in the operating system's order.
///
/// # Errors
/// When the operating system does not list them.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let mut head = ptr::null_mut();
    // SAFETY: getifaddrs stores a list, which is freed below.
    if unsafe { libc::getifaddrs(&mut head) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = head;
    while !next.is_null() {
        // SAFETY: an entry of the list, which lives until it is freed below.
        let entry = unsafe { &*next };
        found.extend(read(entry));
        next = entry.ifa_next;
    }
    // SAFETY: the list from above, freed once, and nothing points into it any more.
    unsafe { libc::freeifaddrs(head) };
    Ok(found)
}

/// An entry of the list, if it has an IP address.
fn read(entry: &libc::ifaddrs) -> Option<Interface> {
    let address = address_of(entry)?;
    // SAFETY: names in the list are terminated.
    let name = unsafe { CStr::from_ptr(entry.ifa_name) };
    // SAFETY: takes a terminated name and keeps nothing.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    const RUNNING: u32 = (libc::IFF_UP | libc::IFF_RUNNING) as u32;
    let is_running = entry.ifa_flags & RUNNING == RUNNING;
    Some(Interface { name: name.to_string_lossy().into_owned(), index, address, is_running })
}

fn address_of(entry: &libc::ifaddrs) -> Option<IpAddr> {
    if entry.ifa_addr.is_null() {
        return None;
    }
    // SAFETY: an address starts with its family.
    let family = unsafe { (*entry.ifa_addr).sa_family };
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: the family says which structure it is; the list may not align it.
            let raw = unsafe { entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes()).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let raw = unsafe { entry.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(raw.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_listed() {
        let all = interfaces().unwrap();
        let loopback = all.iter().find(|interface| interface.address == IpAddr::V4(Ipv4Addr::LOCALHOST));
        let loopback = loopback.expect("every host has it");
        assert!(loopback.is_running && loopback.index > 0 && !loopback.name.is_empty(), "{loopback:?}");
    }
}
