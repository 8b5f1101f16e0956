//! Memory that the ranks of a host have mapped: one anonymous file (memfd) on each host of the job, made by the lowest
//! rank there, and opened by the others through `/proc/PID/fd`. It has no name, so that nothing is left when the
//! processes are gone, however they ended; a socket that passes the descriptor would need a name and a thread that
//! serves it.
//!
//! The file begins with a table of the parts, which exists once on the host; after it come the parts. All of
//! it is reserved before anybody touches it, and sealed, so that no access can fail later.

mod place;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use rma_core::error::{Call, RmaError};
use rma_core::ids::Rank;
use rma_core::info::WindowOptions;
use rma_shm::Memory;
use rustix::fs::{self, MemfdFlags, SealFlags};

use crate::error::Result;
use crate::job::Job;
use crate::runtime::{Core, NUMBERS};

use place::Place;

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

/// Words of the table before the parts' entries: the index of the first rank with memory, plus 1; who the ranks
/// are.
const TABLE_HEAD: usize = 2;
const FIRST: usize = 0;
const WHO: usize = 1;

/// Tells a table from another file.
const MARK: u64 = 0x7061_7274 << 32;

/// Words of an entry: offset in the file, bytes, displacement unit.
const ENTRY: usize = 3;

/// The call that all of this serves.
const CALL: Call = Call::AllocateShared;

/// A rank's share in the beginning: who its neighbours are, and the file, if it is the lowest of them.
#[derive(Debug)]
pub(crate) struct Founding {
    /// Of this host, in order.
    ranks: Arc<[Rank]>,
    /// This rank's among them.
    index: usize,
    made: Option<Table>,
}

/// The file while it has no parts yet.
#[derive(Debug)]
struct Table {
    file: OwnedFd,
    head: Segment,
}

/// The mapped file.
#[derive(Debug)]
pub(crate) struct Segment {
    /// Of which peers know that they have it, too, where the fabric is shared memory.
    memory: Memory,
    /// Who has a part.
    ranks: Arc<[Rank]>,
}

impl Founding {
    /// Makes the file, at the lowest rank of the host.
    pub(crate) fn new(job: &Job) -> std::result::Result<Self, RmaError> {
        let Some(ranks) = job.neighbours().map(Arc::clone) else { return Err(unknown(job)) };
        let index = ranks.binary_search(&job.rank()).map_err(|_| unknown(job))?;
        let made = (index == 0).then(|| Table::make(Arc::clone(&ranks))).transpose()?;
        Ok(Self { ranks, index, made })
    }

    /// How many ranks of this host there are.
    pub(crate) fn count(&self) -> usize {
        self.ranks.len()
    }

    /// Who has the file; `None`: this rank.
    pub(crate) fn elsewhere(&self) -> Option<Rank> {
        self.ranks.first().copied().filter(|_| self.index > 0)
    }

    /// What the other ranks of the host need to find it; zeros, unless this one has it.
    pub(crate) fn place(&self) -> std::result::Result<[u64; NUMBERS], RmaError> {
        match &self.made {
            Some(table) => Place::of(&table.file).map(Place::numbers),
            None => Ok([0; NUMBERS]),
        }
    }

    /// The file, which is at `place`, with this rank's entry.
    fn enter(
        self,
        place: [u64; NUMBERS],
        len: usize,
        disp_unit: u32,
    ) -> std::result::Result<(Table, usize), RmaError> {
        let table = match (self.made, self.ranks.first()) {
            (None, Some(first)) => Table::open(place, *first, self.ranks)?,
            (Some(made), _) => made,
            (None, None) => return Err(shared("a host without ranks".into())),
        };
        table.head.set_part(self.index, len, disp_unit);
        Ok((table, self.index))
    }
}

impl Table {
    fn make(ranks: Arc<[Rank]>) -> std::result::Result<Self, RmaError> {
        let file = new_file(ranks.len())?;
        let head = Segment::map(&file, table_bytes(ranks.len()), 0, ranks)?;
        head.word(WHO).store(head.mark(), Ordering::Release);
        Ok(Self { file, head })
    }

