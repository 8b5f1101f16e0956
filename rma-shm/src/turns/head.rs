//! Turns in the shared memory of an endpoint: the words, and how long others are waited for.

use core::sync::atomic::{AtomicU64, Ordering};

use super::TurnWord;
use crate::address::Identity;
use crate::guard;
use crate::head::{BusyWord, Claim, ClaimState, Head, TURN, WHOSE_TURN};

impl Head {
    /// The word of a region that says whose turn it is.
    #[inline]
    pub(crate) fn turn_word(&self, region: usize) -> RegionTurn<'_> {
        RegionTurn(self.region_word(region, WHOSE_TURN))
    }

    /// Waits for the accesses to regions that are under way, but for those of `lane`, or of the owner if there is none: as long
    /// as short ones take. Whether all are over that have not seen what was written before.
    #[cold]
    #[inline(never)]
    pub(crate) fn settle(&self, lane: Option<usize>) -> bool {
        if !self.fence_for_all() {
            return false;
        }
        let is_over = |busy: BusyWord<'_>| {
            let mut turns = 0;
            guard::wait(&busy, || pause(&mut turns))
        };
        let owner = lane.is_none() || is_over(self.owner_busy());
        owner
            && (0..self.lanes_used()).filter(|&other| Some(other) != lane).all(|other| {
                let claim = Claim::decode(self.claim(other).load(Ordering::Acquire));
                let is_used = claim.state != ClaimState::Free;
                !is_used || is_over(self.busy(other)) || !self.is_sender_running(other, claim)
            })
    }

    /// Takes a turn from its holder, if that has died.
    #[cold]
    #[inline(never)]
    pub(crate) fn take_turn_from_dead(&self, region: usize, seen: u64) {
        let Some(holder) = super::holder(seen) else { return };
        if !self.is_there(Identity::of_turn(holder)) {
            super::take_from_dead(&self.turn_word(region), seen);
        }
    }

    /// Takes the turn of changing elements at addresses that the processor has no atomics for, if nobody has it who
    /// lives. To be given back in the same call.
    pub(crate) fn take_turn(&self, own: Identity) -> bool {
        let word = self.mapping.word(TURN);
        let take = |from| word.compare_exchange(from, own.turn(), Ordering::Acquire, Ordering::Relaxed);
        match take(0) {
            Ok(_) => true,
            Err(holder) => !self.is_there(Identity::of_turn(holder)) && take(holder).is_ok(),
        }
    }

    /// Takes every turn from a process that has died.
    pub(crate) fn give_turns(&self, dead: Identity) {
        self.give_turn(dead);
        for region in 0..self.regions_used() {
            let word = self.turn_word(region);
            let seen = TurnWord::load(&word);
            if super::holder(seen) == Some(dead.turn()) {
                super::take_from_dead(&word, seen);
            }
        }
    }

    /// Gives it back.
    pub(crate) fn give_turn(&self, own: Identity) {
        let word = self.mapping.word(TURN);
        // Another one has taken it only from who was dead.
        let _ = word.compare_exchange(own.turn(), 0, Ordering::Release, Ordering::Relaxed);
    }
}

/// See [`Head::turn_word`].
#[derive(Debug)]
pub(crate) struct RegionTurn<'a>(&'a AtomicU64);

impl TurnWord for RegionTurn<'_> {
    #[inline]
    fn load(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    #[inline]
    fn change(&self, from: u64, into: u64) -> bool {
        self.0.compare_exchange(from, into, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    #[inline]
    fn set(&self, word: u64) {
        self.0.swap(word, Ordering::SeqCst);
    }
}

/// Waits a little for another process: spins, and then lets others run. Whether to go on.
pub(super) fn pause(turns: &mut u32) -> bool {
    *turns += 1;
    if *turns <= SPINS_MAX {
        core::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
    *turns < SPINS_MAX + YIELDS_MAX
}

/// How long others are waited for that change elements: some microseconds, and then until they have had a processor.
const SPINS_MAX: u32 = 200;
const YIELDS_MAX: u32 = 64;
