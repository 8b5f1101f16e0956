//! Once a rank is lost, others may free a window without this one, and never come to what it waits for. So who waits asks, again
//! and again, whether they still have the window. Who has it says nothing; who has freed it answers.

use super::peers::Place;
use super::{Process, Windows};
use crate::bootstrap::Bootstrap;
use crate::pool::NONE;
use crate::provider::{Endpoint, PostError};
use crate::state::TargetLockState;
use crate::table::TargetElement;
use crate::window::Window;
use crate::wire::{Header, PacketKind, QueryFlags};

/// Ranks that are asked about one window at a time; of more, others the next time.
const ASKED_MAX: usize = 64;

/// Whom to ask, and how the answer has to come.
type Question = (Place, QueryFlags);

/// Those of the ranks that are waited for whose turn it is.
struct Asked {
    questions: [Option<Question>; ASKED_MAX],
    /// How many there are in all, and from which on it is whose turn.
    total: usize,
    from: usize,
}

impl Asked {
    fn add(&mut self, question: Question) {
        if let Some(place) = self.total.checked_sub(self.from).and_then(|at| self.questions.get_mut(at)) {
            *place = Some(question);
        }
        self.total += 1;
    }
}

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// Whether others may have freed windows without this rank.
    #[inline]
    pub(crate) fn must_inquire(&self) -> bool {
        self.is_mourning() || self.flood.has_begun
    }

    /// Asks all that are waited for, on each window as many as may be.
    #[cold]
    pub(crate) fn inquire(&mut self, windows: &mut Windows<E::Region, E::Passage>) {
        if !self.must_inquire() {
            return;
        }
        self.inquiries = self.inquiries.wrapping_add(1);
        for w in windows.iter_mut().filter(|w| w.usable) {
            self.inquire_about(w);
        }
    }

    fn inquire_about(&mut self, w: &mut Window<E::Region>) {
        let mut asked = Asked { questions: [None; ASKED_MAX], total: 0, from: 0 };
        self.find_awaited(w, &mut asked);
        if asked.total > ASKED_MAX {
            let turns = asked.total.div_ceil(ASKED_MAX);
            let from = self.inquiries as usize % turns * ASKED_MAX;
            asked = Asked { questions: [None; ASKED_MAX], total: 0, from };
            self.find_awaited(w, &mut asked);
        }
        for (place, flags) in asked.questions.into_iter().flatten() {
            self.ask_whether_there(w, place, flags);
        }
    }

    /// Whose answers are waited for, whose posts, and whose COMPLETEs.
    fn find_awaited(&self, w: &Window<E::Region>, asked: &mut Asked) {
        let (me, answer) = (self.rank, QueryFlags::PRESENCE);
        let mut t = w.slots.next(&self.targets, NONE);
        while let Some(index) = t {
            let te = &self.targets[index];
            if te.rank != me && owes_answer(te) {
                asked.add((Place::of_target(w, te.rank), answer));
            }
            t = w.slots.next(&self.targets, index);
        }
        for rank in w.cursor.unanswered().iter().chain(w.acks.iter()) {
            asked.add((Place::of_target(w, rank), answer));
        }
        for rank in w.access.unposted().filter(|rank| *rank != me) {
            asked.add((Place::of(rank), answer | QueryFlags::COMING));
        }
        for rank in w.exposure.uncompleted().filter(|rank| *rank != me) {
            asked.add((Place::of(rank), answer | QueryFlags::COMING | QueryFlags::BEHIND_REQUESTS));
        }
    }

    /// Asks one; who cannot be asked any more is lost.
    fn ask_whether_there(&mut self, w: &mut Window<E::Region>, place: Place, flags: QueryFlags) {
        let rank = place.rank();
        if self.losses.reason(rank).is_some() {
            return;
        }
        let peer = match self.peer_at(place) {
            Ok(Some(peer)) => peer,
            Ok(None) => return,
            Err(code) => return self.lose_rank(w, rank, code),
        };
        let (kind, sender) = (PacketKind::PostQuery, self.rank);
        let header = Header { kind, flags: flags.0, count: 0, window: w.id, sender, token: 0 };
        let introduced = if place.is_ghost() { self.reintroduce(peer) } else { Ok(()) };
        let sent = introduced.and_then(|()| self.send(peer, kind, &header.encode(), &[]));
        if let Err(PostError::Failed(code)) = sent {
            self.note_peer_failure(rank, code);
            self.lose_rank(w, rank, code);
        }
    }
}

/// Whether something was sent to the target that it has to answer. What is asked of its words nobody answers.
fn owes_answer(te: &TargetElement) -> bool {
    let is_asked = te.lock == TargetLockState::Issued || te.sync_sent || !te.is_flushed();
    is_asked && !te.is_dead() && te.words.is_idle()
}