    /// That of the rank `first`.
    fn open(place: [u64; NUMBERS], first: Rank, ranks: Arc<[Rank]>) -> std::result::Result<Self, RmaError> {
        let file =
            Place::of_numbers(place).ok_or_else(|| disagreed(first)).and_then(|place| place.open(first))?;
        // Before anything is read there: what could become shorter, or is, would end this process.
        len_of(&file, SealFlags::SHRINK, ranks.len()).map_err(|_| disagreed(first))?;
        let head = Segment::map(&file, table_bytes(ranks.len()), 0, ranks).map_err(|_| disagreed(first))?;
        if head.word(WHO).load(Ordering::Acquire) != head.mark() {
            return Err(disagreed(first));
        }
        Ok(Self { file, head })
    }
}

impl Segment {
    /// Makes the parts, with one of `len` bytes for this rank, and maps them. Collective. `place` is what the
    /// lowest rank of the host has said of the file, if this rank has heard it.
    pub(crate) fn make(
        core: &Core,
        founding: Founding,
        place: std::result::Result<[u64; NUMBERS], RmaError>,
        (len, disp_unit): (usize, u32),
        options: &WindowOptions,
    ) -> Result<Self> {
        let entered = place.and_then(|place| founding.enter(place, len, disp_unit));
        core.agree_on(CALL, done(&entered))?;
        let laid_out = entered.and_then(|(table, index)| {
            if index == 0 {
                lay_out(&table, options)?;
            }
            Ok(table)
        });
        core.agree_on(CALL, done(&laid_out))?;
        let mapped = laid_out.and_then(|table| {
            let total = len_of(&table.file, SEALS, table.head.ranks.len())?;
            Self::map(&table.file, total, alignment(options), table.head.ranks)
        });
        core.agree_on(CALL, done(&mapped))?;
        mapped.map_err(|error| core.fail(error))
    }

    fn map(
        file: &impl AsFd,
        len: usize,
        alignment: usize,
        ranks: Arc<[Rank]>,
    ) -> std::result::Result<Self, RmaError> {
        let memory = Memory::of_file(file, len, alignment).map_err(|error| shared(error.message))?;
        Ok(Self { memory, ranks })
    }

    /// The part of `rank`, which is in the window; of a rank of another host there is nothing here.
    pub(crate) fn part(&self, rank: Rank) -> std::result::Result<SharedMemory, RmaError> {
        let Ok(index) = self.ranks.binary_search(&rank) else { return Ok(SharedMemory::UNREACHABLE) };
        let [offset, len, disp_unit] = self.entry(index).map(|word| word.load(Ordering::Acquire));
        // Every rank may write the table, so it is not believed.
        let is_inside = offset.checked_add(len).is_some_and(|end| end <= self.memory.len() as u64);
        if !is_inside || offset < table_bytes(self.ranks.len()) as u64 {
            return Err(shared(format!("the table of the parts was overwritten: rank {rank} has none")));
        }
        // Of an empty part too: who knows all lengths finds every part from any one.
        let base = self.memory.base().as_ptr().wrapping_add(offset as usize);
        Ok(SharedMemory { base, len: len as usize, disp_unit: disp_unit as u32 })
    }

    /// The lowest rank of this host whose part has a byte.
    pub(crate) fn first_with_memory(&self) -> Option<Rank> {
        let first = self.word(FIRST).load(Ordering::Acquire).checked_sub(1)?;
        usize::try_from(first).ok().and_then(|first| self.ranks.get(first)).copied()
    }

    /// Who has which part, as a number: all ranks of a host must have been told the same ranks of it.
    fn mark(&self) -> u64 {
        // FNV-1a, by ranks.
        let mix =
            |hash: u64, rank: &Rank| (hash ^ u64::from(rank.0)).wrapping_mul(0x100_0000_01b3).rotate_left(23);
        self.ranks.iter().fold(MARK, mix) | 1
    }

    fn set_part(&self, index: usize, len: usize, disp_unit: u32) {
        let [_, len_word, unit_word] = self.entry(index);
        len_word.store(len as u64, Ordering::Release);
        unit_word.store(disp_unit.into(), Ordering::Release);
    }

