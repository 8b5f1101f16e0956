//! Reductions on a peer's mapped memory, by this process's processor: the code is that of the target's
//! engine.

use core::sync::atomic::{compiler_fence, fence, AtomicU64, Ordering};
use core::{ptr, slice};

use rma_core::dtype::Dtype;
use rma_core::mem::{Begun, Sharing, WindowMemory};
use rma_core::op::ReduceOp;
use rma_core::provider::{Atomic, FabricCode, LocalPiece, RemoteAddr, Swapped, WordSwap};

use crate::attach::Direction;
use crate::error::{NOT_OFFERED, NO_REGION};
use crate::guard;
use crate::pair;
use crate::peer::{Known, Peer, Place};
use crate::transfer;
use crate::turns::{self, Part, Patience, PeerElements, Size};

/// Whether the processor has atomics for elements there; also where nothing is, which is found out later.
#[inline]
pub(crate) fn is_aligned(peer: &mut Peer, at: RemoteAddr, dtype: Dtype) -> bool {
    match peer.region(at.key).and_then(|known| known.at(at.addr, 0)) {
        Ok(Place::Mapped(place)) => place.addr() % dtype.size().next_power_of_two() == 0,
        _ => true,
    }
}

/// Changes a word of 8 bytes, as locks and counters are, where the last look at its region has found it: what it was
/// before, and a full fence (line 16). `None`: nothing has happened, and [`execute`] finds out what is the matter.
#[inline]
fn change_word(peer: &mut Peer, at: RemoteAddr, change: impl FnOnce(&AtomicU64) -> u64) -> Option<u64> {
    let Peer { head, lane, known, doors, .. } = peer;
    let (door, place) = doors.part((known, head), at, size_of::<u64>())?;
    if place.addr() % size_of::<u64>() != 0 {
        return None;
    }
    guard::with(&head.busy(*lane), || {
        if !door.is_open(head) || !door.is_by_atomics(head) {
            return None;
        }
        // SAFETY: inside of a region and aligned; whose owner has agreed to such accesses, for as long as the guard is
        // held; all who change the word at one time do so by atomics.
        let word = unsafe { AtomicU64::from_ptr(place.cast()) };
        let before = change(word);
        fence_behind_exchange();
        Some(before)
    })
}

/// An atomic of the processor's on each of so many elements, as [`change_word`]. `false`: nothing has happened.
///
/// # Safety
/// The buffers hold as many elements each.
#[inline]
pub(crate) unsafe fn now(
    peer: &mut Peer,
    (atomic, count): (Atomic, usize),
    at: RemoteAddr,
    (dtype, op): (Dtype, ReduceOp),
) -> bool {
    let is_word = count == 1 && matches!(dtype, Dtype::U64 | Dtype::I64);
    let is_simple = is_word && (op == ReduceOp::Sum || matches!(atomic, Atomic::Swap { .. }));
    // SAFETY: the caller's promise.
    let is_done = is_simple && unsafe { word_now(peer, atomic, at, dtype) };
    // SAFETY: as above.
    is_done || unsafe { other_now(peer, (atomic, count), at, (dtype, op)) }
}

/// [`now`] for a word of 8 bytes that is added to or swapped.
///
/// # Safety
/// As [`now`].
#[inline(always)]
unsafe fn word_now(peer: &mut Peer, atomic: Atomic, at: RemoteAddr, dtype: Dtype) -> bool {
    // SAFETY: by the caller's promise.
    let read = |from: *const u8| unsafe { from.cast::<u64>().read_unaligned() };
    let (before, into) = match atomic {
        Atomic::Reduce { operand } => {
            let addend = read(operand);
            let before = change_word(peer, at, |word| word.fetch_add(addend, Ordering::SeqCst));
            if before.is_some() && dtype == Dtype::U64 {
                peer.notify();
            }
            return before.is_some();
        }
        Atomic::Fetch { operand, result } => {
            let addend = read(operand);
            (change_word(peer, at, |word| word.fetch_add(addend, Ordering::SeqCst)), result)
        }
        Atomic::Swap { operand, compare, result } => {
            let (from, into) = (read(compare), read(operand));
            let swap = |word: &AtomicU64| {
                let swapped = word.compare_exchange(from, into, Ordering::SeqCst, Ordering::SeqCst);
                swapped.unwrap_or_else(|other| other)
            };
            (change_word(peer, at, swap), result)
        }
    };
    if let Some(before) = before {
        // SAFETY: by the caller's promise.
        unsafe { into.cast::<u64>().write_unaligned(before) };
    }
    before.is_some()
}

