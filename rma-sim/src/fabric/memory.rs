//! Memory that the simulated fabric reads and writes on behalf of others: registered regions and the
//! buffers of operations in flight. The only place of the fabric that dereferences a pointer.
#![allow(unsafe_code)]

use core::ptr::NonNull;
use std::fmt;

use rma_core::ids::RemoteKey;
use rma_core::provider::{MemoryRegion, ProviderError};

use super::{SimEndpoint, SimFabric};

/// An address that the fabric was lent: by a registration until it is dropped, or by an operation until its
/// tag comes back.
#[derive(Clone, Copy, Hash, Debug)]
pub(super) struct MemoryPointer(*mut u8);

// SAFETY: the pointer is dereferenced only under the fabric's mutex and only while the loan lasts; the
// lenders' promises ("readable", "writable until the tag comes back") do not name a thread.
unsafe impl Send for MemoryPointer {}

impl MemoryPointer {
    /// No memory: for operations without this buffer.
    pub(super) const NULL: Self = Self(core::ptr::null_mut());

    pub(super) fn new(pointer: *mut u8) -> Self {
        Self(pointer)
    }

    /// For a source, which is only ever read.
    pub(super) fn source(pointer: *const u8) -> Self {
        Self(pointer.cast_mut())
    }

    pub(super) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Copies from the memory `offset` bytes in.
    ///
    /// # Safety
    /// The loan lasts and covers `offset + out.len()` bytes; `out` is the fabric's own memory.
    pub(super) unsafe fn read(self, offset: usize, out: &mut [u8]) {
        if out.is_empty() {
            return;
        }
        // SAFETY: inside the loan, by the caller's promise.
        let from = unsafe { self.0.add(offset) };
        // SAFETY: readable for that many bytes; the fabric's own memory does not overlap a loan.
        unsafe { core::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
    }

    /// Copies into the memory `offset` bytes in.
    ///
    /// # Safety
    /// The loan lasts, is writable and covers `offset + bytes.len()` bytes; `bytes` is the fabric's own.
    pub(super) unsafe fn write(self, offset: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        // SAFETY: inside the loan, by the caller's promise.
        let to = unsafe { self.0.add(offset) };
        // SAFETY: writable for that many bytes; the fabric's own memory does not overlap a loan.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }
}

/// A registration, as its endpoint keeps it.
#[derive(Debug)]
pub(super) struct Registration {
    pub(super) key: RemoteKey,
    pub(super) base: MemoryPointer,
    pub(super) remote_base: u64,
    pub(super) len: usize,
    /// False after the region was dropped; the entry stays, so that a late access is told from a wrong key.
    pub(super) is_live: bool,
}

/// Why an access to registered memory was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AccessError {
    NoSuchKey,
    Deregistered,
    OutOfRange,
}

impl AccessError {
    pub(super) fn rule(self) -> &'static str {
        match self {
            Self::NoSuchKey => "a remote key must be one that the target registered",
            Self::Deregistered => "memory must not be accessed after its region was dropped",
            Self::OutOfRange => "an access must stay inside the registered region",
        }
    }
}

/// The registrations of one endpoint.
#[derive(Default, Debug)]
pub(super) struct Registrations {
    entries: Vec<Registration>,
}

impl Registrations {
    /// Adds a registration whose key is `wish`, or where that is `None` or taken, one of our own choice.
    pub(super) fn add(
        &mut self,
        base: NonNull<u8>,
        len: usize,
        wish: Option<RemoteKey>,
        offsets: bool,
    ) -> usize {
        let index = self.entries.len();
        let is_taken = |key| self.entries.iter().any(|entry| entry.is_live && entry.key == key);
        let own = RemoteKey(0x5afe_0000_0000 + index as u64 * 0x101);
        let key = wish.filter(|&key| !is_taken(key)).unwrap_or(own);
        // Invented virtual addresses: the real ones differ from run to run, and a seed must not.
        let remote_base = if offsets { 0 } else { (index as u64 + 1) << 40 };
        let base = MemoryPointer::new(base.as_ptr());
        self.entries.push(Registration { key, base, remote_base, len, is_live: true });
        index
    }

