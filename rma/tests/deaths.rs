//! A rank kills itself, in real processes over each provider: every call of the others ends within a bound,
//! with an error that names the dead or with success where it needs nothing of him, and nothing keeps the
//! others from going on and leaving.
#![allow(unsafe_code)] // the raw layer's calls; their buffers are leaked

mod common;

use std::fs;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use common::*;
use rma::raw::{RawWindow, Request};
use rma::{Error, FenceAssert, Group, Job, LockType, PostAssert, Rank, RmaError, StartAssert};

/// The rank that dies.
const DEAD: Rank = Rank(2);

/// Every provider that jobs of one host can use.
const EVERYWHERE: [&str; 7] = ["shm", "tcp;ofi_rxm", "net", "sockets", "ofi:shm", "udp;ofi_rxd", "shm+net"];

/// Longest time of a call after the death; what it takes is milliseconds, but machines have stood still for a minute.
const BOUND: Duration = Duration::from_secs(200);

/// What a rank prints when it has come to the end of its program.
const SURVIVED: &str = "came to the end";

/// Bytes of a transfer that no provider takes for a short message.
const LARGE: usize = 1 << 18;

/// Runs `body` in `count` ranks over every provider: all come to its end but [`DEAD`].
fn survivors(name: &str, count: u32, body: impl FnOnce(&Job) -> Result<(), Error>) {
    survivors_over(&EVERYWHERE, &[], name, count, body);
}

/// The same over some providers, with environment variables.
fn survivors_over(
    providers: &[&str],
    variables: &[(&str, &str)],
    name: &str,
    count: u32,
    body: impl FnOnce(&Job) -> Result<(), Error>,
) {
    if is_rank() {
        let job = Job::init().unwrap();
        body(&job).unwrap();
        about_the_dead("finalize", || {
            let finalized = job.finalize();
            let message = finalized.as_ref().map_err(Error::to_string).unwrap_err();
            assert!(message.starts_with("finalize: ") && !message.contains("code 0"), "{message}");
            finalized
        });
        return println!("{SURVIVED}");
    }
    for provider in providers {
        let started = Instant::now();
        let output = launch_with(name, count, provider, variables, &["--keep-going"]);
        let text = text(&output);
        assert_eq!(text.matches(SURVIVED).count(), count as usize - 1, "over {provider}: {text}");
        assert_eq!(output.status.code(), Some(128 + 9), "over {provider}: {text}");
        println!("over {provider}: {:?}", started.elapsed());
    }
}

fn die() -> ! {
    // SAFETY: takes a number only.
    let result = unsafe { libc::raise(libc::SIGKILL) };
    panic!("lives on after SIGKILL: {result}");
}

/// A call within the bound.
fn bounded<T>(call: &str, body: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let started = Instant::now();
    let result = body();
    let taken = started.elapsed();
    assert!(taken < BOUND, "{call} took {taken:?}");
    result
}

/// A call that fails because of the dead.
fn about_the_dead<T>(call: &str, body: impl FnOnce() -> Result<T, Error>) {
    let result = bounded(call, body).map(drop);
    match result.as_ref().map_err(Error::rma) {
        Err(Some(RmaError::Peer { target: DEAD, .. })) => {}
        _ => panic!("{call}: an error about rank {DEAD} was due, not {result:?}"),
    }
}

/// A call that may have been refused at once, or fails later.
fn perhaps_about_the_dead<T>(call: &str, body: impl FnOnce() -> Result<T, Error>) {
    let result = bounded(call, body).map(drop);
    if result.is_err() {
        about_the_dead(call, || result);
    }
}

/// What the end of [`DEAD`] is arranged with: a window with a word for each rank.
struct Last {
    window: RawWindow,
    pid: u64,
}

impl Last {
    /// Everybody learns which process he is.
    fn arrange(job: &Job) -> Result<Self, Error> {
        let window = RawWindow::allocate(job, 8 * (job.size() as usize + 1), 8)?;
        let pid = buffer(8).cast::<u64>();
        // SAFETY: the buffer is new; it may not be aligned.
        unsafe { pid.write_unaligned(std::process::id().into()) };
        window.fence(FenceAssert::default())?;
        if job.rank() == DEAD {
            for rank in (0..job.size()).map(Rank) {
                put(&window, pid.cast(), 8, rank, 0)?;
            }
        }
        window.fence(FenceAssert { no_succeed: true, ..FenceAssert::default() })?;
        let pid = word(&window, 0);
        Ok(Self { window, pid })
    }

