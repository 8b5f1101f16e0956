//! What this process does as a target for an atomic that comes alone and asks for nothing but its answer, as those of a program do
//! that flushes each: the steps of [`on_batch`](super::target_role) without those that would find nothing.

use super::{Place, Process, Windows};
use crate::bootstrap::Bootstrap;
use crate::dtype::Dtype;
use crate::ids::Rank;
use crate::message::execute_element;
use crate::provider::{Endpoint, PostError};
use crate::window::Window;
use crate::wire::{BatchFlags, Header, PacketKind, Reader, Record, ReplyFlags, ResultRecord};

/// Where the result begins in an answer.
const RESULT_AT: usize = Header::BYTES + ResultRecord::BYTES;
/// Bytes of the longest answer: its result is one element.
const ANSWER_BYTES_MAX: usize = RESULT_AT + Dtype::SIZE_MAX;

/// Whether a batch may be one of those, as far as its header tells.
#[inline]
pub(super) fn may_be_alone(header: &Header) -> bool {
    let asks_one = matches!(BatchFlags(header.flags), BatchFlags::DONE | BatchFlags::ACK_WITH_RESULT);
    header.count == 1 && asks_one
}

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// Executes and answers a batch that [may be alone](may_be_alone), if it is. `false`: it goes the way of others, and nothing has
    /// happened. There is a free reply buffer.
    #[inline]
    pub(super) fn serve_alone(
        &mut self,
        windows: &Windows<E::Region, E::Passage>,
        header: &Header,
        reader: &Reader<'_>,
    ) -> bool {
        debug_assert!(self.replies.has_room(), "an answer may have to wait");
        // Nothing that is done here depends on the window's epochs, or changes them.
        let window = windows.peek(header.window).filter(|w| is_plain(w));
        let Some(w) = window else { return false };
        let Some((record, payload)) = Record::decode_element(reader) else { return false };
        let has_result = record.kind.has_result();
        let flags = if has_result { ReplyFlags::default() } else { ReplyFlags::DONE_ACK };
        // A result that comes with DONE has its acknowledgement in a packet of its own; what has none and asks for one with it has
        // no answer.
        if has_result == BatchFlags(header.flags).has(BatchFlags::DONE) || self.replies.waiting_count() > 0 {
            return false;
        }
        let to = header.sender;
        let Some(peer) = self.peers.get(Place::of(to)) else { return false };
        let mut answer = [0; ANSWER_BYTES_MAX];
        let (len, end) = if has_result { (record.len as usize, RESULT_AT) } else { (0, Header::BYTES) };
        let Some(result) = answer.get_mut(end..end + len) else { return false };
        if execute_element(&w.memory, &w.own, &record, payload, result).is_err() {
            // It is refused there once more, and answered with why.
            return false;
        }
        self.counters.payload_bytes_copied += (payload.len() + len) as u64;
        let header = Header {
            kind: PacketKind::Reply,
            flags: flags.0,
            count: has_result.into(),
            window: w.id,
            sender: self.rank,
            token: header.token,
        };
        answer[..Header::BYTES].copy_from_slice(&header.encode());
        if has_result {
            let Record { handle, generation, len, .. } = record;
            let head = ResultRecord { handle, generation, len, offset: 0 };
            answer[Header::BYTES..RESULT_AT].copy_from_slice(&head.to_bytes());
        }
        let packet = &answer[..end + len];
        if self.send(peer, header.kind, packet, &[]) == Err(PostError::Again) {
            self.keep_answer(to, packet);
        }
        true
    }

    /// Sends an answer later: there is no room for it now.
    #[cold]
    #[inline(never)]
    fn keep_answer(&mut self, to: Rank, packet: &[u8]) {
        let Some((index, mut buffer)) = self.replies.take() else { return };
        buffer[..packet.len()].copy_from_slice(packet);
        self.replies.wait(to, index, buffer, packet.len());
    }
}

/// Whether nothing about the window makes more of an operation that is executed there.
#[inline]
fn is_plain<R>(w: &Window<R>) -> bool {
    w.checker.is_none() && w.dynamic.is_none() && w.words.is_none() && !w.is_served
}
