//! Memory of files that other processes map as well, and how its words are accessed.

use core::ffi::c_void;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU32, AtomicU64};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rma_core::provider::ProviderError;
use rustix::fs::{self, FileType, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{self, MapFlags, ProtFlags};

use crate::error::call_failed;

/// A shared mapping, unmapped when it and all that were cloned from it are dropped.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    /// The addresses that are given back: more than the mapping where an alignment was wished for.
    _whole: Arc<Span>,
}

/// Addresses of this process that are unmapped when this is dropped.
#[derive(Debug)]
struct Span {
    base: *mut c_void,
    len: usize,
}

impl Drop for Span {
    fn drop(&mut self) {
        // SAFETY: mapped by this module, and nothing uses it any more; a failure only keeps it mapped.
        let _ = unsafe { mm::munmap(self.base, self.len) };
    }
}

// SAFETY: addresses, which every thread may give back.
unsafe impl Send for Span {}
// SAFETY: as above; nothing is done by a reference.
unsafe impl Sync for Span {}
// SAFETY: it has a part in a mapping, which every thread may use.
unsafe impl Send for Mapping {}
// SAFETY: as above; it lends words as atomics, and bytes as raw pointers only.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of the file, which it must have and keep, from `offset` on.
    pub(crate) fn new(file: &impl AsFd, offset: u64, len: usize) -> Result<Self, Errno> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place that the kernel chooses.
        let base = unsafe { mm::mmap(ptr::null_mut(), len, protection, MapFlags::SHARED, file, offset) }?;
        let whole = Span { base, len };
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { base, len, _whole: Arc::new(whole) })
    }

    /// The same of the file's first bytes, at a multiple of `alignment`, 0 or a power of two, and of one of the file's
    /// pages, which have `page_bytes`.
    pub(crate) fn aligned(
        file: &impl AsFd,
        len: usize,
        alignment: usize,
        page_bytes: usize,
    ) -> Result<Self, Errno> {
        if alignment <= page_bytes {
            return Self::new(file, 0, len);
        }
        let whole_len = len.checked_add(alignment).ok_or(Errno::NOMEM)?;
        // SAFETY: a new mapping, which nobody else has; it only keeps the addresses.
        let base =
            unsafe { mm::mmap_anonymous(ptr::null_mut(), whole_len, ProtFlags::empty(), MapFlags::PRIVATE) }?;
        let whole = Span { base, len: whole_len };
        let aligned = base.map_addr(|address| address.next_multiple_of(alignment));
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: inside of the addresses that were kept just now.
        let base = unsafe { mm::mmap(aligned, len, protection, flags, file, 0) }?;
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { base, len, _whole: Arc::new(whole) })
    }

    #[inline]
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The address of `offset`; `len` bytes from there must be inside.
    #[inline]
    pub(crate) fn at(&self, offset: usize, len: usize) -> *mut u8 {
        debug_assert!(offset <= self.len && len <= self.len - offset);
        self.base.as_ptr().wrapping_add(offset)
    }

    /// The word at `offset`, a multiple of 8 inside of the mapping.
    #[inline]
    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        debug_assert_eq!(offset % 8, 0);
        let at = self.at(offset, size_of::<u64>()).cast();
        // SAFETY: aligned and mapped as long as `self` lives; all who map it access it by atomics.
        unsafe { AtomicU64::from_ptr(at) }
    }

    /// Words from `offset` on, as [`Self::word`].
    #[inline]
    pub(crate) fn words<const COUNT: usize>(&self, offset: usize) -> &[AtomicU64; COUNT] {
        debug_assert_eq!(offset % 8, 0);
        let at = self.at(offset, size_of::<[AtomicU64; COUNT]>()).cast::<[AtomicU64; COUNT]>();
        // SAFETY: as in `word`.
        unsafe { &*at }
    }

    /// The half word at `offset`, a multiple of 4 inside of the mapping.
    #[inline]
    pub(crate) fn half(&self, offset: usize) -> &AtomicU32 {
        debug_assert_eq!(offset % 4, 0);
        let at = self.at(offset, size_of::<u32>()).cast();
        // SAFETY: as in `word`.
        unsafe { AtomicU32::from_ptr(at) }
    }
}

/// A new anonymous file of `len` bytes, all zeros, whose length nobody can change: an access to a mapping of
/// it never finds it shorter. Pages are taken when they are touched.
pub(crate) fn new_file(name: &str, len: usize) -> Result<OwnedFd, ProviderError> {
    make_file(name, len, MemfdFlags::empty())
        .map_err(|error| call_failed(&format!("a file of {len} bytes in memory for {name}"), error))
}

/// The same, for whom it matters what the kernel says, and of which pages it is (`flags`).
pub(crate) fn make_file(name: &str, len: usize, flags: MemfdFlags) -> Result<OwnedFd, Errno> {
    let file = fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | flags)?;
    fs::ftruncate(&file, len as u64)?;
    fs::fcntl_add_seals(&file, SEALS)?;
    Ok(file)
}

