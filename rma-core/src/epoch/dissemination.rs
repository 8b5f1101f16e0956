//! The nonblocking dissemination pattern: log2 P rounds, in round `k` each rank sends to the one
//! 2^k above it and hears from the one 2^k below.
//!
//! With no payload it is fence's barrier. With `K` numbers it is an all-reduce by maximum: every
//! rank's numbers reach every other along some path, and counting one twice does not matter for a
//! maximum, so it is right for any number of ranks.

use crate::ids::Rank;
use crate::mutation::Mutation;
use crate::wire::Purposes;

/// Sequences that may run at one time at this rank.
const IN_FLIGHT_MAX: u32 = 2;

/// A rank may hear of sequences up to this far ahead of the last that it completed: a peer can have
/// completed no sequence that this rank has not started, and starts at most `IN_FLIGHT_MAX` beyond.
const SLOTS: usize = 2 * IN_FLIGHT_MAX as usize;

/// A packet to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Round<const K: usize> {
    /// To whom.
    pub to: Rank,
    /// Which sequence.
    pub sequence: u32,
    /// Which round of it.
    pub round: u16,
    /// The largest numbers heard so far.
    pub values: [u64; K],
    /// What those who were heard of have begun it for.
    pub purposes: Purposes,
}

#[derive(Clone, Copy, Debug)]
struct Sequence<const K: usize> {
    arrived: u32,
    sent: u16,
    values: [u64; K],
    purposes: Purposes,
}

/// The state of one rank; its size does not depend on the number of ranks.
///
/// Implements: seed: PROC_SYNC.
#[derive(Debug)]
pub struct Dissemination<const K: usize> {
    rank: u32,
    size: u32,
    rounds: u16,
    /// No sequence is begun here any more.
    is_left: bool,
    /// Ranks met in one sequence that have come for different things, and all know it.
    is_mixed: bool,
    /// How many sequences were started, and how many of them are complete. Packets name a sequence by the lower half.
    started: u64,
    completed: u64,
    slots: [Sequence<K>; SLOTS],
    last: [u64; K],
    /// The sequence of which only the first round may be sent.
    held: Option<u32>,
}

impl<const K: usize> Dissemination<K> {
    const EMPTY: Sequence<K> = Sequence { arrived: 0, sent: 0, values: [0; K], purposes: Purposes::NONE };

    /// Nothing started.
    pub fn new(rank: Rank, size: u32) -> Self {
        let rounds = size.next_power_of_two().trailing_zeros() as u16;
        Self {
            rank: rank.0,
            size,
            rounds,
            is_left: false,
            is_mixed: false,
            started: 0,
            completed: 0,
            slots: [Self::EMPTY; SLOTS],
            last: [0; K],
            held: None,
        }
    }

    /// Begins the next sequence with this rank's numbers, and names it; `None` while too many run, and for ever when this
    /// rank has left, or ranks have met that came for different things.
    pub fn start(&mut self, purpose: Purposes, values: [u64; K]) -> Option<u32> {
        if self.running() >= IN_FLIGHT_MAX || self.is_left || self.is_mixed {
            return None;
        }
        self.started += 1;
        let sequence = self.started as u32;
        self.fold(sequence, purpose, values);
        self.advance();
        Some(sequence)
    }

    /// The same, but no more than the first round is sent until [`Dissemination::release`].
    pub fn start_held(&mut self, purpose: Purposes, values: [u64; K]) -> Option<u32> {
        let sequence = self.start(purpose, values)?;
        self.held = Some(sequence);
        Some(sequence)
    }

    /// A call has failed because a rank died, and nobody knows whether this rank still begins as many as the others: what
    /// they tell of one call must not be taken for news of another. What has begun goes on; this rank begins no more.
    pub fn leave(&mut self) {
        self.is_left = true;
    }

    /// Rounds of the sequence are held back no longer.
    pub fn release(&mut self, sequence: u32) {
        self.held = self.held.filter(|&held| held != sequence);
    }

    /// A round's packet arrived. `false`: it cannot belong to this job's sequences.
    pub fn on_round(&mut self, sequence: u32, round: u16, purposes: Purposes, values: [u64; K]) -> bool {
        let ahead = sequence.wrapping_sub(self.completed as u32);
        let valid = (1..=SLOTS as u32).contains(&ahead) && round < self.rounds;
        let bit = 1u32.checked_shl(round.into()).unwrap_or(0);
        if !valid || self.slots[sequence as usize % SLOTS].arrived & bit != 0 {
            return false;
        }
        self.slots[sequence as usize % SLOTS].arrived |= bit;
        self.fold(sequence, purposes, values);
        self.advance();
        true
    }

