//! Memory that all ranks of a host have mapped: one anonymous file (memfd), made by rank 0, and opened by the
//! others through `/proc/PID/fd`. It has no name, so that nothing is left when the processes are gone,
//! however they ended; a socket that passes the descriptor would need a name and a thread that serves it.
//!
//! The file begins with a table of the parts, which exists once on the host; after it come the parts. All of
//! it is reserved before anybody touches it, and sealed, so that no access can fail later.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use rma_core::error::{Call, RmaError};
use rma_core::ids::Rank;
use rma_core::info::WindowOptions;
use rma_shm::Memory;
use rustix::fs::{self, MemfdFlags, SealFlags};

use crate::error::Result;
use crate::runtime::Core;

/// The memory of one rank's window, as another process finds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedMemory {
    /// Its first byte, at this process's address. Of a shared window's empty part the place where it would be;
    /// null where the memory cannot be reached from here.
    pub base: *mut u8,
    /// Bytes.
    pub len: usize,
    /// Bytes of one unit of displacement.
    pub disp_unit: u32,
}

impl SharedMemory {
    /// What this process cannot load and store.
    pub(crate) const UNREACHABLE: Self = Self { base: ptr::null_mut(), len: 0, disp_unit: 1 };
}

/// Words of the table before the parts' entries: the first rank with memory, plus 1.
const TABLE_HEAD: usize = 1;

/// Words of an entry: offset in the file, bytes, displacement unit.
const ENTRY: usize = 3;

/// The call that all of this serves.
const CALL: Call = Call::AllocateShared;

/// The mapped file.
#[derive(Debug)]
pub(crate) struct Segment {
    /// Of which peers know that they have it, too, where the fabric is shared memory.
    memory: Memory,
    ranks: u32,
}

impl Segment {
    /// Makes the file, with a part of `len` bytes for this rank, and maps it. Collective; all ranks are on
    /// one host.
    pub(crate) fn make(core: &Core, len: usize, disp_unit: u32, options: &WindowOptions) -> Result<Self> {
        let is_first = core.rank == 0;
        let own = if is_first { Some(new_file(core.size)) } else { None };
        let place = match &own {
            Some(Ok(file)) => Ok(u64::from(std::process::id()) << 32 | file.as_raw_fd() as u64),
            Some(Err(error)) => Err(error.clone()),
            None => Ok(0),
        };
        let place = core.agree(CALL, place)?;
        let opened = match own {
            Some(file) => file,
            None => open_of(place),
        };
        let table = opened.and_then(|file| {
            let table = Self::map(&file, table_bytes(core.size), 0, core.size)?;
            table.set_part(core.rank, len, disp_unit);
            Ok((file, table))
        });
        core.agree(CALL, table.as_ref().map(|_| 0).map_err(Clone::clone))?;
        let laid_out = table.and_then(|(file, table)| {
            let total = if is_first { lay_out(&file, &table, options)? } else { 0 };
            Ok((file, total))
        });
        let total = core.agree(CALL, laid_out.as_ref().map(|(_, total)| *total).map_err(Clone::clone))?;
        let alignment = options.memory_alignment as usize;
        let mapped = laid_out.and_then(|(file, _)| {
            let total = usize::try_from(total).map_err(|_| too_large())?;
            Self::map(&file, total, alignment, core.size)
        });
        core.agree(CALL, mapped.as_ref().map(|_| 0).map_err(Clone::clone))?;
        mapped.map_err(|error| core.fail(error))
    }

    fn map(
        file: &impl AsFd,
        len: usize,
        alignment: usize,
        ranks: u32,
    ) -> std::result::Result<Self, RmaError> {
        let memory = Memory::of_file(file, len, alignment).map_err(|error| shared(error.message))?;
        Ok(Self { memory, ranks })
    }

    /// The part of `rank`, which is in the window.
    pub(crate) fn part(&self, rank: Rank) -> std::result::Result<SharedMemory, RmaError> {
        let [offset, len, disp_unit] = self.entry(rank.0).map(|word| word.load(Ordering::Acquire));
        // Every rank may write the table, so it is not believed.
        let is_inside = offset.checked_add(len).is_some_and(|end| end <= self.memory.len() as u64);
        if !is_inside || offset < table_bytes(self.ranks) as u64 {
            return Err(shared(format!("the table of the parts was overwritten: rank {rank} has none")));
        }
        // Of an empty part too: who knows all lengths finds every part from any one.
        let base = self.memory.base().as_ptr().wrapping_add(offset as usize);
        Ok(SharedMemory { base, len: len as usize, disp_unit: disp_unit as u32 })
    }

