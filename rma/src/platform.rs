//! What the runtime stands on: threads, locks, clocks, descriptors, and the engine's endpoint and
//! bootstrap. All of it is named here and nowhere else in `runtime`, so that the model checker can put its
//! own in its place (`tests/interleavings`).

use std::cell::Cell;
use std::fmt;
use std::io::{self, Write};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{compiler_fence, fence};
use std::time::Duration;

use rma_bootstrap::JobBootstrap;
use rma_core::engine::Engine as CoreEngine;
use rustix::event::{epoll, eventfd, EventfdFlags, Timespec};
use rustix::thread::{futex, membarrier, membarrier_query, MembarrierCommand};
use rustix::time::{clock_gettime, ClockId};

use crate::error::{Error, Result};
use crate::fabric::FabricEndpoint;

pub(crate) use std::hint::spin_loop as hint_spin;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
pub(crate) use std::sync::{Arc, Mutex, OnceLock};
pub(crate) use std::thread::{park_timeout, sleep, yield_now, JoinHandle, Thread};
pub(crate) use std::time::Instant;

/// The engine over the fabric that was chosen, as every job of this crate runs it.
pub type Engine = CoreEngine<FabricEndpoint, JobBootstrap>;

/// Processors that this process may use.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A line on standard error, for people. Nobody may be there to read it, which is no reason to panic.
pub(crate) fn say(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "rma: {text}");
}

/// Nanoseconds of the clock that all processes of this host share.
pub(crate) fn nanos() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Counted from the host's start, so neither is negative.
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

/// What no two threads have in common, also when one of them has ended.
pub(crate) type ThreadMark = u64;

thread_local! {
    /// 0: the thread has none yet. It holds nothing that is dropped, so it is there as long as the thread.
    static MARK: Cell<ThreadMark> = const { Cell::new(0) };
}

/// The calling thread's, from 1 in the order in which threads ask.
#[inline]
pub(crate) fn this_thread() -> ThreadMark {
    match MARK.with(Cell::get) {
        0 => mark_thread(),
        mark => mark,
    }
}

/// Whether a mark is the calling thread's.
#[inline]
pub(crate) fn is_this_thread(mark: ThreadMark) -> bool {
    // A thread that has none yet has nobody's.
    MARK.with(Cell::get) == mark
}

#[cold]
fn mark_thread() -> ThreadMark {
    static THREADS: AtomicU64 = AtomicU64::new(0);
    let mark = THREADS.fetch_add(1, Ordering::Relaxed) + 1;
    MARK.with(|place| place.set(mark));
    mark
}

/// A number of the calling thread, from 0 in the order in which threads ask.
pub(crate) fn thread_number() -> u32 {
    (this_thread() - 1) as u32
}

/// Whether [`fence_all`] works here: the kernel can (Linux 4.14), and nothing forbids it.
pub(crate) fn can_fence_all() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        let wanted = MembarrierCommand::PrivateExpedited;
        membarrier_query().contains_command(wanted)
            && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
    })
}

/// A full fence in every thread of this process that runs; one that does not run passes one before it does.
#[cold]
pub(crate) fn fence_all() {
    fence(Ordering::SeqCst);
    if membarrier(MembarrierCommand::PrivateExpedited).is_err() {
        // The program has forbidden itself the call since (seccomp). No processor is known to keep a store back for so
        // long, which is no promise of any.
        sleep(Duration::from_millis(1));
    }
}

/// The part of a thread that [`fence_all`] fences: its accesses stay in the order of the program.
#[inline]
pub(crate) fn fence_own() {
    compiler_fence(Ordering::SeqCst);
}

/// Looks at a lock that is taken, before its thread sleeps: as many as the standard library's.
pub(crate) const SPINS: u32 = 100;

/// Where threads sleep until a word changes and somebody wakes them. A signal's handler may do that, too.
#[derive(Debug)]
pub(crate) struct Parking;

impl Parking {
    pub(crate) fn new() -> Self {
        Self
    }

    /// Sleeps if the word has this value, at most `length`. It may end at any time.
    pub(crate) fn wait(&self, word: &AtomicU32, value: u32, length: Option<Duration>) {
        let length = length.map(timespec);
        // Interrupted, too late, or another value: the caller looks for itself in any case.
        let _ = futex::wait(word, futex::Flags::PRIVATE, value, length.as_ref());
    }

    /// Wakes one who sleeps on the word.
    #[cold]
    #[inline(never)]
    pub(crate) fn wake_one(&self, word: &AtomicU32) {
        let _ = futex::wake(word, futex::Flags::PRIVATE, 1);
    }

    /// Wakes all who sleep on the word.
    pub(crate) fn wake_all(&self, word: &AtomicU32) {
        // The kernel takes the number as a signed one.
        let _ = futex::wake(word, futex::Flags::PRIVATE, i32::MAX as u32);
    }
}

