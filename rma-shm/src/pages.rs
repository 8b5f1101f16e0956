//! The pages of memory for windows: how large they are, where they lie, and when they are taken.

use std::fs::read_to_string;
use std::io;
use std::os::fd::AsFd;
use std::sync::OnceLock;

use rustix::fs::{fallocate, FallocateFlags, MemfdFlags};
use rustix::io::Errno;
use rustix::mm::{madvise, Advice};

use crate::head::page;
use crate::mapping::Mapping;
use crate::options::{HugePages, Pages};

impl Pages {
    /// Bytes of a page of the kernel's pool, if memory of `len` bytes is to be made of such. What fits an ordinary page
    /// gains nothing by a larger one: the library asks for a line of 64 bytes for some windows' locks.
    pub(crate) fn huge_bytes(self, len: usize) -> Option<usize> {
        let bytes = match self.huge {
            HugePages::Of2M => 2 << 20,
            HugePages::Of1G => 1 << 30,
            HugePages::No | HugePages::Transparent => return None,
        };
        Some(bytes).filter(|_| len > page())
    }

    /// How a file of such memory is made.
    pub(crate) fn file_flags(self, len: usize) -> MemfdFlags {
        match (self.huge_bytes(len), self.huge) {
            (None, _) => MemfdFlags::empty(),
            (Some(_), HugePages::Of1G) => MemfdFlags::HUGETLB | MemfdFlags::HUGE_1GB,
            (Some(_), _) => MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB,
        }
    }

    /// Multiple of which the first address should be: only aligned pieces become transparent huge pages.
    pub(crate) fn alignment(self, len: usize) -> usize {
        if self.huge == HugePages::Transparent && len >= TRANSPARENT_BYTES {
            TRANSPARENT_BYTES
        } else {
            0
        }
    }

    /// What is in force on this host, in one line for people.
    pub(crate) fn describe(self) -> String {
        let taken = match (self.reserve, self.huge) {
            (true, _) | (_, HugePages::Of2M | HugePages::Of1G) => "reserved when it is made",
            _ => "compared with what there is when it is made, taken when it is touched",
        };
        let size = match self.huge {
            HugePages::No => "ordinary pages".to_owned(),
            HugePages::Transparent => {
                let file = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
                let chosen = read_to_string(file).ok();
                let chosen = chosen.as_deref().and_then(chosen_of).unwrap_or("not there");
                format!("transparent huge pages where the kernel gives them (shmem_enabled: {chosen})")
            }
            HugePages::Of2M => of_pool(2 << 20),
            HugePages::Of1G => of_pool(1 << 30),
        };
        let place = if has_nodes() { ", on its owner's NUMA node" } else { "" };
        format!("{taken}, {size}{place}")
    }
}

fn of_pool(page_bytes: usize) -> String {
    let free = free_huge_pages(page_bytes).map_or_else(|| "none".to_owned(), |free| free.to_string());
    format!("huge pages of {} MiB ({free} free)", page_bytes >> 20)
}

/// The word in brackets, as `/sys` marks what is chosen.
fn chosen_of(text: &str) -> Option<&str> {
    Some(text.split_once('[')?.1.split_once(']')?.0)
}

/// Huge pages of the pool that nobody has, nor has been promised; `None`: there is no such pool.
fn free_huge_pages(page_bytes: usize) -> Option<u64> {
    let count = |name: &str| {
        let path = format!("/sys/kernel/mm/hugepages/hugepages-{}kB/{name}", page_bytes >> 10);
        read_to_string(path).ok()?.trim().parse::<u64>().ok()
    };
    Some(count("free_hugepages")?.saturating_sub(count("resv_hugepages").unwrap_or(0)))
}

/// Why memory of `len` bytes could not be made of huge pages, after all of it was given back.
pub(crate) fn no_huge_pages(len: usize, page_bytes: usize, error: Errno) -> String {
    let (pages, size) = (len.div_ceil(page_bytes), page_bytes >> 20);
    let asked = format!("{len} bytes of memory were asked for in {pages} huge pages of {size} MiB");
    match free_huge_pages(page_bytes) {
        Some(free) => format!(
            "{asked}, and {} bytes can be had in {free}: {error}; more are made by root \
             (/sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages), and RMA_SHM_HUGE_PAGES=no does without",
            free.saturating_mul(page_bytes as u64),
            page_bytes >> 10
        ),
        None => format!("{asked}, and 0 bytes can be had, as this kernel has no such pages: {error}"),
    }
}

