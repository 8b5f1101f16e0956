//! What a peer's processor is asked to do: small copies and atomics.

use core::hint;
use core::ptr;
use std::os::fd::OwnedFd;

use rma_core::dtype::Dtype;
use rma_core::ids::PeerAddr;
use rma_core::op::ReduceOp;
use rma_core::provider::{Atomic, LocalPiece, PostError, RemoteAddr};

use crate::assist::{Asking, Change, Element, Kind, May, Outcome, Request, Slot, What};
use crate::attach::Direction;
use crate::bell::Bell;
use crate::endpoint::{Inbox, ShmEndpoint};
use crate::error::ENDED;
use crate::head::Head;
use crate::options::Reach;
use crate::own::Own;
use crate::peer::Known;
use crate::process::has_ended;

impl ShmEndpoint {
    /// Has the peer's processor do a small copy. `false`: it has not, and will not.
    ///
    /// # Safety
    /// The local piece, of as many bytes as a slot has, is readable, for gets writable.
    #[inline(never)]
    pub(crate) unsafe fn ask_for_copy(
        &mut self,
        to: PeerAddr,
        direction: Direction,
        local: LocalPiece,
        (known, base): (Known, u64),
    ) -> Result<bool, PostError> {
        let (peer, inbox, own) = self.apart(to)?;
        match peer.may_assist(true) {
            May::Not => return Ok(false),
            May::Ask => {}
            May::Wake => peer.wake_if_asleep(),
        }
        let lane = peer.lane;
        let (slot, asking, head, process) = peer.slot();
        let (region, sequence, len) = (known.slot, known.sequence, local.len);
        let what = What::Copy { direction, len };
        slot.write(&Request { what, region, sequence, offset: known.offset_of(base) });
        if direction == Direction::Put {
            // SAFETY: the source is readable, by the caller's promise, and no part of a slot, which has so much room.
            unsafe { ptr::copy_nonoverlapping(local.base, slot.data(), len) };
        }
        match (ask(asking, &slot, (head, lane), process, inbox, own), direction) {
            (Outcome::Done, Direction::Get) => {
                // SAFETY: the destination is writable, by the caller's promise; see above.
                unsafe { ptr::copy_nonoverlapping(slot.data(), local.base, len) };
                Ok(true)
            }
            (Outcome::Done, Direction::Put) => Ok(true),
            (Outcome::Refused | Outcome::Left, _) => Ok(false),
            (Outcome::Ended, _) => {
                self.peer_lost(to, ENDED);
                Err(PostError::Failed(ENDED))
            }
        }
    }

    /// Has the peer's processor do an atomic. `false`: it has not, and will not, or has ended.
    ///
    /// # Safety
    /// As for [`rma_core::provider::Endpoint::assist`].
    #[inline(never)]
    pub(crate) unsafe fn ask_for_atomic(
        &mut self,
        to: PeerAddr,
        atomic: Atomic,
        at: RemoteAddr,
        (dtype, op): (Dtype, ReduceOp),
    ) -> bool {
        if self.reach() == Reach::Packets || self.present(to).is_none() {
            return false;
        }
        let Ok((peer, inbox, own)) = self.apart(to) else { return false };
        let Ok(known) = peer.region(at.key) else { return false };
        let len = dtype.size();
        // Who sleeps is woken by the packet.
        if known.at(at.addr, len).is_err() || peer.may_assist(false) != May::Ask {
            return false;
        }
        let (kind, operand, compare, result) = match atomic {
            Atomic::Reduce { operand } => (Kind::Reduce, operand, ptr::null(), ptr::null_mut()),
            Atomic::Fetch { result, .. } if op == ReduceOp::NoOp => {
                (Kind::Fetch, ptr::null(), ptr::null(), result)
            }
            Atomic::Fetch { operand, result } => (Kind::Fetch, operand, ptr::null(), result),
            Atomic::Swap { operand, compare, result } => (Kind::Swap, operand, compare, result),
        };
        // SAFETY: readable, by the caller's promise, or null; so for both.
        let operand = unsafe { element_at(operand, len) };
        // SAFETY: as above.
        let compare = unsafe { element_at(compare, len) };
        let what = What::Change(Change { kind, dtype, op, operand, compare });
        let (region, sequence, offset) = (known.slot, known.sequence, known.offset(at.addr));
        let lane = peer.lane;
        let (slot, asking, head, process) = peer.slot();
        slot.write(&Request { what, region, sequence, offset });
        match ask(asking, &slot, (head, lane), process, inbox, own) {
            Outcome::Done => {
                if !result.is_null() {
                    // SAFETY: the result is writable for an element, by the caller's promise, and elements are no longer.
                    unsafe { ptr::copy_nonoverlapping(slot.result().as_ptr(), result, len) };
                }
                true
            }
            Outcome::Refused | Outcome::Left => false,
            Outcome::Ended => {
                self.peer_lost(to, ENDED);
                false
            }
        }
    }
}

/// Asks for what was written into the slot.
#[inline(always)]
fn ask(
    asking: &mut Asking,
    slot: &Slot<'_>,
    (head, lane): (&Head, usize),
    process: &Option<OwnedFd>,
    inbox: &mut Inbox,
    own: &Own,
) -> Outcome {
    asking.post(slot);
    head.mark(lane);
    asking.wait(slot, |is_long| {
        // Who asks this process meanwhile is served: two that ask each other would wait for nothing.
        inbox.serve_slots(own);
        if is_long {
            std::thread::yield_now();
            return !process.as_ref().is_some_and(has_ended);
        }
        hint::spin_loop();
        true
    })
}

/// The element of `len` bytes at `from`; zeros where that is null.
///
/// # Safety
/// `from` is null, or readable for `len` bytes, which are no more than an element has.
#[inline]
unsafe fn element_at(from: *const u8, len: usize) -> Element {
    let mut element = Element::default();
    if !from.is_null() {
        // SAFETY: by the caller's promise.
        unsafe { ptr::copy_nonoverlapping(from, element.as_mut_ptr(), len) };
    }
    element
}