    /// Takes in what partners have written down: `told(round)` says how often the one below has told of the round, which is the
    /// sequence that it has come to, unless it tells by packets. Then it is one that is over, and stays so, also when sequences
    /// have the same lower halves again. Nothing is asked of those that are not started. Returns how much was news.
    ///
    /// What the word says of purposes is of the sequence that the partner has come to. Who has come to a later one has heard that
    /// all of whom it would tell have gone on behind this one: they had come for a fence.
    #[inline]
    pub fn hear(&mut self, told: impl Fn(u16) -> u64) -> usize {
        let (mut news, mut ahead) = (0, 1);
        while ahead <= self.running() {
            let sequence = self.completed + u64::from(ahead);
            // Of those behind it none would be of use yet.
            let round = self.slots[sequence as usize % SLOTS].arrived.trailing_ones() as u16;
            let early = u64::from(Mutation::NeighbourHeardTwice.is_on());
            ahead += 1;
            if round >= self.rounds {
                continue;
            }
            let word = told(round);
            let beyond =
                (word & (u64::MAX >> (64 - Purposes::SHIFT))).wrapping_add(early).wrapping_sub(sequence);
            if beyond >= SLOTS as u64 {
                continue;
            }
            let said = Purposes::from_bits(word >> Purposes::SHIFT);
            let purposes = if beyond == 0 { said } else { Purposes::FENCE };
            if self.on_round(sequence as u32, round, purposes, [0; K]) {
                (news, ahead) = (news + 1, 1);
            }
        }
        news
    }

    /// The next packet to send, if any; it is offered again until [`Dissemination::on_sent`].
    pub fn poll_send(&self) -> Option<Round<K>> {
        (1..=self.running()).find_map(|ahead| {
            let sequence = (self.completed as u32).wrapping_add(ahead);
            let slot = &self.slots[sequence as usize % SLOTS];
            let is_held = self.held == Some(sequence);
            let has_heard = |round: u16| slot.arrived & (1 << round) != 0;
            let ready = slot.sent < self.rounds && (slot.sent == 0 || has_heard(slot.sent - 1) && !is_held);
            ready.then(|| {
                let distance = 1u64 << slot.sent;
                let to = ((u64::from(self.rank) + distance) % u64::from(self.size)) as u32;
                let Sequence { values, purposes, .. } = *slot;
                Round { to: Rank(to), sequence, round: slot.sent, values, purposes }
            })
        })
    }

    /// How often the partner of a round has been told of it when the round that is offered now is told, too: what its word
    /// says then, where nothing of the round was ever a packet.
    pub fn told_of(&self, round: u16) -> u64 {
        let told = |ahead: &u32| {
            let sequence = (self.completed as u32).wrapping_add(*ahead);
            self.slots[sequence as usize % SLOTS].sent > round
        };
        let count = self.completed + (1..=self.running()).filter(told).count() as u64 + 1;
        // Of the sequence that the word says then, whichever was offered.
        let purposes = self.slots[count as usize % SLOTS].purposes;
        count | purposes.above_count()
    }

    /// The packet of this sequence that was offered is sent.
    pub fn on_sent(&mut self, sequence: u32) {
        self.slots[sequence as usize % SLOTS].sent += 1;
        self.advance();
    }

    /// The rank that has to tell next, of the sequence that completes next.
    pub fn awaited(&self) -> Option<Rank> {
        let next = &self.slots[(self.completed + 1) as usize % SLOTS];
        let round = next.arrived.trailing_ones();
        let is_awaited = self.is_running() && round < u32::from(self.rounds);
        is_awaited.then(|| {
            let behind = (1u64 << round) % u64::from(self.size);
            let from = u64::from(self.rank) + u64::from(self.size) - behind;
            Rank((from % u64::from(self.size)) as u32)
        })
    }

    /// Whether the sequence is complete: every rank has started it.
    pub fn is_complete(&self, sequence: u32) -> bool {
        (self.completed as u32).wrapping_sub(sequence) < u32::MAX / 2
    }

    /// Whether ranks met in a sequence that had come for different things. All know it when that sequence is complete, and
    /// none begins another one.
    #[inline]
    pub fn is_mixed(&self) -> bool {
        self.is_mixed
    }

    /// Sequences started and completed so far, modulo 2^32.
    pub fn progress(&self) -> (u32, u32) {
        (self.started as u32, self.completed as u32)
    }

