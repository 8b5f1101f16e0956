//! Requests that wait for a reply buffer, in the order in which they came.
//!
//! Packets wait where the provider has lent them, which holds those behind them back: there are never more than it has
//! buffers. Data of puts are copied, because a fabric may have nothing to hold them back with. What bounds them is the
//! protocol. Data end an epoch for which this process has granted a lock or posted, so of one origin and one window there
//! is one at most that has not been served: the grant, or the post, of the next epoch comes after it. (A grant by words of
//! memory does not, but the end of what it begins is no data; and who is told of posts by words has no data to him.) So
//! room is made where windows are, for the data of as many peers as are known at one time, and more ranks than that have
//! to wait here all at once to have it grow, as the table of peers does.
//!
//! Data that say what others say that wait already are nobody's who keeps the protocol, and are dropped; so are those of
//! windows and of ranks that there are not, before they come here. So no more wait than there are things to say, and as
//! nothing else is dropped, nobody can fill the room of others: not in their name either, because what he says for them
//! is of the same effect.

use alloc::collections::VecDeque;

use crate::provider::ReceivedPacket;
use crate::wire::{decode_data, Header};

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

impl Held {
    /// Whether it is data that say this.
    fn says(&self, said: &Header) -> bool {
        match self {
            Self::Packet(_) => false,
            Self::Data { word, len } => {
                let bytes = word.get(..usize::from(*len)).unwrap_or_default();
                decode_data(bytes).is_ok_and(|header| header == *said)
            }
        }
    }
}

/// All that wait.
#[derive(Debug)]
pub(crate) struct HeldRequests {
    queue: VecDeque<Held>,
    receive_buffers: usize,
}

impl HeldRequests {
    pub(crate) fn new(receive_buffers: usize) -> Self {
        Self { queue: VecDeque::with_capacity(receive_buffers), receive_buffers }
    }

    /// There are so many windows, and so many ranks are known at one time. Room stays when windows go.
    pub(crate) fn make_room(&mut self, windows: usize, known: usize) {
        let wanted = self.receive_buffers + windows.saturating_mul(known);
        self.queue.reserve(wanted.saturating_sub(self.queue.len()));
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn keep_packet(&mut self, packet: ReceivedPacket) {
        self.queue.push_back(Held::Packet(packet));
    }

    /// `false`: they say nothing, or what others say that wait.
    pub(crate) fn keep_data(&mut self, bytes: &[u8]) -> bool {
        let mut word = [0; 8];
        let (Some(place), Ok(said)) = (word.get_mut(..bytes.len()), decode_data(bytes)) else {
            return false;
        };
        place.copy_from_slice(bytes);
        let is_new = !self.queue.iter().any(|held| held.says(&said));
        if is_new {
            self.queue.push_back(Held::Data { word, len: bytes.len() as u8 });
        }
        is_new
    }

    /// The one that has waited longest.
    pub(crate) fn pop(&mut self) -> Option<Held> {
        self.queue.pop_front()
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.queue.capacity() * size_of::<Held>()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;
    use core::ptr::NonNull;

    use super::*;
    use crate::ids::{Rank, WindowId};
    use crate::wire::{encode_data, BatchFlags};

    fn packet(buffer: u32) -> ReceivedPacket {
        ReceivedPacket { data: NonNull::dangling(), len: 0, buffer }
    }

    fn data(kind: BatchFlags, window: u32, sender: u32, bytes: usize) -> Vec<u8> {
        let word = encode_data(kind, WindowId(window), Rank(sender), bytes).expect("it fits");
        word.to_le_bytes()[..bytes].to_vec()
    }

    #[test]
    fn what_waits_has_room_and_a_bound() {
        let mut held = HeldRequests::new(3);
        held.make_room(2, 4);
        let room = held.bytes();
        let kinds = [BatchFlags::UNLOCK, BatchFlags::COMPLETE, BatchFlags::UNLOCK | BatchFlags::OVERTAKE];
        let all = || (0..2).flat_map(|window| (0..5).map(move |sender| (window, sender)));
        let known = || all().filter(|(_, sender)| *sender < 4);
        for round in 0..4 {
            let kind = kinds[round % 3];
            (0..3).for_each(|buffer| held.keep_packet(packet(buffer)));
            assert!(known().all(|(window, sender)| held.keep_data(&data(kind, window, sender, 4))));
            assert!(round > 0 || held.bytes() == room, "nothing is allocated for the peers that are known");
            assert!(
                [4, 8, 4, 0, 7].iter().all(|&bytes| !held.keep_data(&[0; 8][..bytes])),
                "it says nothing"
            );
            for _ in 0..100 {
                let mut again =
                    known().flat_map(|(window, sender)| [4, 8].map(|bytes| (window, sender, bytes)));
                let is_kept = |(window, sender, bytes)| held.keep_data(&data(kind, window, sender, bytes));
                assert!(!again.any(is_kept), "it waits already");
            }
            assert!(held.keep_data(&data(kind, 1, 4, 8)), "nobody has taken the room of another");
            for buffer in 0..3 {
                let Some(Held::Packet(first)) = held.pop() else { panic!("packets came first") };
                assert_eq!(first.buffer, buffer);
            }
            for (window, sender) in known() {
                let Some(Held::Data { word, len: 4 }) = held.pop() else { panic!("data came then") };
                assert_eq!(word[..4], data(kind, window, sender, 4));
            }
            assert!(matches!(held.pop(), Some(Held::Data { len: 8, .. })));
            assert!(held.pop().is_none() && held.is_empty());
        }
        let everything = all().flat_map(|(window, sender)| kinds.map(|kind| (kind, window, sender)));
        let is_kept = |(kind, window, sender)| held.keep_data(&data(kind, window, sender, 8));
        assert_eq!(everything.map(is_kept).filter(|kept| *kept).count(), 30);
        assert!(held.bytes() <= 4 * room);
    }
}