/// [`now`] for what locks and counters are not: the types that one instruction of the processor takes, every reduction,
/// several elements, and those that are changed by turns, by the code with which the owner's engine executes messages.
///
/// # Safety
/// As [`now`].
#[inline(never)]
unsafe fn other_now(
    peer: &mut Peer,
    (atomic, count): (Atomic, usize),
    at: RemoteAddr,
    (dtype, op): (Dtype, ReduceOp),
) -> bool {
    let size = dtype.size();
    let Some(len) = size.checked_mul(count) else { return false };
    let Some(&known) = peer.known.iter().find(|known| known.key == at.key) else { return false };
    let Ok(Place::Mapped(place)) = known.at(at.addr, len) else { return false };
    // Sizes are powers of two.
    if size > size_of::<u64>() || place.addr() & (size - 1) != 0 {
        return false;
    }
    // SAFETY: the caller's promise.
    unsafe { change_elements(peer, &known, (place, len), atomic, (dtype, op)) }
        .is_ok_and(|done| done == Change::Done)
}

/// Swaps a word, or two that can be swapped in one step, as [`change_word`] changes one. `None`: nothing has happened.
#[inline(always)]
pub(crate) fn swap_in_one_go<const N: usize>(peer: &mut Peer, swaps: [WordSwap; N]) -> Option<Swapped> {
    let first = first_if_beside(&swaps)?;
    let Peer { head, lane, known, doors, .. } = peer;
    let (door, place) = doors.words((known, head), first, N * size_of::<u64>())?;
    guard::with(&head.busy(*lane), || {
        if !door.is_open(head) {
            return None;
        }
        // SAFETY: inside of a region whose owner has agreed to such accesses, as in `change_word`.
        unsafe { swap_there(place.cast(), swaps) }
    })
}

/// Where the first word is, if the others lie behind it one by one.
#[inline(always)]
fn first_if_beside<const N: usize>(swaps: &[WordSwap; N]) -> Option<RemoteAddr> {
    let first = swaps.first()?.at;
    let are_beside = swaps
        .iter()
        .zip(0_u64..)
        .all(|(swap, place)| swap.at.key == first.key && swap.at.addr == first.addr.wrapping_add(8 * place));
    are_beside.then_some(first)
}

/// Swaps words one by one, each if it is as expected, up to the first that is not. `None`: nothing has happened.
#[inline(never)]
pub(crate) fn swap_one_by_one<const N: usize>(peer: &mut Peer, swaps: &[WordSwap; N]) -> Option<Swapped> {
    let Peer { head, lane, known, doors, .. } = peer;
    let key = swaps.first()?.at.key;
    // All of them first: nothing of two is done where one cannot be.
    let mut places = [ptr::null_mut::<u64>(); N];
    for (place, swap) in places.iter_mut().zip(swaps) {
        let (_, at) = doors.words((known, head), swap.at, size_of::<u64>())?;
        if swap.at.key != key || at.addr() % size_of::<u64>() != 0 {
            return None;
        }
        *place = at.cast();
    }
    let door = doors.last_words();
    guard::with(&head.busy(*lane), || {
        if !door.is_open(head) {
            return None;
        }
        let mut swapped = Swapped { count: 0, other: 0 };
        for (&place, swap) in places.iter().zip(swaps) {
            // SAFETY: as in `change_word`.
            let word = unsafe { AtomicU64::from_ptr(place) };
            match word.compare_exchange(swap.from, swap.into, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => swapped.count += 1,
                Err(other) => {
                    swapped.other = other;
                    break;
                }
            }
        }
        fence_behind_exchange();
        Some(swapped)
    })
}

