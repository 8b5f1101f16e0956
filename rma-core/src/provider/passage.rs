//! The way to a neighbour's lock and to its memory, which a provider lends for what a program repeats: whatever has to be found has
//! been found.
#![allow(unsafe_code)] // declarations of unsafe functions, and calls of a provider's

use core::fmt;

use super::{Atomic, Endpoint, RemoteAddr, Swapped, WordSwap};
use crate::dtype::Dtype;
use crate::ids::PeerAddr;
use crate::op::ReduceOp;

/// What is done to a word of 8 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WordChange {
    /// It gets the sum.
    Add(u64),
    /// The same, and nobody wants to know what it was: who waits for it is woken, as by [`Endpoint::atomic`].
    Tell(u64),
    /// It gets the second, if it is the first.
    Swap(u64, u64),
}

/// Such a way; see line 19 of the [contract](super). Words are counted from the first one of the lock, bytes from the first one
/// of the memory that [`Endpoint::passage`] was asked for. `None` and `false`: nothing has happened, and nothing
/// will by this passage if it was the way that is gone.
pub trait Passage<E: ?Sized>: fmt::Debug + Send {
    /// Swaps the words from `first` on, each from what is expected there into what follows, as [`Endpoint::swap_now`].
    ///
    /// # Safety
    /// The endpoint is the one that has lent this; so for all of these calls.
    unsafe fn swap<const N: usize>(
        &mut self,
        endpoint: &mut E,
        first: usize,
        swaps: [(u64, u64); N],
    ) -> Option<Swapped>;

    /// The same, and behind it a put, if all words were as expected; the second answer says whether that was done.
    ///
    /// # Safety
    /// The source is readable, and the bytes from `offset` on are inside of the memory.
    unsafe fn swap_and_put<const N: usize>(
        &mut self,
        endpoint: &mut E,
        first: usize,
        swaps: [(u64, u64); N],
        from: (*const u8, usize),
        offset: u64,
    ) -> Option<(Swapped, bool)>;

    /// A put of at least one byte.
    ///
    /// # Safety
    /// As for [`Passage::swap_and_put`].
    unsafe fn put(&mut self, endpoint: &mut E, from: (*const u8, usize), offset: u64) -> bool;

    /// A get of at least one byte.
    ///
    /// # Safety
    /// The destination is writable, and the bytes from `offset` on are inside of the memory.
    unsafe fn get(&mut self, endpoint: &mut E, into: (*mut u8, usize), offset: u64) -> bool;

    /// Changes a word as [`Endpoint::atomic_now`] does, and says what it was, if anybody wants to know. `None`: it has to be
    /// asked.
    ///
    /// # Safety
    /// The 8 bytes from `offset` on are inside of the memory.
    unsafe fn change(&mut self, endpoint: &mut E, change: WordChange, offset: u64) -> Option<u64>;
}

/// That of providers which have none.
#[derive(Debug)]
pub enum NoPassage {}

impl<E: ?Sized> Passage<E> for NoPassage {
    unsafe fn swap<const N: usize>(&mut self, _: &mut E, _: usize, _: [(u64, u64); N]) -> Option<Swapped> {
        match *self {}
    }

    unsafe fn swap_and_put<const N: usize>(
        &mut self,
        _: &mut E,
        _: usize,
        _: [(u64, u64); N],
        _: (*const u8, usize),
        _: u64,
    ) -> Option<(Swapped, bool)> {
        match *self {}
    }

    unsafe fn put(&mut self, _: &mut E, _: (*const u8, usize), _: u64) -> bool {
        match *self {}
    }

    unsafe fn get(&mut self, _: &mut E, _: (*mut u8, usize), _: u64) -> bool {
        match *self {}
    }

    unsafe fn change(&mut self, _: &mut E, _: WordChange, _: u64) -> Option<u64> {
        match *self {}
    }
}

/// One that only knows the addresses, and has the endpoint find what it needs each time: for endpoints that never give the name of
/// a peer to another one, and for what is used at once.
#[derive(Clone, Copy, Debug)]
pub struct ByAddress {
    peer: PeerAddr,
    words: Option<RemoteAddr>,
    memory: RemoteAddr,
}

impl ByAddress {
    /// To the words of a lock, if there is one, and to memory, from these addresses on.
    pub fn new(peer: PeerAddr, words: Option<RemoteAddr>, memory: RemoteAddr) -> Self {
        Self { peer, words, memory }
    }

    #[inline(always)]
    fn words<const N: usize>(&self, first: usize, swaps: [(u64, u64); N]) -> Option<[WordSwap; N]> {
        let mut place = behind(self.words?, first as u64 * size_of::<u64>() as u64);
        Some(swaps.map(|(from, into)| {
            let at = place;
            place = behind(at, size_of::<u64>() as u64);
            WordSwap { at, from, into }
        }))
    }
}

/// The address of what lies so many bytes behind another one.
#[inline(always)]
fn behind(at: RemoteAddr, bytes: u64) -> RemoteAddr {
    RemoteAddr { addr: at.addr.wrapping_add(bytes), ..at }
}

impl<E: Endpoint> Passage<E> for ByAddress {
    #[inline(always)]
    unsafe fn swap<const N: usize>(
        &mut self,
        endpoint: &mut E,
        first: usize,
        swaps: [(u64, u64); N],
    ) -> Option<Swapped> {
        endpoint.swap_now(self.peer, self.words(first, swaps)?)
    }

    #[inline(always)]
    unsafe fn swap_and_put<const N: usize>(
        &mut self,
        endpoint: &mut E,
        first: usize,
        swaps: [(u64, u64); N],
        from: (*const u8, usize),
        offset: u64,
    ) -> Option<(Swapped, bool)> {
        let (words, at) = (self.words(first, swaps)?, behind(self.memory, offset));
        // SAFETY: the caller's promise.
        unsafe { endpoint.swap_and_put_now(self.peer, words, from, at) }
    }

    #[inline(always)]
    unsafe fn put(&mut self, endpoint: &mut E, (src, len): (*const u8, usize), offset: u64) -> bool {
        // SAFETY: the caller's promise.
        unsafe { endpoint.put_now(self.peer, src, len, behind(self.memory, offset)) }
    }

    #[inline(always)]
    unsafe fn get(&mut self, endpoint: &mut E, (dst, len): (*mut u8, usize), offset: u64) -> bool {
        // SAFETY: the caller's promise.
        unsafe { endpoint.get_now(self.peer, dst, len, behind(self.memory, offset)) }
    }

    #[inline(always)]
    unsafe fn change(&mut self, endpoint: &mut E, change: WordChange, offset: u64) -> Option<u64> {
        let at = behind(self.memory, offset);
        let mut before = 0_u64;
        let result = (&raw mut before).cast();
        let (WordChange::Add(from) | WordChange::Tell(from) | WordChange::Swap(from, _)) = change;
        let compare = (&raw const from).cast();
        let (WordChange::Add(into) | WordChange::Tell(into) | WordChange::Swap(_, into)) = change;
        let operand = (&raw const into).cast();
        let (atomic, op) = match change {
            WordChange::Add(_) => (Atomic::Fetch { operand, result }, ReduceOp::Sum),
            WordChange::Tell(_) => (Atomic::Reduce { operand }, ReduceOp::Sum),
            WordChange::Swap(..) => (Atomic::Swap { operand, compare, result }, ReduceOp::Replace),
        };
        // SAFETY: all of it is there during the call, when all is over.
        let is_done = unsafe { endpoint.atomic_now(self.peer, (atomic, 1), at, Dtype::U64, op) };
        is_done.then_some(before)
    }
}
