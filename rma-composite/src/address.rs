//! What an endpoint publishes: its address in the network, and where its shared memory is.

use rma_core::bootstrap::AddressBytes;

/// The two addresses of a rank.
#[derive(Debug)]
pub(crate) struct Addresses {
    /// See [`crate::CompositeEndpoint::new`].
    pub(crate) host: u64,
    pub(crate) network: AddressBytes,
    pub(crate) shm: AddressBytes,
}

impl Addresses {
    /// `None`: they are longer than `room`, or than what the bootstrap carries.
    pub(crate) fn encode(&self, room: usize) -> Option<AddressBytes> {
        let shm = self.shm.as_slice();
        let mut bytes = Vec::with_capacity(HEADER_BYTES + shm.len() + self.network.as_slice().len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.host.to_le_bytes());
        bytes.push(u8::try_from(shm.len()).ok()?);
        bytes.extend_from_slice(shm);
        bytes.extend_from_slice(self.network.as_slice());
        AddressBytes::new(&bytes).filter(|_| bytes.len() <= room)
    }

    /// `None`: these are not the bytes of such an address.
    pub(crate) fn decode(address: &AddressBytes) -> Option<Self> {
        let rest = address.as_slice().strip_prefix(MAGIC)?;
        let (host, rest) = rest.split_first_chunk()?;
        let (&len, rest) = rest.split_first()?;
        let (shm, network) = rest.split_at_checked(len.into())?;
        Some(Self {
            host: u64::from_le_bytes(*host),
            network: AddressBytes::new(network)?,
            shm: AddressBytes::new(shm)?,
        })
    }
}

const MAGIC: &[u8; 4] = b"two1";
const HEADER_BYTES: usize = MAGIC.len() + 8 + 1;

#[cfg(test)]
mod tests {
    use super::*;
    use rma_core::bootstrap::ADDRESS_BYTES_MAX;

    fn bytes(len: usize) -> AddressBytes {
        AddressBytes::new(&vec![7; len]).unwrap()
    }

    #[test]
    fn both_addresses_come_back() {
        let addresses = Addresses { host: 0x0102_0304, network: bytes(100), shm: bytes(36) };
        let read = Addresses::decode(&addresses.encode(ADDRESS_BYTES_MAX).unwrap()).unwrap();
        assert_eq!((read.host, read.network.as_slice()), (0x0102_0304, &[7; 100][..]));
        assert_eq!(read.shm.as_slice(), [7; 36]);
    }

    #[test]
    fn what_has_no_room_is_not_cut() {
        let most = ADDRESS_BYTES_MAX - HEADER_BYTES - 36;
        let fits = |network, room| {
            Addresses { host: 0, network: bytes(network), shm: bytes(36) }.encode(room).is_some()
        };
        assert!(fits(most, usize::MAX) && !fits(most + 1, usize::MAX));
        assert!(fits(100, HEADER_BYTES + 136) && !fits(100, HEADER_BYTES + 135));
    }

    #[test]
    fn other_bytes_are_no_address() {
        let whole = Addresses { host: 1, network: bytes(3), shm: bytes(36) };
        let whole = whole.encode(ADDRESS_BYTES_MAX).unwrap();
        let whole = whole.as_slice();
        for len in 0..HEADER_BYTES + 36 {
            assert!(Addresses::decode(&AddressBytes::new(&whole[..len]).unwrap()).is_none(), "{len}");
        }
        let mut other = whole.to_vec();
        other[3] ^= 1;
        assert!(Addresses::decode(&AddressBytes::new(&other).unwrap()).is_none());
    }
}
