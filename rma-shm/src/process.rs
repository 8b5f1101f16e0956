//! Whether other processes run.

use std::os::fd::{AsFd, OwnedFd};

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

/// Whether a process with this number runs. One that cannot be asked after is taken to do so.
pub(crate) fn is_running(pid: u32) -> bool {
    match watch(pid) {
        Ok(process) => !has_ended(&process),
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
}
