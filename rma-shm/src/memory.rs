//! Memory that peers can map: of this process, in files without a name.

use core::ptr::NonNull;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rma_core::provider::{Allocation, ProviderError};
use rustix::fs::{fallocate, fstat, FallocateFlags};
use rustix::io::Errno;
use rustix::mm::{mmap_anonymous, munmap, MapFlags, ProtFlags};

use crate::available::{available, Available};
use crate::error::{call_failed, refused};
use crate::head::page;
use crate::mapping::{device_of, make_file, Mapping};

pub(crate) use crate::mapping::DEVICE_BITS;
use crate::options::{HugePages, Pages};
use crate::pages::{self, advise_huge, no_huge_pages, place_here, populate};

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
    /// When there is no file, address space or memory for it; the message says what was asked for and what there is.
    pub fn new(len: usize) -> Result<Self, ProviderError> {
        Self::make(len, 0, Pages::default()).map_err(|error| error.into_provider(len))
    }

    /// The same at a multiple of `alignment` (0 or a power of two) and of a page. Where this process has no room for
    /// another file any memory is better than none. An error is that there is not as much, and says how much there is.
    pub(crate) fn for_window(
        len: usize,
        alignment: usize,
        pages: Pages,
    ) -> Result<Allocation, ProviderError> {
        match Self::make(len, alignment, pages) {
            Ok(memory) => Ok(Allocation::Here { base: memory.base(), mapping: Box::new(memory) }),
            Err(Refused::Call(Errno::MFILE | Errno::NFILE)) => Ok(Allocation::Anywhere),
            Err(error) => Err(error.into_provider(len)),
        }
    }

    fn make(asked: usize, alignment: usize, pages: Pages) -> Result<Self, Refused> {
        let huge_bytes = pages.huge_bytes(asked);
        let page_bytes = huge_bytes.unwrap_or_else(page);
        let len = asked.max(1).checked_next_multiple_of(page_bytes);
        let len = len
            .filter(|&len| i64::try_from(len).is_ok())
            .ok_or_else(|| short(asked, available().as_ref()))?;
        // Whatever was asked for.
        let alignment = alignment.checked_next_power_of_two().ok_or(Errno::NOMEM)?;
        let alignment = alignment.max(pages.alignment(len));
        if let Some(huge_bytes) = huge_bytes {
            // These are a pool's, and not of what the host has beside it.
            let made = Self::make_of(len, alignment, page_bytes, pages);
            return made.map_err(|error| match error {
                Refused::Call(Errno::MFILE | Errno::NFILE) => error,
                Refused::Call(code) => Refused::Short(no_huge_pages(len, huge_bytes, code)),
                Refused::Short(_) => Refused::Short(no_huge_pages(len, huge_bytes, Errno::NOMEM)),
            });
        }
        let had = available();
        let is_short = had.as_ref().is_some_and(|had| had.bytes < len as u64);
        if is_short && len >= COMPARED_BYTES {
            return Err(short(len, had.as_ref()));
        }
        promise(len).map_err(|_| unpromised(len, had.as_ref()))?;
        Self::make_of(len, alignment, page_bytes, pages)
    }

    /// Of a length and an alignment that can be.
    fn make_of(len: usize, alignment: usize, page_bytes: usize, pages: Pages) -> Result<Self, Refused> {
        let file = make_file("rma-window", len, pages.file_flags(len))?;
        let mapping = Mapping::aligned(&file, len, alignment, page_bytes)?;
        // Before any page is taken.
        place_here(&mapping);
        if pages.huge == HugePages::Transparent {
            advise_huge(&mapping);
            if pages.reserve {
                populate(&mapping);
            }
        }
        // Of a pool of huge pages a mapping has a promise, but a limit of a control group would still be met by a signal.
        if pages.reserve || page_bytes > page() {
            // On failure the file goes, and with it what it has.
            pages::reserve(&file, len as u64).map_err(|(had, error)| {
                Refused::Short(format!(
                    "{len} bytes of memory were asked for, and {had} bytes could be had: {error}"
                ))
            })?;
        }
        Ok(Self::register(mapping, file, true)?)
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
        let mapping = Mapping::aligned(file, len, alignment, page()).map_err(failed)?;
        let file = rustix::io::fcntl_dupfd_cloexec(file, 0).map_err(failed)?;
        Self::register(mapping, file, false).map_err(failed)
    }

    fn register(mapping: Mapping, file: OwnedFd, is_own: bool) -> Result<Self, Errno> {
        let mapping = Arc::new(mapping);
        let status = fstat(&file)?;
        let entry = Entry {
            mapping: Arc::downgrade(&mapping),
            len: mapping.len(),
            fd: file.as_raw_fd() as u32,
            file: (device_of(&status), status.st_ino),
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

/// Why there is no memory.
#[derive(Debug)]
enum Refused {
    Call(Errno),
    /// There is less; in words, with both numbers.
    Short(String),
}

impl From<Errno> for Refused {
    fn from(error: Errno) -> Self {
        Self::Call(error)
    }
}

impl Refused {
    #[cold]
    fn into_provider(self, asked: usize) -> ProviderError {
        match self {
            Self::Call(error) => call_failed(&format!("making {asked} bytes of memory"), error),
            Self::Short(message) => refused(message),
        }
    }
}

#[cold]
fn short(asked: usize, had: Option<&Available>) -> Refused {
    let had = had.map_or_else(|| "there are fewer".to_owned(), Available::to_string);
    Refused::Short(format!("{asked} bytes of memory were asked for, and {had}"))
}

#[cold]
fn unpromised(asked: usize, had: Option<&Available>) -> Refused {
    let had = had.map_or_else(String::new, |had| format!("{had}, but "));
    Refused::Short(format!(
        "{asked} bytes of memory were asked for, and {had}the kernel does not promise them (vm.overcommit_memory, or \
         ulimit -v)"
    ))
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

/// Less is not compared with what there is: it decides nothing, and what there is changes by more meanwhile.
const COMPARED_BYTES: usize = 1 << 20;

#[derive(Debug)]
struct Entry {
    mapping: Weak<Mapping>,
    len: usize,
    fd: u32,
    /// The device and the number.
    file: (u32, u64),
}

/// Where a span of memory lies in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InFile {
    pub(crate) fd: u32,
    /// See [`device_of`].
    pub(crate) device: u32,
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
        device: entry.file.0,
        inode: entry.file.1,
        file_len: entry.len as u64,
        offset: offset as u64,
    })
}