    /// He dies here, when everybody has come and needs no answer of his any more; the others go on when he is
    /// dead.
    fn death(&self, job: &Job) -> Result<(), Error> {
        job.barrier()?;
        if job.rank() == DEAD {
            // Whoever has left the barrier says so.
            let come = || (1..=job.size()).filter(|&index| word(&self.window, index) != 0).count();
            while come() + 1 < job.size() as usize {
                job.progress();
            }
            die();
        }
        self.window.lock(LockType::Shared, DEAD, false)?;
        // He may be dead before he has answered.
        perhaps_about_the_dead("put", || put(&self.window, buffer(8), 8, DEAD, u64::from(job.rank().0) + 1));
        perhaps_about_the_dead("unlock", || self.window.unlock(DEAD));
        await_end(self.pid);
        Ok(())
    }

    /// The two that are left wait for each other: who frees a window after a death waits for nobody.
    fn meet(&self, job: &Job) -> Result<(), Error> {
        bounded("lock", || self.window.lock(LockType::Shared, other(job), false))?;
        put(&self.window, buffer(8), 8, other(job), u64::from(job.rank().0) + 1)?;
        bounded("unlock", || self.window.unlock(other(job)))?;
        let started = Instant::now();
        while word(&self.window, other(job).0 + 1) == 0 {
            assert!(started.elapsed() < BOUND, "the other does not come");
            job.progress();
        }
        Ok(())
    }
}

/// A word of this rank's window memory.
fn word(window: &RawWindow, index: u32) -> u64 {
    let words = window.base().cast::<u64>();
    // SAFETY: within the memory, which others write in whole words; a torn read would only be another number.
    unsafe { words.wrapping_add(index as usize).read_volatile() }
}

