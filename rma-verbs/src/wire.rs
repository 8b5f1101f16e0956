//! What endpoints publish, and the datagrams by which two of them connect. Little-endian, lengths fixed.

use rma_core::bootstrap::AddressBytes;
use rma_core::provider::ProviderError;

use crate::sys::Gid;

/// How to reach an endpoint's datagram queue pair, and which endpoint it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Location {
    /// Drawn when the endpoint was opened: a queue pair's number may be another's tomorrow.
    pub(crate) nonce: u64,
    pub(crate) gid: Gid,
    pub(crate) lid: u16,
    /// The port's path MTU, as ibverbs numbers it: 1 (256 bytes) to 5 (4096 bytes).
    pub(crate) mtu: u8,
    pub(crate) is_ethernet: bool,
    /// Number of the queue pair for datagrams.
    pub(crate) queue: u32,
    /// What datagrams to it must carry.
    pub(crate) queue_key: u32,
    /// Reads and atomics that each of its queue pairs serves at one time.
    pub(crate) reads: u8,
}

const VERSION: u8 = 3;
pub(crate) const LOCATION_BYTES: usize = 37;

impl Location {
    pub(crate) fn encode(&self) -> [u8; LOCATION_BYTES] {
        let mut bytes = [0; LOCATION_BYTES];
        bytes[0] = VERSION;
        bytes[1] = u8::from(self.is_ethernet) << 7 | self.mtu;
        bytes[2..4].copy_from_slice(&self.lid.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.nonce.to_le_bytes());
        bytes[12..28].copy_from_slice(&self.gid);
        bytes[28..32].copy_from_slice(&self.queue.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.queue_key.to_le_bytes());
        bytes[36] = self.reads;
        bytes
    }

    /// `None` when the bytes are not one.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; LOCATION_BYTES] = bytes.try_into().ok()?;
        let mtu = bytes[1] & 0x7f;
        if bytes[0] != VERSION || !(1..=5).contains(&mtu) {
            return None;
        }
        Some(Self {
            nonce: word64(bytes, 4),
            gid: std::array::from_fn(|index| bytes[12 + index]),
            lid: u16::from_le_bytes([bytes[2], bytes[3]]),
            mtu,
            is_ethernet: bytes[1] & 0x80 != 0,
            queue: word32(bytes, 28),
            queue_key: word32(bytes, 32),
            reads: bytes[36],
        })
    }

    /// The location that `address` publishes; it must be on the same kind of network as `own`.
    pub(crate) fn of(address: &AddressBytes, own: &Self) -> Result<Self, ProviderError> {
        let malformed = |why: &str| {
            ProviderError {
            message: format!(
                "the peer's address is malformed ({why}); do all ranks use the same provider and the same version \
                 of this program?"
            ),
        }
        };
        let location = Self::decode(address.as_slice()).ok_or_else(|| malformed("not one of ibverbs"))?;
        if location.is_ethernet != own.is_ethernet {
            return Err(malformed("one of the two is on InfiniBand and the other on Ethernet"));
        }
        Ok(location)
    }
}

/// What a datagram says. The origin's half of a connection asks, the target's half answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// From a target that has something to say: ask me.
    Call,
    /// From an origin: here is my queue pair.
    Ask,
    /// From a target: here is mine, and it receives.
    Answer,
    /// From an origin: mine receives, too.
    Ready,
    /// From who has given the peer up, or cannot make a queue pair for it: there will be no connection.
    Refuse,
    /// From a target that has too many: close ours, if it is idle.
    Yield,
    /// From an origin that posts nothing more: close your half.
    Close,
    /// From a target: it is closed.
    Closed,
}

const KINDS: [Kind; 8] =
    [Kind::Call, Kind::Ask, Kind::Answer, Kind::Ready, Kind::Refuse, Kind::Yield, Kind::Close, Kind::Closed];

/// One datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    pub(crate) kind: Kind,
    /// Nonce of the endpoint that it is for.
    pub(crate) to: u64,
    pub(crate) from: Location,
    /// Which connection of this origin and target it is about, counted by the origin.
    pub(crate) number: u32,
    /// The sender's queue pair of this connection, 0 when there is none.
    pub(crate) queue: u32,
    /// First packet sequence number that this queue pair sends; in Closed, the one that the receiver's sends.
    pub(crate) sequence: u32,
    /// The receiver's queue pair of this connection, 0 when not known.
    pub(crate) of_queue: u32,
}

const MAGIC: [u8; 4] = *b"RMAv";
pub(crate) const MESSAGE_BYTES: usize = 4 + 4 + 8 + 16 + LOCATION_BYTES;

impl Message {
    pub(crate) fn encode(&self) -> [u8; MESSAGE_BYTES] {
        let mut bytes = [0; MESSAGE_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = self.kind as u8;
        bytes[8..16].copy_from_slice(&self.to.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.queue.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.of_queue.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.number.to_le_bytes());
        bytes[32..].copy_from_slice(&self.from.encode());
        bytes
    }

    /// `None` when the bytes are not one: datagrams come from anybody.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; MESSAGE_BYTES] = bytes.try_into().ok()?;
        if bytes[..4] != MAGIC {
            return None;
        }
        Some(Self {
            kind: *KINDS.get(usize::from(bytes[4]))?,
            to: word64(bytes, 8),
            from: Location::decode(&bytes[32..])?,
            number: word32(bytes, 28),
            queue: word32(bytes, 16) & QUEUE_MASK,
            sequence: word32(bytes, 20) & QUEUE_MASK,
            of_queue: word32(bytes, 24) & QUEUE_MASK,
        })
    }
}

/// Numbers of queue pairs and packets have 24 bits.
pub(crate) const QUEUE_MASK: u32 = 0x00ff_ffff;

fn word32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|index| bytes[at + index]))
}

fn word64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|index| bytes[at + index]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Location = Location {
        nonce: 0x1122_3344_5566_7788,
        gid: [7; 16],
        lid: 0x1234,
        mtu: 3,
        is_ethernet: true,
        queue: 17,
        queue_key: 0x0102_0304,
        reads: 16,
    };

    #[test]
    fn addresses_survive_the_trip_and_foreign_ones_are_refused() {
        let address = AddressBytes::new(&PLACE.encode()).unwrap();
        assert_eq!(Location::of(&address, &PLACE).unwrap(), PLACE);
        let infiniband = Location { is_ethernet: false, ..PLACE };
        assert!(Location::of(&address, &infiniband).unwrap_err().message.contains("malformed"));
        for bytes in [&b""[..], b"nonsense", &[0; LOCATION_BYTES], &[1; LOCATION_BYTES + 1]] {
            let address = AddressBytes::new(bytes).unwrap();
            assert!(Location::of(&address, &PLACE).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn datagrams_survive_the_trip_and_others_are_none() {
        for kind in KINDS {
            let message = Message { kind, to: 5, from: PLACE, number: 9, queue: 6, sequence: 7, of_queue: 8 };
            let bytes = message.encode();
            assert_eq!(Message::decode(&bytes), Some(message));
            assert_eq!(Message::decode(&bytes[1..]), None);
            for (at, value) in [(0, 0), (4, KINDS.len() as u8), (32, 9), (33, 0)] {
                let mut bytes = bytes;
                bytes[at] = value;
                assert_eq!(Message::decode(&bytes), None, "byte {at}");
            }
        }
    }
}
