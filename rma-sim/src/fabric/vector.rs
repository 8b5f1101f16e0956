//! Operations on several pieces of memory at either side.
#![allow(unsafe_code)]

use core::hash::{Hash, Hasher};
use core::ops::Range;

use rma_core::provider::{LocalPiece, RemoteAddr, RemotePiece, VECTOR_PIECES_MAX};

use super::memory::{Access, AccessError, MemoryPointer, Registrations};

/// The pieces of a put or get; the bytes of each side are counted one piece behind the other.
#[derive(Debug)]
pub(super) struct Pieces {
    local: [(MemoryPointer, usize); VECTOR_PIECES_MAX],
    locals: usize,
    remote: [(RemoteAddr, usize); VECTOR_PIECES_MAX],
    remotes: usize,
}

impl Pieces {
    /// A copy of the lists; `None` when one is empty or longer than any may be.
    pub(super) fn new(local: &[LocalPiece], remote: &[RemotePiece]) -> Option<Self> {
        let first = remote.first()?;
        let mut pieces = Self {
            local: [(MemoryPointer::NULL, 0); VECTOR_PIECES_MAX],
            locals: local.len(),
            remote: [(first.at, 0); VECTOR_PIECES_MAX],
            remotes: remote.len(),
        };
        for (to, from) in pieces.local.get_mut(..local.len())?.iter_mut().zip(local) {
            *to = (MemoryPointer::new(from.base), from.len);
        }
        for (to, from) in pieces.remote.get_mut(..remote.len())?.iter_mut().zip(remote) {
            *to = (from.at, from.len);
        }
        Some(pieces).filter(|pieces| pieces.locals > 0)
    }

    fn local(&self) -> &[(MemoryPointer, usize)] {
        &self.local[..self.locals]
    }

    fn remote(&self) -> &[(RemoteAddr, usize)] {
        &self.remote[..self.remotes]
    }

    /// Gathers from the origin's pieces, from byte `start` of them on.
    ///
    /// # Safety
    /// The loans of the pieces last and cover their lengths; `out` is the fabric's own memory.
    pub(super) unsafe fn read(&self, start: usize, out: &mut [u8]) {
        for (index, offset, range) in overlaps(self.local(), start, out.len()) {
            // SAFETY: inside the piece, whose loan lasts, by the caller's promise.
            unsafe { self.local[index].0.read(offset, &mut out[range]) };
        }
    }

    /// Scatters to the origin's pieces, from byte `start` of them on.
    ///
    /// # Safety
    /// The loans of the pieces last, are writable and cover their lengths; `bytes` is the fabric's own.
    pub(super) unsafe fn write(&self, start: usize, bytes: &[u8]) {
        for (index, offset, range) in overlaps(self.local(), start, bytes.len()) {
            // SAFETY: inside the piece, whose loan lasts, by the caller's promise.
            unsafe { self.local[index].0.write(offset, &bytes[range]) };
        }
    }

    /// Hashes where the bytes go, at the target, and at the origin where it is the origin that is written.
    pub(super) fn hash_places(&self, hasher: &mut impl Hasher, writes_origin: bool) {
        for (at, len) in self.remote() {
            (at.addr, at.key.0, len).hash(hasher);
        }
        if writes_origin {
            self.local().hash(hasher);
        }
    }
}

/// Checked access to all of an operation's memory at the target.
pub(super) struct Accesses {
    pieces: [(Access, usize); VECTOR_PIECES_MAX],
    count: usize,
}

impl Accesses {
    /// Finds the memory of `len` bytes at `at`, or of the pieces where there are some.
    pub(super) fn find(
        registrations: &Registrations,
        at: RemoteAddr,
        len: usize,
        pieces: Option<&Pieces>,
    ) -> Result<Self, AccessError> {
        let whole = [(at, len)];
        let wanted = pieces.map_or(&whole[..], Pieces::remote);
        let mut found: Option<Self> = None;
        for &(at, len) in wanted {
            let access = registrations.find(at.key, at.addr, len)?;
            let all = found.get_or_insert(Self { pieces: [(access, len); VECTOR_PIECES_MAX], count: 0 });
            all.pieces[all.count] = (access, len);
            all.count += 1;
        }
        found.ok_or(AccessError::OutOfRange)
    }

    /// Reads `out.len()` bytes, `start` bytes in.
    pub(super) fn read(&self, start: usize, out: &mut [u8]) {
        for (index, offset, range) in overlaps(&self.pieces[..self.count], start, out.len()) {
            self.pieces[index].0.read(offset, &mut out[range]);
        }
    }

    /// Writes `bytes`, `start` bytes in.
    pub(super) fn write(&self, start: usize, bytes: &[u8]) {
        for (index, offset, range) in overlaps(&self.pieces[..self.count], start, bytes.len()) {
            self.pieces[index].0.write(offset, &bytes[range]);
        }
    }
}

/// Which pieces hold `len` bytes from byte `start` on: index, offset in the piece, and which of the bytes.
fn overlaps<T>(
    pieces: &[(T, usize)],
    start: usize,
    len: usize,
) -> impl Iterator<Item = (usize, usize, Range<usize>)> + '_ {
    let mut position = 0;
    pieces.iter().enumerate().filter_map(move |(index, (_, bytes))| {
        let (first, last) = (position.max(start), (position + bytes).min(start + len));
        let offset = first.saturating_sub(position);
        position += bytes;
        (first < last).then(|| (index, offset, first - start..last - start))
    })
}
