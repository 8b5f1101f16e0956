//! Words in which ranks whose memory is in this processor's reach tell each other how far they are, instead of by packets:
//! as many for each window, at the same place of every rank. Each is written by one neighbour, and by nobody else; and
//! those of two neighbours are in different lines of the processors' caches, so that who tells takes a line from the one
//! that looks at it, and from nobody else.
#![allow(unsafe_code)] // registers memory

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::iter;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::config::Config;
use crate::ids::{PeerAddr, Rank, RemoteKey, WindowId};
use crate::mutation::Mutation;
use crate::provider::{Allocation, Endpoint, Mapping, MemoryRegion, RemoteAddr};
use crate::wire::{Metadata, Reader};

/// Rounds of a barrier that have a word. Later ones, which reach further than neighbours are apart, are packets.
const ROUNDS: u16 = 16;

/// Ranks that may have words for post and complete: those with the same number divided by this.
const NEIGHBOURS: u32 = 32;

/// Words that are in one line of a cache.
const APART: usize = 8;

/// Words that one neighbour has, each apart from the other: who waits for one looks at it while the other is told.
const TOLD: usize = 2;

/// Words of a window, used or not: those of the rounds, and those of each neighbour.
const LINE: usize = (ROUNDS as usize + TOLD * NEIGHBOURS as usize) * APART;

/// Words of a board: eight pages of most processors.
const WORDS: usize = 4096;

/// Windows whose lines are on one board. Behind the lines each has room for what its owner says of its part.
const WINDOWS: u32 = (WORDS / (LINE + ABOUT)) as u32;

/// Words in which the owner says where its part of a window is, and how large.
const ABOUT: usize = APART;

/// Bytes of that that are used.
const ABOUT_BYTES: usize = Metadata::BYTES.next_multiple_of(8);

const _: () = assert!(ABOUT_BYTES <= ABOUT * 8, "they fit");

/// First key of the boards: apart from those of windows, dynamic windows' regions and locks.
const KEY_BASE: u64 = 0x3000_0000;

#[derive(Debug)]
#[repr(C, align(128))]
struct Page([AtomicU64; WORDS]);

/// The words: memory that the fabric reaches best, if it makes a difference.
#[derive(Debug)]
struct Kept {
    page: NonNull<Page>,
    /// Keeps it mapped; none where the page is this process's own.
    mapping: Option<Box<dyn Mapping>>,
}

// SAFETY: the page belongs to this value alone, is made of atomics, and is not bound to a thread; neither is what keeps it
// mapped.
unsafe impl Send for Kept {}

impl Kept {
    /// A page of zeros.
    fn new(endpoint: &mut impl Endpoint) -> Option<Self> {
        match endpoint.allocate(size_of::<Page>(), align_of::<Page>()) {
            Allocation::Here { base, mapping } => Some(Self { page: base.cast(), mapping: Some(mapping) }),
            Allocation::Anywhere => {
                let page = Box::new(Page([const { AtomicU64::new(0) }; WORDS]));
                Some(Self { page: NonNull::from(Box::leak(page)), mapping: None })
            }
            Allocation::OutOfMemory => None,
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if self.mapping.is_none() {
            // SAFETY: it is the box's that `new` has made, and is freed once.
            drop(unsafe { Box::from_raw(self.page.as_ptr()) });
        }
    }
}

/// The lines of some windows at this rank.
#[derive(Debug)]
pub(crate) struct Board<R> {
    /// Dropped before what it registers.
    _region: R,
    kept: Kept,
    own: RemoteAddr,
}

impl<R: MemoryRegion> Board<R> {
    /// Registers a board; `None`: the fabric does not reach it within a call.
    fn new<E: Endpoint<Region = R>>(endpoint: &mut E, key: RemoteKey) -> Option<Self> {
        if !endpoint.may_tell() {
            return None;
        }
        let kept = Kept::new(endpoint)?;
        let base = kept.page.cast::<u8>();
        // SAFETY: the words stay where they are until the region is dropped, with this, and are atomics for everybody.
        let region = unsafe { endpoint.register_near(base, size_of::<Page>(), key) }.ok()?;
        let own = RemoteAddr { addr: region.remote_base(), key: region.remote_key() };
        Some(Self { _region: region, kept, own })
    }
}

/// The boards of a process: made when the first of their windows is, and dropped when the last one, and those of later
/// boards, are gone.
#[derive(Debug)]
pub(crate) struct Boards<R> {
    made: Vec<Option<Board<R>>>,
}

impl<R> Boards<R> {
    pub(crate) const fn new() -> Self {
        Self { made: Vec::new() }
    }

