//! A neighbour's lock, taken and given back in one swap of its words, or two that lie one behind the other: by a passage that was
//! lent for what is repeated, or by the addresses.
#![allow(unsafe_code)] // the user's buffers come as raw pointers

use crate::counters::Counters;
use crate::ids::Rank;
use crate::lock::words::{leave_everywhere, take_everywhere, Claim, Swap, Tickets, Word};
use crate::lock::LockType;
use crate::provider::{ByAddress, Endpoint, Passage, RemoteAddr, Swapped};
use crate::window::NearTarget;

/// How many times it is tried to take a lock at once: the second time with what the first has found.
pub(super) const TRIES: usize = 2;

/// What came of a try to take a lock at once.
pub(super) enum Taken {
    All,
    Nothing,
    /// A ticket, whose turn has come; but somebody has locked all ranks. It is kept for the element that is made now, if there
    /// is one: who gave it back would have to draw another one, and be behind whoever has come meanwhile.
    Ticket,
}

/// By what a neighbour's lock is reached, and its memory: the way, the endpoint that has lent it, and what counts the swaps.
pub(super) type By<'a, P, E> = (&'a mut P, &'a mut E, &'a mut Counters);

/// The way by the addresses, where nothing was lent.
#[inline(always)]
pub(super) fn by_address(near: &NearTarget, place: RemoteAddr) -> ByAddress {
    let memory = RemoteAddr { addr: near.metadata.base, key: near.metadata.key };
    ByAddress::new(near.peer, Some(place), memory)
}

/// What a passage wants to know of swaps: the first word, and what it and those behind it are expected to be and become.
#[inline(always)]
fn as_words<const N: usize>(swaps: [Swap; N]) -> Option<(usize, [(u64, u64); N])> {
    let first = swaps.first()?.0 as usize;
    Some((first, swaps.map(|(_, from, into)| (from, into))))
}

/// Swaps words; whether all were as expected, or how many. `None`: that cannot be done at once.
#[inline(always)]
fn swap<P: Passage<E>, E: Endpoint, const N: usize>(
    (way, endpoint, counters): By<'_, P, E>,
    near: &mut NearTarget,
    swaps: [Swap; N],
) -> Option<Result<(), usize>> {
    let (first, words) = as_words(swaps)?;
    // SAFETY: a process has one endpoint, and its passages are that one's.
    let done = unsafe { way.swap(endpoint, first, words) }?;
    Some(learn(counters, near, swaps, done))
}

/// The same, and behind it a put, if all words were as expected; whether that was done.
///
/// # Safety
/// The source is readable, and the bytes from the offset on are inside of the window.
#[inline(always)]
unsafe fn swap_and_put<P: Passage<E>, E: Endpoint, const N: usize>(
    (way, endpoint, counters): By<'_, P, E>,
    near: &mut NearTarget,
    swaps: [Swap; N],
    (from, offset): ((*const u8, usize), u64),
) -> Option<Result<bool, usize>> {
    let (first, words) = as_words(swaps)?;
    // SAFETY: the caller's promise, and as for [`swap`].
    let (done, is_put) = unsafe { way.swap_and_put(endpoint, first, words, from, offset) }?;
    Some(learn(counters, near, swaps, done).map(|()| is_put))
}

/// Counts what was swapped, and notes what is there now; how many it were, if not all.
#[inline(always)]
fn learn<const N: usize>(
    counters: &mut Counters,
    near: &mut NearTarget,
    swaps: [Swap; N],
    done: Swapped,
) -> Result<(), usize> {
    if done.count < N {
        let first = swaps.first().map_or(0, |(_, _, into)| *into);
        return Err(learn_other(counters, near, swaps.map(|(word, ..)| word), first, done));
    }
    counters.lock_atomics += N as u64;
    for (word, _, into) in swaps {
        near.learn(word, into);
    }
    Ok(())
}