/// [`swap_in_one_go`], and behind it, if all words were swapped, a put as [`transfer::now`]; whether that was done. All is under
/// one guard, and all that has to be found is found before: the processor looks for nothing behind an exchange until that is
/// over. `None`: nothing has happened.
///
/// # Safety
/// The local piece is readable.
#[inline(always)]
pub(crate) unsafe fn swap_and_put_in_one_go<const N: usize>(
    peer: &mut Peer,
    swaps: [WordSwap; N],
    local: LocalPiece,
    at: RemoteAddr,
) -> Option<(Swapped, bool)> {
    let first = first_if_beside(&swaps)?;
    let Peer { head, lane, known, doors, .. } = peer;
    let (first, put) = ((first, N * size_of::<u64>()), (at, local.len));
    let [(words, word), (part, place)] = doors.words_and_part((known, head), first, put)?;
    guard::with(&head.busy(*lane), || {
        if !words.is_open(head) || !part.is_open(head) {
            return None;
        }
        // SAFETY: inside of a region whose owner has agreed to such accesses, as in `change_word`.
        let swapped = unsafe { swap_there(word.cast(), swaps) }?;
        let is_put = swapped.count == N;
        if is_put {
            // SAFETY: the source is the caller's promise, and the place inside of a region that is there.
            unsafe { transfer::load_and_store(Direction::Put, local.base, place, local.len) };
        }
        Some((swapped, is_put))
    })
}

/// # Safety
/// Words of a region that is there, which all change by atomics, if they are aligned.
#[inline(always)]
unsafe fn swap_there<const N: usize>(place: *mut u64, swaps: [WordSwap; N]) -> Option<Swapped> {
    match swaps[..] {
        // SAFETY: the caller's promise.
        [swap] => unsafe { swap_one(place, swap) },
        // SAFETY: as above.
        [low, high] => unsafe { swap_both(place, [low, high]) },
        _ => None,
    }
}

/// # Safety
/// A word of a region that is there, which all change by atomics, if it is aligned.
#[inline]
unsafe fn swap_one(place: *mut u64, swap: WordSwap) -> Option<Swapped> {
    if place.addr() % size_of::<u64>() != 0 {
        return None;
    }
    // SAFETY: by the caller's promise.
    let word = unsafe { AtomicU64::from_ptr(place) };
    let swapped = match word.compare_exchange(swap.from, swap.into, Ordering::SeqCst, Ordering::SeqCst) {
        Ok(_) => Swapped { count: 1, other: 0 },
        Err(other) => Swapped { count: 0, other },
    };
    fence_behind_exchange();
    Some(swapped)
}

/// The same of two, in one step. `None`: that cannot be, or of these the first alone is swapped; nothing has happened.
///
/// # Safety
/// As for [`swap_one`], of both.
#[inline]
unsafe fn swap_both(place: *mut u64, [first, second]: [WordSwap; 2]) -> Option<Swapped> {
    let from = [first.from, second.from];
    // SAFETY: by the caller's promise.
    match unsafe { pair::swap(place, from, [first.into, second.into]) }? {
        before if before == from => Some(Swapped { count: 2, other: 0 }),
        [other, _] if other != first.from => Some(Swapped { count: 0, other }),
        _ => None,
    }
}

