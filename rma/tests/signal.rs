//! The agent as a signal: targets that compute, allocate, print or sleep are served, and nothing that the
//! handler interrupts deadlocks with it.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::CStr;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::*;
use rma::raw::RawWindow;
use rma::{Error, Job, LockType, Options, Progress, Rank, ReduceOp, Window};

const SIGNAL: [(&str, &str); 1] = [("RMA_PROGRESS", "signal")];

/// Operations of the origin against each kind of target.
const OPERATIONS: u64 = 150;

/// Longest time of all of them, on a busy machine.
const LIMIT: Duration = Duration::from_secs(250);

/// An allocator of the program's with a lock that its own thread cannot take twice: what the handler
/// must never need.
struct Locked;

/// The thread that is inside, and how often it came again.
static OWNER: AtomicI32 = AtomicI32::new(0);
static REENTERED: AtomicU64 = AtomicU64::new(0);

fn locked<R>(body: impl FnOnce() -> R) -> R {
    // SAFETY: has no preconditions.
    let thread = unsafe { libc::gettid() };
    if OWNER.load(Ordering::SeqCst) == thread {
        // Would be a deadlock; counted instead, so that the test can say so.
        REENTERED.fetch_add(1, Ordering::SeqCst);
        return body();
    }
    while OWNER.compare_exchange(0, thread, Ordering::SeqCst, Ordering::SeqCst).is_err() {
        std::hint::spin_loop();
    }
    // Long enough for ticks to come while it is held, in the program's own code.
    for _ in 0..200 {
        std::hint::spin_loop();
    }
    let result = body();
    OWNER.store(0, Ordering::SeqCst);
    result
}

// SAFETY: the system's allocator, one thread at a time.
unsafe impl GlobalAlloc for Locked {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        locked(|| unsafe { System.alloc(layout) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        locked(|| unsafe { System.dealloc(memory, layout) });
    }
}

#[global_allocator]
static ALLOCATOR: Locked = Locked;

/// What a target does until its origin is done, without a call of the library.
type Activity = fn(&Over<'_>);

/// A word of the target's window memory, which the origin writes when it is done.
struct Over<'w> {
    word: &'w AtomicU64,
    round: u64,
    begun: Instant,
}

impl Over<'_> {
    fn is_over(&self) -> bool {
        assert!(self.begun.elapsed() < LIMIT, "the origin is not served");
        self.word.load(Ordering::SeqCst) >= self.round
    }
}

fn compute(over: &Over<'_>) {
    while !over.is_over() {
        calculate();
    }
}

/// Some 10 us of the program's own.
fn calculate() {
    let mut state = 1u64;
    for _ in 0..10_000 {
        state = std::hint::black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}

/// The program's allocator, and the C library's.
fn allocate(over: &Over<'_>) {
    let mut kept: Vec<Vec<u8>> = Vec::new();
    let mut size = 1usize;
    while !over.is_over() {
        size = size * 7 % 100_003;
        kept.push(vec![1; size]);
        if kept.len() > 64 {
            kept.swap_remove(size % 64);
        }
        // SAFETY: allocated and freed once.
        let memory = unsafe { libc::malloc(size) };
        // SAFETY: as above.
        unsafe { libc::free(std::hint::black_box(memory)) };
    }
}

/// Formatted output of the C library, under its stream's lock and with buffers that it allocates.
fn print(over: &Over<'_>) {
    const NULL: &CStr = c"/dev/null";
    const FORMAT: &CStr = c"%d %s %f\n";
    while !over.is_over() {
        // SAFETY: both are strings that end with a zero.
        let stream = unsafe { libc::fopen(NULL.as_ptr(), c"w".as_ptr()) };
        assert!(!stream.is_null());
        // A program that is in the C library all the time is interrupted there all the time.
        calculate();
        for number in 0..100 {
            // SAFETY: the stream is open, and the format's arguments are an int, a string and a double.
            unsafe { libc::fprintf(stream, FORMAT.as_ptr(), number, NULL.as_ptr(), f64::from(number)) };
        }
        // SAFETY: open until now.
        unsafe { libc::fclose(stream) };
    }
}

fn sleep(over: &Over<'_>) {
    while !over.is_over() {
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Blocks in reads, each of which another thread ends after a while.
fn read(over: &Over<'_>) {
    let (mut here, mut there) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while !over.is_over() {
                std::thread::sleep(Duration::from_millis(100));
                there.write_all(b"x").unwrap();
            }
        });
        // Ends when the other end is closed.
        while here.read_exact(&mut [0]).is_ok() {}
    });
}

