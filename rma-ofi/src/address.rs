//! What an endpoint publishes: libfabric's own address, and where to read back.

use rma_core::bootstrap::{AddressBytes, ADDRESS_BYTES_MAX};
use rma_core::provider::ProviderError;

/// Location of the bytes at a peer that a flush reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReadBackRegion {
    pub(crate) base: u64,
    pub(crate) key: u64,
}

impl ReadBackRegion {
    pub(crate) const NONE: Self = Self { base: 0, key: 0 };
}

/// Bytes before libfabric's address: version, whether there is a region, its base and key.
pub(crate) const HEADER_BYTES: usize = 18;

const VERSION: u8 = 1;

/// Packs an address. Little-endian.
pub(crate) fn encode(name: &[u8], region: Option<ReadBackRegion>) -> Result<AddressBytes, ProviderError> {
    let ReadBackRegion { base, key } = region.unwrap_or(ReadBackRegion::NONE);
    let mut bytes = Vec::with_capacity(HEADER_BYTES + name.len());
    bytes.extend([VERSION, u8::from(region.is_some())]);
    bytes.extend(base.to_le_bytes());
    bytes.extend(key.to_le_bytes());
    bytes.extend(name);
    AddressBytes::new(&bytes).ok_or_else(|| ProviderError {
        message: format!(
            "the provider's address has {} bytes, but the bootstrap carries at most {}",
            name.len(),
            ADDRESS_BYTES_MAX - HEADER_BYTES
        ),
    })
}

/// Unpacks an address into libfabric's part and the region. The other endpoint's address must be as
/// long as our own: another length is another kind of address.
pub(crate) fn decode<'a>(
    address: &'a AddressBytes,
    own: &AddressBytes,
) -> Result<(&'a [u8], ReadBackRegion), ProviderError> {
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
    let (Some(base), Some(key), Some(name)) = (word(2), word(10), bytes.get(HEADER_BYTES..)) else {
        return Err(malformed("too short"));
    };
    Ok((name, ReadBackRegion { base, key }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_trip() {
        let region = ReadBackRegion { base: 0x1122_3344_5566_7788, key: 9 };
        let packed = encode(b"0123456789abcdef", Some(region)).unwrap();
        assert_eq!(decode(&packed, &packed).unwrap(), (&b"0123456789abcdef"[..], region));
    }

    #[test]
    fn foreign_addresses_are_refused() {
        let own = encode(b"0123456789abcdef", None).unwrap();
        for bytes in [&b""[..], &b"\x02"[..], &b"\x01\x00short"[..], &[1u8; 34][..]] {
            let foreign = AddressBytes::new(bytes).unwrap();
            assert!(decode(&foreign, &own).unwrap_err().message.contains("malformed"), "{bytes:?}");
        }
        assert!(encode(&[0; 250], None).unwrap_err().message.contains("250 bytes"));
    }
}
