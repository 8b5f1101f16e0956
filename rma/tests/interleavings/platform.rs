//! What `runtime` stands on while the model checker runs it: the checker's threads and locks, virtual
//! time, the simulated fabric, and descriptors without time limits: a thread that sleeps is woken by what it
//! was to be woken by, or never. A wake-up that is lost is a deadlock, which the checker reports.

use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::AtomicU64 as PlainU64;
use std::time::Duration;

use rma_core::bootstrap::{AddressBytes, Bootstrap, BootstrapError, Lookup};
use rma_core::engine::Engine as CoreEngine;
use rma_core::ids::Rank;
use rma_sim::{SimBootstrap, SimFabric};
use shuttle::sync::Condvar;

use crate::endpoint::ModelEndpoint;
use crate::error::Result;

pub(crate) use shuttle::hint::spin_loop as hint_spin;
pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
pub(crate) use shuttle::sync::{Arc, Mutex};
pub(crate) use shuttle::thread::{yield_now, JoinHandle, Thread};
pub(crate) use std::sync::OnceLock;

pub(crate) type Engine = CoreEngine<ModelEndpoint, ModelBootstrap>;

/// A line for people.
pub(crate) fn say(text: fmt::Arguments<'_>) {
    eprintln!("rma: {text}");
}

/// More than ranks, so that threads spin before they sleep.
pub(crate) fn processors() -> usize {
    8
}

/// What all threads of one execution share.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) fabric: SimFabric,
    changes: Mutex<u64>,
    changed: Condvar,
}

thread_local! {
    // The checker runs all threads of an execution on the thread that started it.
    static NETWORK: RefCell<Option<Arc<Network>>> = const { RefCell::new(None) };
}

impl Network {
    pub(crate) fn install(fabric: SimFabric) -> Arc<Self> {
        let network = Arc::new(Self { fabric, changes: Mutex::new(0), changed: Condvar::new() });
        NETWORK.with(|place| *place.borrow_mut() = Some(Arc::clone(&network)));
        network
    }

    fn of_this_execution() -> Arc<Self> {
        NETWORK.with(|place| place.borrow().clone()).expect("the execution has a network")
    }

    /// Something was posted, delivered or set.
    pub(crate) fn change(&self) {
        *self.changes.lock().unwrap() += 1;
        self.changed.notify_all();
    }

    /// Sleeps until something holds; nothing but a change ends the sleep.
    pub(crate) fn sleep_until(&self, mut holds: impl FnMut() -> bool) {
        let mut changes = self.changes.lock().unwrap();
        while !holds() {
            changes = self.changed.wait(changes).unwrap();
        }
    }

    /// Makes deliveries until `is_over`.
    pub(crate) fn deliver(&self, is_over: &AtomicBool) {
        loop {
            if self.fabric.advance().is_some() {
                self.change();
                yield_now();
                continue;
            }
            let has_work = || self.fabric.next_event_ns().is_some() || is_over.load(Ordering::SeqCst);
            self.sleep_until(has_work);
            if is_over.load(Ordering::SeqCst) {
                return;
            }
        }
    }
}

/// Virtual time: every look at the clock takes a while, so that patience ends.
static CLOCK_NS: PlainU64 = PlainU64::new(0);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Instant(u64);

impl Instant {
    pub(crate) fn now() -> Self {
        Self(CLOCK_NS.fetch_add(30_000, Ordering::Relaxed))
    }

