//! The two words of a window's lock at this rank, and what this rank's locks need that belong to no target element.
#![allow(unsafe_code)] // registers memory

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use super::busy::BusyTargets;
use crate::dtype::Dtype;
use crate::ids::{PeerAddr, Rank, RemoteKey, WindowId};
use crate::info::LockProtocol;
use crate::lock::words::{Claim, Tickets, Word, WordLock};
use crate::op::ReduceOp;
use crate::pool::NONE;
use crate::provider::{Allocation, Endpoint, Mapping, MemoryRegion, NativeOps, RemoteAddr};
use crate::wire::Metadata;

/// The seat of the own window's lock.
pub(crate) const OWN_SEAT: usize = 0;

/// The first seat of locks of the own window that are asked for by packets. Before it are those of ranks that the walk
/// of lock_all asks at one time.
pub(crate) const FIRST_PROXY: usize = 1 + crate::epoch::DETACHED_IN_FLIGHT;

/// Packets whose locks may be waited for at one time, or held alone.
pub(crate) const PROXIES: usize = 16;

/// The seat for one more packet, if it asks under lock_all: whoever does may hold locks elsewhere, for which those wait who
/// have the other seats. It waits for nobody but who is alone, and for those before it that have asked the same.
const PASSING_SEAT: usize = FIRST_PROXY + PROXIES;

/// The seat from which locks of those are given back that were held together with others.
pub(crate) const RELEASE_SEAT: usize = PASSING_SEAT + 1;

/// All seats.
pub(crate) const SEATS: usize = RELEASE_SEAT + 1;

const _: () = assert!(SEATS < u64::BITS as usize, "a bit for each");

/// Ranks whose words' place is remembered, where not all are alike.
const KNOWN: usize = 32;

/// The first ticket: the numbers begin again soon in every window, and not only in one that is years old.
const FIRST_TICKET: u32 = Tickets::LAST - 2;

/// Places behind the two words, in which ranks that share memory write down that they wait.
const WAITERS: u32 = 14;

/// The words, and who waits for them, in a cache line of their own, and in that of its neighbour, which processors fetch
/// with it.
#[derive(Default, Debug)]
#[repr(C, align(128))]
pub(super) struct Line([AtomicU64; 2 + WAITERS as usize]);

/// Whether a fabric has the atomics that change the words.
pub(crate) fn has_atomics(native: &NativeOps) -> bool {
    let dtype = Dtype::U64;
    NativeOps::has(&native.fetch_atomic, dtype, ReduceOp::Sum)
        && native.compare_atomic & 1 << dtype as u32 != 0
}

/// Windows whose words are in one page. Of shared memory each is a file, and a mapping at each neighbour.
const LINES: usize = 4096 / size_of::<Line>();

/// Memory that the fabric reaches best, for the words of some windows.
#[derive(Debug)]
pub(super) struct Page {
    lines: NonNull<[Line; LINES]>,
    _mapping: Box<dyn Mapping>,
}

// SAFETY: the lines are made of atomics, and are not bound to a thread; neither is what keeps them mapped.
unsafe impl Send for Page {}
// SAFETY: the same; of the mapping nothing is used but its end, which is one owner's.
unsafe impl Sync for Page {}

/// The pages that some window has words in.
#[derive(Debug)]
pub(crate) struct Pages {
    made: Vec<Weak<Page>>,
}

impl Pages {
    pub(crate) const fn new() -> Self {
        Self { made: Vec::new() }
    }

    /// The page of a window, if one of its others has words there.
    fn find(&self, window: WindowId) -> Option<Arc<Page>> {
        self.made.get(window.0 as usize / LINES)?.upgrade()
    }

    fn keep(&mut self, window: WindowId, page: &Arc<Page>) {
        let at = window.0 as usize / LINES;
        if self.made.len() <= at {
            self.made.resize(at + 1, Weak::new());
        }
        self.made[at] = Arc::downgrade(page);
    }
}

/// What keeps the words: memory that the fabric reaches best, if it makes a difference.
#[derive(Debug)]
pub(super) enum WordsMemory {
    Own(Box<Line>),
    Mapped { page: Arc<Page>, line: usize },
}

