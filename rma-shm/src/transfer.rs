//! Puts and gets: bytes between this process's memory and a peer's regions, moved while the call runs.

use core::ptr;

use libc::iovec;
use rma_core::provider::{FabricCode, LocalPiece, PostError, RemoteAddr, RemotePiece, VECTOR_PIECES_MAX};

use crate::attach::{self, Direction};
use crate::error::{BAD_PIECES, ENDED, NO_REGION};
use crate::guard;
use crate::peer::{Known, Peer, Place};

/// Runs of bytes that are in one piece at both sides: of so many pieces at each side there are no more.
const RUNS_MAX: usize = 2 * VECTOR_PIECES_MAX - 1;

/// Bytes that lie in one piece at both sides.
#[derive(Clone, Copy, Debug)]
struct Run {
    local: *mut u8,
    remote: Place,
    len: usize,
}

impl Run {
    const NONE: Self = Self { local: ptr::null_mut(), remote: Place::Attached(0), len: 0 };
}

/// One contiguous put or get; an error is that of the operation, which was accepted.
///
/// # Safety
/// The local piece is readable, for gets writable, and the place is what [`find`] found for as many bytes.
#[inline]
pub(crate) unsafe fn one(
    peer: &mut Peer,
    direction: Direction,
    local: LocalPiece,
    (known, place): (Known, Place),
) -> Result<(), FabricCode> {
    let run = Run { local: local.base, remote: place, len: local.len };
    // SAFETY: by the caller's promise.
    unsafe { guarded(peer, &[known], direction, &[run]) }
}

/// A put or get of mapped memory where the last look at its region has found it. `false`: nothing has happened.
///
/// # Safety
/// The local piece is readable, for gets writable.
#[inline]
pub(crate) unsafe fn now(peer: &mut Peer, direction: Direction, local: LocalPiece, at: RemoteAddr) -> bool {
    let Peer { head, lane, known, doors, .. } = peer;
    let Some((door, place)) = doors.part((known, head), at, local.len) else { return false };
    guard::with(&head.busy(*lane), || {
        let is_there = door.is_open(head);
        if is_there {
            // SAFETY: by the caller's promise.
            unsafe { load_and_store(direction, local.base, place, local.len) };
        }
        is_there
    })
}

/// Where bytes are that are not mapped here, of a region that was looked up before.
pub(crate) fn find_attached(peer: &Peer, at: RemoteAddr, len: usize) -> Option<(Known, u64)> {
    let known = peer.known.iter().find(|known| known.key == at.key)?;
    match known.at(at.addr, len) {
        Ok(Place::Attached(base)) => Some((*known, base)),
        _ => None,
    }
}

/// Where a remote piece is.
#[inline]
pub(crate) fn find(peer: &mut Peer, remote: RemotePiece) -> Result<(Known, Place), FabricCode> {
    let known = peer.region(remote.at.key)?;
    known.at(remote.at.addr, remote.len).map(|place| (known, place))
}

/// Whether a vector is what the limits and the contract say.
pub(crate) fn check(local: &[LocalPiece], remote: &[RemotePiece], most: usize) -> Result<(), PostError> {
    let near = local.iter().try_fold(0_usize, |sum, piece| sum.checked_add(piece.len));
    let far = remote.iter().try_fold(0_usize, |sum, piece| sum.checked_add(piece.len));
    let has_empty = local.iter().any(|piece| piece.len == 0) || remote.iter().any(|piece| piece.len == 0);
    let fits = |count: usize| (1..=VECTOR_PIECES_MAX).contains(&count);
    let is_even = near.is_some_and(|len| len <= most) && near == far;
    if has_empty || !is_even || !fits(local.len()) || !fits(remote.len()) {
        return Err(PostError::Failed(BAD_PIECES));
    }
    Ok(())
}

