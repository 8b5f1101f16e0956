//! The way of what is repeated, epochs of a lock or operations behind each other's flush: where the words of a peer's lock and the
//! memory of its window are mapped here, and what an access says and looks at, in one place and with nothing to be searched for.
//!
//! It keeps all of it mapped, so that its addresses hold whatever becomes of the peer; what an access looks at tells whether
//! it still leads somewhere.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use rma_core::ids::PeerAddr;
use rma_core::provider::{ByAddress, Endpoint, Passage, RemoteAddr, RemotePiece, Swapped, WordChange};

use crate::atomics::fence_behind_exchange;
use crate::attach::Direction;
use crate::bell::Bell;
use crate::guard;
use crate::head::{BusyWord, Head, Pipe, WHOSE_TURN};
use crate::mapping::{open_pipe, strike, Mapping};
use crate::pair;
use crate::peer::{Known, Peer};
use crate::transfer;
use crate::turns;

/// The words of a lock.
const WORDS: usize = 2;

/// A word of a mapping that is kept.
#[derive(Debug)]
struct Word(NonNull<AtomicU64>);

impl Word {
    fn of(word: &AtomicU64) -> Self {
        Self(NonNull::from(word))
    }

    #[inline(always)]
    fn get(&self) -> &AtomicU64 {
        // SAFETY: it lies in a mapping, which the passage keeps that this is a part of; all access it by atomics.
        unsafe { self.0.as_ref() }
    }
}

/// By what an access sees that a region is still there: the owner's count of its changes, and what that was.
#[derive(Debug)]
struct Presence {
    changes: Word,
    expected: u64,
}

impl Presence {
    fn of(known: &Known, peer: &Peer) -> Self {
        let changes = peer.head.mapping.word(crate::own::sequence_at(&peer.head, known.slot));
        Self { changes: Word::of(changes), expected: known.sequence }
    }

    #[inline(always)]
    fn is_there(&self) -> bool {
        self.changes.get().load(Ordering::Acquire) == self.expected
    }
}

/// The way to a lock and to memory of a peer: what it keeps, and when it leads nowhere any more, is in docs/shared-memory.md.
#[derive(Debug)]
pub struct ShmPassage {
    /// The peer's word for accesses of this endpoint, and who fences for both.
    busy: Word,
    are_fences_shared: bool,
    /// None, if no lock was asked for.
    lock: Option<Lock>,
    /// None, if it is not mapped here.
    memory: Option<Memory>,
    /// Where it is in the peer's terms.
    addressed: ByAddress,
    /// Whether that word is this endpoint's still.
    has_lane: Arc<AtomicBool>,
    head: Head,
    pid: u32,
}

/// The words of the lock.
#[derive(Debug)]
struct Lock {
    words: NonNull<u64>,
    /// Both are swapped in one step.
    has_pair: bool,
    presence: Presence,
    _file: Arc<Mapping>,
}

/// The memory of the window.
#[derive(Debug)]
struct Memory {
    base: NonNull<u8>,
    presence: Presence,
    /// Whose turn it is to change its elements.
    whose_turn: Word,
    _file: Arc<Mapping>,
}

// SAFETY: its addresses are those of mappings that it keeps, which every thread may use.
unsafe impl Send for ShmPassage {}

impl ShmPassage {
    /// To a lock, if one is wanted, and to memory of a peer's; `None`: there is nothing to be had by it, as where they are not
    /// known yet, or not mapped here.
    pub(crate) fn new(
        name: PeerAddr,
        peer: &Peer,
        words: Option<RemoteAddr>,
        memory: RemotePiece,
    ) -> Option<Self> {
        let (lock, mapped) = (words.map(|words| Lock::of(peer, words)), Memory::of(peer, memory));
        if lock.as_ref().is_some_and(Option::is_none) || (lock.is_none() && mapped.is_none()) {
            return None;
        }
        let (busy, are_fences_shared) = peer.head.busy(peer.lane).parts();
        Some(Self {
            busy: Word::of(busy),
            are_fences_shared,
            lock: lock.flatten(),
            memory: mapped,
            addressed: ByAddress::new(name, words, memory.at),
            has_lane: Arc::clone(&peer.has_lane),
            head: peer.head.clone(),
            pid: peer.location.pid,
        })
    }

