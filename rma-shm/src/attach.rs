//! Copies between this process's memory and another's by the kernel (`process_vm_readv`,
//! `process_vm_writev`).

use std::ffi::CString;

use libc::{c_ulong, iovec, pid_t};
use rma_core::provider::FabricCode;

use crate::error::errno_code;

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    /// To the other process.
    Put,
    /// From it.
    Get,
}

/// Copies between the pieces at both sides, which have as many bytes. The lists are used up.
///
/// # Safety
/// The pieces of `local` are readable, and writable for [`Direction::Get`]. At the other side whoever owns
/// the memory has agreed: the kernel checks only that it is mapped.
pub(crate) unsafe fn copy(
    direction: Direction,
    pid: u32,
    mut local: &mut [iovec],
    mut remote: &mut [iovec],
) -> Result<(), FabricCode> {
    while !remote.is_empty() {
        let (near, far) = (local.len() as c_ulong, remote.len() as c_ulong);
        let copied = match direction {
            // SAFETY: both lists are valid; their pieces are by the caller's promise.
            Direction::Put => unsafe {
                libc::process_vm_writev(pid as pid_t, local.as_ptr(), near, remote.as_ptr(), far, 0)
            },
            // SAFETY: as above.
            Direction::Get => unsafe {
                libc::process_vm_readv(pid as pid_t, local.as_ptr(), near, remote.as_ptr(), far, 0)
            },
        };
        let copied = match usize::try_from(copied) {
            Ok(copied) if copied > 0 => copied,
            Ok(_) => return Err(errno_code(libc::EFAULT)),
            Err(_) => {
                return Err(errno_code(
                    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EFAULT),
                ))
            }
        };
        // A part was copied, as when a signal came: the rest follows, or says why not.
        local = skip(local, copied);
        remote = skip(remote, copied);
    }
    Ok(())
}

/// The list without its first bytes.
fn skip(mut pieces: &mut [iovec], mut bytes: usize) -> &mut [iovec] {
    while let Some((first, _)) = pieces.split_first_mut() {
        if bytes < first.iov_len {
            first.iov_base = first.iov_base.wrapping_byte_add(bytes);
            first.iov_len -= bytes;
            break;
        }
        bytes -= first.iov_len;
        pieces = &mut pieces[1..];
    }
    pieces
}

/// Reads a word of process `pid`.
pub(crate) fn read_word(pid: u32, at: u64) -> Result<u64, FabricCode> {
    let mut word = 0_u64;
    let mut local = [iovec { iov_base: (&raw mut word).cast(), iov_len: size_of::<u64>() }];
    let mut remote = [iovec { iov_base: at as usize as *mut _, iov_len: size_of::<u64>() }];
    // SAFETY: writes to the word, and reads of the other process what may be anything.
    unsafe { copy(Direction::Get, pid, &mut local, &mut remote) }.map(|()| word)
}

/// Where Yama, a part of the kernel, says what debuggers may do. Copies count as debugging.
const PTRACE_SCOPE: &str = "/proc/sys/kernel/yama/ptrace_scope";

/// Whether processes of one user may not copy from and to each other's memory unless the one whose memory it is has
/// allowed it, as by default on Ubuntu. Beyond this scope it cannot be allowed.
fn takes_leave(scope: &str) -> bool {
    scope.trim() == "1"
}

/// Allows processes of this user to copy from and to this one's memory, where that takes leave. It is leave for all they
/// could do where Yama is not: to trace it as a debugger does.
pub(crate) fn admit() {
    if std::fs::read_to_string(PTRACE_SCOPE).is_ok_and(|scope| takes_leave(&scope)) {
        let zero: c_ulong = 0;
        // SAFETY: takes numbers. Whether it has helped is asked by who copies.
        unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, zero, zero, zero) };
    }
}

/// What the kernel lets another process of this user do with this one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Allowed {
    /// Copy from and to its memory.
    pub(crate) copy: bool,
    /// Open its files, so that they can be mapped, and hear of its end.
    pub(crate) open: bool,
}

impl Allowed {
    const NOTHING: Self = Self { copy: false, open: false };

    /// What a child's status says that has a bit for each thing it could not do.
    fn of(status: i32) -> Self {
        Self { copy: status & NO_COPY == 0, open: status & NO_OPEN == 0 }
    }
}

const NO_COPY: i32 = 1;
const NO_OPEN: i32 = 2;

/// What a child does that has of this process's threads one, and the locks of all as they were: system calls, and none
/// by a function of a library, which a tool may have replaced by one that takes a lock.
mod child {
    use super::{c_ulong, iovec, CString};

    /// Reads a word of process `pid`: whether it is this one.
    pub(super) fn can_read(pid: u32, at: &u64) -> bool {
        let mut word = 0_u64;
        let local = iovec { iov_base: (&raw mut word).cast(), iov_len: size_of::<u64>() };
        let remote = iovec { iov_base: (&raw const *at).cast_mut().cast(), iov_len: size_of::<u64>() };
        let (near, far, one) = (&raw const local, &raw const remote, 1 as c_ulong);
        // SAFETY: writes to the word, and reads one in this process's memory, or at most in another's.
        let read = unsafe { libc::syscall(libc::SYS_process_vm_readv, pid, near, one, far, one, 0_u64) };
        read == size_of::<u64>() as i64 && word == *at
    }