impl WordsMemory {
    /// A line of zeros; `None`: there is no memory on which the fabric has the atomics.
    fn new(endpoint: &mut impl Endpoint, pages: &mut Pages, window: WindowId) -> Option<Self> {
        let page = match pages.find(window) {
            Some(page) => page,
            None => match endpoint.allocate(size_of::<[Line; LINES]>(), align_of::<Line>()) {
                Allocation::Here { base, mapping } => {
                    let page = Arc::new(Page { lines: base.cast(), _mapping: mapping });
                    pages.keep(window, &page);
                    page
                }
                Allocation::Anywhere if has_atomics(endpoint.native()) => {
                    return Some(Self::Own(Box::default()));
                }
                Allocation::Anywhere | Allocation::OutOfMemory => return None,
            },
        };
        let kept = Self::Mapped { page, line: window.0 as usize % LINES };
        // Another window of this number may have had the line.
        kept.words().iter().for_each(|word| word.store(0, Ordering::Relaxed));
        Some(kept)
    }

    fn words(&self) -> &[AtomicU64; 2 + WAITERS as usize] {
        match self {
            Self::Own(line) => &line.0,
            // SAFETY: the memory is as large, aligned, and of zeros when it came, by the contract; it is kept as long as
            // this, and of everybody's accesses to it all are atomic.
            Self::Mapped { page, line } => unsafe { &page.lines.as_ref()[*line].0 },
        }
    }
}

/// A lock that belongs to no target element.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
    pub(crate) lock: WordLock,
    pub(crate) rank: Rank,
    /// Where it is, pinned.
    pub(crate) peer: Option<PeerAddr>,
    /// It was asked where its words are.
    pub(crate) is_asked: bool,
    /// Whoever asked by a packet has its answer, or wants none any more.
    pub(crate) is_told: bool,
}

impl Seat {
    const FREE: Self =
        Self { lock: WordLock::NONE, rank: Rank(NONE), peer: None, is_asked: false, is_told: false };

    /// Whether nothing more is to be done for a lock that was asked for by a packet. Who holds it together with others
    /// is counted, and needs no seat once the next one was let in.
    pub(crate) fn is_done_with(&self) -> bool {
        let lock = &self.lock;
        let is_counted = lock.claim() != Claim::Exclusive && lock.is_held() && lock.is_settled();
        lock.is_idle() || (self.is_told && (is_counted || (lock.is_lost() && !lock.is_busy())))
    }
}

/// What is remembered of a rank.
#[derive(Clone, Copy, Debug)]
struct Known {
    rank: Rank,
    /// Where its words are.
    place: RemoteAddr,
    /// What it said of its part of the window with that. No lock request brings it.
    metadata: Metadata,
}

/// All that a window has whose locks are words.
#[derive(Debug)]
pub(crate) struct Words<R> {
    /// Dropped before what it registers.
    _region: R,
    memory: WordsMemory,
    own: RemoteAddr,
    /// Everybody's are at the same place, by the same key.
    pub(crate) is_alike: bool,
    /// Somebody may have to look again.
    pub(crate) has_waiters: bool,
    /// Every rank reaches them, and not only those to which all is complete at once.
    pub(crate) reaches_all: bool,
    /// What this rank prefers where it may choose.
    pub(crate) choice: LockProtocol,
    /// Who has kept a request waiting.
    pub(crate) busy: BusyTargets,
    /// Locks to be given back for ranks that held them by packets, together with others: shared, and under lock_all.
    owed: [u32; 2],
    known: Box<[Known]>,
    seats: Box<[Seat]>,
    /// Which seats are taken, a bit each.
    taken: u64,
    /// Neighbours whose words were out of reach when lock_all wanted them: it asks them by packets from then on.
    far: Vec<Rank>,
}

impl<R: MemoryRegion> Words<R> {
    /// Registers the words of a new window; `None`: the fabric does not register such memory.
    pub(crate) fn new<E: Endpoint<Region = R>>(
        endpoint: &mut E,
        pages: &mut Pages,
        (id, key): (WindowId, RemoteKey),
        metadata: Metadata,
        (choice, reaches_all): (LockProtocol, bool),
    ) -> Option<Self> {
        let memory = WordsMemory::new(endpoint, pages, id)?;
        let words = memory.words();
        words[Word::Tickets as usize].store(Tickets::free(FIRST_TICKET).0, Ordering::Relaxed);
        let base = NonNull::from(words).cast::<u8>();
        let registered = match reaches_all {
            // SAFETY: the words stay where they are until the region is dropped, with this, and are atomics for everybody.
            true => unsafe { endpoint.register(base, size_of::<Line>(), key) },
            // SAFETY: as above.
            false => unsafe { endpoint.register_near(base, size_of::<Line>(), key) },
        };
        let region = registered.ok()?;
        let own = RemoteAddr { addr: region.remote_base(), key: region.remote_key() };
        let nobody = Known { rank: Rank(NONE), place: own, metadata };
        Some(Self {
            _region: region,
            memory,
            own,
            is_alike: false,
            has_waiters: false,
            reaches_all,
            choice,
            busy: BusyTargets::NONE,
            owed: [0; 2],
            known: alloc::vec![nobody; KNOWN].into_boxed_slice(),
            seats: alloc::vec![Seat::FREE; SEATS].into_boxed_slice(),
            taken: 0,
            far: Vec::new(),
        })
    }
}

