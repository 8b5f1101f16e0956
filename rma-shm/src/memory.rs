//! Memory that peers can map: of this process, in files without a name.

use core::ptr::NonNull;
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rma_core::provider::ProviderError;
use rustix::fs::{fallocate, FallocateFlags};

use crate::error::{call_failed, refused};
use crate::head::page;
use crate::mapping::{inode, new_file, Mapping};

/// Memory for windows, all zeros, that lies in a file of its own, so that peers load and store it themselves.
///
/// What is registered of it with any endpoint of this process is mapped by peers. The file has no name: it is
/// gone with the last process that has it. Its pages are taken when they are touched.
#[derive(Debug)]
pub struct Memory {
    mapping: Mapping,
    file: OwnedFd,
}

impl Memory {
    /// At least `len` bytes, from a page's first on.
    ///
    /// # Errors
    /// When there is no file or address space for it; the message says why.
    pub fn new(len: usize) -> Result<Self, ProviderError> {
        let len = len.max(1).checked_next_multiple_of(page());
        let len = len.filter(|&len| i64::try_from(len).is_ok());
        let len = len.ok_or_else(|| refused("the memory asked for is larger than an address space"))?;
        let file = new_file("rma-shm-memory", len)?;
        let mapping = Mapping::new(&file, 0, len)
            .map_err(|error| call_failed(&format!("mmap of {len} bytes of memory"), error))?;
        let entry = Entry { len, fd: file.as_raw_fd() as u32, inode: inode(&file)? };
        registry().insert(mapping.base().as_ptr().addr(), entry);
        Ok(Self { mapping, file })
    }

    /// The first byte.
    pub fn base(&self) -> NonNull<u8> {
        self.mapping.base()
    }

    /// Bytes, a multiple of a page's.
    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// Never: it has a page at least.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        registry().remove(&self.mapping.base().as_ptr().addr());
        // Peers may have it mapped for a while yet: the pages are given back now. A failure keeps them till
        // then.
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = fallocate(&self.file, flags, 0, self.mapping.len() as u64);
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    len: usize,
    fd: u32,
    inode: u64,
}

/// Where a span of memory lies in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InFile {
    pub(crate) fd: u32,
    pub(crate) inode: u64,
    /// Bytes of the whole file.
    pub(crate) file_len: u64,
    /// The span's first byte.
    pub(crate) offset: u64,
}

/// The file that has the whole span, if it is [`Memory`].
pub(crate) fn find(base: usize, len: usize) -> Option<InFile> {
    let registry = registry();
    let (&first, entry) = registry.range(..=base).next_back()?;
    let offset = base - first;
    let is_inside = offset <= entry.len && len <= entry.len - offset;
    is_inside.then_some(InFile {
        fd: entry.fd,
        inode: entry.inode,
        file_len: entry.len as u64,
        offset: offset as u64,
    })
}

/// All memory of this process, by address.
fn registry() -> MutexGuard<'static, BTreeMap<usize, Entry>> {
    static REGISTRY: Mutex<BTreeMap<usize, Entry>> = Mutex::new(BTreeMap::new());
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_found_in_whole() {
        let memory = Memory::new(10_000).unwrap();
        assert!(memory.len() >= 10_000 && memory.len() % page() == 0 && !memory.is_empty());
        let base = memory.base().as_ptr().addr();
        let whole = find(base, memory.len()).unwrap();
        assert_eq!((whole.offset, whole.file_len), (0, memory.len() as u64));
        assert_eq!(find(base + 100, 8).unwrap(), InFile { offset: 100, ..whole });
        assert_eq!(find(base + memory.len(), 0).map(|found| found.inode), Some(whole.inode));
        assert!(find(base + 1, memory.len()).is_none());
        let heap = Box::new([0_u8; 100]);
        assert!(find(heap.as_ptr().addr(), heap.len()).is_none());
        drop(memory);
        assert!(find(base, 1).is_none());
    }

    #[test]
    fn memory_that_cannot_be_had_is_an_error() {
        for len in [usize::MAX, isize::MAX as usize, 1 << 60] {
            assert!(Memory::new(len).is_err(), "{len}");
        }
    }
}
