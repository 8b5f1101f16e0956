//! What a rank says before it has its launcher end the job.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::fs::FileType;

/// How long to wait for who forwards the rank's words.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long who has read the words may take to pass them on. Slurm's step daemon ends the step meanwhile, if it may, and
/// of 460 last words two were lost with it (none of 1000 with this pause).
const PASS_ON: Duration = Duration::from_millis(50);

/// How long to sleep between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// Writes to standard error that this rank aborts the job, and returns when somebody has read it, or nobody does.
/// A launcher that is asked to end the job does not look for what its ranks have written before: Hydra's proxies pass
/// on the request first.
pub(crate) fn say_abort(rank: u32, message: &str) {
    // In one piece, beside the words of other ranks; and where nobody listens the job is to be ended all the same.
    let words = format!("rma: rank {rank} aborts the job: {message}\n");
    let mut stderr = io::stderr();
    if stderr.write_all(words.as_bytes()).is_ok() && await_reader(&stderr, PATIENCE) {
        // Nothing tells when who has read it has passed it on.
        std::thread::sleep(PASS_ON);
    }
}

/// Waits until what was written to a pipe has been read, at most `limit`. Whether it has, as far as one can see.
fn await_reader(written: impl AsFd, limit: Duration) -> bool {
    let is_pipe = rustix::fs::fstat(&written)
        .is_ok_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::Fifo);
    let begun = Instant::now();
    // What is written to a file is there at once, and of others nobody can tell.
    while is_pipe && rustix::io::ioctl_fionread(&written).is_ok_and(|unread| unread > 0) {
        if begun.elapsed() >= limit {
            return false;
        }
        // No event tells that a pipe is empty.
        std::thread::sleep(LOOK_INTERVAL);
    }
    true
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;

    use rustix::fs::{mknodat, Mode, CWD};

    use super::*;

    #[test]
    fn what_is_in_a_pipe_is_waited_for_and_not_for_ever() {
        let path = std::env::temp_dir().join(format!("rma-last-words-{}", std::process::id()));
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let mut pipe = File::options().read(true).write(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(await_reader(&pipe, Duration::ZERO), "there is nothing to wait for");
        pipe.write_all(b"words").unwrap();
        assert!(!await_reader(&pipe, Duration::from_millis(5)));
        let mut reader = pipe.try_clone().unwrap();
        let reader = std::thread::spawn(move || reader.read_exact(&mut [0; 5]));
        assert!(await_reader(&pipe, Duration::from_secs(60)));
        reader.join().unwrap().unwrap();
        assert_eq!(rustix::io::ioctl_fionread(&pipe), Ok(0));
    }

    #[test]
    fn what_is_no_pipe_is_not_waited_for() {
        let (mut ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.write_all(b"words").unwrap();
        assert!(await_reader(&ours, Duration::ZERO));
    }
}