/// Looks until the process is gone, since nothing tells of the end of a process that is no child.
fn await_end(pid: u64) {
    let started = Instant::now();
    let lives = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The state follows the name, which is in parentheses.
        let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
        state.is_some_and(|state| !"ZX".contains(state))
    };
    while lives() {
        assert!(started.elapsed() < BOUND, "process {pid} does not die");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Bytes for operations, for ever: those that a death cuts short may use them as long as the process lives.
fn buffer(len: usize) -> *mut u8 {
    // What is still known to somebody is no leak to those who look for leaks.
    static KEPT: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
    let mut kept = KEPT.lock().unwrap();
    kept.push(vec![1; len]);
    kept.last_mut().unwrap().as_mut_ptr()
}

fn put(window: &RawWindow, from: *mut u8, len: usize, target: Rank, disp: u64) -> Result<(), Error> {
    // SAFETY: `from` is a `buffer` of at least `len` bytes, which nobody reads or writes but the library.
    unsafe { window.put(from, len, target, disp) }
}

fn get(window: &RawWindow, into: *mut u8, len: usize, target: Rank) -> Result<(), Error> {
    // SAFETY: as for `put`.
    unsafe { window.get(into, len, target, 0) }
}

fn rput(window: &RawWindow, from: *mut u8, len: usize, target: Rank) -> Result<Request, Error> {
    // SAFETY: as for `put`.
    unsafe { window.rput(from, len, target, 0) }
}

fn rget(window: &RawWindow, into: *mut u8, len: usize, target: Rank) -> Result<Request, Error> {
    // SAFETY: as for `put`.
    unsafe { window.rget(into, len, target, 0) }
}

/// The other survivor of three.
fn other(job: &Job) -> Rank {
    Rank(u32::from(job.rank().0 == 0))
}

/// Shows: MPI_Win_lock_all, MPI_Win_flush, MPI_Win_flush_all, MPI_Win_unlock_all, MPI_Win_free.
#[test]
fn lock_all() {
    survivors("lock_all", 3, |job| {
        let last = Last::arrange(job)?;
        let window = RawWindow::allocate(job, LARGE, 1)?;
        let data = buffer(LARGE);
        window.lock_all(false)?;
        put(&window, data, LARGE, DEAD, 0)?;
        window.flush(DEAD)?;
        last.death(job)?;
        perhaps_about_the_dead("get", || get(&window, data, LARGE, DEAD));
        // Memory that is mapped here is there until his end is noticed.
        about_the_dead("flush after get", || {
            let started = Instant::now();
            while started.elapsed() < BOUND {
                window.flush(DEAD)?;
                get(&window, data, LARGE, DEAD)?;
            }
            Ok(())
        });
        perhaps_about_the_dead("put", || put(&window, data, 8, DEAD, 0));
        about_the_dead("flush after put", || window.flush(DEAD));
        about_the_dead("flush_local", || window.flush_local(DEAD));
        put(&window, data, 8, other(job), 0)?;
        bounded("flush of the living", || window.flush(other(job)))?;
        about_the_dead("flush_all", || window.flush_all());
        about_the_dead("unlock_all", || window.unlock_all());
        last.meet(job)?;
        about_the_dead("free", || window.free());
        Ok(())
    });
}

/// Of who shares a lock that is words nobody knows who that is: time tells that he is dead, and the library counts it.
///
/// Shows: MPI_Win_lock, MPI_Win_unlock, MPI_Win_free.
#[test]
fn a_share_that_is_words_is_lost() {
    let words = ("RMA_LOCK_PROTOCOL", "nic");
    survivors_over(&["shm"], &[words], "a_share_that_is_words_is_lost", 3, |job| {
        let last = Last::arrange(job)?;
        let window = RawWindow::allocate(job, 64, 1)?;
        let data = buffer(8);
        // Held at rank 0 when he dies.
        if job.rank() == DEAD {
            window.lock(LockType::Shared, Rank(0), false)?;
            put(&window, data, 8, Rank(0), 0)?;
            window.flush(Rank(0))?;
        }
        last.death(job)?;
        let exclusive = || {
            window.lock(LockType::Exclusive, Rank(0), false)?;
            put(&window, data, 8, Rank(0), 8)?;
            window.unlock(Rank(0))
        };
        let lost = bounded("a lock that is lost", exclusive);
        let is_lost = matches!(
            lost.as_ref().map_err(Error::rma),
            Err(Some(RmaError::LockLost { target: Rank(0), .. }))
        );
        assert!(is_lost, "{lost:?}");
        last.meet(job)?;
        about_the_dead("free", || window.free());
        Ok(())
    });
}

/// Shows: MPI_Win_lock, MPI_Win_unlock, MPI_Win_free.
#[test]
fn locks() {
    survivors("locks", 3, |job| {
        let last = Last::arrange(job)?;
        let window = RawWindow::allocate(job, 64, 1)?;
        let data = buffer(8);
        // Held at rank 0 when he dies.
        if job.rank() == DEAD {
            window.lock(LockType::Exclusive, Rank(0), false)?;
            put(&window, data, 8, Rank(0), 0)?;
            window.flush(Rank(0))?;
        }
        last.death(job)?;
        for rank in [Rank(0), Rank(1)] {
            bounded("lock of the living", || window.lock(LockType::Exclusive, rank, false))?;
            put(&window, data, 8, rank, 8)?;
            bounded("unlock of the living", || window.unlock(rank))?;
        }
        for lock_type in [LockType::Shared, LockType::Exclusive] {
            bounded("lock", || window.lock(lock_type, DEAD, false))?;
            perhaps_about_the_dead("put", || put(&window, data, 8, DEAD, 0));
            about_the_dead("unlock", || window.unlock(DEAD));
        }
        last.meet(job)?;
        about_the_dead("free", || window.free());
        Ok(())
    });
}

/// Shows: MPI_Win_fence, MPI_Win_allocate, MPI_Win_create_dynamic, MPI_Win_free.
#[test]
fn collective_calls() {
    survivors("collective_calls", 4, |job| {
        let last = Last::arrange(job)?;
        let window = RawWindow::allocate(job, 64, 1)?;
        window.fence(FenceAssert::default())?;
        last.death(job)?;
        about_the_dead("fence", || window.fence(FenceAssert::default()));
        about_the_dead("allocate", || RawWindow::allocate(job, 64, 1));
        about_the_dead("create_dynamic", || RawWindow::create_dynamic(job, &Default::default()));
        about_the_dead("allocate_shared", || RawWindow::allocate_shared(job, 64, 1, &Default::default()));
        about_the_dead("barrier", || job.barrier());
        about_the_dead("free", || window.free());
        // Also when nothing of the dead is left.
        about_the_dead("allocate", || RawWindow::allocate(job, 64, 1));
        Ok(())
    });
}

/// Shows: MPI_Win_post, MPI_Win_start, MPI_Win_complete, MPI_Win_wait, MPI_Win_test.
#[test]
fn exposure() {
    survivors("exposure", 3, |job| {
        let last = Last::arrange(job)?;
        let [first, second] = [0, 1].map(|_| RawWindow::allocate(job, 64, 1));
        let (first, second) = (first?, second?);
        let data = buffer(8);
        let group = Group::new(&[other(job), DEAD], job.size()).expect("ranks of the job");
        // One epoch is under way when he dies, the other begins when he is dead.
        if job.rank() != DEAD {
            first.post(&group, PostAssert::default())?;
            first.start(&group, StartAssert::default())?;
        }
        last.death(job)?;
        second.post(&group, PostAssert::default())?;
        second.start(&group, StartAssert::default())?;
        for window in [&first, &second] {
            put(window, data, 8, other(job), 0)?;
            perhaps_about_the_dead("put", || put(window, data, 8, DEAD, 0));
            // It waits for posts only where it has to, and may return before he is known to be dead.
            perhaps_about_the_dead("complete", || window.complete());
        }
        about_the_dead("wait", || first.wait());
        about_the_dead("test", || loop {
            if second.test()? {
                return Ok(());
            }
        });
        // SAFETY: the exposure epoch is over.
        let put = unsafe { first.base().cast::<[u8; 8]>().read() };
        assert_eq!(put, [1; 8], "what the living put is there");
        last.meet(job)?;
        about_the_dead("free", || first.free());
        about_the_dead("free", || second.free());
        Ok(())
    });
}

/// Who meets the death frees the window and leaves, and its neighbours wait for one that lives, but never comes.
///
/// Shows: MPI_Win_post, MPI_Win_start, MPI_Win_complete, MPI_Win_wait, MPI_Win_free.
#[test]
fn a_ring_ends() {
    survivors("a_ring_ends", 5, |job| {
        let window = RawWindow::allocate(job, 64, 1)?;
        let (me, count) = (job.rank().0, job.size());
        let (left, right) = (Rank((me + count - 1) % count), Rank((me + 1) % count));
        let of = |rank| Group::new(&[rank], count).expect("a rank of the job");
        let data = buffer(8);
        job.barrier()?;
        let mut round = 0;
        let ended = loop {
            if job.rank() == DEAD && round == 20 {
                die();
            }
            window.post(&of(left), PostAssert::default())?;
            let written = bounded("start, put and complete", || {
                window.start(&of(right), StartAssert::default())?;
                let posted = put(&window, data, 8, right, 0);
                window.complete().and(posted)
            });
            let ended = bounded("wait", || window.wait()).and(written);
            if ended.is_err() {
                break ended;
            }
            round += 1;
        };
        assert!(matches!(ended.as_ref().map_err(Error::rma), Err(Some(RmaError::Peer { .. }))), "{ended:?}");
        about_the_dead("free", || window.free());
        Ok(())
    });
}

/// Who waits in the line for a lock is told that the target has freed the window.
///
/// Shows: MPI_Win_lock, MPI_Win_unlock, MPI_Win_free.
#[test]
fn a_line_for_a_lock_ends() {
    const LEAVES: Rank = Rank(1);
    survivors("a_line_for_a_lock_ends", 4, |job| {
        let last = Last::arrange(job)?;
        let window = RawWindow::allocate(job, 64, 1)?;
        let data = buffer(8);
        let about_who_left = |call: &str, ended: Result<(), Error>| match ended.as_ref().map_err(Error::rma) {
            Err(Some(RmaError::Peer { target: LEAVES, .. })) => {}
            _ => panic!("{call}: an error about rank {LEAVES} was due, not {ended:?}"),
        };
        // Rank 3 has the lock, and rank 0 wants it.
        if job.rank() == Rank(3) {
            window.lock(LockType::Exclusive, LEAVES, false)?;
            put(&window, data, 8, LEAVES, 0)?;
            window.flush(LEAVES)?;
        }
        last.death(job)?;
        let tell = |rank| {
            last.window.lock(LockType::Shared, rank, false)?;
            put(&last.window, data, 8, rank, 1)?;
            last.window.unlock(rank)
        };
        let hear = || {
            while word(&last.window, 1) == 0 {
                job.progress();
            }
            Ok(())
        };
        match job.rank() {
            Rank(0) => {
                window.lock(LockType::Exclusive, LEAVES, false)?;
                put(&window, data, 8, LEAVES, 8)?;
                let mut flush = window.iflush(LEAVES)?;
                // Behind the request for the lock, so that rank 1 has got that.
                tell(LEAVES)?;
                about_who_left("flush", bounded("flush", || job.wait(&mut flush)));
                about_who_left("unlock", bounded("unlock", || window.unlock(LEAVES)));
                tell(Rank(3))?;
            }
            LEAVES => bounded("word of who waits", hear)?,
            _ => {
                bounded("word of who has waited", hear)?;
                about_who_left("unlock", bounded("unlock", || window.unlock(LEAVES)));
            }
        }
        about_the_dead("free", || window.free());
        about_the_dead("free", || last.window.free());
        Ok(())
    });
}

/// Shows: MPI_Rput, MPI_Rget, MPI_Raccumulate, ours: iflush, ours: flush_targets.
#[test]
fn requests() {
    survivors("requests", 3, |job| {
        let last = Last::arrange(job)?;
        let window = RawWindow::allocate(job, LARGE, 1)?;
        let data = buffer(LARGE);
        window.lock_all(false)?;
        last.death(job)?;
        let started: [Result<Request, Error>; 3] = [
            rput(&window, data, LARGE, DEAD),
            rget(&window, data, LARGE, DEAD),
            rput(&window, data, 8, DEAD),
        ];
        let [large, read, small] = started;
        // Only his data, and not the end of a put's use of the buffer, can come from nobody but him.
        about_the_dead("rget", || job_wait(&window, read));
        perhaps_about_the_dead("rput", || job_wait(&window, large));
        perhaps_about_the_dead("rput", || job_wait(&window, small));
        about_the_dead("iflush", || job_wait(&window, window.iflush(DEAD)));
        about_the_dead("iflush_all", || job_wait(&window, window.iflush_all()));
        about_the_dead("flush_targets", || window.flush_targets(&[other(job), DEAD]));
        let living = rput(&window, data, 8, other(job));
        bounded("a request to the living", || job_wait(&window, living))?;
        about_the_dead("unlock_all", || window.unlock_all());
        last.meet(job)?;
        about_the_dead("free", || window.free());
        Ok(())
    });
}

fn job_wait(window: &RawWindow, request: Result<Request, Error>) -> Result<(), Error> {
    window.job().wait(&mut request?)
}

/// He dies at any moment of what the others do with him.
///
/// Shows: MPI_Put, MPI_Get, MPI_Win_flush.
#[test]
fn in_the_middle() {
    survivors("in_the_middle", 3, |job| {
        let last = Last::arrange(job)?;
        let window = RawWindow::allocate(job, LARGE, 1)?;
        let data = buffer(LARGE);
        window.lock_all(false)?;
        job.barrier()?;
        if job.rank() == DEAD {
            // They are at it meanwhile, whatever he does.
            std::thread::sleep(Duration::from_millis(100));
            die();
        }
        let turn = || {
            put(&window, data, LARGE, DEAD, 0)?;
            get(&window, data, LARGE, DEAD)?;
            window.flush(DEAD)
        };
        let result = loop {
            let result = bounded("put, get and flush", turn);
            if result.is_err() {
                break result;
            }
        };
        await_end(last.pid);
        about_the_dead("put, get and flush", || result);
        about_the_dead("unlock_all", || window.unlock_all());
        last.meet(job)?;
        about_the_dead("free", || window.free());
        Ok(())
    });
}