impl<R> Words<R> {
    /// Their memory alone, which nobody is to reach any more.
    pub(super) fn into_memory(self) -> WordsMemory {
        self.memory
    }

    /// Where the words of this rank are.
    pub(crate) fn own(&self) -> RemoteAddr {
        self.own
    }

    /// What the words of this rank say at this moment.
    pub(crate) fn look(&self) -> [u64; 2] {
        [0, 1].map(|word: usize| self.memory.words()[word].load(Ordering::Relaxed))
    }

    /// A number for the agreement, not 0: others with the same one have their words at the same place, by the same
    /// key. Where they differ the chance is 1 in 2^62 that this does not show. The highest bit says who reaches them.
    pub(crate) fn digest(&self) -> u64 {
        // FNV-1a, by 64 bits.
        let mix = |hash: u64, number: u64| (hash ^ number).wrapping_mul(0x100_0000_01b3).rotate_left(23);
        let place = mix(mix(0xcbf2_9ce4_8422_2325, self.own.addr), self.own.key.0);
        u64::from(self.reaches_all) << 63 | place >> 1 | 1
    }

    /// Whether all ranks' words are reached alike, and all have some, by the largest and the least of their digests:
    /// the atomics of a network's adapter need not be atomic with those of a processor.
    pub(crate) fn are_alike(largest: u64, least: u64) -> bool {
        least != 0 && largest >> 63 == least >> 63
    }

    /// Where the words of a rank are, if that is known; `me` is this rank.
    pub(crate) fn place_of(&self, rank: Rank, me: Rank) -> Option<RemoteAddr> {
        if self.is_alike || rank == me {
            return Some(self.own);
        }
        self.known(rank).map(|known| known.place)
    }

    fn known(&self, rank: Rank) -> Option<&Known> {
        Some(&self.known[rank.index() % KNOWN]).filter(|known| known.rank == rank)
    }

    /// What a rank has said of its part of the window, as far as it is remembered.
    pub(crate) fn metadata_of(&self, rank: Rank) -> Option<Metadata> {
        self.known(rank).map(|known| known.metadata)
    }

    /// Remembers what a rank has said, in the place of what another one has.
    pub(crate) fn learn(&mut self, rank: Rank, place: RemoteAddr, metadata: Metadata) {
        self.known[rank.index() % KNOWN] = Known { rank, place, metadata };
        for seat in self.seats.iter_mut().filter(|seat| seat.rank == rank) {
            seat.is_asked = false;
        }
    }

    pub(crate) fn seat(&self, seat: usize) -> &Seat {
        &self.seats[seat]
    }

    pub(crate) fn seat_mut(&mut self, seat: usize) -> &mut Seat {
        &mut self.seats[seat]
    }

    /// Puts a lock on a rank onto the seat, which is free.
    pub(crate) fn sit(&mut self, seat: usize, rank: Rank, lock: WordLock) {
        self.taken |= 1 << seat;
        self.seats[seat] = Seat { lock, rank, ..Seat::FREE };
    }

    /// Makes the seat free; the peer that is pinned no more.
    pub(crate) fn stand_up(&mut self, seat: usize) -> Seat {
        self.taken &= !(1 << seat);
        core::mem::replace(&mut self.seats[seat], Seat::FREE)
    }

    /// The first seat from this one on that is taken.
    #[inline]
    pub(crate) fn next_taken(&self, from: usize) -> Option<usize> {
        let later = self.taken >> from;
        (later != 0).then(|| from + later.trailing_zeros() as usize)
    }

    /// A seat of the walk's that is free.
    pub(crate) fn free_seat(&self) -> Option<usize> {
        (OWN_SEAT + 1..FIRST_PROXY).find(|&seat| self.seats[seat].rank == Rank(NONE))
    }

