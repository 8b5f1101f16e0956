//! What an endpoint publishes: libfabric's own addresses, by the class of packets that are sent there,
//! and where to read back.

use std::net::IpAddr;

use rma_core::bootstrap::{AddressBytes, ADDRESS_BYTES_MAX};
use rma_core::provider::ProviderError;

use crate::interface::{socket_address, Family};
use crate::lane::CLASSES;

/// Location of the bytes at a peer that a flush reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReadBackRegion {
    pub(crate) base: u64,
    pub(crate) key: u64,
}

impl ReadBackRegion {
    pub(crate) const NONE: Self = Self { base: 0, key: 0 };
}

/// Bytes before libfabric's addresses: version, flags, bytes of the first address,
/// base and key of the region.
pub(crate) const HEADER_BYTES: usize = 19;

const VERSION: u8 = 2;

/// Flags of an address: there is a region to read back; the names are text, which ends with a zero.
const HAS_REGION: u8 = 1;
const IS_TEXT: u8 = 2;

/// Text is as long as it is, so it is filled up with zeros to this many bytes.
const TEXT_BYTES: usize = 112;

/// libfabric's address as it is published; text gets a length that is the same everywhere.
pub(crate) fn published(mut name: Vec<u8>, is_text: bool) -> Result<Vec<u8>, ProviderError> {
    if is_text {
        if name.len() >= TEXT_BYTES {
            let message = format!(
                "the provider's address has {} bytes of text, but at most {} are carried",
                name.len(),
                TEXT_BYTES - 1
            );
            return Err(ProviderError { message });
        }
        name.resize(TEXT_BYTES, 0);
    }
    Ok(name)
}

/// Packs the addresses that requests and replies are sent to. Little-endian.
pub(crate) fn encode(
    names: [&[u8]; CLASSES],
    region: Option<ReadBackRegion>,
    is_text: bool,
) -> Result<AddressBytes, ProviderError> {
    let flags = if region.is_some() { HAS_REGION } else { 0 } | if is_text { IS_TEXT } else { 0 };
    let ReadBackRegion { base, key } = region.unwrap_or(ReadBackRegion::NONE);
    let len: usize = names.iter().map(|name| name.len()).sum();
    let mut bytes = Vec::with_capacity(HEADER_BYTES + len);
    // What does not fit a byte does not fit the bootstrap either.
    bytes.extend([VERSION, flags, names[0].len() as u8]);
    bytes.extend(base.to_le_bytes());
    bytes.extend(key.to_le_bytes());
    bytes.extend(names.concat());
    AddressBytes::new(&bytes).ok_or_else(|| ProviderError {
        message: format!(
            "the provider's addresses have {len} bytes, but the bootstrap carries at most {}",
            ADDRESS_BYTES_MAX - HEADER_BYTES
        ),
    })
}

/// Unpacks an address into libfabric's parts and the region. The other endpoint's address must be as
/// long as our own: another length is another kind of address.
pub(crate) fn decode<'a>(
    address: &'a AddressBytes,
    own: &AddressBytes,
) -> Result<([&'a [u8]; CLASSES], ReadBackRegion), ProviderError> {
    let malformed = |why: &str| {
        ProviderError {
        message: format!(
            "the peer's address is malformed ({why}); do all ranks use the same provider and the same version of \
             this program?"
        ),
    }
    };
    let bytes = address.as_slice();
    if bytes.first() != Some(&VERSION) {
        return Err(malformed("unknown version"));
    }
    if let Some((there, here)) = strangers(bytes, own.as_slice()) {
        return Err(ProviderError {
            message: format!(
                "the peer's endpoint is bound to {there} ({}), this one to {here} ({}), and an endpoint reaches addresses \
                 of its own kind only: RMA_INTERFACE=ipv6 has all ranks use IPv6, RMA_INTERFACE=ipv4 IPv4",
                Family::of(there).name(),
                Family::of(here).name()
            ),
        });
    }
    if bytes.len() != own.as_slice().len() {
        return Err(malformed("its length differs from that of this endpoint's"));
    }
    if bytes.get(1) != own.as_slice().get(1) {
        return Err(malformed("it flushes, or is named, in another way than this endpoint"));
    }
    let word =
        |at: usize| -> Option<u64> { Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?)) };
    if bytes.get(2) != own.as_slice().get(2) {
        return Err(malformed("its parts are not as long as those of this endpoint's"));
    }
    let (Some(base), Some(key), Some(names)) = (word(3), word(11), bytes.get(HEADER_BYTES..)) else {
        return Err(malformed("too short"));
    };
    let Some((requests, replies)) = names.split_at_checked(usize::from(bytes[2])) else {
        return Err(malformed("too short"));
    };
    if bytes[1] & IS_TEXT != 0 && [requests, replies].iter().any(|name| name.last() != Some(&0)) {
        return Err(malformed("its text has no end"));
    }
    Ok(([requests, replies], ReadBackRegion { base, key }))
}

