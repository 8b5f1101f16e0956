//! A rank is lost to one that frees a window alone: all others hear of it, so that none gives the window's memory back, which may
//! still be written to, or waits in its barrier for one that does not come. Who hears of it tells its partners.

use alloc::vec::Vec;

use super::deaths::{LEFT, WINDOW_GONE};
use super::{Failure, Process};
use crate::bootstrap::Bootstrap;
use crate::error::{Call, ErrorClass, FabricCode, RmaError, Rule};
use crate::ids::{Rank, WindowId};
use crate::pool::NONE;
use crate::provider::{Endpoint, PostError, SendClass};
use crate::state::WindowState;
use crate::table::TargetError;
use crate::window::Window;
use crate::wire::{Header, PacketKind, Purposes, WireError};

/// The reason in errors about a rank that is lost to another one only, as far as is known here.
const LOST_TO_ANOTHER: FabricCode = FabricCode {
    code: 0,
    text: "another rank has lost it, and what that one has sent may still come, so no memory of the window is given back",
};

/// Who is still to be told of a loss, whether the window is there or not.
#[derive(Debug)]
struct Untold {
    window: WindowId,
    lost: Rank,
    /// A bit for each round of a barrier whose partner has to be told.
    rounds: u32,
}

/// Losses that are still to be told.
#[derive(Debug, Default)]
pub(crate) struct Flood {
    untold: Vec<Untold>,
    /// The rank because of which this one has freed a window alone that was lost to another one.
    pub(crate) freed_for: Option<Rank>,
    /// The barrier of some window has ended because of a loss.
    pub(super) has_begun: bool,
}

impl Flood {
    /// Makes room for a loss of each of so many windows, as one may be heard of where nothing may be allocated.
    pub(crate) fn make_room(&mut self, windows: usize) {
        self.untold.reserve(windows);
    }
}

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// A rank whose operations were given up, which may live: what was sent may come to its memory yet, and the others need not
    /// hear that it is lost to this one.
    pub(crate) fn doubt(&self) -> Option<Rank> {
        let first = self.failure.as_ref().and_then(Failure::lost_peer).map(|(rank, _)| rank);
        let may_live = |rank: &Rank| !self.losses.ended().any(|ended| ended == *rank);
        first.filter(may_live).or(self.doubt)
    }

    /// This rank comes to no barrier of the window any more. Unless all hear of what is lost to it from the launcher, they hear it
    /// from this rank: as many at once as the fabric lets it tell.
    #[cold]
    #[inline(never)]
    pub(crate) fn leave_in_doubt(&mut self, w: &mut Window<E::Region>) {
        if let Some(rank) = self.doubt() {
            self.lose_barrier(w, rank);
            self.tell_of_losses_of_barriers();
        }
    }

    /// Why a barrier of a window ended so, in an error of the call.
    pub(crate) fn lost_to_another(&self, call: Call, target: Rank) -> RmaError {
        match &self.failure {
            Some(failure @ Failure::Peer(_, code)) if *code != WINDOW_GONE => failure.report(call),
            _ if target == self.rank => {
                let what = "another rank cannot reach this one any more, and what it has sent may still come, so no memory of \
                            the window is given back";
                RmaError::Invalid { call, class: ErrorClass::Other, what, rule: Rule::AllRanksOrNone }
            }
            _ => RmaError::Peer { call, target, code: LOST_TO_ANOTHER },
        }
    }

    /// The window's barrier ends, here and at all others, because a rank is lost to this one or to one that says so.
    #[cold]
    #[inline(never)]
    pub(crate) fn lose_barrier(&mut self, w: &mut Window<E::Region>, lost: Rank) {
        if w.barrier.lose(lost) {
            let rounds = u32::MAX.checked_shr(32 - u32::from(w.barrier.rounds())).unwrap_or(0);
            self.flood.untold.push(Untold { window: w.id, lost, rounds });
            self.flood.has_begun = true;
            w.dirty = true;
        }
    }

    /// Somebody tells that a rank is lost.
    #[cold]
    #[inline(never)]
    pub(super) fn on_lost_barrier(
        &mut self,
        w: &mut Window<E::Region>,
        header: &Header,
    ) -> Result<(), WireError> {
        if header.token >= self.size {
            return Err(WireError::Length(header.token));
        }
        // What neighbours have told by words before counts.
        self.advance_barrier(w);
        self.lose_barrier(w, Rank(header.token));
        Ok(())
    }

    #[inline]
    pub(super) fn spread_losses(&mut self) {
        if !self.flood.untold.is_empty() {
            self.tell_of_losses_of_barriers();
        }
    }

    /// Tells whom the fabric lets it. The others have their turn whenever progress is made.
    #[cold]
    #[inline(never)]
    pub(crate) fn tell_of_losses_of_barriers(&mut self) {
        let mut untold = core::mem::take(&mut self.flood.untold);
        untold.retain_mut(|of| {
            for round in 0..u32::BITS as u16 {
                let bit = 1 << round;
                if of.rounds & bit != 0 && self.is_told_of_loss(of, round) {
                    of.rounds &= !bit;
                }
            }
            of.rounds != 0
        });
        self.flood.untold = untold;
    }

    /// Tells the partner of a round; `false`: it has to wait. Who is dead need not be told.
    fn is_told_of_loss(&mut self, of: &Untold, round: u16) -> bool {
        let partner = self.reduce.partner(round);
        if self.losses.reason(partner).is_some() {
            return true;
        }
        let peer = match self.peer(partner) {
            Ok(Some(peer)) => peer,
            Ok(None) => return false,
            Err(_) => return true,
        };
        let (kind, flags) = (PacketKind::Barrier, Purposes::LOST.bits());
        let header =
            Header { kind, flags, count: round, window: of.window, sender: self.rank, token: of.lost.0 };
        let sent = self.send_as(SendClass::Reply, peer, kind, &header.encode(), &[]);
        sent != Err(PostError::Again)
    }

    /// Fails what is kept for a fence whose barrier has ended because a rank is lost to one: not all have come to it.
    #[cold]
    #[inline(never)]
    pub(crate) fn give_up_kept(&mut self, w: &mut Window<E::Region>) {
        if w.state() == WindowState::FenceIssued {
            self.give_up_left(w);
        }
    }

    /// Fails all that waits for a barrier that has ended so.
    pub(crate) fn give_up_left(&mut self, w: &mut Window<E::Region>) {
        let mut t = w.slots.next(&self.targets, NONE);
        while let Some(index) = t {
            t = w.slots.next(&self.targets, index);
            if !self.targets[index].is_dead() {
                self.give_up_operations(w, index, TargetError::Peer(LEFT));
            }
        }
    }
}

/// Whether it says that a rank is lost.
pub(super) fn tells_of_loss(header: &Header) -> bool {
    header.kind == PacketKind::Barrier && Purposes::from_bits(header.flags.into()).have_lost()
}
