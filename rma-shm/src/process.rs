//! Whether other processes run.

use std::os::fd::{AsFd, OwnedFd};

use core::ffi::c_long;

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::process::{pidfd_open, Pid, PidfdFlags};

/// A descriptor that becomes readable when the process ends. It goes on naming this process when another gets
/// its number.
pub(crate) fn watch(pid: u32) -> rustix::io::Result<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(rustix::io::Errno::SRCH)?;
    pidfd_open(pid, PidfdFlags::empty())
}

/// Whether the process of a descriptor of [`watch`] has ended, be it that nobody has waited for it yet.
pub(crate) fn has_ended(process: &impl AsFd) -> bool {
    let mut entry = [PollFd::new(process, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut entry, Some(&at_once)).is_ok_and(|count| count > 0)
}

/// A number that only this process has had since the kernel started, in all namespaces; `None`: the kernel, which is older
/// than 6.9, has none. Never 0, and of 48 bits: as many are told apart.
pub(crate) fn number_of(process: &impl AsFd) -> Option<u64> {
    let is_number = rustix::fs::fstatfs(process).ok()?.f_type == PIDFS;
    let number = is_number.then(|| rustix::fs::fstat(process).ok())??.st_ino;
    Some(number & (u64::MAX >> u16::BITS)).filter(|&number| number != 0)
}

/// The file system of descriptors whose inodes are numbers of processes.
const PIDFS: c_long = 0x5049_4446;

/// That of this process.
pub(crate) fn own_number() -> Option<u64> {
    number_of(&watch(std::process::id()).ok()?)
}

/// Whether a process with this number runs. One that cannot be asked after is taken to do so.
pub(crate) fn is_running(pid: u32) -> bool {
    still_runs(pid, None)
}

/// The same of the one that had this [number](number_of); of any, if there is none.
pub(crate) fn still_runs(pid: u32, number: Option<u64>) -> bool {
    match watch(pid) {
        Ok(process) => {
            let now = number.and_then(|_| number_of(&process));
            (now.is_none() || now == number) && !has_ended(&process)
        }
        Err(error) => error != rustix::io::Errno::SRCH && error != rustix::io::Errno::INVAL,
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn an_ended_process_does_not_run_even_before_it_is_waited_for() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let process = watch(child.id()).unwrap();
        assert!(is_running(child.id()) && !has_ended(&process));
        child.kill().unwrap();
        let mut entry = [PollFd::new(&process, PollFlags::IN)];
        poll(&mut entry, None).unwrap();
        assert!(has_ended(&process) && !is_running(child.id()));
        child.wait().unwrap();
        assert!(has_ended(&process) && !is_running(child.id()));
        assert!(is_running(std::process::id()));
        assert!(!is_running(u32::MAX) && !is_running(0));
    }

    #[test]
    fn processes_are_told_apart_where_the_kernel_can() {
        let me = std::process::id();
        assert_eq!(own_number(), own_number());
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let other = number_of(&watch(child.id()).unwrap());
        assert!(still_runs(me, own_number()) && still_runs(child.id(), other));
        if let (Some(_), Some(_)) = (own_number(), other) {
            assert!(!still_runs(me, other) && !still_runs(child.id(), own_number()));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