    /// A seat for a lock that a packet asks for; `has_room`: there is room for one more who waits.
    pub(crate) fn free_proxy(&self, claim: Claim, has_room: bool) -> Option<usize> {
        let mut seats = match claim {
            Claim::Exclusive | Claim::Shared => FIRST_PROXY..PASSING_SEAT,
            Claim::Everywhere if has_room => FIRST_PROXY..RELEASE_SEAT,
            Claim::Everywhere => PASSING_SEAT..RELEASE_SEAT,
        };
        seats.find(|&seat| self.seats[seat].rank == Rank(NONE))
    }

    /// The seat of the rank that was asked by a packet, and holds the lock alone.
    pub(crate) fn alone(&self) -> Option<usize> {
        let is_alone =
            |seat: &Seat| seat.is_told && seat.lock.is_held() && seat.lock.claim() == Claim::Exclusive;
        (FIRST_PROXY..RELEASE_SEAT).find(|&seat| is_alone(&self.seats[seat]))
    }

    /// Whether another lock of this rank's than the one of this seat names it as the one that is alone.
    pub(crate) fn is_alone_beside(&self, seat: usize) -> bool {
        let is_alone = |other: usize| {
            let lock = &self.seats[other].lock;
            let is_own = other == OWN_SEAT || other >= FIRST_PROXY;
            other != seat
                && is_own
                && lock.claim() == Claim::Exclusive
                && !lock.is_waiting()
                && !lock.is_idle()
        };
        (0..SEATS).any(is_alone)
    }

    /// Somebody who held the lock by a packet, together with others, holds it no more.
    pub(crate) fn owe(&mut self, claim: Claim) {
        self.owed[usize::from(claim == Claim::Everywhere)] += 1;
    }

    /// One of what is to be given back, unless its seat is taken; or while somebody has still to let the next one in,
    /// which belongs before.
    pub(crate) fn poll_owed(&mut self) -> Option<Claim> {
        let is_settled = |seat: &Seat| seat.lock.is_waiting() || seat.lock.is_settled();
        let proxies = &self.seats[FIRST_PROXY..];
        if self.owed == [0; 2]
            || self.seats[RELEASE_SEAT].rank != Rank(NONE)
            || !proxies.iter().all(is_settled)
        {
            return None;
        }
        let claims = [Claim::Shared, Claim::Everywhere];
        let kind = self.owed.iter().position(|count| *count > 0)?;
        self.owed[kind] -= 1;
        Some(claims[kind])
    }

    /// Whether the own window's lock, the walk, and what others had by packets are done with.
    pub(crate) fn is_idle(&self) -> bool {
        let is_idle = |seat: &Seat| seat.lock.is_idle() || (seat.lock.is_lost() && !seat.lock.is_busy());
        self.owed == [0; 2] && self.seats.iter().all(is_idle)
    }

    /// The locks on a rank, or on all, will not be had any more.
    pub(crate) fn lose(&mut self, rank: Option<Rank>) {
        if rank.is_none() {
            self.owed = [0; 2];
        }
        let is_meant = |seat: &Seat| rank.is_none_or(|rank| seat.rank == rank);
        self.seats.iter_mut().filter(|seat| is_meant(seat)).for_each(|seat| seat.lock.lose());
    }

    /// Whether there is any rank that lock_all asks by packets, though it is a neighbour.
    #[inline]
    pub(crate) fn has_far(&self) -> bool {
        !self.far.is_empty()
    }

    /// Whether lock_all asks the rank by packets, as it has asked it before.
    pub(crate) fn is_far(&self, rank: Rank) -> bool {
        self.far.contains(&rank)
    }

    /// Whether one more can be written down.
    #[cold]
    pub(crate) fn has_room_far(&mut self) -> bool {
        self.far.try_reserve(1).is_ok()
    }

    /// It does from now on. `false`: there is no memory to write it down.
    #[cold]
    pub(crate) fn keep_far(&mut self, rank: Rank) -> bool {
        if !self.far.contains(&rank) && self.far.try_reserve(1).is_ok() {
            self.far.push(rank);
        }
        self.far.contains(&rank)
    }

    /// Bytes that this holds beside itself.
    pub(crate) fn heap_bytes(&self) -> usize {
        let far = self.far.capacity() * size_of::<Rank>();
        size_of::<Line>() + size_of_val(&*self.known) + size_of_val(&*self.seats) + far
    }
}

/// The byte of a word behind the first one.
pub(crate) fn offset_of(word: Word) -> u64 {
    8 * word as u64
}

/// The byte, behind the first word, of the place in which is written down who waits with the ticket.
pub(crate) fn offset_of_waiter(ticket: u32) -> u64 {
    8 * u64::from(2 + ticket % WAITERS)
}
