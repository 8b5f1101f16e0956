//! A rank kills itself: each call of the others ends, with an error or without, and their windows are freed.

mod common;

use std::process::Command;

use common::*;
use rma::raw::RawWindow;
use rma::{Error, FenceAssert, Job, LockType, Rank, RmaError};

/// The rank that dies.
const DEAD: Rank = Rank(2);

/// What a rank prints when it has come to the end of its program.
const SURVIVED: &str = "came to the end";

fn die() -> ! {
    let pid = std::process::id().to_string();
    let killed = Command::new("kill").args(["-KILL", &pid]).status();
    panic!("lives on after {killed:?}");
}

fn about_the_dead(call: &str, result: Result<(), Error>) {
    match result.as_ref().map_err(Error::rma) {
        Err(Some(RmaError::Peer { target: DEAD, .. })) => {}
        _ => panic!("{call}: an error about rank 2 was due, not {result:?}"),
    }
}

fn survivors(name: &str, body: impl FnOnce(&Job) -> Result<(), Error>) {
    if is_rank() {
        let job = Job::init().unwrap();
        body(&job).unwrap();
        println!("{SURVIVED}");
        // Everybody else's end cannot be waited for.
        return drop(job.finalize());
    }
    for provider in PROVIDERS {
        let output = launch_with(name, 3, provider, &[], &["--keep-going"]);
        let text = text(&output);
        assert_eq!(text.matches(SURVIVED).count(), 2, "over {provider}: {text}");
        assert_eq!(output.status.code(), Some(128 + 9), "over {provider}: {text}");
    }
}

/// Shows: MPI_Win_lock, MPI_Win_unlock, MPI_Win_flush, MPI_Win_free.
#[test]
fn passive_epochs() {
    survivors("passive_epochs", |job| {
        let window = RawWindow::allocate(job, 1 << 16, 1)?;
        let mut data = vec![1; 1 << 15];
        window.lock_all(false)?;
        // SAFETY: the buffer is not touched until the flush is over.
        unsafe { window.put(data.as_ptr(), data.len(), DEAD, 0)? };
        window.flush(DEAD)?;
        job.barrier()?;
        if job.rank() == DEAD {
            die();
        }
        // SAFETY: as above. What is refused at once is an error of the same kind.
        let posted = unsafe { window.get(data.as_mut_ptr(), data.len(), DEAD, 0) };
        if posted.is_err() {
            about_the_dead("get", posted);
        }
        about_the_dead("flush", window.flush(DEAD));
        window.flush(Rank(1 - job.rank().0))?;
        about_the_dead("unlock_all", window.unlock_all());
        window.lock(LockType::Exclusive, Rank(0), false)?;
        window.unlock(Rank(0))?;
        about_the_dead("free", window.free());
        Ok(())
    });
}

/// Shows: MPI_Win_fence, MPI_Win_allocate, MPI_Win_free.
#[test]
fn collective_calls() {
    survivors("collective_calls", |job| {
        let window = RawWindow::allocate(job, 64, 1)?;
        window.fence(FenceAssert::default())?;
        job.barrier()?;
        if job.rank() == DEAD {
            die();
        }
        about_the_dead("fence", window.fence(FenceAssert::default()));
        about_the_dead("allocate", RawWindow::allocate(job, 64, 1).map(drop));
        about_the_dead("free", window.free());
        Ok(())
    });
}