/// Runs operations against a target that does `activity` until they are done.
fn served(
    job: &Job,
    window: &Window<u64>,
    flag: &RawWindow,
    (round, name, activity): (u64, &str, Activity),
) -> Result<(), Error> {
    job.barrier()?;
    if job.rank() == Rank(0) {
        let begun = Instant::now();
        for round in 0..OPERATIONS {
            match round % 3 {
                0 => window.lock(Rank(1), LockType::Exclusive, |epoch| epoch.put_value(1, round))?,
                1 => window.lock(Rank(1), LockType::Shared, |epoch| epoch.get_value(1)).map(drop)?,
                _ => window
                    .lock(Rank(1), LockType::Shared, |epoch| epoch.fetch_and_op(0, 1, ReduceOp::Sum))
                    .map(drop)?,
            }
        }
        println!("{name}: {:.0} us an epoch", begun.elapsed().as_secs_f64() * 1e6 / OPERATIONS as f64);
        flag.lock(LockType::Shared, Rank(1), false)?;
        // SAFETY: `round` lives until unlock has completed the operation, or the test has failed.
        unsafe { flag.put(std::ptr::from_ref(&round).cast(), 8, Rank(1), 0) }.unwrap();
        flag.unlock(Rank(1)).unwrap();
    } else {
        // SAFETY: the window's memory is aligned and lives as long as the window; others write it whole.
        let word = unsafe { &*flag.base().cast::<AtomicU64>() };
        activity(&Over { word, round, begun: Instant::now() });
    }
    job.barrier()
}

/// Interrupted computing, allocating and printing thousands of times, sleeping in the kernel: no deadlock, no
/// allocation in the handler, and the origin is served all the time.
///
/// Shows: MPI-4.1 13.7.3, notes: agent as a signal.
#[test]
fn whatever_the_target_does_it_is_served() {
    ranks_with("whatever_the_target_does_it_is_served", 2, &SIGNAL, |job| {
        let (window, flag) = (job.allocate::<u64>(2)?, RawWindow::allocate(job, 8, 8)?);
        let activities: [(&str, Activity); 5] = [
            ("compute", compute),
            ("allocate", allocate),
            ("print", print),
            ("sleep", sleep),
            ("read", read),
        ];
        for (round, (name, activity)) in (1..).zip(activities) {
            served(job, &window, &flag, (round, name, activity))?;
        }
        assert_eq!(REENTERED.load(Ordering::SeqCst), 0, "the handler allocated");
        flag.free()?;
        window.free().map(drop)
    });
}

/// errno is as it was, and so is the signal when the job is over.
#[test]
fn nothing_is_left_behind() {
    let mut options = Options::load().unwrap();
    (options.progress, options.signal) = (Progress::Signal, Some(libc::SIGRTMIN() as u64 + 3));
    let action = || {
        // SAFETY: all zeros are a valid value.
        let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: the present action is only asked for.
        unsafe { libc::sigaction(libc::SIGRTMIN() + 3, std::ptr::null(), &raw mut now) };
        now.sa_sigaction
    };
    for _ in 0..5 {
        let job = Job::init_with(options.clone()).unwrap();
        assert_ne!(action(), libc::SIG_DFL);
        // A second driver would take the first one's signals.
        let second = Job::init_with(options.clone()).unwrap_err().to_string();
        assert!(second.contains("RMA_SIGNAL") || second.contains("has one already"), "{second}");
        // SAFETY: every thread has an errno.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: this thread's own; the handler puts back what it finds.
        unsafe { errno.write_volatile(4711) };
        let until = Instant::now() + Duration::from_millis(20);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        // SAFETY: as above.
        assert_eq!(unsafe { errno.read_volatile() }, 4711);
        job.finalize().unwrap();
        assert_eq!(action(), libc::SIG_DFL);
    }
}

/// What cannot be had is said when the job is joined.
#[test]
fn wrong_choices_are_refused() {
    for (signal, why) in [(9, "must be a real-time signal"), (1000, "must be a real-time signal")] {
        let mut options = Options::load().unwrap();
        (options.progress, options.signal) = (Progress::Signal, Some(signal));
        let message = Job::init_with(options).unwrap_err().to_string();
        assert!(message.contains(why) && message.contains("RMA_PROGRESS=thread"), "{message}");
    }
}