/// An exchange is a full fence of these processors, and of others less.
#[inline]
pub(crate) fn fence_behind_exchange() {
    if cfg!(any(target_arch = "x86", target_arch = "x86_64")) {
        // For the compiler, where the exchange was told to order nothing.
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// What has come of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    Done,
    /// Nothing has happened: another process has its turn.
    Not,
}

/// Executes an atomic on `len` bytes; an error is that of the operation, which was accepted.
///
/// # Safety
/// The buffers hold `len` bytes each, results are writable; an operand may be null for [`ReduceOp::NoOp`].
pub(crate) unsafe fn execute(
    peer: &mut Peer,
    atomic: Atomic,
    len: usize,
    at: RemoteAddr,
    dtype: Dtype,
    op: ReduceOp,
) -> Result<Change, FabricCode> {
    let known = peer.region(at.key)?;
    let Place::Mapped(place) = known.at(at.addr, len)? else { return Err(NOT_OFFERED) };
    // SAFETY: the caller's promise.
    unsafe { change_elements(peer, &known, (place, len), atomic, (dtype, op)) }
}

/// Changes the elements that are mapped there, if their region is still there, and wakes who waits for a word to change.
///
/// # Safety
/// As [`execute`]; the place is in the region.
unsafe fn change_elements(
    peer: &mut Peer,
    known: &Known,
    (place, len): (*mut u8, usize),
    atomic: Atomic,
    (dtype, op): (Dtype, ReduceOp),
) -> Result<Change, FabricCode> {
    let change = |sharing| {
        // SAFETY: inside of a region, whose owner has agreed to such accesses, for as long as the guard is
        // held.
        let memory = unsafe { WindowMemory::new(place, len) }.shared(sharing);
        // The atomics themselves order nothing. Words of locks and notifications are changed by them, and must be seen
        // behind what was put before, and before what is got next.
        fence(Ordering::Release);
        // SAFETY: by the caller's promise.
        let done = unsafe { apply(&memory, atomic, len, dtype, op) };
        match (atomic, op) {
            // A store or a load alone is no fence; every other atomic is an exchange.
            (Atomic::Reduce { .. }, ReduceOp::Replace) | (Atomic::Fetch { .. }, ReduceOp::NoOp) => {
                fence(Ordering::SeqCst);
            }
            _ => fence_behind_exchange(),
        }
        done
    };
    let done = take_part(peer, known, len, change)?;
    let may_be_waited_for = match atomic {
        Atomic::Reduce { .. } => true,
        // One alone is a counter, as a rule, and who waits for that looks again by itself.
        Atomic::Fetch { .. } => op != ReduceOp::NoOp && len > size_of::<u64>(),
        Atomic::Swap { .. } => false,
    };
    if done == Change::Done && may_be_waited_for && dtype == Dtype::U64 {
        peer.notify();
    }
    Ok(done)
}

/// Changes `len` bytes of elements as their region is changed now: by atomics, or when this process has its turn.
#[inline]
fn take_part(
    peer: &mut Peer,
    known: &Known,
    len: usize,
    change: impl FnOnce(Sharing) -> Result<(), FabricCode>,
) -> Result<Change, FabricCode> {
    let Peer { head, lane, own_turn, known: all, .. } = peer;
    let size = known.appetite.size_of(len);
    let patience = Patience::for_turn();
    let mut elements = PeerElements { head, lane: *lane, known, patience };
    let begun = match turns::take_part(&mut elements, *own_turn, size) {
        Part::Begun(begun) => begun,
        Part::Gone => return Err(NO_REGION),
        Part::NotNow => return Ok(Change::Not),
    };
    let done = change(if begun == Begun::ByAtomics { Sharing::Atomics } else { Sharing::Alone });
    turns::leave(&mut elements, size, begun);
    if begun != Begun::ByAtomics {
        fence_behind_exchange();
    }
    if size != Size::Small {
        // Of those that are known this is one, by another copy.
        if let Some(known) = all.iter_mut().find(|other| other.slot == known.slot) {
            known.appetite.note(len, size, begun);
        }
    }
    done.map(|()| Change::Done)
}

/// # Safety
/// As [`execute`].
unsafe fn apply(
    memory: &WindowMemory,
    atomic: Atomic,
    len: usize,
    dtype: Dtype,
    op: ReduceOp,
) -> Result<(), FabricCode> {
    let done = match atomic {
        Atomic::Reduce { operand } => {
            // SAFETY: by the caller's promise.
            let operand = unsafe { bytes(operand, len) };
            memory.accumulate(0, dtype, op, operand)
        }
        Atomic::Fetch { operand, result } => {
            // SAFETY: by the caller's promise.
            let operand = unsafe { bytes(operand, if op == ReduceOp::NoOp { 0 } else { len }) };
            // SAFETY: as above; nobody else has the result's bytes until the tag is said.
            let result = unsafe { slice::from_raw_parts_mut(result, len) };
            memory.get_accumulate(0, dtype, op, operand, result)
        }
        Atomic::Swap { operand, compare, result } => {
            // SAFETY: by the caller's promise.
            let operand = unsafe { bytes(operand, len) };
            // SAFETY: as above.
            let compare = unsafe { bytes(compare, len) };
            // SAFETY: as above; nobody else has the result's bytes until the tag is said.
            let result = unsafe { slice::from_raw_parts_mut(result, len) };
            memory.compare_and_swap(0, dtype, compare, operand, result)
        }
    };
    // Everything else was checked: what is not defined is not offered.
    done.map_err(|_| NOT_OFFERED)
}

/// # Safety
/// `base` is readable for `len` bytes; for none it may be null.
unsafe fn bytes<'a>(base: *const u8, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: by the caller's promise.
    unsafe { slice::from_raw_parts(base, len) }
}
