//! Signals that come to the launcher, as something to poll.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

/// What a signal means for the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Meaning {
    /// A process may have exited.
    Child,
    /// End the job.
    End(i32),
    /// Pass it on to the ranks.
    PassOn(i32),
    /// Stop the ranks, then the launcher.
    Stop,
}

/// The signals.
#[derive(Debug)]
pub(crate) struct Signals {
    delivery: SignalDelivery<UnixStream, SignalOnly>,
}

impl Signals {
    /// Takes over the signals of this process. Programs started later get the usual dispositions.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub(crate) fn new() -> io::Result<Self> {
        let mut wanted = vec![SIGCHLD, SIGINT, SIGTERM, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT];
        // `nohup rmarun` means it.
        if !is_ignored(SIGHUP) {
            wanted.push(SIGHUP);
        }
        let (read, write) = UnixStream::pair()?;
        Ok(Self { delivery: SignalDelivery::with_pipe(read, write, SignalOnly, wanted)? })
    }

    /// What to poll for readability.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.delivery.get_read().as_fd()
    }

    /// What has come since the last call.
    pub(crate) fn take(&mut self) -> Vec<Meaning> {
        self.delivery.pending().map(meaning).collect()
    }
}

fn meaning(number: i32) -> Meaning {
    match number {
        SIGCHLD => Meaning::Child,
        SIGTSTP => Meaning::Stop,
        SIGCONT | SIGUSR1 | SIGUSR2 => Meaning::PassOn(number),
        number => Meaning::End(number),
    }
}

/// Whether this process was started with the signal ignored.
fn is_ignored(number: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignored_mask(&status) & (1 << (number - 1)) != 0
}

fn ignored_mask(status: &str) -> u64 {
    let field = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    field.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_mask_of_ignored_signals() {
        assert_eq!(ignored_mask("Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t0\n"), 0x1001);
        assert_eq!(ignored_mask(""), 0);
    }

    #[test]
    fn each_signal_has_its_meaning() {
        assert_eq!(meaning(SIGINT), Meaning::End(SIGINT));
        assert_eq!(meaning(SIGHUP), Meaning::End(SIGHUP));
        assert_eq!(meaning(SIGUSR1), Meaning::PassOn(SIGUSR1));
    }
}