    /// Drops the boards on which none of these windows has its line.
    pub(crate) fn keep_of(&mut self, windows: impl Iterator<Item = WindowId>) {
        let boards = windows.map(|window| (window.0 / WINDOWS) as usize + 1).max().unwrap_or(0);
        self.made.truncate(boards);
    }
}

impl<R: MemoryRegion> Boards<R> {
    /// The line of a new window, as if nobody had ever told anything; `None`: everybody is told by packets.
    pub(crate) fn line<E: Endpoint<Region = R>>(
        &mut self,
        endpoint: &mut E,
        config: &Config,
        window: WindowId,
        part: &Metadata,
    ) -> Option<Line> {
        if config.force_message_path {
            return None;
        }
        let (board, place) = (window.0 / WINDOWS, window.0 % WINDOWS);
        while self.made.len() <= board as usize {
            let key = RemoteKey(KEY_BASE + self.made.len() as u64);
            self.made.push(Board::new(endpoint, key));
        }
        let Board { kept, own, .. } = self.made[board as usize].as_ref()?;
        let line = Line {
            page: kept.page,
            own: *own,
            first: place as usize * LINE,
            about: WINDOWS as usize * LINE + place as usize * ABOUT,
            by_packet: 0,
            posts_by_packet: 0,
            told: [0; TOLD],
            taken: [0; TOLD],
        };
        line.words().iter().for_each(|word| word.store(0, Ordering::Relaxed));
        line.say(part);
        Some(line)
    }
}

/// A window's words at this rank, and at its neighbours.
#[derive(Debug)]
pub(crate) struct Line {
    /// Of the board, which is there as long as the window is one of the process's.
    page: NonNull<Page>,
    /// Where the board begins.
    own: RemoteAddr,
    /// Its first word on the board.
    first: usize,
    /// The first of those that say where this rank's part of the window is.
    about: usize,
    /// The rounds of which packets have told the partner before: a word would overtake them.
    by_packet: u32,
    /// The neighbours that were told of a post by a packet before, a bit for each.
    posts_by_packet: u32,
    /// What this rank's words at its neighbours say of epochs of post and start, a bit for each.
    told: [u32; TOLD],
    /// What those of its neighbours here said when it has acted upon them last.
    taken: [u32; TOLD],
}

/// What one neighbour tells another of an epoch of post and start, by changing the lowest bit of a word: it can tell no more
/// before the other one has acted on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Told {
    /// The window is exposed to it.
    Post = 0,
    /// The epoch is complete.
    Complete = 1,
}

// SAFETY: the page is made of atomics, is not bound to a thread, and stays as long as the window.
unsafe impl Send for Line {}

impl Line {
    #[inline]
    fn words(&self) -> &[AtomicU64] {
        &self.board()[self.first..self.first + LINE]
    }

    #[inline]
    fn board(&self) -> &[AtomicU64] {
        // SAFETY: the memory is as large, aligned, and of zeros when it came, by the contract; the board keeps it, and all
        // that is written to it after its line was had is written atomically.
        let page = unsafe { self.page.as_ref() };
        &page.0
    }