/// Takes the first `len` bytes of a file in memory now, and makes the file as long at least, so that no access finds
/// no memory later.
///
/// # Errors
/// The bytes that were taken until then, which the file keeps until it is gone, and what the kernel said.
pub fn reserve(file: &impl AsFd, len: u64) -> Result<(), (u64, io::Error)> {
    reserve_by(file, len, STEP)
}

fn reserve_by(file: &impl AsFd, len: u64, longest: u64) -> Result<(), (u64, io::Error)> {
    let (mut done, mut step) = (0, longest);
    while done < len {
        let bytes = step.min(len - done);
        match fallocate(file, FallocateFlags::empty(), done, bytes) {
            Ok(()) => {
                done += bytes;
                step = (2 * step).min(longest);
            }
            // A signal made the kernel give the step back: they may come faster than such a step ends.
            Err(Errno::INTR) => step = (step / 2).max(page() as u64),
            Err(error) => return Err((done, error.into())),
        }
    }
    Ok(())
}

/// Asks for transparent huge pages wherever this process is the first to touch. Where the kernel has none, ordinary
/// pages do.
pub(crate) fn advise_huge(mapping: &Mapping) {
    let base = mapping.base().as_ptr().cast();
    // SAFETY: the whole mapping, whose contents this does not change.
    let _ = unsafe { madvise(base, mapping.len(), Advice::LinuxHugepage) };
}

