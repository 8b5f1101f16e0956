//! Memory that peers can map: of this process, in files without a name.

use core::ptr::NonNull;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rma_core::provider::{Allocation, ProviderError};
use rustix::fs::{fallocate, fstat, FallocateFlags};
use rustix::io::Errno;
use rustix::mm::{mmap_anonymous, munmap, MapFlags, ProtFlags};

use crate::error::{call_failed, refused};
use crate::head::page;
use crate::mapping::{inode, make_file, Mapping};

/// Memory for windows, all zeros, that lies in a file of its own, so that peers load and store it themselves.
///
/// What is registered of it with any endpoint of this process is mapped by peers. The file has no name: it is
/// gone with the last process that has it. Its pages are taken when they are touched.
#[derive(Debug)]
pub struct Memory {
    mapping: Arc<Mapping>,
    file: OwnedFd,
    /// Nobody else has made the file, and nobody's memory but this is in it.
    is_own: bool,
}

impl Memory {
    /// At least `len` bytes, from a page's first on.
    ///
    /// # Errors
    /// When there is no file or address space for it; the message says why.
    pub fn new(len: usize) -> Result<Self, ProviderError> {
        Self::make(len, 0).map_err(|error| call_failed(&format!("making {len} bytes of memory"), error))
    }

    /// The same at a multiple of `alignment` (0 or a power of two) and of a page. Where this process has no room for
    /// another file any memory is better than none.
    pub(crate) fn for_window(len: usize, alignment: usize) -> Allocation {
        match Self::make(len, alignment) {
            Ok(memory) => Allocation::Here { base: memory.base(), mapping: Box::new(memory) },
            Err(Errno::MFILE | Errno::NFILE) => Allocation::Anywhere,
            Err(_) => Allocation::OutOfMemory,
        }
    }

    fn make(len: usize, alignment: usize) -> Result<Self, Errno> {
        let len = len.max(1).checked_next_multiple_of(page());
        let len = len.filter(|&len| i64::try_from(len).is_ok()).ok_or(Errno::NOMEM)?;
        // Whatever was asked for.
        let alignment = alignment.checked_next_power_of_two().ok_or(Errno::NOMEM)?;
        promise(len)?;
        let file = make_file("rma-window", len)?;
        let mapping = Mapping::aligned(&file, len, alignment)?;
        Self::register(mapping, file, true)
    }

    /// The first `len` bytes of a file that another process may have made, mapped at a multiple of `alignment` (0 or
    /// a power of two) and of a page. Peers map it only if its length is sealed.
    ///
    /// # Errors
    /// When the file is shorter, or cannot be mapped.
    pub fn of_file(file: &impl AsFd, len: usize, alignment: usize) -> Result<Self, ProviderError> {
        let failed = |error| call_failed(&format!("mapping {len} bytes of a file"), error);
        let has = fstat(file).map_err(failed)?.st_size;
        if len == 0 || u64::try_from(has).unwrap_or(0) < len as u64 {
            return Err(refused(format!("{len} bytes are to be mapped of a file that has {has}")));
        }
        let mapping = Mapping::aligned(file, len, alignment).map_err(failed)?;
        let file = rustix::io::fcntl_dupfd_cloexec(file, 0).map_err(failed)?;
        Self::register(mapping, file, false).map_err(failed)
    }

    fn register(mapping: Mapping, file: OwnedFd, is_own: bool) -> Result<Self, Errno> {
        let mapping = Arc::new(mapping);
        let entry = Entry {
            mapping: Arc::downgrade(&mapping),
            len: mapping.len(),
            fd: file.as_raw_fd() as u32,
            inode: fstat(&file)?.st_ino,
        };
        registry().insert(mapping.base().as_ptr().addr(), entry);
        Ok(Self { mapping, file, is_own })
    }

    /// The first byte.
    pub fn base(&self) -> NonNull<u8> {
        self.mapping.base()
    }

    /// Bytes; of a file of its own a multiple of a page's.
    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// Never: it has a byte at least.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        registry().remove(&self.mapping.base().as_ptr().addr());
        if !self.is_own {
            return;
        }
        // Peers may have it mapped for a while yet: the pages are given back now. A failure keeps them till
        // then.
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = fallocate(&self.file, flags, 0, self.mapping.len() as u64);
    }
}

/// Asks the kernel whether it would promise the process as much memory of its own, as it does for other memory: of files
/// it promises everything, and ends processes later.
fn promise(len: usize) -> Result<(), Errno> {
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: at a place of the kernel's choice.
    let promised = unsafe { mmap_anonymous(core::ptr::null_mut(), len, access, flags) }?;
    // SAFETY: what was mapped above, which nobody has seen.
    unsafe { munmap(promised, len) }
}

#[derive(Debug)]
struct Entry {
    mapping: Weak<Mapping>,
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

/// The mapping that this process has of the whole file, if it has one: to share what all ranks have mapped, and not
/// map it again for each peer.
pub(crate) fn mapped_here(file: &impl AsFd, len: usize) -> Option<Arc<Mapping>> {
    let number = inode(file).ok()?;
    let registry = registry();
    let is_it = |entry: &&Entry| entry.inode == number && entry.len == len;
    registry.values().find(is_it)?.mapping.upgrade()
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
            assert!(matches!(Memory::for_window(len, 0), Allocation::OutOfMemory), "{len}");
        }
        assert!(matches!(Memory::for_window(8, usize::MAX), Allocation::OutOfMemory));
    }

    #[test]
    fn an_alignment_is_kept() {
        for alignment in [0, 64, 4096, 1 << 21] {
            let memory = Memory::make(10_000, alignment).unwrap();
            let base = memory.base().as_ptr();
            assert_eq!(base.addr() % alignment.max(page()), 0);
            let last = base.wrapping_add(memory.len() - 1);
            // SAFETY: the last byte of memory that nobody else has.
            assert_eq!(unsafe { last.read() }, 0);
        }
    }

    #[test]
    fn a_file_of_several_processes_is_mapped_once_and_stays_whole() {
        let first = Memory::new(8192).unwrap();
        let file = find(first.base().as_ptr().addr(), 1).unwrap();
        let second = Memory::of_file(&first.file, 8192, 0).unwrap();
        assert_eq!(find(second.base().as_ptr().addr(), 8192).unwrap().inode, file.inode);
        assert!(
            Arc::ptr_eq(&mapped_here(&second.file, 8192).unwrap(), &first.mapping)
                || Arc::ptr_eq(&mapped_here(&second.file, 8192).unwrap(), &second.mapping)
        );
        assert!(mapped_here(&second.file, 4096).is_none());
        assert!(
            Memory::of_file(&first.file, 8193, 0).is_err() && Memory::of_file(&first.file, 0, 0).is_err()
        );
        // SAFETY: inside of the mapping, which nobody else has.
        unsafe { first.base().as_ptr().write(7) };
        drop(second);
        // SAFETY: as above.
        let left = unsafe { first.base().as_ptr().read() };
        assert_eq!(left, 7, "who has not made the file gives nothing back");
    }
}
