//! Puts that carry data, and where the data that arrive are lent from.
//!
//! libfabric says them with a completion at the target that takes no receive buffer, so nothing holds them back. Not to
//! read the queue would hold back what it says beside them, such as that a reply has left, and who keeps data may
//! wait for that. A queue of their own that nobody reads would grow inside libfabric instead, whose progress is one for
//! all queues. So whoever is handed data is done with them before he polls again, and a target has as many *cells* as
//! one poll reads entries.

use core::cell::UnsafeCell;
use core::ptr::NonNull;

use ofi_sys as fi;
use rma_core::ids::{PeerAddr, Tag};
use rma_core::provider::{
    Completion, CompletionBatch, LocalPiece, Post, PostError, ReceivedPacket, RemoteAddr, RemotePiece,
};

use crate::calls;
use crate::endpoint::OfiEndpoint;
use crate::error::fabric_code;
use crate::lane::CLASSES;
use crate::poll::BATCH;
use crate::vector::Direction;

/// Places for the data of one poll, taken in turn.
#[derive(Debug)]
pub(crate) struct Cells {
    places: Box<[UnsafeCell<u64>; BATCH]>,
    next: usize,
}

impl Cells {
    pub(crate) fn new() -> Self {
        Self { places: Box::new([const { UnsafeCell::new(0) }; BATCH]), next: 0 }
    }

    /// Where the data are until the next poll.
    fn keep(&mut self, data: u64) -> NonNull<u8> {
        let place = NonNull::from(&self.places[self.next]);
        self.next = (self.next + 1) % BATCH;
        let place = place.cast::<u64>();
        // SAFETY: no poll hands out more than there are, and nobody looks at those of earlier polls any more; if
        // somebody does, he reads what is there.
        unsafe { place.write(data.to_le()) };
        place.cast()
    }
}

impl OfiEndpoint {
    /// See [`rma_core::provider::Endpoint::put_with_data`].
    ///
    /// # Safety
    /// The source is readable until the tag comes back.
    pub(crate) unsafe fn post_with_data(
        &mut self,
        to: PeerAddr,
        (src, len): (*const u8, usize),
        at: RemoteAddr,
        tag: Tag,
        data: u64,
    ) -> Post {
        if self.data_bytes == 0 || len == 0 {
            return Err(PostError::Failed(fabric_code(fi::FI_EOPNOTSUPP)));
        }
        if self.origins.is_some() {
            let (local, remote) = (LocalPiece { base: src.cast_mut(), len }, RemotePiece { at, len });
            // SAFETY: by the caller's promise.
            return unsafe {
                self.post_pieces(Direction::Put, to, (&[local], &[remote], len), tag, Some(data))
            };
        }
        self.post_gathered_to(to)?;
        let ticket = self.ticket(to, len)?;
        let local = fi::iovec { iov_base: src.cast_mut().cast(), iov_len: len };
        let remote = fi::fi_rma_iov { addr: at.addr, len, key: ticket.key(at) };
        let message = fi::fi_msg_rma {
            msg_iov: &local,
            desc: core::ptr::null_mut(),
            iov_count: 1,
            addr: to.0,
            rma_iov: &remote,
            rma_iov_count: 1,
            context: ticket.context,
            data,
        };
        // No answer is asked for, which costs the target a system call: the data tell whoever has to know.
        let (ledger, flags) = (self.live.domain.ledger(), fi::FI_COMPLETION | fi::FI_REMOTE_CQ_DATA);
        // SAFETY: the endpoint is open; the message is read during the call; the source is the caller's promise.
        let result = unsafe { calls::writemsg(ledger, self.ep, &message, flags) };
        self.posted(&ticket, to, tag, result)
    }

    /// Data have come. Nobody asked for them where none are carried.
    #[cold]
    #[inline(never)]
    pub(crate) fn on_data(&mut self, data: u64, out: &mut CompletionBatch) {
        if self.data_bytes == 0 {
            return;
        }
        let packet = ReceivedPacket {
            data: self.cells.keep(data),
            len: self.data_bytes,
            buffer: self.number_of_data(),
        };
        self.say(out, Completion::Packet(packet));
    }

    /// Whether what is given back is data. Its place is free at the next poll.
    #[inline]
    pub(crate) fn is_of_data(&self, packet: &ReceivedPacket) -> bool {
        packet.buffer == self.number_of_data()
    }

    /// Buffers have the numbers below.
    #[inline]
    fn number_of_data(&self) -> u32 {
        (CLASSES * self.limits.receive_buffers) as u32
    }
}