    pub(crate) fn saturating_duration_since(&self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add<Duration> for Instant {
    type Output = Self;

    fn add(self, length: Duration) -> Self {
        Self(self.0 + length.as_nanos() as u64)
    }
}

pub(crate) fn nanos() -> u64 {
    Instant::now().0
}

pub(crate) type ThreadMark = shuttle::thread::ThreadId;

pub(crate) fn this_thread() -> ThreadMark {
    shuttle::thread::current().id()
}

pub(crate) fn is_this_thread(mark: ThreadMark) -> bool {
    this_thread() == mark
}

pub(crate) fn thread_number() -> u32 {
    0
}

/// The checker runs one thread at a time, and each sees what the others did: fences are nothing. `tests/guard.rs` is
/// about them.
pub(crate) fn can_fence_all() -> bool {
    true
}

pub(crate) fn fence_all() {}

pub(crate) fn fence_own() {}

pub(crate) fn sleep(length: Duration) {
    CLOCK_NS.fetch_add(length.as_nanos() as u64, Ordering::Relaxed);
    yield_now();
}

/// Threads that wait look once, and sleep.
pub(crate) const SPINS: u32 = 1;

/// Where threads sleep until a word changes and somebody wakes them, however long that is.
#[derive(Debug)]
pub(crate) struct Parking {
    sleeping: Mutex<()>,
    woken: Condvar,
}

impl Parking {
    pub(crate) fn new() -> Self {
        Self { sleeping: Mutex::new(()), woken: Condvar::new() }
    }

    pub(crate) fn wait(&self, word: &AtomicU32, value: u32, _longest: Option<Duration>) {
        let sleeping = self.sleeping.lock().unwrap();
        if word.load(Ordering::SeqCst) == value {
            drop(self.woken.wait(sleeping).unwrap());
        }
    }

    pub(crate) fn wake_one(&self, _word: &AtomicU32) {
        drop(self.sleeping.lock().unwrap());
        self.woken.notify_one();
    }

    pub(crate) fn wake_all(&self, _word: &AtomicU32) {
        drop(self.sleeping.lock().unwrap());
        self.woken.notify_all();
    }
}

pub(crate) fn park_timeout(_longest: Duration) {
    shuttle::thread::park();
}

pub(crate) fn spawn(_name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    Ok(shuttle::thread::spawn(body))
}

/// Something that one thread sets and another sleeps on.
#[derive(Clone, Debug)]
pub(crate) struct Event(Arc<AtomicBool>);

impl Event {
    pub(crate) fn new(_what: &str) -> Result<Self> {
        Ok(Self(Arc::new(AtomicBool::new(false))))
    }

    pub(crate) fn ring(&self) {
        self.0.store(true, Ordering::SeqCst);
        Network::of_this_execution().change();
    }

    pub(crate) fn clear(&self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// As the runtime's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptors {
    pub(crate) of_fabric: i32,
    #[allow(dead_code)] // the model has no descriptor that stays readable
    pub(crate) settles: bool,
    #[allow(dead_code)] // its bootstrap has none
    pub(crate) other: Option<i32>,
}

/// The descriptor of an endpoint is its rank's number.
#[derive(Debug)]
pub(crate) struct Sleeper {
    rank: u32,
    event: Event,
}

impl Sleeper {
    pub(crate) fn new(descriptors: &Descriptors, event: &Event) -> Result<Self> {
        Ok(Self { rank: descriptors.of_fabric as u32, event: event.clone() })
    }

    pub(crate) fn sleep(&self, _longest: Duration) -> bool {
        let network = Network::of_this_execution();
        network.sleep_until(|| network.fabric.is_ready(self.rank) || self.event.0.load(Ordering::SeqCst));
        network.fabric.is_ready(self.rank)
    }
}

/// The simulated bootstrap with what the runtime wants beyond the engine's wishes.
#[derive(Debug)]
pub(crate) struct ModelBootstrap {
    inner: SimBootstrap,
}

impl ModelBootstrap {
    pub(crate) fn new(inner: SimBootstrap) -> Self {
        Self { inner }
    }

    pub(crate) fn local_size(&self) -> u32 {
        self.inner.size()
    }

    pub(crate) fn wait_fd(&self) -> Option<i32> {
        None
    }

    pub(crate) fn receive(&mut self) {}

    pub(crate) fn finalize(&mut self) -> std::result::Result<(), BootstrapError> {
        Ok(())
    }

    pub(crate) fn is_part(&self) -> bool {
        false
    }

    pub(crate) fn poll_all_finalized(&mut self) -> std::result::Result<bool, BootstrapError> {
        Ok(true)
    }
}

impl Bootstrap for ModelBootstrap {
    fn rank(&self) -> Rank {
        self.inner.rank()
    }

    fn size(&self) -> u32 {
        self.inner.size()
    }

    fn publish(&mut self, address: &AddressBytes) -> std::result::Result<(), BootstrapError> {
        self.inner.publish(address)
    }

    fn lookup(&mut self, rank: Rank) -> std::result::Result<Lookup, BootstrapError> {
        self.inner.lookup(rank)
    }
}