    /// Begins an access: the regions that it finds there then stay until the answer is dropped. `None`: the peer's word is another
    /// endpoint's by now.
    #[inline(always)]
    fn begin(&self) -> Option<Access<'_>> {
        if !self.has_lane.load(Ordering::Relaxed) {
            return None;
        }
        let busy = BusyWord::new(self.busy.get(), self.are_fences_shared);
        guard::begin(&busy);
        Some(Access(busy))
    }

    /// Whether the peer has said that it sleeps.
    #[inline(always)]
    fn is_asleep(&self) -> bool {
        self.head.sleeping() != 0
    }

    /// Wakes the peer, which has fallen asleep meanwhile, as `Peer::wake_if_asleep`.
    #[cold]
    #[inline(never)]
    fn wake(&self) {
        let (word, Pipe { fd, inode }) = (self.head.sleeping(), self.head.bell());
        let is_woken = open_pipe(self.pid, fd, inode).map(|bell| strike(&bell)).is_ok();
        if is_woken {
            self.head.take_back(word);
        }
    }

    /// A put in memory that is not mapped here.
    ///
    /// # Safety
    /// As for [`Passage::put`].
    #[cold]
    #[inline(never)]
    unsafe fn put_addressed<E: Endpoint>(
        &mut self,
        endpoint: &mut E,
        from: (*const u8, usize),
        offset: u64,
    ) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.addressed.put(endpoint, from, offset) }
    }
}

/// An access under way.
struct Access<'a>(BusyWord<'a>);

impl Drop for Access<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        guard::end(&self.0);
    }
}

impl Lock {
    /// `None`: it is not known and mapped here.
    fn of(peer: &Peer, words: RemoteAddr) -> Option<Self> {
        let (known, file, first) = peer.mapped(words, WORDS * size_of::<u64>())?;
        let words = first.cast::<u64>();
        if words.addr() % size_of::<u64>() != 0 {
            return None;
        }
        let has_pair = pair::can_swap(words);
        Some(Self {
            words: NonNull::new(words)?,
            has_pair,
            presence: Presence::of(&known, peer),
            _file: file,
        })
    }

    /// Swaps words, within an access to them. There are as many: of a lock's two both, or one.
    #[inline(always)]
    fn swap<const N: usize>(&self, first: usize, swaps: [(u64, u64); N]) -> Swapped {
        let (Some(&low), Some(&last)) = (swaps.first(), swaps.last()) else {
            return Swapped { count: 0, other: 0 };
        };
        match N {
            WORDS => self.swap_both(low, last),
            _ => self.swap_word(first, low),
        }
    }

    #[inline(always)]
    fn swap_word(&self, place: usize, (from, into): (u64, u64)) -> Swapped {
        // SAFETY: an aligned word of a lock, in a region that is there, as the access has seen, which all change by atomics.
        let word = unsafe { AtomicU64::from_ptr(self.words.as_ptr().wrapping_add(place)) };
        let swapped = word.compare_exchange(from, into, Ordering::SeqCst, Ordering::SeqCst);
        fence_behind_exchange();
        match swapped {
            Ok(_) => Swapped { count: 1, other: 0 },
            Err(other) => Swapped { count: 0, other },
        }
    }

    #[inline(always)]
    fn swap_both(&self, low: (u64, u64), high: (u64, u64)) -> Swapped {
        if !self.has_pair {
            return self.swap_one_by_one(low, high);
        }
        let from = [low.0, high.0];
        // SAFETY: both words of a lock in a region that is there, as the access has seen; and it was asked whether they can be
        // swapped so.
        let before = unsafe { pair::swap_here(self.words.as_ptr(), from, [low.1, high.1]) };
        if before == from {
            return Swapped { count: WORDS, other: 0 };
        }
        match before {
            [other, _] if other != from[0] => Swapped { count: 0, other },
            // Of these the first alone is swapped.
            _ => self.swap_one_by_one(low, high),
        }
    }

    #[cold]
    #[inline(never)]
    fn swap_one_by_one(&self, low: (u64, u64), high: (u64, u64)) -> Swapped {
        let first = self.swap_word(0, low);
        if first.count == 0 {
            return first;
        }
        let second = self.swap_word(1, high);
        Swapped { count: 1 + second.count, other: second.other }
    }
}

impl Memory {
    /// `None`: it is not mapped here.
    fn of(peer: &Peer, memory: RemotePiece) -> Option<Self> {
        let (known, file, base) = peer.mapped(memory.at, memory.len)?;
        let whose_turn = Word::of(peer.head.region_word(known.slot, WHOSE_TURN));
        Some(Self {
            base: NonNull::new(base)?,
            presence: Presence::of(&known, peer),
            whose_turn,
            _file: file,
        })
    }