    /// The lowest rank whose part has a byte.
    pub(crate) fn first_with_memory(&self) -> Option<Rank> {
        let first = self.word(0).load(Ordering::Acquire).checked_sub(1)?;
        u32::try_from(first).ok().filter(|&rank| rank < self.ranks).map(Rank)
    }

    fn set_part(&self, rank: u32, len: usize, disp_unit: u32) {
        let [_, len_word, unit_word] = self.entry(rank);
        len_word.store(len as u64, Ordering::Release);
        unit_word.store(disp_unit.into(), Ordering::Release);
    }

    fn entry(&self, rank: u32) -> [&AtomicU64; ENTRY] {
        let first = TABLE_HEAD + ENTRY * rank.min(self.ranks - 1) as usize;
        [self.word(first), self.word(first + 1), self.word(first + 2)]
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        let at = self.memory.base().as_ptr().cast::<u64>().wrapping_add(index);
        // SAFETY: inside of the table, which is mapped as long as `self` lives, begins at a page, and is
        // accessed by atomics only.
        unsafe { AtomicU64::from_ptr(at) }
    }
}

/// A file of `len` bytes, all zeros, that nothing can take away or make shorter, for memory of a rank that another
/// process maps as well; `None`: there is not as much memory.
pub(crate) fn reserved_file(len: usize) -> Option<OwnedFd> {
    let file = fs::memfd_create("rma-window", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).ok()?;
    reserve(&file, len as u64).ok()?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fs::fcntl_add_seals(&file, seals).ok()?;
    Some(file)
}

/// A new file with room for the table.
fn new_file(ranks: u32) -> std::result::Result<OwnedFd, RmaError> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = fs::memfd_create("rma-window", flags)
        .map_err(|error| failed("no anonymous file can be made", &error.into()))?;
    reserve(&file, table_bytes(ranks) as u64)?;
    Ok(file)
}

/// The file of the process and descriptor that `place` names.
fn open_of(place: u64) -> std::result::Result<OwnedFd, RmaError> {
    let path = format!("/proc/{}/fd/{}", place >> 32, place as u32);
    let opened = File::options().read(true).write(true).open(&path);
    opened.map(OwnedFd::from).map_err(|error| {
        let hint = "all ranks must see each other's processes (one PID namespace, one user)";
        failed(&format!("{path} of rank 0 cannot be opened; {hint}"), &error)
    })
}

/// Gives every part its place and reserves the whole.
fn lay_out(file: &OwnedFd, table: &Segment, options: &WindowOptions) -> std::result::Result<u64, RmaError> {
    let align = |at: u64, to: u64| at.checked_next_multiple_of(to.max(1)).ok_or_else(too_large);
    let own = if options.alloc_shared_noncontig { page().max(options.memory_alignment as usize) } else { 1 };
    let mut at = align(table_bytes(table.ranks) as u64, options.memory_alignment.into())?;
    let mut first = 0;
    for rank in 0..table.ranks {
        let [offset, len, _] = table.entry(rank);
        let len = len.load(Ordering::Acquire);
        at = align(at, own as u64)?;
        if len > 0 && first == 0 {
            first = u64::from(rank) + 1;
        }
        offset.store(at, Ordering::Release);
        at = at.checked_add(len).ok_or_else(too_large)?;
    }
    table.word(0).store(first, Ordering::Release);
    let total = align(at, page() as u64)?;
    reserve(file, total)?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fs::fcntl_add_seals(file, seals).map_err(|error| failed("its size cannot be fixed", &error.into()))?;
    Ok(total)
}

/// Makes the file `total` bytes long and takes the memory for it now, so that no access finds none later.
fn reserve(file: &OwnedFd, total: u64) -> std::result::Result<(), RmaError> {
    let had = memory_available();
    if had.is_some_and(|had| total > had) || i64::try_from(total).is_err() {
        let had = had.map_or_else(|| "less".to_owned(), |had| format!("{had} bytes"));
        return Err(shared(format!("{total} bytes of shared memory were asked for, and {had} can be had")));
    }
    rma_shm::reserve(file, total).map_err(|(done, error)| {
        failed(&format!("{total} bytes were asked for, and {done} could be had"), &error)
    })
}

