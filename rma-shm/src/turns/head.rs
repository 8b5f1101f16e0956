//! Turns in the shared memory of an endpoint: the words, and how long others are waited for.

use core::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{Size, TurnWord};
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
        // One time for all.
        let mut patience = Patience::of(SETTLE_MAX);
        let mut is_over = |busy: BusyWord<'_>| guard::wait(&busy, || patience.pause());
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

/// Waits for other processes, each time a little: spins, and then lets others run.
#[derive(Debug)]
pub(crate) struct Patience {
    spins: u32,
    since: Option<Instant>,
    limit: Duration,
}

impl Patience {
    pub(super) fn of(limit: Duration) -> Self {
        Self { spins: 0, since: None, limit }
    }

    /// That for a turn.
    pub(crate) fn for_turn() -> Self {
        Self::of(TURN_MAX)
    }

    /// Whether to go on. For a small change a hundredth of the time must do.
    pub(super) fn pause_for(&mut self, size: Size) -> bool {
        self.limit = if size == Size::Small { TURN_MAX / 100 } else { TURN_MAX };
        self.pause()
    }

    pub(super) fn pause(&mut self) -> bool {
        if self.spins < SPINS_MAX {
            self.spins += 1;
            core::hint::spin_loop();
            return true;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        std::thread::yield_now();
        since.elapsed() < self.limit
    }
}

/// Some microseconds.
const SPINS_MAX: u32 = 200;
/// How long accesses are waited for that are under way when turns begin. Nobody changes elements meanwhile.
const SETTLE_MAX: Duration = Duration::from_micros(100);
/// How long a turn is waited for: some of the longest of others, who go one after the other.
const TURN_MAX: Duration = Duration::from_millis(5);