    pub(super) fn get(&self, index: usize) -> &Registration {
        &self.entries[index]
    }

    pub(super) fn remove(&mut self, index: usize) {
        self.entries[index].is_live = false;
        self.entries[index].base = MemoryPointer::NULL;
    }

    pub(super) fn remove_all(&mut self) {
        (0..self.entries.len()).for_each(|index| self.remove(index));
    }

    pub(super) fn live_count(&self) -> usize {
        self.entries.iter().filter(|entry| entry.is_live).count()
    }

    /// The memory of `len` bytes at `addr` under `key`, if all of it is registered.
    pub(super) fn find(&self, key: RemoteKey, addr: u64, len: usize) -> Result<Access, AccessError> {
        // The newest first: a key may be used again after its region is gone.
        let named = || self.entries.iter().rev().filter(|entry| entry.key == key);
        let Some(entry) = named().find(|entry| entry.is_live) else {
            return Err(match named().next() {
                Some(_) => AccessError::Deregistered,
                None => AccessError::NoSuchKey,
            });
        };
        let offset = addr.checked_sub(entry.remote_base).ok_or(AccessError::OutOfRange)?;
        let end = offset.checked_add(len as u64).ok_or(AccessError::OutOfRange)?;
        if end > entry.len as u64 {
            return Err(AccessError::OutOfRange);
        }
        Ok(Access { base: entry.base, offset: offset as usize, len })
    }
}

impl SimEndpoint {
    pub(super) fn add_region(
        &self,
        base: NonNull<u8>,
        len: usize,
        wish: Option<RemoteKey>,
        offsets: bool,
    ) -> Result<SimRegion, ProviderError> {
        if len == 0 {
            return Err(ProviderError {
                message: "register: an empty region cannot be registered; give it at least one byte".into(),
            });
        }
        let mut state = self.fabric.state();
        let registrations = &mut state.endpoints[self.index].registrations;
        let index = registrations.add(base, len, wish, offsets);
        Ok(SimRegion::new(self.fabric.clone(), self.index, index, registrations.get(index)))
    }
}

/// Checked access to registered memory, good until the fabric's mutex is given up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    base: MemoryPointer,
    offset: usize,
    len: usize,
}

impl Access {
    /// Reads `out.len()` bytes, `at` bytes in.
    pub(super) fn read(self, at: usize, out: &mut [u8]) {
        assert!(at + out.len() <= self.len, "the access was checked for {} bytes", self.len);
        // SAFETY: `find` checked the range against a live registration.
        unsafe { self.base.read(self.offset + at, out) };
    }

    /// Writes `bytes`, `at` bytes in.
    pub(super) fn write(self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.len, "the access was checked for {} bytes", self.len);
        // SAFETY: `find` checked the range against a live registration.
        unsafe { self.base.write(self.offset + at, bytes) };
    }

    /// Whether the address is a multiple of `bytes`, as NIC atomics want.
    pub(super) fn is_aligned(self, bytes: usize) -> bool {
        (self.base.0 as usize + self.offset) % bytes == 0
    }
}

/// A registered span of a simulated process's memory; peers cannot reach it any more when it is dropped.
pub struct SimRegion {
    fabric: SimFabric,
    endpoint: usize,
    index: usize,
    key: RemoteKey,
    remote_base: u64,
}

impl SimRegion {
    pub(super) fn new(fabric: SimFabric, endpoint: usize, index: usize, entry: &Registration) -> Self {
        Self { fabric, endpoint, index, key: entry.key, remote_base: entry.remote_base }
    }
}

impl MemoryRegion for SimRegion {
    fn remote_key(&self) -> RemoteKey {
        self.key
    }

    fn remote_base(&self) -> u64 {
        self.remote_base
    }
}

impl Drop for SimRegion {
    fn drop(&mut self) {
        self.fabric.state().deregister(self.endpoint, self.index);
    }
}

impl fmt::Debug for SimRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimRegion")
            .field("key", &self.key)
            .field("remote_base", &self.remote_base)
            .finish_non_exhaustive()
    }
}