    /// How many that were started are not complete.
    #[inline]
    fn running(&self) -> u32 {
        (self.started - self.completed) as u32
    }

    /// Whether anything that was started is not complete.
    pub fn is_running(&self) -> bool {
        self.started != self.completed
    }

    /// The largest numbers of all ranks, in the sequence that completed last.
    pub fn values(&self) -> &[u64; K] {
        &self.last
    }

    fn fold(&mut self, sequence: u32, purposes: Purposes, values: [u64; K]) {
        let slot = &mut self.slots[sequence as usize % SLOTS];
        slot.purposes.join(purposes);
        for (kept, new) in slot.values.iter_mut().zip(values) {
            *kept = (*kept).max(new);
        }
    }

    fn advance(&mut self) {
        let all = if self.rounds == 0 { 0 } else { u32::MAX >> (32 - u32::from(self.rounds)) };
        while self.is_running() {
            let next = self.completed + 1;
            let slot = &mut self.slots[next as usize % SLOTS];
            if slot.sent < self.rounds || slot.arrived != all {
                return;
            }
            self.last = slot.values;
            self.is_mixed |= slot.purposes.are_different();
            *slot = Self::EMPTY;
            if Mutation::BarrierSlotReused.is_on() {
                slot.arrived = all;
            }
            self.completed = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn drive(ranks: &mut [Dissemination<1>], order: &mut impl FnMut(usize) -> usize) {
        let mut wire: Vec<Round<1>> = Vec::new();
        loop {
            for rank in ranks.iter_mut() {
                while let Some(round) = rank.poll_send() {
                    rank.on_sent(round.sequence);
                    wire.push(round);
                }
            }
            if wire.is_empty() {
                return;
            }
            let round = wire.swap_remove(order(wire.len()));
            assert!(ranks[round.to.index()].on_round(
                round.sequence,
                round.round,
                round.purposes,
                round.values
            ));
        }
    }

    #[test]
    fn maximum_reaches_everybody_for_any_size() {
        for size in 1..40u32 {
            let mut ranks: Vec<_> = (0..size).map(|rank| Dissemination::<1>::new(Rank(rank), size)).collect();
            let mut state = u64::from(size);
            for sequence in 1..4u32 {
                for (index, rank) in ranks.iter_mut().enumerate() {
                    assert_eq!(
                        rank.start(Purposes::NONE, [index as u64 * u64::from(sequence)]),
                        Some(sequence)
                    );
                }
                drive(&mut ranks, &mut |len| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                    (state >> 33) as usize % len
                });
                for rank in &ranks {
                    assert!(rank.is_complete(sequence));
                    assert_eq!(rank.values()[0], u64::from((size - 1) * sequence));
                }
            }
        }
    }

    /// Nobody's sequence is taken for another's.
    #[test]
    fn who_has_left_begins_none() {
        let mut rank = Dissemination::<0>::new(Rank(1), 2);
        let sequence = rank.start(Purposes::NONE, []).unwrap();
        rank.leave();
        assert!(
            rank.on_round(sequence, 0, Purposes::NONE, [])
                && rank.on_round(sequence + 1, 0, Purposes::NONE, [])
        );
        rank.on_sent(sequence);
        assert!(rank.is_complete(sequence), "what was begun goes on");
        assert_eq!(rank.start(Purposes::NONE, []), None);
        assert!(!rank.is_complete(sequence + 1));
    }

    #[test]
    fn later_rounds_of_a_held_sequence_wait_for_its_release() {
        let mut rank = Dissemination::<0>::new(Rank(1), 4);
        let sequence = rank.start_held(Purposes::NONE, []).unwrap();
        let first = rank.poll_send().unwrap();
        assert_eq!((first.to, first.round), (Rank(2), 0));
        rank.on_sent(sequence);
        assert!(
            rank.on_round(sequence, 0, Purposes::NONE, []) && rank.on_round(sequence, 1, Purposes::NONE, [])
        );
        assert_eq!(rank.poll_send(), None);
        assert!(!rank.is_complete(sequence));
        rank.release(sequence);
        assert_eq!(rank.poll_send().unwrap().to, Rank(3));
        rank.on_sent(sequence);
        assert!(rank.is_complete(sequence));
        // Of another sequence nothing was held.
        let next = rank.start(Purposes::NONE, []).unwrap();
        rank.on_sent(next);
        assert!(rank.on_round(next, 0, Purposes::NONE, []));
        assert_eq!(rank.poll_send().unwrap().round, 1);
    }

    /// Shows: seed: PROC_SYNC.
    #[test]
    fn nobody_completes_before_the_last_one_starts() {
        let mut ranks: Vec<_> = (0..5).map(|rank| Dissemination::<1>::new(Rank(rank), 5)).collect();
        for rank in &mut ranks[..4] {
            assert_eq!(rank.start(Purposes::NONE, [1]), Some(1));
            assert_eq!(rank.start(Purposes::NONE, [1]), Some(2));
            assert_eq!(rank.start(Purposes::NONE, [1]), None, "a third one has to wait");
        }
        drive(&mut ranks, &mut |_| 0);
        assert!(ranks.iter().all(|rank| !rank.is_complete(1)));
        assert_eq!(ranks[4].start(Purposes::NONE, [1]), Some(1));
        drive(&mut ranks, &mut |_| 0);
        assert!(ranks.iter().all(|rank| rank.is_complete(1) && !rank.is_complete(2)));
    }

    #[test]
    fn who_is_awaited_is_who_tells_next() {
        for size in 1..20u32 {
            let mut ranks: Vec<_> = (0..size).map(|rank| Dissemination::<0>::new(Rank(rank), size)).collect();
            assert!(ranks.iter().all(|rank| rank.awaited().is_none()), "nothing is started");
            ranks.iter_mut().for_each(|rank| assert_eq!(rank.start(Purposes::NONE, []), Some(1)));
            while !ranks[0].is_complete(1) {
                let awaited: Vec<_> = ranks.iter().map(Dissemination::awaited).collect();
                for at in 0..ranks.len() {
                    let round = ranks[at].poll_send().unwrap();
                    ranks[at].on_sent(round.sequence);
                    let to = round.to.index();
                    assert_eq!(awaited[to], Some(Rank(at as u32)), "rank {to} of {size}");
                    assert!(ranks[to].on_round(round.sequence, round.round, Purposes::NONE, []));
                }
            }
            assert!(ranks.iter().all(|rank| rank.is_complete(1)));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let mut rank = Dissemination::<1>::new(Rank(0), 4);
        assert!(!rank.on_round(0, 0, Purposes::NONE, [0]));
        assert!(!rank.on_round(5, 0, Purposes::NONE, [0]));
        assert!(!rank.on_round(1, 2, Purposes::NONE, [0]));
        assert!(!rank.on_round(1, 40, Purposes::NONE, [0]));
        assert!(rank.on_round(1, 1, Purposes::NONE, [0]));
        assert!(!rank.on_round(1, 1, Purposes::NONE, [0]), "twice");
    }

    /// Some partners are told by words, which the others look at now and then, and some by packets: nobody is through before
    /// everybody has come, and everybody gets through.
    #[test]
    fn words_and_packets_are_one_barrier() {
        let mut random = 1u64;
        let mut chance = |of: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            (random >> 33) % of
        };
        for size in 2..20u32 {
            let mut ranks: Vec<_> = (0..size).map(|rank| Dissemination::<0>::new(Rank(rank), size)).collect();
            let near = 1 + chance(size.into()) as u32;
            let mut words = alloc::vec![[0u64; 5]; size as usize];
            let (mut started, mut wire) = (alloc::vec![0u32; size as usize], Vec::<Round<0>>::new());
            while ranks.iter().any(|rank| rank.progress() != (6, 6)) {
                let at = chance(size.into()) as usize;
                if started[at] < 6 && chance(2) == 0 {
                    started[at] += u32::from(ranks[at].start(Purposes::NONE, []).is_some());
                }
                ranks[at].hear(|round| words[at][usize::from(round)]);
                while let Some(round) = ranks[at].poll_send() {
                    ranks[at].on_sent(round.sequence);
                    if at as u32 / near == round.to.0 / near {
                        words[round.to.index()][usize::from(round.round)] += 1;
                    } else {
                        wire.push(round);
                    }
                }
                if !wire.is_empty() && chance(2) == 0 {
                    let round = wire.swap_remove(chance(wire.len() as u64) as usize);
                    assert!(ranks[round.to.index()].on_round(
                        round.sequence,
                        round.round,
                        Purposes::NONE,
                        []
                    ));
                }
                let last = ranks.iter().map(|rank| rank.progress().1).max();
                assert!(last <= started.iter().min().copied(), "through before everybody has come");
            }
        }
    }

    /// Some come for a fence and some to free the window, told by words and by packets, with sequences ahead of that: all know it
    /// when the sequence is complete, and nobody sees it where all have come for one thing.
    #[test]
    fn who_has_come_for_something_else_is_known_to_all() {
        let mut random = 7u64;
        let mut chance = |of: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            (random >> 33) % of
        };
        for _ in 0..3000 {
            let size = 2 + chance(9) as u32;
            let mut ranks: Vec<_> = (0..size).map(|rank| Dissemination::<0>::new(Rank(rank), size)).collect();
            let near = 1 + chance(size.into()) as u32;
            let mut words = alloc::vec![[0u64; 5]; size as usize];
            let mut wire = Vec::<Round<0>>::new();
            let (fences, is_mixed) = (chance(4), chance(2) == 0);
            // Who frees after so many fences, and who begins one more.
            let (first, some) = (chance(size.into()), 1 + chance(u64::from(size) - 1));
            let frees =
                |at: usize| !is_mixed || (at as u64 + u64::from(size) - first) % u64::from(size) < some;
            while ranks.iter().any(|rank| u64::from(rank.progress().1) <= fences) {
                let at = chance(size.into()) as usize;
                let begun = u64::from(ranks[at].progress().0);
                let is_last = begun == fences;
                if chance(2) == 0 && (begun < fences || is_last) {
                    let purpose = if is_last && frees(at) { Purposes::FREE } else { Purposes::FENCE };
                    ranks[at].start(purpose, []);
                } else if chance(3) == 0 && begun == fences + 1 && !frees(at) {
                    // A fence that waits for nobody is behind it.
                    ranks[at].start(Purposes::FENCE, []);
                }
                ranks[at].hear(|round| words[at][usize::from(round)]);
                while let Some(round) = ranks[at].poll_send() {
                    if at as u32 / near == round.to.0 / near {
                        words[round.to.index()][usize::from(round.round)] = ranks[at].told_of(round.round);
                    } else {
                        wire.push(round);
                    }
                    ranks[at].on_sent(round.sequence);
                }
                if !wire.is_empty() && chance(2) == 0 {
                    let round = wire.swap_remove(chance(wire.len() as u64) as usize);
                    let to = &mut ranks[round.to.index()];
                    assert!(to.on_round(round.sequence, round.round, round.purposes, []));
                }
                let early =
                    ranks.iter().any(|rank| rank.is_mixed() && u64::from(rank.progress().1) <= fences);
                assert!(!early, "known before the sequence is complete");
            }
            assert!(ranks.iter().all(|rank| rank.is_mixed() == is_mixed), "{size} ranks, {fences} fences");
            assert!(ranks.iter_mut().all(|rank| !is_mixed || rank.start(Purposes::FENCE, []).is_none()));
        }
    }