    /// Writes down what neighbours want to know of this rank's part of the window, before they can know that it is there.
    fn say(&self, part: &Metadata) {
        let bytes = part.to_bytes();
        let words = &self.board()[self.about..self.about + ABOUT];
        for (word, bytes) in words.iter().zip(bytes.chunks(size_of::<u64>())) {
            let mut whole = [0; size_of::<u64>()];
            whole[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(whole), Ordering::Relaxed);
        }
    }

    /// What a neighbour has written down of its part, if this process can read it there, and it means something.
    pub(crate) fn read<E: Endpoint>(&self, endpoint: &mut E, peer: PeerAddr) -> Option<Metadata> {
        let mut bytes = [0_u8; ABOUT_BYTES];
        let at = self.place_on_board(self.about);
        // What was never named before is looked up by this.
        let is_reached = endpoint.reaches(peer, at);
        // SAFETY: there are as many bytes.
        let is_read = is_reached && unsafe { endpoint.get_now(peer, bytes.as_mut_ptr(), bytes.len(), at) };
        is_read.then(|| Metadata::decode(&mut Reader::new(&bytes)).ok()).flatten()
    }

    /// What the words of this rank say at this moment.
    pub(crate) fn look(&self) -> impl Iterator<Item = u64> + '_ {
        self.words().iter().step_by(APART).map(|word| word.load(Ordering::Relaxed))
    }

    /// A number for the agreement, not 0: others with the same one have their words at the same place, by the same
    /// key. Where they differ the chance is 1 in 2^63 that this does not show.
    pub(crate) fn digest(&self) -> u64 {
        // FNV-1a, by 64 bits.
        let mix = |hash: u64, number: u64| (hash ^ number).wrapping_mul(0x100_0000_01b3).rotate_left(23);
        mix(mix(0xcbf2_9ce4_8422_2325, self.own.addr), self.own.key.0) | 1
    }

    #[inline]
    fn place_of(&self, word: usize) -> RemoteAddr {
        self.place_on_board(self.first + word)
    }

    #[inline]
    fn place_on_board(&self, word: usize) -> RemoteAddr {
        let own = self.own;
        RemoteAddr { addr: own.addr.wrapping_add(8 * word as u64), ..own }
    }

    /// The partner's word of a barrier's round, if it may be told so.
    #[inline]
    pub(crate) fn place_of_round(&self, round: u16) -> Option<RemoteAddr> {
        let may_be = round < ROUNDS && self.by_packet & 1 << round == 0;
        may_be.then(|| self.place_of(usize::from(round) * APART))
    }

    /// The partner was told of the round by a packet.
    pub(crate) fn on_packet_of_round(&mut self, round: u16) {
        self.by_packet |= 1u32.checked_shl(round.into()).unwrap_or(0);
    }

    /// What the partner's word of a round says: how often it has told of it, and above that what for. What it did before is
    /// seen then.
    #[inline]
    pub(crate) fn told_of_round(&self, round: u16) -> u64 {
        match self.words().get(usize::from(round) * APART) {
            Some(word) if round < ROUNDS => word.load(Ordering::Acquire),
            _ => 0,
        }
    }

    /// The word in which the rank `from` tells another one, if they may be neighbours.
    #[inline]
    fn word_of(told: Told, from: Rank, to: Rank) -> Option<usize> {
        let is_near = from.0 / NEIGHBOURS == to.0 / NEIGHBOURS;
        is_near.then_some(Self::first_of(told) + (from.0 % NEIGHBOURS) as usize * APART)
    }

    /// The word of the first neighbour.
    #[inline]
    const fn first_of(told: Told) -> usize {
        (ROUNDS as usize + told as usize * NEIGHBOURS as usize) * APART
    }

    /// The word of the rank `to` in which the rank `from` tells it so, if it may be told so.
    #[inline]
    pub(crate) fn place_to_tell(&self, told: Told, from: Rank, to: Rank) -> Option<RemoteAddr> {
        let word = Self::word_of(told, from, to)?;
        let is_by_packet = told == Told::Post && self.posts_by_packet & bit_of(to) != 0;
        (!is_by_packet).then(|| self.place_of(word))
    }

    /// What to set that word to.
    #[inline]
    pub(crate) fn next_to_tell(&self, told: Told, to: Rank) -> u64 {
        u64::from(self.told[told as usize] & bit_of(to) == 0)
    }

    /// It was set.
    #[inline]
    pub(crate) fn on_told(&mut self, told: Told, to: Rank) {
        self.told[told as usize] ^= bit_of(to);
    }

    /// The rank `to`, a neighbour or not, was told of a post by a packet.
    pub(crate) fn on_packet_of_post(&mut self, from: Rank, to: Rank) {
        if Self::word_of(Told::Post, from, to).is_some() {
            self.posts_by_packet |= bit_of(to);
        }
    }

    /// The ranks that have told `to`, which is this one, so, lowest first. What they did before is seen then.
    #[inline]
    pub(crate) fn tellers(&self, told: Told, to: Rank, size: u32) -> impl Iterator<Item = Rank> {
        let first = to.0 - to.0 % NEIGHBOURS;
        let count = size.saturating_sub(first).min(NEIGHBOURS) as usize;
        let words = self.words()[Self::first_of(told)..].iter().step_by(APART).take(count);
        let said = words.enumerate().map(|(index, word)| {
            let word = word.load(Ordering::Acquire);
            u32::from(word & 1 != 0) << index
        });
        let mut untaken = said.fold(0, |all, one| all | one) ^ self.taken[told as usize];
        iter::from_fn(move || {
            let index = (untaken != 0).then(|| untaken.trailing_zeros())?;
            untaken &= untaken - 1;
            Some(Rank(first + index))
        })
    }

    /// Whether the rank `from` has told `to`, which is this one, so, and it was not acted upon. What it did before is seen then.
    #[inline]
    pub(crate) fn has_told(&self, told: Told, from: Rank, to: Rank) -> bool {
        let word = Self::word_of(told, from, to).and_then(|word| self.words().get(word));
        let was_taken = self.taken[told as usize] & bit_of(from) != 0;
        word.is_some_and(|word| (word.load(Ordering::Acquire) & 1 != 0) != was_taken)
    }

    /// The same, and acts upon it.
    #[inline]
    pub(crate) fn take_told(&mut self, told: Told, from: Rank, to: Rank) -> bool {
        let has_told = self.has_told(told, from, to);
        if has_told {
            self.take(told, from);
        }
        has_told
    }

    /// One that has told was acted upon.
    #[inline]
    pub(crate) fn take(&mut self, told: Told, from: Rank) {
        if !Mutation::NeighbourWordKept.is_on() {
            self.taken[told as usize] ^= bit_of(from);
        }
    }
}

/// A neighbour's bit.
#[inline]
const fn bit_of(rank: Rank) -> u32 {
    1 << (rank.0 % NEIGHBOURS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    #[test]
    fn each_neighbour_has_words_of_its_own() {
        let to = Rank(NEIGHBOURS + 3);
        let ranks = (NEIGHBOURS..2 * NEIGHBOURS).map(Rank);
        let told = |from| [Told::Post, Told::Complete].map(|told| Line::word_of(told, from, to).unwrap());
        let words: BTreeSet<usize> = ranks.flat_map(told).collect();
        assert_eq!(words.len(), TOLD * NEIGHBOURS as usize);
        assert_eq!(words.first(), Some(&(usize::from(ROUNDS) * APART)), "behind those of the rounds");
        assert!(words.last().is_some_and(|&last| last < LINE));
        let lines: BTreeSet<usize> = words.iter().map(|word| word / APART).collect();
        assert_eq!(lines.len(), words.len(), "in a line of its own");
        for stranger in [0, NEIGHBOURS - 1, 2 * NEIGHBOURS, u32::MAX] {
            assert_eq!(Line::word_of(Told::Post, Rank(stranger), to), None);
        }
    }
}
