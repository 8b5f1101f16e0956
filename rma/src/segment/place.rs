//! Where a rank of the host finds the file: in which process, and which file it must be.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rma_core::error::RmaError;
use rma_core::ids::Rank;
use rustix::fs::{self, FileType, Mode, OFlags};

use super::{failed, shared};
use crate::runtime::NUMBERS;

/// A descriptor of another process, and what is behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pid: u32,
    fd: u32,
    inode: u64,
    /// The host and its numbering of processes; 0: the kernel does not say it, and the file's number must do.
    host: u64,
}

impl Place {
    /// That of a file of this process.
    pub(super) fn of(file: &OwnedFd) -> Result<Self, RmaError> {
        let status = fs::fstat(file).map_err(|error| failed("fstat", &error.into()))?;
        let (pid, fd) = (std::process::id(), file.as_fd().as_raw_fd() as u32);
        Ok(Self { pid, fd, inode: status.st_ino, host: here() })
    }

    pub(super) fn numbers(self) -> [u64; NUMBERS] {
        [u64::from(self.pid) << 32 | u64::from(self.fd), self.inode, self.host]
    }

    /// `None`: nobody has said a place.
    pub(super) fn of_numbers([at, inode, host]: [u64; NUMBERS]) -> Option<Self> {
        let (pid, fd) = ((at >> 32) as u32, at as u32);
        (pid != 0).then_some(Self { pid, fd, inode, host })
    }

    /// Opens the file, which rank `first` has.
    pub(super) fn open(self, first: Rank) -> Result<OwnedFd, RmaError> {
        // Before anything is opened: there may be such a process and descriptor here as well.
        if self.host != here() {
            return Err(shared(format!(
                "memory cannot be shared with rank {first}, which the launcher counts to this host: it is on another \
                 one or in another PID namespace, as in a container of its own; {REMEDY}"
            )));
        }
        let path = format!("/proc/{}/fd/{}", self.pid, self.fd);
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = fs::open(&path, flags, Mode::empty()).map_err(|error| {
            failed(&format!("{path} of rank {first} cannot be opened; {REMEDY}"), &error.into())
        })?;
        let status = fs::fstat(&file).map_err(|error| failed("fstat", &error.into()))?;
        let is_file = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile;
        if !is_file || status.st_ino != self.inode {
            return Err(shared(format!("{path} is not the file that rank {first} has made; {REMEDY}")));
        }
        Ok(file)
    }
}

fn here() -> u64 {
    rma_shm::host_number().unwrap_or(0)
}

const REMEDY: &str = "all ranks of a host must see each other's processes (one PID namespace, one user)";

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> OwnedFd {
        fs::memfd_create("rma-test", fs::MemfdFlags::CLOEXEC).unwrap()
    }

    #[test]
    fn a_file_is_found_again_and_no_other() {
        let file = file();
        let place = Place::of(&file).unwrap();
        assert_eq!(Place::of_numbers(place.numbers()), Some(place));
        let again = place.open(Rank(4)).unwrap();
        assert_eq!(fs::fstat(&again).unwrap().st_ino, place.inode);
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        let pipe =
            Place { inode: fs::fstat(&reader).unwrap().st_ino, fd: reader.as_raw_fd() as u32, ..place };
        for (wrong, text) in [
            (Place { host: place.host ^ 1, ..place }, "another PID namespace"),
            (Place { inode: place.inode + 1, ..place }, "is not the file"),
            (pipe, "is not the file"),
            (Place { fd: u32::MAX, ..place }, "cannot be opened"),
            (Place { pid: u32::MAX, ..place }, "cannot be opened"),
        ] {
            let message = wrong.open(Rank(4)).unwrap_err().to_string();
            assert!(message.contains(text) && message.contains("rank 4"), "{message}");
        }
    }

    #[test]
    fn nobody_is_at_zero() {
        assert_eq!(Place::of_numbers([0; NUMBERS]), None);
        assert_eq!(Place::of_numbers([7, 1, 1]), None);
    }
}
