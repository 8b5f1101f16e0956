//! A program that leaves `main` with an error while the other ranks wait for it: what it says last, which is after its
//! job was dropped, reaches the output of `rmarun`; where the error is its own, nothing of the others comes before it.

mod common;

use std::thread;

use common::*;
use rma::{Error, Job, LockType, Rank};

/// The rank that leaves.
const LEAVER: Rank = Rank(1);

/// Jobs at the same time, so that each is slow to say its words; `RMA_TEST_LAST_WORDS` asks for more.
const JOBS: usize = 6;

/// What a program says when it could not do its work, as the runtime of a `main` that returns an error does.
fn report(error: &str) -> ! {
    eprintln!("Error: {error}");
    std::process::exit(3)
}

/// How a program comes to leave.
#[derive(Clone, Copy)]
enum Reason {
    /// Something that has nothing to do with the library.
    Own,
    /// A call of the library failed, after which a dropped job waits for nobody.
    Call,
}

fn leave(job: &Job, reason: Reason) -> Result<(), String> {
    match reason {
        Reason::Own => Err("the mesh is empty".to_owned()),
        Reason::Call => {
            let window = job.allocate::<u64>(1).map_err(|error| error.to_string())?;
            let refused = window.lock(Rank(7), LockType::Shared, |_| Ok(()));
            refused.map_err(|error| format!("the mesh is lost: {error}"))
        }
    }
}

/// Everything is done with `?`, so that the job is dropped on the way out.
fn program(reason: Reason) -> Result<(), String> {
    let text = |error: Error| error.to_string();
    let job = Job::init().map_err(text)?;
    job.barrier().map_err(text)?;
    if job.rank() == LEAVER {
        leave(&job, reason)?;
    }
    if let Reason::Call = reason {
        job.allocate::<u64>(1).map_err(text)?;
    }
    job.barrier().map_err(text)?;
    job.finalize().map_err(text)
}

fn words_arrive(name: &str, reason: Reason, words: &str, code: i32) {
    if is_rank() {
        if let Err(error) = program(reason) {
            report(&error);
        }
        return;
    }
    let count = std::env::var("RMA_TEST_LAST_WORDS").ok().and_then(|text| text.parse().ok()).unwrap_or(JOBS);
    for provider in PROVIDERS {
        let outputs: Vec<_> = thread::scope(|scope| {
            let jobs: Vec<_> = (0..count).map(|_| scope.spawn(|| launch(name, 3, provider, &[]))).collect();
            jobs.into_iter().map(|job| job.join().unwrap()).collect()
        });
        for output in &outputs {
            let text = text(output);
            let own = text.find(&format!("[1] Error: {words}"));
            assert!(own.is_some(), "the words are lost over {provider}: {text}");
            // Who leaves after a failed call does not ask for the end of the job. The others notice at once when it has gone, and
            // of what several ranks have said by then the launcher reads one before the other.
            if let Reason::Own = reason {
                let others = ["[0] Error", "[2] Error"].iter().filter_map(|start| text.find(start)).min();
                assert!(others.is_none_or(|at| own < Some(at)), "others come first over {provider}: {text}");
                let said = format!("rmarun:   | Error: {words}");
                assert!(text.contains(&said), "no reason over {provider}: {text}");
            }
            assert_eq!(output.status.code(), Some(code), "over {provider}: {text}");
        }
    }
}

#[test]
fn words_of_a_program_that_fails_by_itself() {
    words_arrive("words_of_a_program_that_fails_by_itself", Reason::Own, "the mesh is empty", 1);
}

#[test]
fn words_of_a_program_whose_call_failed() {
    words_arrive("words_of_a_program_whose_call_failed", Reason::Call, "the mesh is lost", 3);
}