/// Somebody was in the way: how many words were swapped, and what they and the next one are now. Of a lock's two words that is the
/// first at most. All of it comes in registers: what is lent to a function lies in memory all the time.
#[cold]
#[inline(never)]
fn learn_other<const N: usize>(
    counters: &mut Counters,
    near: &mut NearTarget,
    words: [Word; N],
    first: u64,
    Swapped { count, other }: Swapped,
) -> usize {
    counters.lock_atomics += 1 + count as u64;
    for (place, word) in words.into_iter().enumerate().take(count + 1) {
        near.learn(word, if place < count { first } else { other });
    }
    count
}

/// Tries to take a lock at once. The swap is a full barrier: row LOCK of docs/shared-memory.md.
#[inline(always)]
pub(super) fn take<P: Passage<E>, E: Endpoint>(
    (way, endpoint, counters): By<'_, P, E>,
    near: &mut NearTarget,
    (claim, me): (Claim, Rank),
) -> Taken {
    for _ in 0..TRIES {
        let by = (&mut *way, &mut *endpoint, &mut *counters);
        let done = match claim {
            Claim::Exclusive => near.tickets.take_alone(me).map(|swaps| swap(by, near, swaps)),
            Claim::Shared => near.tickets.take_shared().map(|swaps| swap(by, near, swaps)),
            Claim::Everywhere => take_everywhere(near.holder).map(|swaps| swap(by, near, swaps)),
        };
        match done {
            Some(Some(Ok(()))) => return Taken::All,
            Some(Some(Err(0))) => {}
            Some(Some(Err(_))) => return Taken::Ticket,
            Some(None) => return Taken::Nothing,
            // Somebody was in the way when it was looked at last: the next epoch finds out what is there then.
            None => {
                (near.tickets, near.holder) = (Tickets::free(0), 0);
                return Taken::Nothing;
            }
        }
    }
    Taken::Nothing
}

/// The same in one try, with the put that wants the lock behind it, if it is had; row LOCK. Whether that was done, or how many
/// words were as expected. `None`: it cannot be done at once.
///
/// # Safety
/// The source is readable, and the bytes from the offset on are inside of the window.
#[inline(always)]
pub(super) unsafe fn take_and_put<P: Passage<E>, E: Endpoint>(
    by: By<'_, P, E>,
    near: &mut NearTarget,
    (lock_type, me): (LockType, Rank),
    put: ((*const u8, usize), u64),
) -> Option<Result<bool, usize>> {
    match lock_type {
        // SAFETY: the caller's promise.
        LockType::Exclusive => unsafe { swap_and_put(by, near, near.tickets.take_alone(me)?, put) },
        // SAFETY: as above.
        LockType::Shared => unsafe { swap_and_put(by, near, near.tickets.take_shared()?, put) },
    }
}

/// The same under lock_all; row LOCK_ALL.
///
/// # Safety
/// As for [`take_and_put`].
#[inline(always)]
pub(super) unsafe fn take_share_and_put<P: Passage<E>, E: Endpoint>(
    by: By<'_, P, E>,
    near: &mut NearTarget,
    put: ((*const u8, usize), u64),
) -> Option<Result<bool, usize>> {
    // SAFETY: the caller's promise.
    unsafe { swap_and_put(by, near, take_everywhere(near.holder)?, put) }
}

/// Gives it back, as [`swap`]. What was put or stored before is in front of the swap: row UNLOCK.
#[inline(always)]
pub(super) fn leave<P: Passage<E>, E: Endpoint>(
    by: By<'_, P, E>,
    near: &mut NearTarget,
    (claim, me): (Claim, Rank),
) -> Option<Result<(), usize>> {
    match claim {
        Claim::Exclusive => swap(by, near, near.tickets.leave_alone(me)),
        Claim::Shared => swap(by, near, near.tickets.leave_shared()),
        Claim::Everywhere => swap(by, near, leave_everywhere(near.holder)),
    }
}