fn timespec(length: Duration) -> Timespec {
    Timespec {
        tv_sec: length.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: length.subsec_nanos().into(),
    }
}

/// Starts a thread that gets none of the program's signals, and whose short sleeps are short.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        block_signals();
        // Without it the kernel makes naps of 50 us last more than 100.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        body();
    })
}

/// The program's signals are for its own threads.
pub(crate) fn block_signals() {
    // SAFETY: an all-zero set is a valid place for sigfillset to write to.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `all` is writable.
    unsafe { libc::sigfillset(&mut all) };
    // SAFETY: `all` was filled, and the old mask is not asked for. It cannot fail with these arguments.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut()) };
}

/// Something that one thread sets and another sleeps on, beside its other descriptors.
#[derive(Debug)]
pub(crate) struct Event(OwnedFd);

impl Event {
    /// An event that is not set; `what` names it in the error.
    pub(crate) fn new(what: &str) -> Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| Error::system(&format!("{what} cannot be made"), &error))?;
        Ok(Self(event))
    }

    /// Sets it. Should that not work, who sleeps on it wakes after his longest sleep.
    pub(crate) fn ring(&self) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Unsets it.
    pub(crate) fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

/// What a thread may sleep on; whoever owns them keeps them open meanwhile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptors {
    pub(crate) of_fabric: i32,
    /// Whether the fabric's is readable only while something is there.
    pub(crate) settles: bool,
    pub(crate) other: Option<i32>,
}

/// Descriptors on which one thread at a time sleeps.
///
/// They are watched for changes (edges), not for states: the descriptors of some providers stay readable when
/// nothing is to be done (libfabric's net, 1.16 and 1.17, does not reset its own when it is armed), and a
/// thread that sleeps on those would not sleep. Who sleeps has made progress until nothing moved; what comes
/// after that is an edge, and ends the sleep even if it comes before the sleep begins.
///
/// A fabric's descriptor that is readable only while something is there is watched during sleeps alone: behind it are
/// often sets of sockets, and all that arrives would climb through all sets that watch it (over tcp 0.5 us of 11 for a
/// put and a flush), though nobody sleeps.
#[derive(Debug)]
pub(crate) struct Sleeper {
    set: OwnedFd,
    /// What is watched during sleeps alone.
    passing: Option<i32>,
}

impl Sleeper {
    /// A sleeper on these descriptors, which stay open as long as it is used, and on an event that ends
    /// every sleep until it is cleared.
    pub(crate) fn new(descriptors: &Descriptors, event: &Event) -> Result<Self> {
        let failed = |error| Error::system("a set of descriptors to sleep on cannot be made", &error);
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        let &Descriptors { of_fabric, settles, other } = descriptors;
        let watched = if settles { None } else { Some(of_fabric) };
        for descriptor in watched.into_iter().chain(other) {
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            let data = epoll::EventData::new_u64(OF_DESCRIPTOR);
            epoll::add(&set, borrowed(descriptor), data, flags).map_err(failed)?;
        }
        let data = epoll::EventData::new_u64(OF_EVENT);
        epoll::add(&set, event.0.as_fd(), data, epoll::EventFlags::IN).map_err(failed)?;
        Ok(Self { set, passing: settles.then_some(of_fabric) })
    }

    /// Sleeps until something changes, at most `timeout`. A signal ends it early, and so does an error: the
    /// caller looks for itself in any case. Returns whether a descriptor has changed since it was slept on last.
    pub(crate) fn sleep(&self, timeout: Duration) -> bool {
        let timeout = timespec(timeout);
        if let Some(descriptor) = self.passing {
            let data = epoll::EventData::new_u64(OF_DESCRIPTOR);
            // Without it the sleep is as long as it may be.
            let _ = epoll::add(&self.set, borrowed(descriptor), data, epoll::EventFlags::IN);
        }
        let data = epoll::EventData::new_u64(OF_EVENT);
        let mut events = [epoll::Event { flags: epoll::EventFlags::empty(), data }; 4];
        let count = epoll::wait(&self.set, &mut events, Some(&timeout)).unwrap_or(0);
        if let Some(descriptor) = self.passing {
            let _ = epoll::delete(&self.set, borrowed(descriptor));
        }
        // Copied, as the structure is packed.
        events.iter().take(count).any(|&epoll::Event { data, .. }| data.u64() == OF_DESCRIPTOR)
    }
}

/// A descriptor of an endpoint's or a bootstrap's.
fn borrowed<'a>(descriptor: i32) -> BorrowedFd<'a> {
    // SAFETY: whoever gave it to a sleeper keeps it open as long as the sleeper is used.
    unsafe { BorrowedFd::borrow_raw(descriptor) }
}

/// What tells the descriptors of a set from its event.
const OF_DESCRIPTOR: u64 = 0;
const OF_EVENT: u64 = 1;
