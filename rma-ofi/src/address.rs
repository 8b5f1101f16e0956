//! What an endpoint publishes: its provider's name, libfabric's own addresses, by the class of packets that are sent
//! there, where to read back, and the endpoint's number.

use std::net::IpAddr;

use rma_core::bootstrap::{AddressBytes, ADDRESS_BYTES_MAX};
use rma_core::provider::ProviderError;

use crate::interface::{socket_address, Family};
use crate::lane::CLASSES;
use crate::nonce::{Keys, Nonce};

/// Location of the bytes at a peer that a flush reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReadBackRegion {
    pub(crate) base: u64,
    pub(crate) key: u64,
}

impl ReadBackRegion {
    pub(crate) const NONE: Self = Self { base: 0, key: 0 };
}

/// What an address says besides names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Particulars {
    /// What packets to the endpoint end with, and the keys of its memory depend on.
    pub(crate) nonce: Nonce,
    /// Where to read back; [`ReadBackRegion::NONE`] where nobody does.
    pub(crate) read_back: ReadBackRegion,
}

/// How all endpoints of a provider are, here and there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// Whether flushes read back.
    pub(crate) has_region: bool,
    /// Whether libfabric's addresses are text.
    pub(crate) is_text: bool,
    /// How keys are formed.
    pub(crate) keys: Keys,
}

impl Kind {
    /// One byte, which must be the same at both ends.
    fn flags(self) -> u8 {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        flag(self.has_region, HAS_REGION) | flag(self.is_text, IS_TEXT) | self.keys.bytes() << KEY_BYTES_SHIFT
    }
}

/// Bytes before the provider's name and libfabric's addresses: version, flags, bytes of the first address,
/// base and key of the region, the endpoint's number, bytes of the name.
pub(crate) const HEADER_BYTES: usize = 28;

/// Where the bytes of the name are counted.
const PROVIDER_AT: usize = HEADER_BYTES - 1;

const VERSION: u8 = 4;

/// Flags of an address: there is a region to read back; the names are text, which ends with a zero. The
/// upper half is [`Keys::bytes`].
const HAS_REGION: u8 = 1;
const IS_TEXT: u8 = 2;
const KEY_BYTES_SHIFT: u32 = 4;

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

/// Packs the addresses that requests and replies are sent to, and as much of the provider's name as has room.
/// Little-endian.
pub(crate) fn encode(
    provider: &str,
    names: [&[u8]; CLASSES],
    kind: Kind,
    particulars: Particulars,
) -> Result<AddressBytes, ProviderError> {
    let Particulars { nonce, read_back: ReadBackRegion { base, key } } = particulars;
    let len: usize = names.iter().map(|name| name.len()).sum();
    let room = ADDRESS_BYTES_MAX.saturating_sub(HEADER_BYTES + len);
    let provider = &provider.as_bytes()[..provider.len().min(room)];
    let mut bytes = Vec::with_capacity(HEADER_BYTES + provider.len() + len);
    // What does not fit a byte does not fit the bootstrap either.
    bytes.extend([VERSION, kind.flags(), names[0].len() as u8]);
    bytes.extend(base.to_le_bytes());
    bytes.extend(key.to_le_bytes());
    bytes.extend(nonce.to_bytes());
    bytes.push(provider.len() as u8);
    bytes.extend(provider);
    bytes.extend(names.concat());
    AddressBytes::new(&bytes).ok_or_else(|| ProviderError {
        message: format!(
            "the provider's addresses have {len} bytes, but the bootstrap carries at most {}",
            ADDRESS_BYTES_MAX - HEADER_BYTES
        ),
    })
}

/// Unpacks an address into libfabric's parts and the rest. The other endpoint must be of the same provider, and its
/// address as long as our own: another length is another kind of address.
pub(crate) fn decode<'a>(
    address: &'a AddressBytes,
    own: &AddressBytes,
) -> Result<([&'a [u8]; CLASSES], Particulars), ProviderError> {
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
    let (Some((provider, names)), Some((own_provider, _))) = (parts(bytes), parts(own.as_slice())) else {
        return Err(malformed("too short"));
    };
    if provider != own_provider {
        return Err(ProviderError {
            message: format!(
                "the peer's endpoint is of the provider {}, this one of {}, and an endpoint reaches those of its own \
                 provider only: RMA_PROVIDER must be the same at all ranks",
                readable(provider),
                readable(own_provider)
            ),
        });
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
        return Err(malformed("it flushes, is named, or has keys in another way than this endpoint"));
    }
    let word =
        |at: usize| -> Option<u64> { Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?)) };
    if bytes.get(2) != own.as_slice().get(2) {
        return Err(malformed("its parts are not as long as those of this endpoint's"));
    }
    let (Some(base), Some(key), Some(nonce)) = (word(3), word(11), word(19)) else {
        return Err(malformed("too short"));
    };
    let Some((requests, replies)) = names.split_at_checked(usize::from(bytes[2])) else {
        return Err(malformed("too short"));
    };
    if bytes[1] & IS_TEXT != 0 && [requests, replies].iter().any(|name| name.last() != Some(&0)) {
        return Err(malformed("its text has no end"));
    }
    let particulars = Particulars { nonce: Nonce(nonce), read_back: ReadBackRegion { base, key } };
    Ok(([requests, replies], particulars))
}

/// The provider's name, and libfabric's addresses.
fn parts(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = usize::from(*bytes.get(PROVIDER_AT)?);
    bytes.get(HEADER_BYTES..)?.split_at_checked(len)
}