/// Touches all pages, as a program would: a file's reservation alone knows nothing of the advice of a mapping. What
/// cannot be touched is left to the reservation, which says why.
pub(crate) fn populate(mapping: &Mapping) {
    let mut done = 0;
    while done < mapping.len() {
        let step = (STEP as usize).min(mapping.len() - done);
        let at = mapping.at(done, step).cast();
        // SAFETY: inside of the mapping; contents stay what they are.
        match unsafe { madvise(at, step, Advice::LinuxPopulateWrite) } {
            Ok(()) => done += step,
            Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// Has the pages of the mapped file placed on the node of the calling thread's processor, whoever touches them first,
/// as far as there is room. Where the kernel refuses, or has one node, they lie where they always did.
pub(crate) fn place_here(mapping: &Mapping) {
    if !has_nodes() || !is_policy_default() {
        return;
    }
    let (mut processor, mut node) = (0_u32, 0_u32);
    let no_cache = core::ptr::null_mut::<u8>();
    // SAFETY: it writes to the two words, and the third argument is not used since Linux 2.6.24.
    let failed = unsafe { libc::syscall(libc::SYS_getcpu, &raw mut processor, &raw mut node, no_cache) } != 0;
    if !failed {
        let _ = place_at(mapping, node);
    }
}

/// Whether the calling thread has no policy of its own, as `numactl` gives it one, which holds for its windows then.
fn is_policy_default() -> bool {
    let mut mode: libc::c_int = -1;
    let (nowhere, nodes) = (core::ptr::null_mut::<u8>(), core::ptr::null_mut::<u64>());
    // SAFETY: it writes to `mode` alone.
    let failed =
        unsafe { libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, nodes, 0_u64, nowhere, 0_u64) } != 0;
    !failed && mode == libc::MPOL_DEFAULT
}

/// Sets the policy of the file behind the mapping.
fn place_at(mapping: &Mapping, node: u32) -> io::Result<()> {
    let mut nodes = [0_u64; NODES_MAX / 64];
    let word = nodes.get_mut(node as usize / 64).ok_or(Errno::INVAL)?;
    *word = 1 << (node % 64);
    let (base, len) = (mapping.base().as_ptr(), mapping.len());
    // The kernel takes one bit less than it is told.
    let (mode, bits, flags) = (libc::MPOL_PREFERRED, NODES_MAX + 1, 0);
    // SAFETY: the whole mapping, whose contents this does not change; the kernel reads `nodes` during the call.
    let result = unsafe { libc::syscall(libc::SYS_mbind, base, len, mode, nodes.as_ptr(), bits, flags) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Whether memory lies at more than one place.
fn has_nodes() -> bool {
    static SEVERAL: OnceLock<bool> = OnceLock::new();
    let read = || read_to_string("/sys/devices/system/node/online").is_ok_and(|text| are_several(&text));
    *SEVERAL.get_or_init(read)
}

/// Whether a list of the kernel's, such as `0-1,3`, has more than one number.
fn are_several(list: &str) -> bool {
    list.contains([',', '-'])
}

/// Bytes reserved in one step, where no signal interrupts it.
const STEP: u64 = 16 << 20;
/// Bytes of the smallest transparent huge page on the processors that have one table of pages of 4 KiB.
const TRANSPARENT_BYTES: usize = 2 << 20;
/// As many as any kernel has.
const NODES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::make_file;
    use rustix::fs::fstat;

    #[test]
    fn what_was_taken_is_said_when_there_is_no_more() {
        let len = 2 * page() as u64;
        // Its seal forbids a third page.
        let file = make_file("rma-shm-test", len as usize, MemfdFlags::empty()).unwrap();
        let (done, error) = reserve_by(&file, len + 1, page() as u64).unwrap_err();
        assert_eq!((done, error.raw_os_error()), (len, Some(libc::EPERM)));
        assert_eq!(fstat(&file).unwrap().st_blocks as u64 * 512, len);
        reserve_by(&file, len, 1000).unwrap();
    }

    /// What `get_mempolicy` says of an address: its policy and that one's first nodes, or the node where its page is.
    fn policy_of(at: *const u8, flags: libc::c_int) -> (libc::c_int, u64) {
        let (mut mode, mut nodes) = (0, [0_u64; NODES_MAX / 64]);
        let (mode_at, nodes_at) = (&raw mut mode, nodes.as_mut_ptr());
        // SAFETY: it writes to the mode and to as many bits of nodes as there are.
        let asked =
            unsafe { libc::syscall(libc::SYS_get_mempolicy, mode_at, nodes_at, NODES_MAX + 1, at, flags) };
        assert_eq!(asked, 0, "{}", io::Error::last_os_error());
        (mode, nodes[0])
    }

    /// The policy is the file's and not the mapping's, so that it holds for peers: another mapping has it, too, and pages
    /// that are touched there come from the node. Of several nodes it is the last,
    /// where the test seldom runs.
    #[test]
    fn a_place_is_the_files() {
        let len = 4 * page();
        let file = make_file("rma-shm-test", len, MemfdFlags::empty()).unwrap();
        let (one, other) = (Mapping::new(&file, 0, len).unwrap(), Mapping::new(&file, 0, len).unwrap());
        place_here(&one);
        assert!(place_at(&one, NODES_MAX as u32).is_err());
        let list = read_to_string("/sys/devices/system/node/has_memory").unwrap_or_default();
        let node: u32 = list.trim().rsplit([',', '-']).next().unwrap().parse().unwrap_or(0);
        if let Err(error) = place_at(&one, node) {
            let known = [libc::ENOSYS, libc::EPERM];
            return assert!(error.raw_os_error().is_some_and(|code| known.contains(&code)), "{error}");
        }
        let at = other.base().as_ptr();
        assert_eq!(policy_of(at, OF_ADDRESS), (libc::MPOL_PREFERRED, 1 << node));
        other.word(0).store(1, core::sync::atomic::Ordering::Relaxed);
        assert_eq!(policy_of(at, OF_ADDRESS | NODE).0, node as libc::c_int);
        reserve(&file, len as u64).unwrap();
        let last = other.at(len - page(), 8).cast_const();
        other.word(len - page()).store(1, core::sync::atomic::Ordering::Relaxed);
        assert_eq!(policy_of(last, OF_ADDRESS | NODE).0, node as libc::c_int);
    }

    /// Flags of `get_mempolicy` (MPOL_F_ADDR, MPOL_F_NODE).
    const OF_ADDRESS: libc::c_int = 2;
    const NODE: libc::c_int = 1;

    #[test]
    fn lists_and_choices_of_the_kernel_are_read() {
        assert!(are_several("0-1\n") && are_several("0,2\n"));
        assert!(!are_several("0\n") && !are_several(""));
        assert_eq!(chosen_of("always within_size advise [never] deny force\n"), Some("never"));
        assert_eq!((chosen_of("never"), chosen_of("[never"), chosen_of("]")), (None, None, None));
    }

    #[test]
    fn what_is_in_force_is_said() {
        let said = |reserve, huge| Pages { reserve, huge }.describe();
        assert!(said(false, HugePages::No).contains("taken when it is touched, ordinary pages"));
        assert!(said(true, HugePages::No).contains("reserved when it is made, ordinary pages"));
        assert!(said(false, HugePages::Transparent).contains("shmem_enabled: "));
        assert!(said(false, HugePages::Of1G).contains("reserved when it is made, huge pages of 1024 MiB ("));
    }
}
