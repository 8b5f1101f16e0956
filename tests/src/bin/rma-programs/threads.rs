//! Threads of the process that make the calls of a program's threads.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::mpsc::{channel, Sender};
use std::thread::JoinHandle;

use rma_sim::swarm::{Call, OperationPlan, OriginBuffers, Place};

use super::Caller;

/// What a thread is asked to do.
pub(crate) enum Task {
    Call(Call),
    Post(OperationPlan, Place, OriginBuffers),
}

// SAFETY: what its pointers name is the process's, and whoever has the task is the only one who follows them until
// it has answered.
unsafe impl Send for Task {}

/// Which thread has done what it was asked to, how that went, and which requests it found done.
pub(crate) type Answer = (usize, Result<(), String>, Vec<u64>);

/// A thread of the process, whether it was asked to do something, and its answer, until that is asked for.
pub(crate) struct Worker {
    pub(crate) tasks: Sender<Task>,
    pub(crate) thread: JoinHandle<Caller>,
    pub(crate) is_asked: bool,
    pub(crate) answer: Option<Result<(), String>>,
    pub(crate) finished: Vec<u64>,
}

impl Worker {
    pub(crate) fn spawn(number: usize, mut caller: Caller, answers: Sender<Answer>) -> Self {
        let (tasks, asked) = channel();
        let thread = std::thread::spawn(move || {
            for task in asked {
                let done = catch_unwind(AssertUnwindSafe(|| caller.perform(&task)));
                let done = done.unwrap_or_else(|_| Err(format!("thread {number} panicked")));
                let finished = std::mem::take(&mut caller.finished);
                if answers.send((number, done, finished)).is_err() {
                    break;
                }
            }
            caller
        });
        Self { tasks, thread, is_asked: false, answer: None, finished: Vec::new() }
    }
}