/// A provider's name as another process says it, for people.
fn readable(name: &[u8]) -> String {
    let shown = |&byte: &u8| if byte.is_ascii_graphic() { char::from(byte) } else { '?' };
    name.iter().map(shown).collect()
}

/// The IP addresses of two endpoints, the first ones that each has, if they are of different kinds.
fn strangers(bytes: &[u8], own: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let first = |bytes: &[u8]| {
        let len = usize::from(*bytes.get(2)?);
        socket_address(parts(bytes)?.1.get(..len)?).map(|address| address.ip())
    };
    let (there, here) = (first(bytes)?, first(own)?);
    (Family::of(there) != Family::of(here)).then_some((there, here))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Kind = Kind { has_region: false, is_text: false, keys: Keys::OF_PROVIDER };
    const TEXT: Kind = Kind { is_text: true, ..PLAIN };
    const NUMBERED: Particulars = Particulars { nonce: Nonce(7), read_back: ReadBackRegion::NONE };

    #[test]
    fn addresses_survive_the_trip() {
        let read_back = ReadBackRegion { base: 0x1122_3344_5566_7788, key: 9 };
        let particulars = Particulars { nonce: Nonce(0x0102_0304_0506_0708), read_back };
        let kind = Kind { has_region: true, is_text: false, keys: Keys::of_owner(8) };
        let names = [&b"0123456789abcdef"[..], &b"another, and longer"[..]];
        let packed = encode("tcp", names, kind, particulars).unwrap();
        assert_eq!(decode(&packed, &packed).unwrap(), (names, particulars));
    }

    #[test]
    fn foreign_addresses_are_refused() {
        let own = encode("tcp", [b"01234567", b"89abcdef"], PLAIN, NUMBERED).unwrap();
        let shifted = encode("tcp", [b"012345678", b"9abcdef"], PLAIN, NUMBERED).unwrap();
        // It is of the same provider, and too short.
        let mut short = own.as_slice()[..HEADER_BYTES + 3].to_vec();
        let bytes = [&b""[..], b"\x01", b"\x04\x00short", &[1; 43], &[3; 43], &short, shifted.as_slice()];
        for bytes in bytes {
            let foreign = AddressBytes::new(bytes).unwrap();
            assert!(decode(&foreign, &own).unwrap_err().message.contains("malformed"), "{bytes:?}");
        }
        // The name is said to be longer than all of it.
        short[PROVIDER_AT] = 255;
        let endless = AddressBytes::new(&short).unwrap();
        assert!(decode(&endless, &own).unwrap_err().message.contains("malformed"));
        assert!(decode(&own, &own).is_ok());
        assert!(encode("tcp", [&[0; 125]; 2], PLAIN, NUMBERED).unwrap_err().message.contains("250 bytes"));
    }

    #[test]
    fn ends_that_form_keys_in_different_ways_do_not_connect() {
        let of = |keys: Keys| encode("tcp", [b"01234567"; 2], Kind { keys, ..PLAIN }, NUMBERED).unwrap();
        let kinds = [of(Keys::OF_PROVIDER), of(Keys::of_owner(4)), of(Keys::of_owner(8))];
        for (here, own) in kinds.iter().enumerate() {
            for (there, other) in kinds.iter().enumerate() {
                assert_eq!(decode(other, own).is_ok(), here == there, "{here} {there}");
            }
        }
    }

    #[test]
    fn a_peer_with_another_provider_is_told_from_a_dead_one() {
        let name: &[u8] = b"0123456789abcdef";
        let own = encode("tcp;ofi_rxm", [name, name], PLAIN, NUMBERED).unwrap();
        for (provider, shown) in [("sockets", "sockets"), ("udp;ofi_rxd", "udp;ofi_rxd"), ("a\u{7}b", "a?b")]
        {
            let other = encode(provider, [name, name], PLAIN, NUMBERED).unwrap();
            let message = decode(&other, &own).unwrap_err().message;
            assert!(
                message.contains(&format!("of the provider {shown}, this one of tcp;ofi_rxm")),
                "{message}"
            );
            assert!(message.contains("RMA_PROVIDER"), "{message}");
        }
        // Long addresses leave room for the beginning of the name only.
        let long: &[u8] = &[7; 112];
        let packed = encode("verbs;ofi_rxm", [long, long], PLAIN, NUMBERED).unwrap();
        assert_eq!(packed.as_slice().len(), ADDRESS_BYTES_MAX);
        assert_eq!(decode(&packed, &packed).unwrap().0, [long, long]);
    }

    #[test]
    fn a_peer_with_another_kind_of_ip_address_is_told_from_a_malformed_one() {
        let name = |family: i32, len: usize, octet: u8| {
            let mut bytes = vec![octet; len];
            bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
            bytes
        };
        let (v4, v6) = (name(libc::AF_INET, 16, 10), name(libc::AF_INET6, 28, 0xfd));
        let own = encode("tcp", [&v4, &v4], PLAIN, NUMBERED).unwrap();
        let other = encode("tcp", [&v6, &v6], PLAIN, NUMBERED).unwrap();
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
        let own = encode("tcp", [&short, &short], TEXT, NUMBERED).unwrap();
        let other = encode("tcp", [&long, &short], TEXT, NUMBERED).unwrap();
        assert_eq!(decode(&other, &own).unwrap().0, [long.as_slice(), &short]);
        let endless = encode("tcp", [&[b'x'; TEXT_BYTES], &short], TEXT, NUMBERED).unwrap();
        assert!(decode(&endless, &own).unwrap_err().message.contains("no end"));
        assert!(published(vec![b'x'; TEXT_BYTES], true).is_err());
        assert_eq!(published(vec![1, 2], false).unwrap(), [1, 2]);
    }
}