    /// Opens what `path` names and the process, as [`crate::peer::Peer::connect`] does.
    pub(super) fn can_open(path: &CString, pid: u32) -> bool {
        let flags = libc::O_RDWR | libc::O_CLOEXEC;
        // SAFETY: the path ends with a zero.
        let file = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0) };
        // SAFETY: takes two numbers.
        let process = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        file >= 0 && process >= 0
    }

    /// Ends it at once, without destructors.
    pub(super) fn exit(status: i32) -> ! {
        loop {
            // SAFETY: takes a number, and does not return.
            unsafe { libc::syscall(libc::SYS_exit_group, status) };
        }
    }
}

/// What the kernel lets another process of this user, which is no parent of this one, do with it and with its file
/// `fd`: asked by a child, since rules for debuggers (Yama's `ptrace_scope`) let a parent at its children
/// and not the reverse.
pub(crate) fn ask(fd: u32) -> Allowed {
    static WORD: u64 = u64::from_le_bytes(*b"attached");
    let own = std::process::id();
    let Ok(path) = CString::new(format!("/proc/{own}/fd/{fd}")) else { return Allowed::NOTHING };
    // A child that sends no signal when it ends, so that the program does not notice it, and runs no handlers
    // of fork.
    // SAFETY: without flags and with a null stack this is fork. The child makes a few calls to the kernel and
    // ends.
    let child = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
    if child == 0 {
        let is_read = child::can_read(own, &WORD);
        let is_opened = child::can_open(&path, own);
        child::exit(if is_read { 0 } else { NO_COPY } | if is_opened { 0 } else { NO_OPEN });
    }
    // Nobody to ask: it comes out when ranks meet.
    let Some(child) = pid_t::try_from(child).ok().filter(|child| *child > 0) else {
        return Allowed { copy: false, open: true };
    };
    let mut status = 1;
    loop {
        // SAFETY: waits for the child made above, of whatever kind.
        let ended = unsafe { libc::waitpid(child, &raw mut status, libc::__WALL) };
        match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::EINTR) if ended < 0 => {}
            _ if ended == child && libc::WIFEXITED(status) => return Allowed::of(libc::WEXITSTATUS(status)),
            _ => return Allowed::NOTHING,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::error::ENDED;

    fn pieces(memory: &mut [u8], lens: &[usize]) -> Vec<iovec> {
        let mut rest = memory;
        let cut = |len: &usize| {
            let (piece, behind) = std::mem::take(&mut rest).split_at_mut(*len);
            rest = behind;
            iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: *len }
        };
        lens.iter().map(cut).collect()
    }

    #[test]
    fn pieces_are_copied_both_ways() {
        let mut from: Vec<u8> = (0..100).collect();
        let mut into = vec![0; 100];
        let expected = from.clone();
        let (mut near, mut far) = (pieces(&mut from, &[1, 49, 50]), pieces(&mut into, &[60, 40]));
        // SAFETY: the pieces are those of the two vectors.
        unsafe { copy(Direction::Put, std::process::id(), &mut near, &mut far) }.unwrap();
        assert_eq!(into, expected);
        from.fill(0);
        let (mut near, mut far) = (pieces(&mut from, &[100]), pieces(&mut into, &[30, 30, 40]));
        // SAFETY: as above.
        unsafe { copy(Direction::Get, std::process::id(), &mut near, &mut far) }.unwrap();
        assert_eq!(from, expected);
    }

    #[test]
    fn a_part_that_was_copied_is_skipped() {
        let mut memory = [0; 30];
        let base = memory.as_ptr().addr();
        let lens = |skipped: usize, memory: &mut [u8]| -> Vec<(usize, usize)> {
            let mut all = pieces(memory, &[10, 0, 20]);
            let left = skip(&mut all, skipped);
            left.iter().map(|piece| (piece.iov_base.addr() - base, piece.iov_len)).collect()
        };
        assert_eq!(lens(3, &mut memory), [(3, 7), (10, 0), (10, 20)]);
        assert_eq!(lens(10, &mut memory), [(10, 20)]);
        assert_eq!(lens(29, &mut memory), [(29, 1)]);
        assert_eq!(lens(30, &mut memory), []);
    }

    #[test]
    fn leave_is_given_where_it_is_asked_for_and_helps() {
        for (scope, takes) in
            [("0\n", false), ("1\n", true), ("2\n", false), ("3", false), ("", false), ("10\n", false)]
        {
            assert_eq!(takes_leave(scope), takes, "{scope:?}");
        }
    }

    #[test]
    fn what_is_not_mapped_is_an_error() {
        assert_eq!(read_word(std::process::id(), 8).unwrap_err().code, libc::EFAULT);
        assert_eq!(read_word(i32::MAX as u32, 8).unwrap_err(), ENDED);
    }

    /// The probe says what real processes find: a child of ours reads our memory, or it cannot.
    #[test]
    fn the_probe_leaves_no_child() {
        let file = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null").unwrap();
        let fd = u32::try_from(file.as_raw_fd()).unwrap();
        let said = ask(fd);
        assert!(said.open);
        assert_eq!(ask(fd), said);
        assert_eq!(ask(u32::MAX), Allowed { open: false, ..said });
        // SAFETY: asks for any child; there is none of this kind.
        let child = unsafe { libc::waitpid(-1, core::ptr::null_mut(), libc::__WCLONE | libc::WNOHANG) };
        assert!(child <= 0, "child {child} was left");
    }
}
