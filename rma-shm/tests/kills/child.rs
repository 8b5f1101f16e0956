//! A process that sends, puts and gets as fast as it can, until it is told to end, or killed.

use std::time::Instant;

use rma_core::bootstrap::AddressBytes;
use rma_core::ids::{PeerAddr, RemoteKey, Tag};
use rma_core::provider::{Accepted, Completion, CompletionBatch, Endpoint, PostError, RemoteAddr, SendClass};
use rma_shm::ShmEndpoint;

/// Where a child finds its number.
pub(crate) const CHILD: &str = "RMA_TEST_SHM_CHILD";
/// Where it finds the listener's address, in hexadecimal digits.
pub(crate) const PARENT: &str = "RMA_TEST_SHM_PARENT";
/// The listener's window in mapped memory.
pub(crate) const MEMORY_KEY: u64 = 1;
/// The listener's window in its heap.
pub(crate) const HEAP_KEY: u64 = 2;

/// A packet to the listener: who, which, the sender's address, and bytes that follow from these.
pub(crate) struct Packet {
    pub(crate) from: u32,
    pub(crate) class: SendClass,
    pub(crate) index: u64,
    address: Vec<u8>,
}

const CLASSES: [SendClass; 2] = [SendClass::Request, SendClass::Reply];

impl Packet {
    fn header(&self) -> Vec<u8> {
        let mut bytes = self.from.to_le_bytes().to_vec();
        bytes.extend((self.class as u32).to_le_bytes());
        bytes.extend(self.index.to_le_bytes());
        bytes.extend((self.address.len() as u64).to_le_bytes());
        bytes.extend(&self.address);
        bytes
    }

    fn filling(from: u32, index: u64) -> impl Iterator<Item = u8> {
        let len = [0, 1, 64, 300, 800][(index % 5) as usize];
        (0..len).map(move |at: u64| (at.wrapping_mul(31) ^ index.wrapping_mul(7) ^ u64::from(from)) as u8)
    }

    /// Checks every byte.
    pub(crate) fn decode(bytes: &[u8]) -> Self {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let index = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
        let end = 24 + word(16) as usize;
        let from = word(0);
        assert!(
            bytes[end..].iter().copied().eq(Self::filling(from, index)),
            "packet {index} of {from} is torn"
        );
        Self { from, class: CLASSES[word(4) as usize], index, address: bytes[24..end].to_vec() }
    }

    pub(crate) fn address(&self) -> AddressBytes {
        AddressBytes::new(&self.address).unwrap()
    }
}

struct Sender {
    ep: ShmEndpoint,
    peer: PeerAddr,
    number: u32,
    batch: CompletionBatch,
    is_told_to_end: bool,
    begun: Instant,
}

impl Sender {
    fn turn(&mut self) {
        assert!(self.begun.elapsed().as_secs() < crate::LIMIT_S, "forgotten by the listener");
        self.ep.poll(&mut self.batch);
        while let Some(completion) = self.batch.pop() {
            match completion {
                Completion::Packet(packet) => {
                    // SAFETY: just polled and not yet released.
                    self.is_told_to_end |= unsafe { packet.bytes() } == b"finish";
                    self.ep.release(packet);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn until_accepted<T>(&mut self, mut post: impl FnMut(&mut Self) -> Result<T, PostError>) -> T {
        loop {
            match post(self) {
                Ok(accepted) => return accepted,
                Err(PostError::Again) => std::thread::yield_now(),
                Err(PostError::Failed(code)) => panic!("{code}"),
            }
            self.turn();
        }
    }

    /// Puts the count to both windows, reads it back, and says so in a packet.
    fn step(&mut self, count: u64) {
        let number = self.number;
        let src = (count + 1).to_ne_bytes();
        for key in [MEMORY_KEY, HEAP_KEY] {
            let at = RemoteAddr { addr: 8 * u64::from(number), key: RemoteKey(key) };
            // SAFETY: the source outlives the call, which completes the put.
            let put = self.until_accepted(|own| unsafe { own.ep.put(own.peer, src.as_ptr(), 8, at, Tag(1)) });
            let mut seen = [0; 8];
            let into = seen.as_mut_ptr();
            // SAFETY: the sink outlives the call, which completes the get.
            let get = self.until_accepted(|own| unsafe { own.ep.get(own.peer, into, 8, at, Tag(2)) });
            assert_eq!([put, get], [Accepted::Complete; 2]);
            assert_eq!(seen, src, "this process's own word");
        }
        let class = CLASSES[(count % 2) as usize];
        let packet =
            Packet { from: number, class, index: count / 2, address: self.ep.address().as_slice().to_vec() };
        let filling: Vec<u8> = Packet::filling(number, count / 2).collect();
        self.until_accepted(|own| own.ep.send(own.peer, &packet.header(), &filling, class));
    }
}

/// What a process that was started was told; `None` in any other.
pub(crate) fn address_of_parent() -> Option<AddressBytes> {
    let digits = std::env::var(PARENT).ok()?;
    let byte = |at: usize| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap();
    AddressBytes::new(&(0..digits.len() / 2).map(byte).collect::<Vec<_>>())
}

pub(crate) fn run() {
    let Some(number) = std::env::var(CHILD).ok() else { return };
    let Some(address) = address_of_parent() else { return };
    let mut ep = ShmEndpoint::open(&crate::options()).unwrap();
    let peer = ep.connect(&address).unwrap();
    let mut sender = Sender {
        ep,
        peer,
        number: number.parse().unwrap(),
        batch: CompletionBatch::new(),
        is_told_to_end: false,
        begun: Instant::now(),
    };
    for count in 0.. {
        sender.step(count);
        sender.turn();
        if sender.is_told_to_end {
            return;
        }
    }
}
