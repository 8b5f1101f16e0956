//! The nonblocking dissemination pattern: log2 P rounds, in round `k` each rank sends to the one
//! 2^k above it and hears from the one 2^k below.
//!
//! With no payload it is fence's barrier. With `K` numbers it is an all-reduce by maximum, and by the union of their bits
//! for the last of them: every rank's numbers reach every other along some path, and counting one twice does not matter for
//! either, so it is right for any number of ranks.

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
    /// The largest numbers heard so far, and all bits of the last ones.
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
    /// The rank that is lost to somebody.
    lost: Option<Rank>,
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
            lost: None,
            started: 0,
            completed: 0,
            slots: [Self::EMPTY; SLOTS],
            last: [0; K],
            held: None,
        }
    }

    /// Begins the next sequence with this rank's numbers, and names it; `None` while too many run, and for ever when this
    /// rank has left, ranks have met that came for different things, or one is lost.
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

    /// A rank is lost to this one, or to one that says so: nothing that runs here comes to its end, and nobody is waited for. `true`:
    /// that is news, of which the partners of all rounds must hear, so that they come to an end as well.
    #[cold]
    #[inline(never)]
    pub fn lose(&mut self, rank: Rank) -> bool {
        let is_news = self.lost.is_none();
        if is_news {
            (self.lost, self.is_left, self.started, self.held) = (Some(rank), true, self.completed, None);
        }
        is_news
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
                let Sequence { values, purposes, .. } = *slot;
                Round { to: self.partner(slot.sent), sequence, round: slot.sent, values, purposes }
            })
        })
    }

    /// How many rounds a sequence has, each with another partner.
    pub fn rounds(&self) -> u16 {
        self.rounds
    }

    /// Whom this rank tells of a round.
    #[inline]
    pub fn partner(&self, round: u16) -> Rank {
        let distance = 1u64.checked_shl(round.into()).unwrap_or(0);
        Rank(((u64::from(self.rank) + distance) % u64::from(self.size)) as u32)
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

    /// The rank that is lost to somebody, which ends all sequences that are not complete.
    pub fn lost(&self) -> Option<Rank> {
        self.lost
    }

    /// Whether this rank begins none because of either.
    pub fn is_broken(&self) -> bool {
        self.is_mixed || self.lost.is_some()
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

    /// The largest numbers of all ranks, and all bits of the last ones, in the sequence that completed last.
    pub fn values(&self) -> &[u64; K] {
        &self.last
    }

    fn fold(&mut self, sequence: u32, purposes: Purposes, values: [u64; K]) {
        let slot = &mut self.slots[sequence as usize % SLOTS];
        slot.purposes.join(purposes);
        for (index, (kept, new)) in slot.values.iter_mut().zip(values).enumerate() {
            *kept = if index + 1 == K { *kept | new } else { (*kept).max(new) };
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
mod tests;