/// The IP addresses of two endpoints, the first ones that each has, if they are of different kinds.
fn strangers(bytes: &[u8], own: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let first = |bytes: &[u8]| {
        let len = usize::from(*bytes.get(2)?);
        socket_address(bytes.get(HEADER_BYTES..HEADER_BYTES + len)?).map(|address| address.ip())
    };
    let (there, here) = (first(bytes)?, first(own)?);
    (Family::of(there) != Family::of(here)).then_some((there, here))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_trip() {
        let region = ReadBackRegion { base: 0x1122_3344_5566_7788, key: 9 };
        let names = [&b"0123456789abcdef"[..], &b"another, and longer"[..]];
        let packed = encode(names, Some(region), false).unwrap();
        assert_eq!(decode(&packed, &packed).unwrap(), (names, region));
    }

    #[test]
    fn foreign_addresses_are_refused() {
        let own = encode([b"01234567", b"89abcdef"], None, false).unwrap();
        let shifted = encode([b"012345678", b"9abcdef"], None, false).unwrap();
        let bytes = [&b""[..], b"\x01", b"\x02\x00short", &[1; 35], &[2; 35], shifted.as_slice()];
        for bytes in bytes {
            let foreign = AddressBytes::new(bytes).unwrap();
            assert!(decode(&foreign, &own).unwrap_err().message.contains("malformed"), "{bytes:?}");
        }
        assert!(decode(&own, &own).is_ok());
        assert!(encode([&[0; 125]; 2], None, false).unwrap_err().message.contains("250 bytes"));
    }

    #[test]
    fn a_peer_with_another_kind_of_ip_address_is_told_from_a_malformed_one() {
        let name = |family: i32, len: usize, octet: u8| {
            let mut bytes = vec![octet; len];
            bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
            bytes
        };
        let (v4, v6) = (name(libc::AF_INET, 16, 10), name(libc::AF_INET6, 28, 0xfd));
        let own = encode([&v4, &v4], None, false).unwrap();
        let other = encode([&v6, &v6], None, false).unwrap();
        let message = decode(&other, &own).unwrap_err().message;
        for part in
            ["10.10.10.10 (IPv4)", "fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd (IPv6)", "RMA_INTERFACE=ipv6"]
        {
            assert!(message.contains(part), "{message}");
        }
        assert!(decode(&own, &own).is_ok() && decode(&other, &other).is_ok());
    }

    #[test]
    fn text_is_as_long_everywhere_and_ends() {
        let name = |text: &str| published(text.as_bytes().to_vec(), true).unwrap();
        let (short, long) = (name("fi_shm://7:0:1"), name("fi_shm://1234567:0:10"));
        let own = encode([&short, &short], None, true).unwrap();
        let other = encode([&long, &short], None, true).unwrap();
        assert_eq!(decode(&other, &own).unwrap().0, [long.as_slice(), &short]);
        let endless = encode([&[b'x'; TEXT_BYTES], &short], None, true).unwrap();
        assert!(decode(&endless, &own).unwrap_err().message.contains("no end"));
        assert!(published(vec![b'x'; TEXT_BYTES], true).is_err());
        assert_eq!(published(vec![1, 2], false).unwrap(), [1, 2]);
    }
}
