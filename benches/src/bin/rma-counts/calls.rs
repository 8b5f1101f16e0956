//! Counts system calls: this program runs once more under strace, and marks in its own calls where an epoch begins
//! and ends.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::counts::EPOCHS_COUNTED;

/// System calls between two marks, by fabric and epoch, then by name.
pub(crate) type Calls = BTreeMap<(String, String), BTreeMap<String, u64>>;

/// Which mark.
pub(crate) const BEGIN: &str = "begin";
/// See [`BEGIN`].
pub(crate) const END: &str = "end";

/// Leaves a mark: a system call for a file that is not there, whose name says what begins or ends.
pub(crate) fn mark(fabric: &str, epoch: &str, which: &str) {
    let _ = std::fs::metadata(format!("{MARK}{fabric}/{epoch}/{which}"));
}

/// Whether this program may be traced; why not, in words for users.
pub(crate) fn may_trace() -> Result<(), String> {
    let output = Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot run strace: {error}; ci/install.sh installs it"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

/// The command that runs `program` with all its system calls written to `log`.
pub(crate) fn traced(program: &Path, log: &Path) -> Command {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o"]).arg(log).arg(program);
    command
}

/// Of so many calls between two marks, those of one epoch. What happens once in a while is rounded off.
pub(crate) fn per_epoch(calls: u64) -> u64 {
    let epochs = u64::from(EPOCHS_COUNTED);
    (calls + epochs / 2) / epochs
}

/// Reads strace's log: all calls but those that only look whether there is something.
pub(crate) fn parse(log: &str) -> Calls {
    let mut calls = Calls::new();
    let mut open = None;
    for line in log.lines() {
        // "PID name(arguments) = result"; a call that another thread's interrupts in the log goes on as "<... name".
        let call = line.trim_start_matches(|first: char| first.is_ascii_digit()).trim_start();
        let Some((name, arguments)) = call.split_once('(') else { continue };
        if let Some(mark) = arguments.split(MARK).nth(1) {
            let mut parts = mark.split(['/', '"']);
            let epoch = parts.next().zip(parts.next());
            let is_begin = parts.next() == Some(BEGIN);
            open = epoch.filter(|_| is_begin).map(|(fabric, epoch)| (fabric.to_owned(), epoch.to_owned()));
            if let Some(open) = &open {
                calls.insert(open.clone(), BTreeMap::new());
            }
        } else if LOOKS.contains(&name) || call.contains(FOUND_NOTHING) {
            // How often somebody looks depends on time.
        } else if let Some(counts) = open.as_ref().and_then(|open| calls.get_mut(open)) {
            *counts.entry(name.to_owned()).or_default() += 1;
        }
    }
    calls
}

/// Calls that look whether there is something.
const LOOKS: [&str; 6] = ["epoll_wait", "epoll_pwait", "poll", "ppoll", "select", "pselect6"];
/// The result of a call that looked.
const FOUND_NOTHING: &str = "= -1 EAGAIN";
/// What the names of marks begin with.
const MARK: &str = "rma-counts:";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_between_marks_are_counted() {
        let log = "7 openat(AT_FDCWD, \"/x\") = 3\n\
                   7 statx(AT_FDCWD, \"rma-counts:tcp/put-flush/begin\", 0) = -1 ENOENT (No such file)\n\
                   7 epoll_wait(5, [], 1, 0) = 0\n7 recvfrom(3, 0x1, 8) = -1 EAGAIN (Resource)\n\
                   7 sendmsg(3, {}) = 8\n8 sendmsg(3, {}) = 8\n7 +++ exited with 0 +++\n7 futex(0x1) = 0\n\
                   7 statx(AT_FDCWD, \"rma-counts:tcp/put-flush/end\", 0) = -1 ENOENT (No such file)\n\
                   7 close(3) = 0\n\
                   7 statx(AT_FDCWD, \"rma-counts:shm/put-flush/begin\", 0) = -1 ENOENT (No such file)\n\
                   7 statx(AT_FDCWD, \"rma-counts:shm/put-flush/end\", 0) = -1 ENOENT (No such file)\n";
        let calls = parse(log);
        let of = |fabric: &str| calls[&(fabric.to_owned(), "put-flush".to_owned())].clone();
        assert_eq!(of("tcp"), BTreeMap::from([("futex".to_owned(), 1), ("sendmsg".to_owned(), 2)]));
        assert_eq!(of("shm"), BTreeMap::new());
        assert_eq!(calls.len(), 2);
        assert_eq!([64, 79, 80, 15, 0].map(per_epoch), [2, 2, 3, 0, 0]);
    }
}
