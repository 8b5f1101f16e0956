//! Locks that are words of the target's memory, among processes that share it: more ranks than processors take turns.

mod common;

use common::{is_rank, launch, run_body, text};
use rma::{Counters, Error, Job, LockType, Rank, Window};

const RANKS: u32 = 4;

/// Of each rank.
const TURNS: u64 = 200;

const OWNER: Rank = Rank(0);

/// Runs `body` in the ranks of a job over shared memory.
fn near(name: &str, body: impl FnOnce(&Job) -> Result<(), Error>) {
    if is_rank() {
        return run_body(body);
    }
    let output = launch(name, RANKS, "shm", &[("RMA_LOCK_PROTOCOL", "nic")]);
    assert!(output.status.success(), "{}", text(&output));
}

/// Adds 1 to the owner's word by get and put, under a lock of its own.
fn take_turn(window: &Window<u64>) -> Result<(), Error> {
    window.lock(OWNER, LockType::Exclusive, |epoch| {
        let count = epoch.get_value(0)?;
        epoch.put_value(0, count + 1)
    })
}

fn packets(counters: &Counters) -> u64 {
    counters.packets_sent.iter().sum()
}

/// Shows: MPI_Win_lock, MPI_Win_unlock, MPI_LOCK_EXCLUSIVE.
#[test]
fn ranks_that_share_memory_take_turns_without_a_packet() {
    near("ranks_that_share_memory_take_turns_without_a_packet", |job| {
        let window = job.allocate::<u64>(1)?;
        // The first one may have to ask where the words are.
        take_turn(&window)?;
        job.barrier()?;
        let before = job.counters();
        for _ in 1..TURNS {
            take_turn(&window)?;
        }
        let after = job.counters();
        assert_eq!(packets(&after), packets(&before), "a turn took a packet");
        assert_eq!(after.message_operations, before.message_operations);
        // A ticket and the holder's word, and both again to leave.
        assert!(after.lock_atomics - before.lock_atomics >= 4 * (TURNS - 1), "{after:?}");
        job.barrier()?;
        if job.rank() == OWNER {
            let count = window.local().to_vec()?;
            assert_eq!(count, [TURNS * u64::from(RANKS)], "two had the lock at once");
        }
        job.barrier()?;
        window.free().map(drop)
    });
}
