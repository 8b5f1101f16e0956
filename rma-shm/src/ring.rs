//! A ring of packets from one process to another: one writes, one reads, and neither waits for the other.
//!
//! Both ends keep their own position to themselves and publish it: what a process that dies has not published
//! was never sent, and stands in nobody's way. A packet is a word with its length, then its bytes, padded to
//! a word; it may wrap around the end. Positions count bytes, modulo 2^64, and never go back.
//!
//! What the other end publishes is not believed: a position that cannot be is [`Nonsense`].

/// The shared half of a ring, as both ends see it.
pub(crate) trait Ring {
    /// Bytes, a power of two and a multiple of [`WORD`].
    fn capacity(&self) -> usize;
    /// Where the writer has published up to; what was written before it is seen then.
    fn written(&self) -> u64;
    /// Publishes what was written.
    fn publish(&self, position: u64);
    /// Where the reader has read up to; what it has read may be overwritten then.
    fn consumed(&self) -> u64;
    /// Gives back what was read.
    fn give_back(&self, position: u64);
    /// Writes to bytes that are the writer's. `at + src.len()` is within the ring.
    fn write(&self, at: usize, src: &[u8]);
    /// Reads bytes that are the reader's. `at + dst.len()` is within the ring.
    fn read(&self, at: usize, dst: &mut [u8]);
}

/// The other end has published a position, or a length, that cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Nonsense;

/// Bytes of the word with the length, and what packets are padded to.
pub(crate) const WORD: usize = 8;

/// The writing end.
#[derive(Debug)]
pub(crate) struct Writer {
    written: u64,
    /// The reader's position when it was last looked at.
    consumed: u64,
}

impl Writer {
    /// Goes on where the last writer stopped.
    pub(crate) fn new(ring: &impl Ring) -> Self {
        Self { written: ring.written(), consumed: ring.consumed() }
    }

    /// Writes a packet of two parts, one behind the other. `false`: there is no room, and nothing has
    /// happened.
    #[inline]
    pub(crate) fn push(&mut self, ring: &impl Ring, parts: [&[u8]; 2]) -> Result<bool, Nonsense> {
        let len = parts[0].len() + parts[1].len();
        let needed = WORD + len.next_multiple_of(WORD);
        if !self.has_room(ring, needed)? {
            return Ok(false);
        }
        put(ring, self.written, &(len as u64).to_ne_bytes());
        // The first position is what was found in the ring, and may be any number.
        let first = self.written.wrapping_add(WORD as u64);
        put(ring, first, parts[0]);
        put(ring, first.wrapping_add(parts[0].len() as u64), parts[1]);
        self.written = self.written.wrapping_add(needed as u64);
        ring.publish(self.written);
        Ok(true)
    }

    /// Whether the reader has left room for so many bytes.
    #[inline]
    pub(crate) fn has_room(&mut self, ring: &impl Ring, needed: usize) -> Result<bool, Nonsense> {
        let (capacity, needed) = (ring.capacity() as u64, needed as u64);
        let free = |consumed: u64| capacity.checked_sub(self.written.wrapping_sub(consumed));
        if free(self.consumed).is_some_and(|free| free >= needed) {
            return Ok(true);
        }
        let consumed = ring.consumed();
        let free = free(consumed).ok_or(Nonsense)?;
        self.consumed = consumed;
        Ok(free >= needed)
    }
}

/// The reading end.
#[derive(Debug)]
pub(crate) struct Reader {
    consumed: u64,
}

impl Reader {
    pub(crate) fn new() -> Self {
        Self { consumed: 0 }
    }

    /// Whether there is a packet.
    #[inline]
    pub(crate) fn has_packet(&self, ring: &impl Ring) -> bool {
        ring.written() != self.consumed
    }

    /// Moves the next packet to `into`: how long it is.
    #[inline]
    pub(crate) fn pop(&mut self, ring: &impl Ring, into: &mut [u8]) -> Result<Option<usize>, Nonsense> {
        let there = ring.written().wrapping_sub(self.consumed);
        if there == 0 {
            return Ok(None);
        }
        if there < WORD as u64 || there > ring.capacity() as u64 {
            return Err(Nonsense);
        }
        let mut word = [0; WORD];
        take(ring, self.consumed, &mut word);
        let len = usize::try_from(u64::from_ne_bytes(word)).map_err(|_| Nonsense)?;
        let into = into.get_mut(..len).ok_or(Nonsense)?;
        let needed = (WORD + len.next_multiple_of(WORD)) as u64;
        if needed > there {
            return Err(Nonsense);
        }
        take(ring, self.consumed.wrapping_add(WORD as u64), into);
        self.consumed = self.consumed.wrapping_add(needed);
        ring.give_back(self.consumed);
        Ok(Some(len))
    }
}

#[inline]
fn put(ring: &impl Ring, position: u64, src: &[u8]) {
    let at = position as usize & (ring.capacity() - 1);
    let (before_end, wrapped) = src.split_at(src.len().min(ring.capacity() - at));
    ring.write(at, before_end);
    if !wrapped.is_empty() {
        ring.write(0, wrapped);
    }
}

