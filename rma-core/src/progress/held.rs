//! Requests that wait for a reply buffer, in the order in which they came.
//!
//! Packets wait where the provider has lent them, which holds those behind them back: there are never more than it has
//! buffers. Data of puts are copied, because a fabric may have nothing to hold them back with. What bounds them is the
//! protocol. Data end an epoch for which this process has granted a lock or posted, so of one origin and one window there
//! is one at most that has not been served: the grant, or the post, of the next epoch comes after it. (A grant by words of
//! memory does not, but the end of what it begins is no data; and who is told of posts by words has no data to him.) So
//! room is made where windows are, for the data of as many peers as are known at one time, and more ranks than that have
//! to wait here all at once to have it grow, as the table of peers does. Data beyond one for each rank and window are
//! nobody's who keeps the protocol, and are dropped.

use alloc::collections::VecDeque;

use crate::provider::ReceivedPacket;

/// One that waits.
#[derive(Debug)]
pub(crate) enum Held {
    Packet(ReceivedPacket),
    /// The first bytes of the word.
    Data {
        word: [u8; 8],
        len: u8,
    },
}

/// All that wait.
#[derive(Debug)]
pub(crate) struct HeldRequests {
    queue: VecDeque<Held>,
    /// How many of them are data, and may be.
    data: usize,
    data_max: usize,
    receive_buffers: usize,
}

impl HeldRequests {
    pub(crate) fn new(receive_buffers: usize) -> Self {
        Self { queue: VecDeque::with_capacity(receive_buffers), data: 0, data_max: 0, receive_buffers }
    }

    /// There are so many windows of so many ranks, of which so many are known at one time. Room stays when windows go.
    pub(crate) fn make_room(&mut self, windows: usize, ranks: usize, known: usize) {
        self.data_max = self.data_max.max(windows.saturating_mul(ranks));
        let wanted = self.receive_buffers + windows.saturating_mul(known.min(ranks));
        self.queue.reserve(wanted.saturating_sub(self.queue.len()));
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn keep_packet(&mut self, packet: ReceivedPacket) {
        self.queue.push_back(Held::Packet(packet));
    }

    /// `false`: so many never wait, and these do not.
    pub(crate) fn keep_data(&mut self, bytes: &[u8]) -> bool {
        let mut word = [0; 8];
        let Some(place) = word.get_mut(..bytes.len()).filter(|_| self.data < self.data_max) else {
            return false;
        };
        place.copy_from_slice(bytes);
        self.data += 1;
        self.queue.push_back(Held::Data { word, len: bytes.len() as u8 });
        true
    }

    /// The one that has waited longest.
    pub(crate) fn pop(&mut self) -> Option<Held> {
        let first = self.queue.pop_front();
        self.data -= usize::from(matches!(first, Some(Held::Data { .. })));
        first
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.queue.capacity() * size_of::<Held>()
    }
}

#[cfg(test)]
mod tests {
    use core::ptr::NonNull;

    use super::*;

    fn packet(buffer: u32) -> ReceivedPacket {
        ReceivedPacket { data: NonNull::dangling(), len: 0, buffer }
    }

    #[test]
    fn what_waits_has_room_and_a_bound() {
        let mut held = HeldRequests::new(3);
        assert!(!held.keep_data(&[0; 4]), "there is no window");
        held.make_room(2, 5, 4);
        let room = held.bytes();
        for round in 0..4_u32 {
            (0..3).for_each(|buffer| held.keep_packet(packet(buffer)));
            for data in 0..8 {
                assert!(held.keep_data(&(round + data).to_le_bytes()));
            }
            assert!(round > 0 || held.bytes() == room, "nothing is allocated for the peers that are known");
            assert!(held.keep_data(&[1; 8]) && held.keep_data(&[2; 8]));
            for _ in 0..1000 {
                assert!(!held.keep_data(&[3; 8]), "one for each rank and window");
            }
            for buffer in 0..3 {
                let Some(Held::Packet(first)) = held.pop() else { panic!("packets came first") };
                assert_eq!(first.buffer, buffer);
            }
            for data in 0..8 {
                let Some(Held::Data { word, len: 4 }) = held.pop() else { panic!("data came then") };
                assert_eq!(word[..4], (round + data).to_le_bytes());
            }
            assert!(matches!(held.pop(), Some(Held::Data { word: [1, ..], len: 8 })));
            assert!(held.pop().is_some() && held.pop().is_none() && held.is_empty());
        }
        assert!(held.bytes() <= 2 * room);
    }
}
