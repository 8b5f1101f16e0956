//! What an endpoint publishes: libfabric's own addresses, by the class of packets that are sent there,
//! and where to read back.

use rma_core::bootstrap::{AddressBytes, ADDRESS_BYTES_MAX};
use rma_core::provider::ProviderError;

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

/// Bytes before libfabric's addresses: version, whether there is a region, bytes of the first address,
/// base and key of the region.
pub(crate) const HEADER_BYTES: usize = 19;

const VERSION: u8 = 2;

/// Packs the addresses that requests and replies are sent to. Little-endian.
pub(crate) fn encode(
    names: [&[u8]; CLASSES],
    region: Option<ReadBackRegion>,
) -> Result<AddressBytes, ProviderError> {
    let ReadBackRegion { base, key } = region.unwrap_or(ReadBackRegion::NONE);
    let len: usize = names.iter().map(|name| name.len()).sum();
    let mut bytes = Vec::with_capacity(HEADER_BYTES + len);
    // What does not fit a byte does not fit the bootstrap either.
    bytes.extend([VERSION, u8::from(region.is_some()), names[0].len() as u8]);
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
    if bytes.len() != own.as_slice().len() {
        return Err(malformed("its length differs from that of this endpoint's"));
    }
    if bytes.get(1) != own.as_slice().get(1) {
        return Err(malformed("it flushes in another way than this endpoint"));
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
    Ok(([requests, replies], ReadBackRegion { base, key }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_trip() {
        let region = ReadBackRegion { base: 0x1122_3344_5566_7788, key: 9 };
        let names = [&b"0123456789abcdef"[..], &b"another, and longer"[..]];
        let packed = encode(names, Some(region)).unwrap();
        assert_eq!(decode(&packed, &packed).unwrap(), (names, region));
    }

    #[test]
    fn foreign_addresses_are_refused() {
        let own = encode([b"01234567", b"89abcdef"], None).unwrap();
        let shifted = encode([b"012345678", b"9abcdef"], None).unwrap();
        let bytes = [&b""[..], b"\x01", b"\x02\x00short", &[1; 35], &[2; 35], shifted.as_slice()];
        for bytes in bytes {
            let foreign = AddressBytes::new(bytes).unwrap();
            assert!(decode(&foreign, &own).unwrap_err().message.contains("malformed"), "{bytes:?}");
        }
        assert!(decode(&own, &own).is_ok());
        assert!(encode([&[0; 125]; 2], None).unwrap_err().message.contains("250 bytes"));
    }
}