#[cfg(test)]
#[path = "../tests/contract/second.rs"]
pub(crate) mod second;

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::{Duration, Instant};

    use ofi_sys::calls;
    use rma_core::ids::RemoteKey;
    use rma_core::provider::{Endpoint, MemoryRegion, SendClass};

    use super::*;
    use crate::nonce::Nonce;
    use crate::poll::UNPOSTED_PART;
    use crate::{Ofi, Options};

    #[test]
    fn a_poll_can_lend_as_many_data_as_it_reads() {
        let mut cells = Cells::new();
        for poll in 0..5 {
            let first = 0x0102 + poll * BATCH as u64;
            let kept: Vec<_> =
                (0..BATCH as u64).map(|data| (first + data, cells.keep(first + data))).collect();
            for (data, bytes) in kept {
                // SAFETY: lent by this poll.
                let read = unsafe { bytes.cast::<[u8; 8]>().read() };
                assert_eq!(read, data.to_le_bytes());
            }
            cells.keep(0);
        }
    }

    /// Nothing that is bounded takes so long.
    const LIMIT: Duration = Duration::from_secs(60);

    fn open(provider: &str, library: Option<&Path>) -> OfiEndpoint {
        let options = Options {
            provider: Some(provider.to_owned()),
            library: library.map(Path::to_owned),
            single_host: true,
            receive_buffers: 8,
            ..Options::default()
        };
        OfiEndpoint::open(&Ofi::discover(&options).unwrap(), &options).unwrap()
    }

    /// Two endpoints, of which the first sends what endpoints never send.
    struct Pair {
        foreigner: OfiEndpoint,
        own: OfiEndpoint,
        to: PeerAddr,
        packets: Vec<Vec<u8>>,
    }

    impl Pair {
        fn new(provider: &str, library: Option<&Path>) -> Self {
            let (mut foreigner, mut own) = (open(provider, library), open(provider, library));
            let to = foreigner.connect(&own.address()).unwrap();
            own.connect(&foreigner.address()).unwrap();
            Self { foreigner, own, to, packets: Vec::new() }
        }

        fn poll(&mut self) {
            let mut batch = CompletionBatch::new();
            self.foreigner.poll(&mut batch);
            while let Some(completion) = batch.pop() {
                assert!(matches!(completion, Completion::Done(_)), "{completion:?}");
            }
            self.own.poll(&mut batch);
            for lane in &self.own.lanes {
                let is_part = lane.unposted.len() < self.own.limits.receive_buffers.div_ceil(UNPOSTED_PART);
                assert!(is_part || lane.is_refused, "{} buffers do not come back", lane.unposted.len());
            }
            while let Some(completion) = batch.pop() {
                let Completion::Packet(packet) = completion else { panic!("{completion:?}") };
                // SAFETY: just polled, and not released.
                self.packets.push(unsafe { packet.bytes() }.to_vec());
                self.own.release(packet);
            }
        }

        fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
            let deadline = Instant::now() + LIMIT;
            while !holds(self) {
                assert!(Instant::now() < deadline, "{what}");
                self.poll();
            }
        }

        /// Sends bytes with data, as a message and not as a put.
        fn send_data(&mut self, class: SendClass, bytes: &[u8], is_injected: bool) -> bool {
            let lane = self.foreigner.lanes[class as usize].send_ep;
            let to = self.foreigner.peers[self.to.0 as usize].entries[class as usize];
            let (buf, len) = (bytes.as_ptr().cast(), bytes.len());
            if is_injected {
                // SAFETY: the endpoint is open, and the bytes are free on return.
                return unsafe { calls::injectdata(lane, buf, len, 7, to) } == 0;
            }
            // A slot that is in no flight: its completion is nobody's.
            let slot = self.foreigner.live.memory.sizes().slot_of_outgoing(0);
            let context = self.foreigner.live.memory.slot(slot).cast();
            // SAFETY: the endpoint is open, and the bytes outlive the world.
            unsafe { calls::senddata(lane, buf, len, core::ptr::null_mut(), 7, to, context) == 0 }
        }
    }

    /// Messages with data take receive buffers, which come back, and are packets for nobody.
    fn messages_with_data_are_strays(provider: &str, library: Option<&Path>) {
        let mut pair = Pair::new(provider, library);
        let bytes = vec![7; pair.own.limits.send_bytes_max + Nonce::BYTES];
        let rounds = 5 * pair.own.limits.receive_buffers as u64;
        let mut sent = 0;
        for round in 0..rounds {
            for class in [SendClass::Request, SendClass::Reply] {
                for (len, is_injected) in [(0, false), (8, round % 2 == 0), (bytes.len(), false)] {
                    pair.until("a message", |pair| pair.send_data(class, &bytes[..len], is_injected));
                    sent += 1;
                }
            }
            let number = round.to_le_bytes();
            pair.until("a packet", |pair| {
                pair.foreigner.send(pair.to, &number, b"behind", SendClass::Request).is_ok()
            });
        }
        pair.until("all packets", |pair| pair.packets.len() as u64 + pair.own.strays >= rounds + sent);
        assert_eq!(pair.own.strays, sent);
        let numbers = pair.packets.iter().map(|packet| u64::from_le_bytes(packet[..8].try_into().unwrap()));
        assert!(numbers.eq(0..rounds), "{provider}: {:?}", pair.packets);
    }

    /// No answer is asked for: the put is over while its target does not look, as a packet is.
    fn puts_with_data_are_not_answered_over(provider: &str, library: Option<&Path>) {
        let mut pair = Pair::new(provider, library);
        let mut memory = Box::new(0_u64);
        let base = NonNull::from(&mut *memory).cast();
        // SAFETY: the memory outlives the region, and is looked at when the data have come.
        let region = unsafe { pair.own.register(base, size_of::<u64>(), RemoteKey(1)) }.unwrap();
        let at = RemoteAddr { addr: region.remote_base(), key: region.remote_key() };
        // A connection is made on first use.
        pair.until("a packet", |pair| {
            pair.foreigner.send(pair.to, b"first", &[], SendClass::Request).is_ok()
        });
        pair.until("its arrival", |pair| pair.packets.len() == 1);
        let (source, len, deadline) = (7_u64, size_of::<u64>(), Instant::now() + LIMIT);
        let (mut is_posted, mut is_over) = (false, false);
        while !is_over {
            assert!(Instant::now() < deadline, "{provider}: posted {is_posted}, and waits for an answer");
            // SAFETY: the source outlives the put, whose end is awaited.
            is_posted = is_posted
                || unsafe {
                    pair.foreigner
                        .put_with_data(pair.to, (&raw const source).cast(), len, at, Tag(5), 9)
                        .is_ok()
                };
            let mut batch = CompletionBatch::new();
            pair.foreigner.poll(&mut batch);
            while let Some(completion) = batch.pop() {
                is_over |= completion == Completion::Done(Tag(5));
            }
        }
        pair.until("the data", |pair| pair.packets.len() == 2);
        assert_eq!((pair.packets[1][0], *memory), (9, 7));
    }

    /// Receive buffers of packets that were taken: the provider has them again before it is without a quarter of them, and
    /// all of them behind a poll that finds nothing.
    #[test]
    fn receive_buffers_come_back_a_few_at_a_time() {
        let mut pair = Pair::new("net", None);
        let mut held = Vec::new();
        let mut batch = CompletionBatch::new();
        let deadline = Instant::now() + LIMIT;
        let count = pair.own.limits.receive_buffers;
        let mut sent = 0;
        while held.len() < count {
            assert!(Instant::now() < deadline, "{} of {count} packets have come", held.len());
            if sent < count && pair.foreigner.send(pair.to, b"", &[], SendClass::Request).is_ok() {
                sent += 1;
            }
            pair.foreigner.poll(&mut batch);
            pair.own.poll(&mut batch);
            while let Some(completion) = batch.pop() {
                let Completion::Packet(packet) = completion else { panic!("{completion:?}") };
                held.push(packet);
            }
        }
        let missing = |pair: &Pair| pair.own.lanes[SendClass::Request as usize].unposted.len();
        let mut most = 0;
        // One fewer, so that some are missing in the end.
        for packet in held.drain(1..) {
            pair.own.release(packet);
            most = most.max(missing(&pair));
        }
        assert_eq!(most, count / UNPOSTED_PART - 1);
        assert!(missing(&pair) > 0, "the last poll has found packets, and gives nothing back");
        pair.until("a poll that finds nothing", |pair| missing(pair) == 0);
    }

    #[test]
    fn puts_with_data_are_not_answered() {
        puts_with_data_are_not_answered_over("net", None);
    }

    #[test]
    fn version_2_puts_with_data_are_not_answered() {
        let Some(library) = second::library("not run") else { return };
        puts_with_data_are_not_answered_over("tcp", Some(&library));
    }

    #[test]
    fn version_2_messages_with_data_are_strays() {
        let Some(library) = second::library("not run") else { return };
        messages_with_data_are_strays("tcp", Some(&library));
        messages_with_data_are_strays("tcp;ofi_rxm", Some(&library));
    }

    #[test]
    fn messages_with_data_are_strays_over_net() {
        messages_with_data_are_strays("net", None);
    }

    #[test]
    fn messages_with_data_are_strays_over_rxm() {
        messages_with_data_are_strays("tcp;ofi_rxm", None);
    }

    #[test]
    fn messages_with_data_are_strays_over_sockets() {
        messages_with_data_are_strays("sockets", None);
    }
}