/// Opens descriptor `fd` of process `pid` again, as a file of `new_file` with this number, on this device, if that is known.
pub(crate) fn open_file(
    pid: u32,
    fd: u32,
    (device, inode): (Option<u32>, u64),
    len: u64,
) -> Result<OwnedFd, Errno> {
    let file = open_again(pid, fd)?;
    let status = fs::fstat(&file)?;
    let is_file = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile;
    let is_long = u64::try_from(status.st_size).is_ok_and(|has| has >= len);
    let is_it = status.st_ino == inode && device.is_none_or(|device| device == device_of(&status));
    if !is_file || !is_long || !is_it || !fs::fcntl_get_seals(&file)?.contains(SEALS) {
        return Err(Errno::STALE);
    }
    Ok(file)
}

/// Opens descriptor `fd` of process `pid` again, as the pipe with this number.
pub(crate) fn open_pipe(pid: u32, fd: u32, inode: u64) -> Result<OwnedFd, Errno> {
    let pipe = open_again(pid, fd)?;
    let status = fs::fstat(&pipe)?;
    if FileType::from_raw_mode(status.st_mode) != FileType::Fifo || status.st_ino != inode {
        return Err(Errno::STALE);
    }
    Ok(pipe)
}

/// Puts something into a bell's pipe. When there is something already, nothing is lost.
pub(crate) fn strike(bell: &OwnedFd) {
    while rustix::io::write(bell, &[1]) == Err(Errno::INTR) {}
}

/// The device of a file in memory, by its number among those without hardware: pages of another size are another one's, which
/// numbers its files by itself.
pub(crate) fn device_of(status: &fs::Stat) -> u32 {
    fs::minor(status.st_dev) & (u32::MAX >> (u32::BITS - DEVICE_BITS))
}

/// Bits of such a number that are told apart: of the kernel's 20, all.
pub(crate) const DEVICE_BITS: u32 = 24;

/// The number that tells a file from others of its device.
pub(crate) fn inode(file: &impl AsFd) -> Result<u64, ProviderError> {
    fs::fstat(file).map(|status| status.st_ino).map_err(|error| call_failed("fstat", error))
}

/// For reading and writing: who has both ends of a pipe open gets no signal when the other process has ended.
fn open_again(pid: u32, fd: u32) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    // On the stack, since `poll` gets here.
    let mut path = [0; PATH_BYTES];
    let mut rest = &mut path[..];
    write!(rest, "/proc/{pid}/fd/{fd}").map_err(|_| Errno::NAMETOOLONG)?;
    let left = rest.len();
    fs::open(&path[..PATH_BYTES - left], flags, Mode::empty())
}

/// Room for the path with two numbers of ten digits.
const PATH_BYTES: usize = 32;

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn a_file_is_opened_again_and_cannot_be_cut() {
        let file = new_file("rma-shm-test", 8192).unwrap();
        let (pid, fd) = (std::process::id(), file.as_raw_fd() as u32);
        let number = inode(&file).unwrap();
        let device = device_of(&fs::fstat(&file).unwrap());
        let again = open_file(pid, fd, (Some(device), number), 8192).unwrap();
        let (one, other) = (Mapping::new(&file, 0, 8192).unwrap(), Mapping::new(&again, 4096, 4096).unwrap());
        one.word(4096 + 8).store(7, Ordering::Relaxed);
        assert_eq!(other.word(8).load(Ordering::Relaxed), 7);
        assert_eq!(other.half(8).load(Ordering::Relaxed), if cfg!(target_endian = "big") { 0 } else { 7 });
        assert!(fs::ftruncate(&again, 4096).is_err());
        assert!(open_file(pid, fd, (None, number + 1), 8192).is_err());
        assert!(open_file(pid, fd, (None, number), 8193).is_err());
        assert!(open_file(pid, fd, (None, number), 8192).is_ok());
        assert!(open_file(pid, fd, (Some(device ^ 1), number), 8192).is_err(), "that of another device");
    }

    #[test]
    fn what_is_no_such_file_is_refused() {
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        let (pid, fd) = (std::process::id(), reader.as_raw_fd() as u32);
        let number = inode(&reader).unwrap();
        assert!(open_file(pid, fd, (None, number), 0).is_err());
        assert!(open_pipe(pid, fd, number).is_ok());
        assert!(open_pipe(pid, fd, number + 1).is_err());
        let plain = fs::memfd_create("rma-shm-test", MemfdFlags::CLOEXEC).unwrap();
        let number = inode(&plain).unwrap();
        assert!(
            open_file(pid, plain.as_raw_fd() as u32, (None, number), 0).is_err(),
            "its length is not sealed"
        );
    }
}