    fn entry(&self, index: usize) -> [&AtomicU64; ENTRY] {
        let first = TABLE_HEAD + ENTRY * index.min(self.ranks.len() - 1);
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
    fs::fcntl_add_seals(&file, SEALS).ok()?;
    Some(file)
}

/// What keeps a file as long as it is.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// How long a file is that another rank may have made: it must have the seals, and room for the table of so many ranks.
fn len_of(file: &OwnedFd, seals: SealFlags, ranks: usize) -> std::result::Result<usize, RmaError> {
    let has = fs::fcntl_get_seals(file).map_err(|error| failed("F_GET_SEALS", &error.into()))?;
    // Behind the seals: until then it could have become shorter.
    let status = fs::fstat(file).map_err(|error| failed("fstat", &error.into()))?;
    let len = usize::try_from(status.st_size).map_err(|_| too_large())?;
    if !has.contains(seals) || len < table_bytes(ranks) {
        return Err(shared(format!(
            "the file of the parts is not what the lowest rank of the host makes: it has {len} bytes, and the seals {has:?}"
        )));
    }
    Ok(len)
}

/// A new file with room for the table.
fn new_file(ranks: usize) -> std::result::Result<OwnedFd, RmaError> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = fs::memfd_create("rma-window", flags)
        .map_err(|error| failed("no anonymous file can be made", &error.into()))?;
    reserve(&file, table_bytes(ranks) as u64)?;
    // The others read the table before the parts are laid out. It only grows from here on.
    fs::fcntl_add_seals(&file, SealFlags::SHRINK)
        .map_err(|error| failed("its size cannot be fixed", &error.into()))?;
    Ok(file)
}

/// What was asked for, rounded up to a power of two, if there is one.
fn alignment(options: &WindowOptions) -> usize {
    let asked = options.memory_alignment as usize;
    asked.checked_next_power_of_two().unwrap_or(asked)
}