    /// Changes a word, within an access.
    ///
    /// # Safety
    /// An aligned word that is inside of the memory.
    #[inline(always)]
    unsafe fn change(&self, change: WordChange, offset: u64) -> u64 {
        let place = self.base.as_ptr().wrapping_add(offset as usize).cast();
        // SAFETY: the caller's promise, and mapped as long as this lives; whose owner has agreed to such accesses; all who change
        // it at one time do so by atomics.
        let word = unsafe { AtomicU64::from_ptr(place) };
        let before = match change {
            WordChange::Add(addend) | WordChange::Tell(addend) => word.fetch_add(addend, Ordering::SeqCst),
            WordChange::Swap(from, into) => word
                .compare_exchange(from, into, Ordering::SeqCst, Ordering::SeqCst)
                .unwrap_or_else(|other| other),
        };
        fence_behind_exchange();
        before
    }

    /// Moves bytes within an access.
    ///
    /// # Safety
    /// `local` is readable, for gets writable, and the bytes from `offset` on are inside of the memory.
    #[inline(always)]
    unsafe fn transfer(&self, direction: Direction, (local, len): (*mut u8, usize), offset: u64) {
        let at = self.base.as_ptr().wrapping_add(offset as usize);
        // SAFETY: the caller's promise, and mapped as long as this lives.
        unsafe { transfer::load_and_store(direction, local, at, len) }
    }
}

impl<E: Endpoint> Passage<E> for ShmPassage {
    #[inline(always)]
    unsafe fn swap<const N: usize>(
        &mut self,
        _endpoint: &mut E,
        first: usize,
        swaps: [(u64, u64); N],
    ) -> Option<Swapped> {
        let lock = self.lock.as_ref().filter(|_| first + N <= WORDS)?;
        let _access = self.begin()?;
        lock.presence.is_there().then(|| lock.swap(first, swaps))
    }

    /// All is under one guard, and nothing has to be found behind the swap, where the memory is mapped.
    #[inline(always)]
    unsafe fn swap_and_put<const N: usize>(
        &mut self,
        endpoint: &mut E,
        first: usize,
        swaps: [(u64, u64); N],
        (src, len): (*const u8, usize),
        offset: u64,
    ) -> Option<(Swapped, bool)> {
        let lock = self.lock.as_ref().filter(|_| first + N <= WORDS)?;
        let memory = self.memory.as_ref();
        let access = self.begin()?;
        if !lock.presence.is_there() || memory.is_some_and(|memory| !memory.presence.is_there()) {
            return None;
        }
        let swapped = lock.swap(first, swaps);
        if let (Some(memory), true) = (memory, swapped.count == N) {
            // SAFETY: the caller's promise.
            unsafe { memory.transfer(Direction::Put, (src.cast_mut(), len), offset) };
        }
        drop(access);
        let is_put = swapped.count == N
            // SAFETY: as above.
            && (memory.is_some() || unsafe { self.put_addressed(endpoint, (src, len), offset) });
        Some((swapped, is_put))
    }

    #[inline(always)]
    unsafe fn put(&mut self, endpoint: &mut E, (src, len): (*const u8, usize), offset: u64) -> bool {
        let Some(memory) = &self.memory else {
            // SAFETY: the caller's promise.
            return unsafe { self.put_addressed(endpoint, (src, len), offset) };
        };
        let Some(_access) = self.begin() else { return false };
        let is_there = memory.presence.is_there();
        if is_there {
            // SAFETY: the caller's promise.
            unsafe { memory.transfer(Direction::Put, (src.cast_mut(), len), offset) };
        }
        is_there
    }

    #[inline(always)]
    unsafe fn get(&mut self, endpoint: &mut E, into: (*mut u8, usize), offset: u64) -> bool {
        let Some(memory) = &self.memory else {
            // SAFETY: the caller's promise.
            return unsafe { self.addressed.get(endpoint, into, offset) };
        };
        let Some(_access) = self.begin() else { return false };
        let is_there = memory.presence.is_there();
        if is_there {
            // SAFETY: the caller's promise.
            unsafe { memory.transfer(Direction::Get, into, offset) };
        }
        is_there
    }

    #[inline(always)]
    unsafe fn change(&mut self, _endpoint: &mut E, change: WordChange, offset: u64) -> Option<u64> {
        let memory = self.memory.as_ref()?;
        let tells = matches!(change, WordChange::Tell(_));
        if tells && self.is_asleep() {
            return None;
        }
        if (memory.base.as_ptr().addr() as u64).wrapping_add(offset) % size_of::<u64>() as u64 != 0 {
            return None;
        }
        let access = self.begin()?;
        let is_open = memory.presence.is_there()
            && memory.whose_turn.get().load(Ordering::Acquire) == turns::BY_ATOMICS;
        // SAFETY: the caller's promise, and it was looked whether it is aligned.
        let done = is_open.then(|| unsafe { memory.change(change, offset) });
        drop(access);
        // The change is a full fence, as there is one between what a sleeper says and its last look: `Peer::notify`.
        if tells && self.is_asleep() {
            self.wake();
        }
        done
    }
}
