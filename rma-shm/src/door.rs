//! The way to a region that is accessed again and again: of what was found about it ([`crate::peer::Known`]), what an access
//! needs, and nothing to be searched for.

use core::ptr::NonNull;
use core::sync::atomic::Ordering;

use rma_core::ids::RemoteKey;
use rma_core::provider::RemoteAddr;

use crate::head::{Head, WHOSE_TURN};
use crate::own;
use crate::peer::{Known, Place};
use crate::ring::WORD;
use crate::turns;

/// A mapped region of a peer's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Door {
    key: RemoteKey,
    /// What origins call its first byte.
    first: u64,
    len: u64,
    base: NonNull<u8>,
    /// Where the owner's head counts the region's changes, and what the count was.
    sequence_at: usize,
    sequence: u64,
}

impl Door {
    /// None: no byte is inside, and the word that it looks at, the first of a head, is another one.
    const NONE: Self = Self {
        key: RemoteKey(0),
        first: 0,
        len: 0,
        base: NonNull::dangling(),
        sequence_at: 0,
        sequence: u64::MAX,
    };

    /// To a region that was looked up; `None`: it is not mapped here.
    fn to(known: &Known, head: &Head) -> Option<Self> {
        let Place::Mapped(base) = known.place else { return None };
        let Known { key, slot, sequence, len, first, .. } = *known;
        let sequence_at = own::sequence_at(head, slot);
        Some(Self { key, first, len, base: NonNull::new(base)?, sequence_at, sequence })
    }

    /// Where `len` bytes are; `None`: they are another region's, or not inside of this one.
    #[inline(always)]
    fn place(&self, at: RemoteAddr, len: usize) -> Option<*mut u8> {
        // An address in front of the first is a large offset.
        let offset = at.addr.wrapping_sub(self.first);
        let is_inside = self.key == at.key && len as u64 <= self.len && offset <= self.len - len as u64;
        is_inside.then(|| self.base.as_ptr().wrapping_add(offset as usize))
    }

    /// The same behind a look at what is known, if need be.
    #[inline(always)]
    fn find(&mut self, (known, head): (&[Known], &Head), at: RemoteAddr, len: usize) -> Option<*mut u8> {
        match self.place(at, len) {
            Some(place) => Some(place),
            None => self.find_anew((known, head), at, len),
        }
    }

    #[cold]
    #[inline(never)]
    fn find_anew(&mut self, (known, head): (&[Known], &Head), at: RemoteAddr, len: usize) -> Option<*mut u8> {
        let known = known.iter().find(|known| known.key == at.key)?;
        *self = Self::to(known, head)?;
        self.place(at, len)
    }

    /// Whether its elements are changed by atomics. Only an access that is guarded can rely on it.
    #[inline(always)]
    pub(crate) fn is_by_atomics(&self, head: &Head) -> bool {
        let whose_turn = head.mapping.word(self.sequence_at + WHOSE_TURN * WORD);
        whose_turn.load(Ordering::Acquire) == turns::BY_ATOMICS
    }

    /// Whether the region is still there. Only an access that is guarded can rely on it.
    #[inline(always)]
    pub(crate) fn is_open(&self, head: &Head) -> bool {
        head.mapping.word(self.sequence_at).load(Ordering::Acquire) == self.sequence
    }
}

/// The doors of one peer, by what goes through them: an epoch goes through all. They are to be forgotten before anything is
/// unmapped that was known, and when a key is looked up, which may have been another region's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doors {
    part: Door,
    words: Door,
    told: Door,
}

impl Doors {
    pub(crate) const NONE: Self = Self { part: Door::NONE, words: Door::NONE, told: Door::NONE };

    /// Of `len` bytes that a program accesses. `None`: they are not mapped here, or not known yet.
    #[inline(always)]
    pub(crate) fn part(
        &mut self,
        found: (&[Known], &Head),
        at: RemoteAddr,
        len: usize,
    ) -> Option<(&Door, *mut u8)> {
        let place = self.part.find(found, at, len)?;
        Some((&self.part, place))
    }

    /// Of `len` bytes of the words of locks.
    #[inline(always)]
    pub(crate) fn words(
        &mut self,
        found: (&[Known], &Head),
        at: RemoteAddr,
        len: usize,
    ) -> Option<(&Door, *mut u8)> {
        let place = self.words.find(found, at, len)?;
        Some((&self.words, place))
    }

    /// Of a word by which the peer is told.
    #[inline(always)]
    pub(crate) fn told(&mut self, found: (&[Known], &Head), at: RemoteAddr) -> Option<(&Door, *mut u8)> {
        let place = self.told.find(found, at, size_of::<u64>())?;
        Some((&self.told, place))
    }

    /// The one that led to the words which were asked for last.
    #[inline(always)]
    pub(crate) fn last_words(&self) -> &Door {
        &self.words
    }

    /// Of both.
    #[inline(always)]
    pub(crate) fn words_and_part(
        &mut self,
        found: (&[Known], &Head),
        words: (RemoteAddr, usize),
        part: (RemoteAddr, usize),
    ) -> Option<[(&Door, *mut u8); 2]> {
        let word = self.words.find(found, words.0, words.1)?;
        let place = self.part.find(found, part.0, part.1)?;
        Some([(&self.words, word), (&self.part, place)])
    }
}