/// A put or get of pieces that were checked; an error is that of the operation, which was accepted.
///
/// # Safety
/// The local pieces are readable, for gets writable.
pub(crate) unsafe fn vector(
    peer: &mut Peer,
    direction: Direction,
    local: &[LocalPiece],
    remote: &[RemotePiece],
) -> Result<(), FabricCode> {
    let Some(first) = remote.first() else { return Ok(()) };
    let mut known = [peer.region(first.at.key)?; VECTOR_PIECES_MAX];
    let mut runs = [Run::NONE; RUNS_MAX];
    let mut count = 0;
    let mut nears = local.iter();
    let (mut base, mut left) = (ptr::null_mut(), 0);
    for (far, known) in remote.iter().zip(&mut known) {
        *known = peer.region(far.at.key)?;
        let mut done = 0;
        while done < far.len {
            if left == 0 {
                let near = nears.next().ok_or(BAD_PIECES)?;
                (base, left) = (near.base, near.len);
            }
            let len = left.min(far.len - done);
            let offset = far.at.addr.checked_add(done as u64).ok_or(crate::error::OUT_OF_REGION)?;
            let run = runs.get_mut(count).ok_or(BAD_PIECES)?;
            *run = Run { local: base, remote: known.at(offset, len)?, len };
            (base, left) = (base.wrapping_add(len), left - len);
            (count, done) = (count + 1, done + len);
        }
    }
    // SAFETY: by the caller's promise, and each range was checked.
    unsafe { guarded(peer, &known[..remote.len()], direction, &runs[..count]) }
}

/// Moves the bytes, if all regions are still there, and so that none goes away meanwhile.
///
/// # Safety
/// The runs' local bytes are readable, for gets writable, and the remote ones inside of the regions.
#[inline]
unsafe fn guarded(
    peer: &mut Peer,
    known: &[Known],
    direction: Direction,
    runs: &[Run],
) -> Result<(), FabricCode> {
    let Peer { head, lane, process, location, .. } = peer;
    guard::with(&head.busy(*lane), || {
        if !known.iter().all(|known| known.is_there(head)) {
            return Err(NO_REGION);
        }
        let [Run { local, remote: Place::Mapped(at), len }] = *runs else {
            // The kernel would say that it has copied nothing.
            if let [Run { len: 0, .. }] = *runs {
                return Ok(());
            }
            // The number may be another process's once this one has ended.
            if process.as_ref().is_some_and(crate::process::has_ended) {
                return Err(ENDED);
            }
            // SAFETY: by the caller's promise.
            return unsafe { several(location.pid, direction, runs) };
        };
        // SAFETY: by the caller's promise.
        unsafe { load_and_store(direction, local, at, len) };
        Ok(())
    })
}

/// Moves runs of which the kernel copies some.
///
/// # Safety
/// As [`guarded`], under the guard.
unsafe fn several(pid: u32, direction: Direction, runs: &[Run]) -> Result<(), FabricCode> {
    let nothing = iovec { iov_base: ptr::null_mut(), iov_len: 0 };
    let (mut near, mut far) = ([nothing; RUNS_MAX], [nothing; RUNS_MAX]);
    let mut count = 0;
    for run in runs {
        match run.remote {
            // SAFETY: by the caller's promise.
            Place::Mapped(at) => unsafe { load_and_store(direction, run.local, at, run.len) },
            Place::Attached(at) => {
                near[count] = iovec { iov_base: run.local.cast(), iov_len: run.len };
                far[count] = iovec { iov_base: at as usize as *mut _, iov_len: run.len };
                count += 1;
            }
        }
    }
    // SAFETY: by the caller's promise.
    unsafe { attach::copy(direction, pid, &mut near[..count], &mut far[..count]) }
}

/// Copies to or from mapped memory.
///
/// # Safety
/// `local` is readable, for gets writable, and `at` inside of a region.
#[inline]
pub(crate) unsafe fn load_and_store(direction: Direction, local: *mut u8, at: *mut u8, len: usize) {
    let (from, into) = match direction {
        Direction::Put => (local, at),
        Direction::Get => (at, local),
    };
    if len == size_of::<u64>() {
        // SAFETY: by the caller's promise; it is read whole before it is written.
        let word = unsafe { from.cast::<u64>().read_unaligned() };
        // SAFETY: as above.
        unsafe { into.cast::<u64>().write_unaligned(word) };
        return;
    }
    // SAFETY: by the caller's promise; an origin's buffer may overlap its own window.
    unsafe { ptr::copy(from, into, len) };
}