    /// Whose partner tells it by packets has a word that says what it said long ago, or nothing.
    #[test]
    fn no_word_is_heard_when_sequences_begin_again() {
        for stale in [0, 2] {
            let mut rank = Dissemination::<0>::new(Rank(0), 2);
            let first = (1 << 32) - 6;
            (rank.started, rank.completed) = (first, first);
            for sequence in first + 1..first + 16 {
                assert_eq!(rank.start(Purposes::NONE, []), Some(sequence as u32));
                while let Some(round) = rank.poll_send() {
                    rank.on_sent(round.sequence);
                }
                assert_eq!(rank.hear(|_| stale), 0, "sequence {sequence:#x}, the word says {stale}");
                assert!(!rank.is_complete(sequence as u32));
                match sequence % 2 {
                    0 => assert!(rank.on_round(sequence as u32, 0, Purposes::NONE, [])),
                    _ => assert_eq!(rank.hear(|_| sequence), 1, "sequence {sequence:#x}"),
                }
                assert!(rank.is_complete(sequence as u32) && !rank.is_running());
            }
        }
    }

    #[test]
    fn whatever_words_say_is_bounded() {
        let mut rank = Dissemination::<0>::new(Rank(0), 4);
        assert_eq!(rank.hear(|_| 1), 0, "nothing is started");
        rank.start(Purposes::NONE, []);
        for nonsense in [0, 1 + SLOTS as u64, 1 << 32 | 1, u64::MAX, 1 << 63] {
            assert_eq!(rank.hear(|_| nonsense), 0);
        }
        assert_eq!(rank.hear(|_| 4), 2, "who is ahead has told of this one, too");
        assert_eq!(rank.hear(|_| 4), 0, "once");
        while let Some(round) = rank.poll_send() {
            rank.on_sent(round.sequence);
        }
        assert_eq!(rank.progress(), (1, 1), "nothing that was not started is complete");
    }
}