/// The mapping that this process has of the whole file, if it has one: to share what all ranks have mapped, and not
/// map it again for each peer.
pub(crate) fn mapped_here(file: &impl AsFd, len: usize) -> Option<Arc<Mapping>> {
    let status = fstat(file).ok()?;
    mapped_as((device_of(&status), status.st_ino), len)
}

/// The same of the file on this device with this number.
pub(crate) fn mapped_as(file: (u32, u64), len: usize) -> Option<Arc<Mapping>> {
    let registry = registry();
    let is_it = |entry: &&Entry| entry.file == file && entry.len == len;
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
            let message = Memory::for_window(len, 0, Pages::default()).unwrap_err().message;
            assert!(message.contains(&len.to_string()) && message.contains(" can be had "), "{message}");
        }
        assert!(Memory::for_window(8, usize::MAX, Pages::default()).is_err());
    }

    fn blocks(memory: &Memory) -> u64 {
        fstat(&memory.file).unwrap().st_blocks as u64 * 512
    }

    #[test]
    fn pages_are_taken_at_once_if_that_is_wished() {
        let len = 3 * 4096 * page();
        let make = |reserve, huge| Memory::make(len, 0, Pages { reserve, huge }).unwrap();
        let later = make(false, HugePages::No);
        assert_eq!(blocks(&later), 0);
        for huge in [HugePages::No, HugePages::Transparent] {
            let memory = make(true, huge);
            assert_eq!(blocks(&memory), len as u64, "{huge:?}");
            let other = rustix::io::dup(&memory.file).unwrap();
            drop(memory);
            assert_eq!(fstat(&other).unwrap().st_blocks, 0, "peers that have it open keep nothing");
        }
    }

    #[test]
    fn what_may_become_a_huge_page_is_aligned() {
        let pages = Pages { huge: HugePages::Transparent, ..Pages::default() };
        let memory = Memory::make(5 << 20, 0, pages).unwrap();
        assert_eq!(memory.base().as_ptr().addr() % (2 << 20), 0);
        assert_eq!(Memory::make(1, 0, pages).unwrap().len(), page());
    }

    /// Where the pool has none, as on most machines, the error says so.
    #[test]
    fn memory_of_huge_pages_is_had_whole_or_is_an_error() {
        for (huge, bytes) in [(HugePages::Of2M, 2 << 20), (HugePages::Of1G, 1 << 30)] {
            let pages = Pages { huge, ..Pages::default() };
            // A byte more than a page of theirs.
            let memory =
                match Memory::make(bytes + 1, 0, pages).map_err(|error| error.into_provider(bytes + 1)) {
                    Ok(memory) => memory,
                    Err(error) => {
                        let asked = format!("{} bytes of memory were asked for in 2 huge pages", 2 * bytes);
                        let says_both =
                            error.message.contains(&asked) && error.message.contains(" bytes can be had");
                        assert!(says_both, "{error}");
                        println!("not in huge pages of {bytes} bytes: {error}");
                        continue;
                    }
                };
            assert_eq!((memory.len(), blocks(&memory)), (2 * bytes, 2 * bytes as u64));
            // A peer's mapping, which takes no other pages.
            let file = find(memory.base().as_ptr().addr(), 1).unwrap();
            let again = crate::mapping::open_file(
                std::process::id(),
                file.fd,
                (Some(file.device), file.inode),
                file.file_len,
            );
            let again = again.unwrap();
            let peers = Mapping::new(&again, 0, memory.len()).unwrap();
            peers.word(bytes).store(7, core::sync::atomic::Ordering::Relaxed);
            // SAFETY: inside of the mapping, and no one writes meanwhile.
            assert_eq!(unsafe { memory.base().as_ptr().wrapping_add(bytes).read() }, 7);
            drop(memory);
            assert_eq!(fstat(&again).unwrap().st_blocks, 0, "given back while the peer has it mapped");
        }
        // A line for a lock wastes none.
        assert_eq!(
            Memory::make(64, 0, Pages { huge: HugePages::Of1G, ..Pages::default() }).unwrap().len(),
            page()
        );
    }

    #[test]
    fn an_alignment_is_kept() {
        for alignment in [0, 64, 4096, 1 << 21] {
            let memory = Memory::make(10_000, alignment, Pages::default()).unwrap();
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
