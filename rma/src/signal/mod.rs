//! The agent as a signal: a timer interrupts the thread that joined the job, and the handler makes progress
//! if the program is not inside of the library, nobody has the guard, and the interrupted code holds no
//! lock ([`places`]). Otherwise it does nothing, and the next tick tries again.
//!
//! In the handler nothing is allocated by this library (the program's allocator may be what was
//! interrupted): ranks that were not contacted yet have to wait, which is why all of them are contacted when
//! a window is made, up to the size of the peer table.

mod places;

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::runtime::Core;
use places::Places;

/// Time between two ticks, nanoseconds.
const TICK_NS: i64 = 250_000;

/// What the handler finds; null while there is no driver.
static DRIVEN: AtomicPtr<Driven> = AtomicPtr::new(ptr::null_mut());

/// Handlers that are running.
static HANDLERS: AtomicU32 = AtomicU32::new(0);

/// What the handler needs.
#[derive(Debug)]
struct Driven {
    core: Arc<Core>,
    places: Places,
    /// The program's activity at the last tick.
    activity: AtomicU64,
}

/// The timer and the handler; the signal is as it was before when this is dropped.
///
/// Implements: notes: agent as a signal.
pub(crate) struct Driver {
    signal: c_int,
    timer: libc::timer_t,
    before: libc::sigaction,
    /// The thread that is interrupted, and whether it had the signal blocked.
    thread: rustix::thread::Pid,
    was_blocked: bool,
}

// SAFETY: the timer's handle is a number that the kernel gave, in the guise of a pointer, and the former
// action is only handed back.
unsafe impl Send for Driver {}
// SAFETY: as above; no method takes `&self`.
unsafe impl Sync for Driver {}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Driver(signal {} to thread {})", self.signal, self.thread.as_raw_nonzero())
    }
}

impl Driver {
    /// Starts interrupting the calling thread. `signal` is a real-time signal that nobody handles; `None`
    /// takes the last one of those.
    ///
    /// # Errors
    /// When the place of an interruption would say nothing on this machine or in this executable, the signal
    /// is handled already, or there is another job with such a driver in this process.
    pub(crate) fn start(core: &Arc<Core>, signal: Option<u64>) -> Result<Self> {
        let places = Places::find()?;
        let signal = choose(signal)?;
        let driven = Box::new(Driven { core: Arc::clone(core), places, activity: AtomicU64::new(u64::MAX) });
        let driven = Box::into_raw(driven);
        if DRIVEN.compare_exchange(ptr::null_mut(), driven, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            // SAFETY: made just now, and given to nobody.
            drop(unsafe { Box::from_raw(driven) });
            return Err(refused("another job of this process has one already"));
        }
        install(signal).inspect_err(|_| take_away())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // SAFETY: the timer was made with the driver and is deleted once.
        unsafe { libc::timer_delete(self.timer) };
        // Ignoring the signal discards one that is on its way: its default would end the process.
        let ignore = action(libc::SIG_IGN);
        set_action(self.signal, &ignore);
        take_away();
        set_action(self.signal, &self.before);
        if self.was_blocked && rustix::thread::gettid() == self.thread {
            mask(libc::SIG_BLOCK, self.signal);
        }
    }
}

/// Sets handler, mask and timer.
fn install(signal: c_int) -> Result<Driver> {
    let before = set_action(signal, &action(on_signal as *const () as libc::sighandler_t));
    let was_blocked = mask(libc::SIG_UNBLOCK, signal);
    let thread = rustix::thread::gettid();
    // SAFETY: all zeros are a valid value.
    let mut event: libc::sigevent = unsafe { MaybeUninit::zeroed().assume_init() };
    event.sigev_notify = libc::SIGEV_THREAD_ID;
    event.sigev_signo = signal;
    event.sigev_notify_thread_id = thread.as_raw_nonzero().get();
    let mut timer: libc::timer_t = ptr::null_mut();
    // SAFETY: both are valid for the call.
    let made = unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) };
    if made != 0 {
        let error = std::io::Error::last_os_error();
        set_action(signal, &before);
        return Err(refused(&format!("its timer cannot be made: {error}")));
    }
    let driver = Driver { signal, timer, before, thread, was_blocked };
    let tick = libc::timespec { tv_sec: 0, tv_nsec: TICK_NS };
    let times = libc::itimerspec { it_interval: tick, it_value: tick };
    // SAFETY: the timer exists, the times are valid, the old ones are not asked for.
    let set = unsafe { libc::timer_settime(timer, 0, &raw const times, ptr::null_mut()) };
    if set != 0 {
        return Err(refused(&format!("its timer cannot be set: {}", std::io::Error::last_os_error())));
    }
    Ok(driver)
}