/// Bytes that the host can still give, as far as it says.
fn memory_available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().trim_end_matches(" kB").parse::<u64>().ok()?.checked_mul(1024)
    };
    Some(field("MemAvailable:")?.saturating_add(field("SwapFree:").unwrap_or(0)))
}

fn table_bytes(ranks: u32) -> usize {
    (8 * (TABLE_HEAD + ENTRY * ranks as usize)).next_multiple_of(page())
}

fn page() -> usize {
    rustix::param::page_size()
}

#[cold]
fn shared(message: String) -> RmaError {
    RmaError::Shared { call: CALL, message }
}

#[cold]
fn failed(what: &str, error: &io::Error) -> RmaError {
    shared(format!("memory cannot be shared: {what}: {error}"))
}

#[cold]
fn too_large() -> RmaError {
    shared("the parts of all ranks together are larger than an address space".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lens: &[usize], options: &WindowOptions) -> Segment {
        let ranks = lens.len() as u32;
        let file = new_file(ranks).unwrap();
        let table = Segment::map(&file, table_bytes(ranks), 0, ranks).unwrap();
        for (rank, len) in (0..).zip(lens) {
            table.set_part(rank, *len, 4);
        }
        let total = lay_out(&file, &table, options).unwrap();
        Segment::map(&file, total as usize, options.memory_alignment as usize, ranks).unwrap()
    }

    fn bases(segment: &Segment) -> Vec<usize> {
        (0..segment.ranks).map(|rank| segment.part(Rank(rank)).unwrap().base.addr()).collect()
    }

    #[test]
    fn parts_follow_each_other_unless_they_need_not() {
        let lens = [24, 0, 8000, 16];
        let segment = of(&lens, &WindowOptions::DEFAULT);
        let [first, second, third, fourth] = bases(&segment)[..] else { panic!("four parts") };
        assert_eq!((second, third, fourth), (first + 24, first + 24, first + 8024));
        assert_eq!(segment.first_with_memory(), Some(Rank(0)));
        let apart = WindowOptions { alloc_shared_noncontig: true, ..WindowOptions::DEFAULT };
        let segment = of(&lens, &apart);
        assert!(bases(&segment).iter().all(|base| base % page() == 0));
        assert_eq!(of(&[0, 0, 8], &apart).first_with_memory(), Some(Rank(2)));
        let empty = of(&[0, 0], &apart);
        assert_eq!(empty.first_with_memory(), None);
        assert_eq!(bases(&empty), [empty.memory.base().addr().get() + table_bytes(2); 2]);
    }

    #[test]
    fn an_alignment_is_kept() {
        let options = WindowOptions { memory_alignment: 1 << 18, ..WindowOptions::DEFAULT };
        assert_eq!(bases(&of(&[8, 8], &options))[0] % (1 << 18), 0);
    }

    #[test]
    fn what_cannot_be_had_is_an_error_with_both_numbers() {
        let file = new_file(1).unwrap();
        let message = reserve(&file, 1 << 60).unwrap_err().to_string();
        assert!(message.contains(&(1u64 << 60).to_string()) && message.contains("can be had"), "{message}");
        assert!(reserve(&file, u64::MAX).is_err());
    }

    #[test]
    fn a_table_that_was_overwritten_gives_no_pointer() {
        let segment = of(&[8, 8], &WindowOptions::DEFAULT);
        for (offset, len) in [(u64::MAX, 8), (0, 8), (0, 0), (1 << 40, 1), (1 << 40, 0), (4096, 1 << 40)] {
            let [offset_word, len_word, _] = segment.entry(1);
            offset_word.store(offset, Ordering::Release);
            len_word.store(len, Ordering::Release);
            assert!(segment.part(Rank(1)).is_err(), "{len} bytes at {offset}");
        }
        segment.word(0).store(77, Ordering::Release);
        assert_eq!(segment.first_with_memory(), None);
    }

    #[test]
    fn the_size_is_sealed() {
        let file = new_file(1).unwrap();
        let table = Segment::map(&file, table_bytes(1), 0, 1).unwrap();
        let total = lay_out(&file, &table, &WindowOptions::DEFAULT).unwrap();
        assert!(fs::ftruncate(&file, 0).is_err() && fs::ftruncate(&file, total + 1).is_err());
    }
}