/// Gives every part its place and reserves the whole.
fn lay_out(Table { file, head }: &Table, options: &WindowOptions) -> std::result::Result<(), RmaError> {
    let align = |at: u64, to: u64| at.checked_next_multiple_of(to.max(1)).ok_or_else(too_large);
    let alignment = alignment(options);
    let own = if options.alloc_shared_noncontig { page().max(alignment) } else { 1 };
    let mut at = align(table_bytes(head.ranks.len()) as u64, alignment as u64)?;
    let mut first = 0;
    for index in 0..head.ranks.len() {
        let [offset, len, _] = head.entry(index);
        let len = len.load(Ordering::Acquire);
        at = align(at, own as u64)?;
        if len > 0 && first == 0 {
            first = index as u64 + 1;
        }
        offset.store(at, Ordering::Release);
        at = at.checked_add(len).ok_or_else(too_large)?;
    }
    head.word(FIRST).store(first, Ordering::Release);
    let total = align(at, page() as u64)?;
    reserve(file, total)?;
    fs::fcntl_add_seals(file, SEALS).map_err(|error| failed("its size cannot be fixed", &error.into()))
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

fn table_bytes(ranks: usize) -> usize {
    (8 * (TABLE_HEAD + ENTRY * ranks)).next_multiple_of(page())
}

fn page() -> usize {
    rustix::param::page_size()
}

/// What the others have to know of a step.
fn done<T>(outcome: &std::result::Result<T, RmaError>) -> std::result::Result<(), RmaError> {
    outcome.as_ref().map(drop).map_err(Clone::clone)
}

#[cold]
fn unknown(job: &Job) -> RmaError {
    shared(format!(
        "the launcher ({}) counts {} ranks to this host, and does not say which: nobody knows with whom to share",
        job.launcher(),
        job.local_size()
    ))
}

#[cold]
fn disagreed(first: Rank) -> RmaError {
    shared(format!(
        "rank {first} does not count the same ranks to this host as this one does, by what the launcher says"
    ))
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

    /// Ranks 0, 3, 6...: those of one host among three.
    fn every_third(count: usize) -> Arc<[Rank]> {
        (0..count as u32).map(|index| Rank(3 * index)).collect()
    }

    fn of(lens: &[usize], options: &WindowOptions) -> Segment {
        let table = Table::make(every_third(lens.len())).unwrap();
        for (index, len) in lens.iter().enumerate() {
            table.head.set_part(index, *len, 4);
        }
        lay_out(&table, options).unwrap();
        let total = fs::fstat(&table.file).unwrap().st_size;
        Segment::map(&table.file, total as usize, alignment(options), table.head.ranks).unwrap()
    }

    fn bases(segment: &Segment) -> Vec<usize> {
        segment.ranks.iter().map(|rank| segment.part(*rank).unwrap().base.addr()).collect()
    }

    /// Whatever a broken founder has made in the file's place: this process reads nothing that is not there.
    #[test]
    fn a_file_that_is_short_or_could_be_is_refused() {
        let ranks = every_third(2);
        let made = |len: usize, seals: SealFlags| {
            let file = fs::memfd_create("rma-test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
            fs::ftruncate(&file, len as u64).unwrap();
            if len >= size_of::<u64>() * TABLE_HEAD {
                let table = Segment::map(&file, len, 0, Arc::clone(&ranks)).unwrap();
                table.word(WHO).store(table.mark(), Ordering::Release);
            }
            fs::fcntl_add_seals(&file, seals).unwrap();
            file
        };
        let open = |file: &OwnedFd| {
            Table::open(Place::of(file).unwrap().numbers(), Rank(0), Arc::clone(&ranks)).map(drop)
        };
        let whole = table_bytes(2);
        assert!(open(&made(whole, SealFlags::SHRINK)).is_ok());
        assert!(open(&made(whole, SealFlags::GROW)).is_err(), "it may become shorter");
        for len in [0, 16, whole - 1] {
            assert!(open(&made(len, SealFlags::SHRINK)).is_err(), "{len}");
            assert!(len_of(&made(len, SEALS), SEALS, 2).is_err(), "{len}");
        }
        assert_eq!(len_of(&made(whole, SEALS), SEALS, 2), Ok(whole));
        assert!(len_of(&made(whole, SealFlags::SHRINK), SEALS, 2).is_err(), "it was never laid out");
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
        assert_eq!(of(&[0, 0, 8], &apart).first_with_memory(), Some(Rank(6)));
        let empty = of(&[0, 0], &apart);
        assert_eq!(empty.first_with_memory(), None);
        assert_eq!(bases(&empty), [empty.memory.base().addr().get() + table_bytes(2); 2]);
    }

    /// Else two ranks could take themselves for the same one of as many.
    #[test]
    fn who_was_told_of_other_ranks_has_another_table() {
        let mark = |ranks: &[u32]| {
            let ranks: Arc<[Rank]> = ranks.iter().copied().map(Rank).collect();
            Table::make(ranks).unwrap().head.mark()
        };
        assert_eq!(mark(&[0, 2]), mark(&[0, 2]));
        let marks = [mark(&[0, 2]), mark(&[0, 4]), mark(&[2, 0]), mark(&[0]), mark(&[0, 2, 4])];
        for (index, one) in marks.iter().enumerate() {
            assert!(!marks[..index].contains(one), "{marks:x?}");
        }
    }

    #[test]
    fn an_alignment_is_kept() {
        let options = WindowOptions { memory_alignment: 1 << 18, ..WindowOptions::DEFAULT };
        assert_eq!(bases(&of(&[8, 8], &options))[0] % (1 << 18), 0);
        // To the next power of two.
        for (asked, kept) in [(3, 4), (5000, 8192)] {
            let options = WindowOptions { memory_alignment: asked, ..WindowOptions::DEFAULT };
            assert_eq!(bases(&of(&[8, 8], &options))[0] % kept, 0, "{asked}");
        }
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
            assert!(segment.part(Rank(3)).is_err(), "{len} bytes at {offset}");
        }
        segment.word(FIRST).store(77, Ordering::Release);
        assert_eq!(segment.first_with_memory(), None);
    }

    #[test]
    fn other_hosts_have_nothing_here() {
        let segment = of(&[8, 8], &WindowOptions::DEFAULT);
        for rank in [1, 2, 4, 6, u32::MAX] {
            assert_eq!(segment.part(Rank(rank)), Ok(SharedMemory::UNREACHABLE));
        }
        assert!(segment.part(Rank(3)).unwrap().len == 8);
    }

    #[test]
    fn who_counts_others_to_the_host_is_told_so() {
        let table = Table::make(every_third(3)).unwrap();
        let place = Place::of(&table.file).unwrap().numbers();
        assert!(Table::open(place, Rank(0), every_third(3)).is_ok());
        // A page has room for the entries of four, too, and not for those of a thousand.
        for count in [2, 4, 1000] {
            let message = Table::open(place, Rank(0), every_third(count)).unwrap_err().to_string();
            assert!(message.contains("rank 0 does not count the same"), "{message}");
        }
        assert!(Table::open([0; NUMBERS], Rank(0), every_third(3)).is_err(), "it has made no file");
    }

    #[test]
    fn the_size_is_sealed() {
        let table = Table::make(every_third(1)).unwrap();
        lay_out(&table, &WindowOptions::DEFAULT).unwrap();
        let total = fs::fstat(&table.file).unwrap().st_size as u64;
        assert!(fs::ftruncate(&table.file, 0).is_err() && fs::ftruncate(&table.file, total + 1).is_err());
    }
}