/// From now on no handler has anything, when this returns.
fn take_away() {
    let driven = DRIVEN.swap(ptr::null_mut(), Ordering::SeqCst);
    // A handler that took it before is in another thread, and its work is bounded.
    while HANDLERS.load(Ordering::SeqCst) > 0 {
        std::thread::yield_now();
    }
    if !driven.is_null() {
        // SAFETY: made by `start`, taken once, and no handler has it any more.
        drop(unsafe { Box::from_raw(driven) });
    }
}

/// The handler.
extern "C" fn on_signal(_signal: c_int, _info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: every thread has an errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let saved = unsafe { *errno };
    HANDLERS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: what was taken is not freed before `HANDLERS` is 0 again.
    if let Some(driven) = unsafe { DRIVEN.load(Ordering::SeqCst).as_ref() } {
        // SAFETY: the kernel gives a handler its context (SA_SIGINFO).
        let address = address_in(unsafe { &*context.cast::<libc::ucontext_t>() });
        let activity = driven.core.activity();
        let is_inside = driven.activity.swap(activity, Ordering::Relaxed) != activity;
        if !is_inside && driven.places.is_safe(address) {
            driven.core.serve_interrupted();
        }
    }
    HANDLERS.fetch_sub(1, Ordering::SeqCst);
    // SAFETY: as above.
    unsafe { *errno = saved };
}

/// Where the thread goes on.
#[cfg(target_arch = "x86_64")]
fn address_in(context: &libc::ucontext_t) -> usize {
    context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize
}

/// Where the thread goes on.
#[cfg(target_arch = "aarch64")]
fn address_in(context: &libc::ucontext_t) -> usize {
    context.uc_mcontext.pc as usize
}

/// A signal that nobody handles.
fn choose(wanted: Option<u64>) -> Result<c_int> {
    let (first, last) = (libc::SIGRTMIN(), libc::SIGRTMAX());
    let is_free = |signal: c_int| {
        // SAFETY: all zeros are a valid value.
        let mut now: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: the present action is only asked for.
        let asked = unsafe { libc::sigaction(signal, ptr::null(), &raw mut now) };
        asked == 0 && now.sa_sigaction == libc::SIG_DFL
    };
    match wanted {
        None => (first..=last).rev().find(|&signal| is_free(signal)).ok_or_else(|| {
            refused("the program handles every real-time signal; RMA_SIGNAL names one that it can spare")
        }),
        Some(wanted) => match c_int::try_from(wanted) {
            Ok(signal) if (first..=last).contains(&signal) && is_free(signal) => Ok(signal),
            Ok(signal) if (first..=last).contains(&signal) => {
                Err(refused(&format!("signal {signal} (RMA_SIGNAL) is handled by the program already")))
            }
            _ => Err(refused(&format!("RMA_SIGNAL={wanted} must be a real-time signal, {first} to {last}"))),
        },
    }
}

/// An action with this handler. System calls that can begin again do.
fn action(handler: libc::sighandler_t) -> libc::sigaction {
    // SAFETY: all zeros are a valid value, with an empty mask.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = handler;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    action
}

/// Sets an action and returns the one before. The signal is one that exists, so it cannot fail.
fn set_action(signal: c_int, action: &libc::sigaction) -> libc::sigaction {
    // SAFETY: all zeros are a valid value.
    let mut before: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: both are valid; the handler does only what a handler may.
    unsafe { libc::sigaction(signal, action, &raw mut before) };
    before
}

/// Blocks or unblocks the signal in this thread; whether it was blocked before.
fn mask(how: c_int, signal: c_int) -> bool {
    // SAFETY: all zeros are a valid place for sigemptyset to write to.
    let mut set: libc::sigset_t = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: as above.
    let mut before: libc::sigset_t = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: `set` is writable.
    unsafe { libc::sigemptyset(&raw mut set) };
    // SAFETY: `set` was emptied, and the signal exists.
    unsafe { libc::sigaddset(&raw mut set, signal) };
    // SAFETY: both sets are valid.
    unsafe { libc::pthread_sigmask(how, &raw const set, &raw mut before) };
    // SAFETY: filled by the call before.
    unsafe { libc::sigismember(&raw const before, signal) == 1 }
}

fn refused(why: &str) -> Error {
    Error::new(ErrorKind::System(format!("RMA_PROGRESS=signal: {why} (RMA_PROGRESS=thread needs no signal)")))
}