#[inline]
fn take(ring: &impl Ring, position: u64, dst: &mut [u8]) {
    let at = position as usize & (ring.capacity() - 1);
    let before_end = dst.len().min(ring.capacity() - at);
    let (before_end, wrapped) = dst.split_at_mut(before_end);
    ring.read(at, before_end);
    if !wrapped.is_empty() {
        ring.read(0, wrapped);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    struct Local {
        bytes: RefCell<Vec<u8>>,
        written: Cell<u64>,
        consumed: Cell<u64>,
    }

    impl Local {
        fn new(capacity: usize) -> Self {
            Self { bytes: RefCell::new(vec![0; capacity]), written: Cell::new(0), consumed: Cell::new(0) }
        }
    }

    impl Ring for Local {
        fn capacity(&self) -> usize {
            self.bytes.borrow().len()
        }
        fn written(&self) -> u64 {
            self.written.get()
        }
        fn publish(&self, position: u64) {
            self.written.set(position);
        }
        fn consumed(&self) -> u64 {
            self.consumed.get()
        }
        fn give_back(&self, position: u64) {
            self.consumed.set(position);
        }
        fn write(&self, at: usize, src: &[u8]) {
            self.bytes.borrow_mut()[at..at + src.len()].copy_from_slice(src);
        }
        fn read(&self, at: usize, dst: &mut [u8]) {
            dst.copy_from_slice(&self.bytes.borrow()[at..at + dst.len()]);
        }
    }

    #[test]
    fn packets_of_all_lengths_go_around() {
        let ring = Local::new(64);
        let (mut writer, mut reader) = (Writer::new(&ring), Reader::new());
        let mut into = [0; 56];
        for round in 0..500_usize {
            let packet: Vec<u8> = (0..round % 57).map(|index| (index * 7 + round) as u8).collect();
            let (header, payload) = packet.split_at(packet.len() / 3);
            assert_eq!(writer.push(&ring, [header, payload]), Ok(true), "round {round}");
            assert!(reader.has_packet(&ring));
            let len = reader.pop(&ring, &mut into).unwrap().unwrap();
            assert_eq!(into[..len], packet);
            assert_eq!(reader.pop(&ring, &mut into), Ok(None));
        }
    }

    #[test]
    fn a_full_ring_takes_nothing() {
        let ring = Local::new(64);
        let (mut writer, mut reader) = (Writer::new(&ring), Reader::new());
        for _ in 0..4 {
            assert_eq!(writer.push(&ring, [b"12345678", b""]), Ok(true));
        }
        let before = ring.bytes.borrow().clone();
        assert_eq!(writer.push(&ring, [b"", b""]), Ok(false));
        assert_eq!((ring.bytes.borrow().clone(), ring.written()), (before, 64));
        let mut into = [0; 8];
        assert_eq!(reader.pop(&ring, &mut into), Ok(Some(8)));
        assert_eq!(writer.push(&ring, [b"abcd", b"efgh"]), Ok(true));
        for expected in [b"12345678", b"12345678", b"12345678", b"abcdefgh"] {
            assert_eq!(reader.pop(&ring, &mut into), Ok(Some(8)));
            assert_eq!(&into, expected);
        }
    }

    #[test]
    fn a_second_writer_goes_on_where_the_first_has_published() {
        let ring = Local::new(64);
        let mut reader = Reader::new();
        assert_eq!(Writer::new(&ring).push(&ring, [b"first", b""]), Ok(true));
        // Written by one that died before it could publish.
        ring.write(16, &[0xff; 16]);
        assert_eq!(Writer::new(&ring).push(&ring, [b"second", b""]), Ok(true));
        let mut into = [0; 8];
        assert_eq!(reader.pop(&ring, &mut into), Ok(Some(5)));
        assert_eq!(reader.pop(&ring, &mut into), Ok(Some(6)));
        assert_eq!(&into[..6], b"second");
    }

    /// A writer goes on wherever the ring says that the last one has stopped: be it at the end of all numbers.
    #[test]
    fn positions_begin_again() {
        for first in [u64::MAX, u64::MAX - 7, u64::MAX - 15, u64::MAX - 40] {
            let ring = Local::new(64);
            ring.publish(first);
            ring.give_back(first);
            let (mut writer, mut reader) = (Writer::new(&ring), Reader { consumed: first });
            let mut into = [0; 56];
            for round in 0..9_usize {
                let packet = [round as u8; 13];
                let (header, payload) = packet.split_at(round);
                assert_eq!(writer.push(&ring, [header, payload]), Ok(true), "{first:#x} {round}");
                assert_eq!(reader.pop(&ring, &mut into), Ok(Some(13)), "{first:#x} {round}");
                assert_eq!(into[..13], packet);
            }
        }
        // More than there is room for was never read.
        let ring = Local::new(64);
        ring.publish(u64::MAX);
        ring.give_back(u64::MAX - 65);
        assert_eq!(Writer::new(&ring).push(&ring, [b"x", b""]), Err(Nonsense));
    }

    #[test]
    fn positions_and_lengths_that_cannot_be_are_nonsense() {
        let mut into = [0; 64];
        for (written, len) in
            [(65, 0), (7, 0), (u64::MAX, 0), (16, 9), (16, 65), (16, u64::MAX), (16, u64::MAX - 7)]
        {
            let ring = Local::new(64);
            ring.write(0, &len.to_ne_bytes());
            ring.publish(written);
            assert_eq!(Reader::new().pop(&ring, &mut into), Err(Nonsense), "{written} {len}");
        }
        let ring = Local::new(64);
        let mut writer = Writer::new(&ring);
        assert_eq!(writer.push(&ring, [&[0; 56], b""]), Ok(true));
        for consumed in [65, u64::MAX] {
            ring.give_back(consumed);
            assert_eq!(writer.push(&ring, [b"x", b""]), Err(Nonsense), "{consumed}");
        }
    }
}
