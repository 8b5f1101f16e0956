//! A small job in one process, driven by one thread.

use std::any::Any;
use std::cell::UnsafeCell;
use std::fmt;
use std::task::Poll;
use std::time::{Duration, Instant};

use rma_core::bootstrap::Bootstrap;
use rma_core::config::Config;
use rma_core::counters::Counters;
use rma_core::dtype::Dtype;
use rma_core::engine::{Engine, FenceAssert, Operation, PostAssert, StartAssert, SyncCall};
use rma_core::error::{Call, RmaError};
use rma_core::group::Group;
use rma_core::ids::{Rank, WindowId};
use rma_core::info::Flavor;
use rma_core::lock::LockType;
use rma_core::op::ReduceOp;
use rma_core::provider::Endpoint;
use rma_core::wire::OpKind;

/// What a body wants of its world.
#[derive(Clone, Debug, Default)]
pub struct Spec {
    /// Ranks; 0 means 2.
    pub ranks: u32,
    /// Settings of every engine.
    pub config: Config,
}

impl Spec {
    /// A job of this many ranks with default settings.
    pub fn ranks(ranks: u32) -> Self {
        Self { ranks, ..Self::default() }
    }

    /// How many ranks: two, if it was not said.
    pub fn size(&self) -> u32 {
        if self.ranks == 0 {
            2
        } else {
            self.ranks
        }
    }

    /// The same job with these settings.
    #[must_use]
    pub fn with(self, change: impl FnOnce(&mut Config)) -> Self {
        let mut spec = self;
        change(&mut spec.config);
        spec
    }
}

/// What moves the fabric of a world when all engines are idle.
pub trait Driver {
    /// Lets something happen. `false`: nothing will ever happen any more.
    fn advance(&mut self) -> bool;
    /// Virtual time, where time is virtual: every message takes 1000 ns.
    fn now_ns(&self) -> Option<u64>;
    /// The counters of what has a rank's target role, where that is not the rank's engine.
    fn target_counters(&self, _rank: u32) -> Option<Counters> {
        None
    }
}

/// Steps without any movement after which nothing more is expected to happen.
const QUIET_STEPS: usize = 200;

/// Rounds of progress between two questions whether anybody does more than that.
const LOOKS_AT_ONCE: usize = 50;

/// Rounds of progress of one step at most: on a fabric whose clock stands still meanwhile, so that all that is to move at
/// a time does; and on a real one, where it does not.
const ROUNDS_MAX: usize = 1000;
const ROUNDS_MAX_REAL: usize = 10;

/// Steps in which nobody does anything but look for locks, which who waits for one does again and again.
const LOOKS_ENOUGH: usize = 2000;

/// How long [`World::settle`] waits on a real fabric for packets that do not come: far longer than a busy machine keeps
/// the fabric's threads from running. Ranks die on simulated fabrics, so that elsewhere all that leave do come.
const LOST_AFTER: Duration = Duration::from_secs(10);

/// N engines and their fabric.
pub struct World<E: Endpoint, B: Bootstrap> {
    /// One engine a rank.
    pub engines: Vec<Engine<E, B>>,
    driver: Box<dyn Driver>,
    kept: Box<dyn Any>,
    /// Memory of windows, where it is the program's; until the engines are gone.
    given: Option<Vec<Box<[UnsafeCell<u64>]>>>,
}

impl<E: Endpoint, B: Bootstrap> fmt::Debug for World<E, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "World of {} ranks", self.engines.len())
    }
}

/// Steps after which a call that is not done is reported as hanging.
pub(crate) const STEPS_MAX: usize = 20_000_000;

impl<E: Endpoint, B: Bootstrap> World<E, B> {
    /// A world of engines that were opened, and what moves their fabric.
    pub fn new(engines: Vec<Engine<E, B>>, driver: impl Driver + 'static) -> Self {
        Self { engines, driver: Box::new(driver), kept: Box::new(()), given: None }
    }

    /// The same, and something that is to last as long as the world.
    pub fn keeping(self, kept: impl Any) -> Self {
        Self { kept: Box::new((kept, self.kept)), ..self }
    }

    /// The same, where windows are not allocated, but made over memory that the program gives (`MPI_Win_create`).
    pub fn over_programs_memory(self) -> Self {
        Self { given: Some(Vec::new()), ..self }
    }

    /// Of which kind the windows of [`World::allocate`] are.
    pub fn flavor(&self) -> Flavor {
        match self.given {
            Some(_) => Flavor::Create,
            None => Flavor::Allocate,
        }
    }

    /// All ranks.
    pub fn ranks(&self) -> impl Iterator<Item = u32> {
        0..self.engines.len() as u32
    }

    /// Progress of every rank until none moves, then one step of the fabric.
    pub fn step(&mut self) -> bool {
        let mut moved = self.engines.iter_mut().map(Engine::hear_of_losses).sum::<usize>() > 0;
        // A step is as long as a part of what locks are waited for that may be lost.
        self.engines.iter_mut().for_each(|engine| engine.on_time(1));
        let mut done = self.actions();
        let rounds_max = if self.driver.now_ns().is_some() { ROUNDS_MAX } else { ROUNDS_MAX_REAL };
        for round in 1..=rounds_max {
            let events: usize = self.engines.iter_mut().map(Engine::progress).sum();
            if events == 0 {
                break;
            }
            moved = true;
            // Who waits for a lock that is words moves for ever.
            if round % LOOKS_AT_ONCE == 0 {
                let now = self.actions();
                let before = std::mem::replace(&mut done, now);
                if before == done {
                    break;
                }
            }
        }
        self.driver.advance() || moved
    }

    /// The same, where only one rank makes progress: the others sleep, or compute.
    pub fn step_alone(&mut self, rank: u32) {
        self.engines[rank as usize].progress();
        self.driver.advance();
    }

    /// Lets everything in flight arrive. A real fabric moves when its own threads and the kernel have had the
    /// processors, however busy those are: then packets are waited for until as many have come as have left.
    pub fn settle(&mut self) {
        let (mut quiet, begun) = (0, Instant::now());
        let (mut looks, mut done) = (0, self.actions());
        while quiet < QUIET_STEPS || self.has_packets_under_way() && begun.elapsed() < LOST_AFTER {
            quiet = if self.step() && self.driver.now_ns().is_some() { 0 } else { quiet + 1 };
            let now = self.actions();
            looks = if now == done { looks + 1 } else { 0 };
            done = now;
            if looks > LOOKS_ENOUGH && !self.has_packets_under_way() {
                return;
            }
        }
    }

    /// All that ranks have done but to look again for a lock that somebody has.
    fn actions(&self) -> u64 {
        let of_rank = |rank| {
            let of_engine = |counters: Counters| {
                let natives = counters.native_puts + counters.native_gets + counters.native_atomics;
                let words = counters.lock_atomics - counters.lock_retries.min(counters.lock_atomics);
                let packets: u64 = counters.packets_sent.iter().chain(&counters.packets_received).sum();
                natives + words + packets + counters.native_flushes
            };
            of_engine(self.counters(rank)) + self.driver.target_counters(rank).map_or(0, of_engine)
        };
        self.ranks().map(of_rank).sum()
    }

    /// Whether a packet has left that has not come. Those to a rank that died never come. A simulated fabric knows by
    /// itself when nothing is under way.
    fn has_packets_under_way(&self) -> bool {
        if self.driver.now_ns().is_some() {
            return false;
        }
        let own = self.engines.iter().map(Engine::counters);
        let of_targets = self.ranks().filter_map(|rank| self.driver.target_counters(rank));
        let (mut sent, mut received) = (0, 0);
        for counters in own.chain(of_targets) {
            sent += counters.packets_sent.iter().sum::<u64>();
            received += counters.packets_received.iter().sum::<u64>();
        }
        received < sent
    }

    /// Steps until something holds.
    pub fn step_until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..STEPS_MAX {
            if holds(self) {
                return;
            }
            self.step();
        }
        panic!("never happens: {what}");
    }

    /// Virtual time, if there is such a thing.
    pub fn now_ns(&self) -> Option<u64> {
        self.driver.now_ns()
    }

    /// Whether the one, which knows the other, tells it of epochs by words of its memory.
    pub fn are_neighbours(&mut self, rank: u32, other: u32, window: WindowId) -> bool {
        let has_words = self.engines[rank as usize].neighbours_words(window).next().is_some();
        has_words && self.completes_at_once(rank, other)
    }

    /// Whether the fabric does the operations of a rank to this target while they are posted.
    pub fn completes_at_once(&mut self, rank: u32, target: u32) -> bool {
        let engine = &mut self.engines[rank as usize];
        engine.peer(Rank(target)).is_some_and(|peer| engine.endpoint().completes_at_once(peer))
    }

    /// The counters of one rank.
    pub fn counters(&self, rank: u32) -> Counters {
        self.engines[rank as usize].counters()
    }

    /// The counters of what executes the operations on one rank's windows.
    pub fn target_counters(&self, rank: u32) -> Counters {
        self.driver.target_counters(rank).unwrap_or_else(|| self.counters(rank))
    }

    /// Whether others than the ranks execute the operations on their windows.
    pub fn has_ghosts(&self) -> bool {
        self.driver.target_counters(0).is_some()
    }

    /// Polls a call of one rank to its end.
    pub fn wait(&mut self, rank: u32, started: Result<SyncCall, RmaError>) -> Result<(), RmaError> {
        self.wait_all(vec![(rank, started?)])
    }

    /// Polls calls of several ranks until all are done; the first error.
    pub fn wait_all(&mut self, calls: Vec<(u32, SyncCall)>) -> Result<(), RmaError> {
        self.wait_each(calls).into_iter().collect()
    }

    /// Polls calls of several ranks until all are done; the outcome of each.
    pub fn wait_each(&mut self, mut calls: Vec<(u32, SyncCall)>) -> Vec<Result<(), RmaError>> {
        let mut results: Vec<_> = calls.iter().map(|_| None).collect();
        for _ in 0..STEPS_MAX {
            for ((rank, sync), result) in calls.iter_mut().zip(&mut results) {
                if result.is_none() {
                    if let Poll::Ready(done) = self.engines[*rank as usize].poll(sync) {
                        *result = Some(done);
                    }
                }
            }
            if results.iter().all(Option::is_some) {
                return results.into_iter().flatten().collect();
            }
            self.step();
        }
        let waiting: Vec<_> =
            calls.iter().map(|(rank, sync)| (rank, sync.call(), sync.waiting_for())).collect();
        panic!("hangs: (rank, call, waiting for) {waiting:?}");
    }

    /// Repeats an operation until it is accepted.
    pub fn post(&mut self, rank: u32, window: WindowId, operation: &Operation) -> Result<(), RmaError> {
        for _ in 0..STEPS_MAX {
            // SAFETY: bodies keep the buffers of their operations until the call that completes them.
            if let Poll::Ready(done) = unsafe { self.engines[rank as usize].post(window, operation) } {
                return done;
            }
            self.step();
        }
        panic!("hangs: rank {rank} gets no resources for {operation:?}");
    }

    /// put of bytes that the body keeps.
    pub fn put(
        &mut self,
        rank: u32,
        window: WindowId,
        target: u32,
        disp: u64,
        data: &[u8],
    ) -> Result<(), RmaError> {
        for _ in 0..STEPS_MAX {
            let engine = &mut self.engines[rank as usize];
            // SAFETY: bodies keep the buffers of their operations until the call that completes them.
            let done = unsafe { engine.put(window, Rank(target), disp, data.as_ptr(), data.len()) };
            if let Poll::Ready(done) = done {
                return done;
            }
            self.step();
        }
        panic!("hangs: rank {rank} gets no resources for a put");
    }

    /// get into a buffer that the body keeps.
    pub fn get(
        &mut self,
        rank: u32,
        window: WindowId,
        target: u32,
        disp: u64,
        data: &mut [u8],
    ) -> Result<(), RmaError> {
        for _ in 0..STEPS_MAX {
            let engine = &mut self.engines[rank as usize];
            // SAFETY: bodies keep the buffers of their operations until the call that completes them.
            let done = unsafe { engine.get(window, Rank(target), disp, data.as_mut_ptr(), data.len()) };
            if let Poll::Ready(done) = done {
                return done;
            }
            self.step();
        }
        panic!("hangs: rank {rank} gets no resources for a get");
    }

    /// accumulate of elements that the body keeps.
    #[allow(clippy::too_many_arguments)]
    pub fn accumulate(
        &mut self,
        rank: u32,
        window: WindowId,
        target: u32,
        disp: u64,
        data: &[u8],
        dtype: Dtype,
        op: ReduceOp,
    ) -> Result<(), RmaError> {
        let accumulate = operation(Call::Accumulate, OpKind::Accumulate, target, disp, data.len());
        self.post(rank, window, &Operation { dtype, op, origin: data.as_ptr(), ..accumulate })
    }

    /// get_accumulate, or with one element fetch_and_op.
    #[allow(clippy::too_many_arguments)]
    pub fn get_accumulate(
        &mut self,
        rank: u32,
        window: WindowId,
        target: u32,
        disp: u64,
        data: &[u8],
        result: &mut [u8],
        dtype: Dtype,
        op: ReduceOp,
    ) -> Result<(), RmaError> {
        let fetch = operation(Call::GetAccumulate, OpKind::GetAccumulate, target, disp, result.len());
        let fetch = Operation { dtype, op, origin: data.as_ptr(), result: result.as_mut_ptr(), ..fetch };
        self.post(rank, window, &fetch)
    }

    /// compare_and_swap of one `u64`.
    pub fn compare_and_swap(
        &mut self,
        rank: u32,
        window: WindowId,
        target: u32,
        disp: u64,
        [compare, new]: &[u64; 2],
        result: &mut u64,
    ) -> Result<(), RmaError> {
        let swap = operation(Call::CompareAndSwap, OpKind::CompareAndSwap, target, disp, 8);
        let swap = Operation {
            dtype: Dtype::U64,
            origin: std::ptr::from_ref(new).cast(),
            compare: std::ptr::from_ref(compare).cast(),
            result: std::ptr::from_mut(result).cast(),
            ..swap
        };
        self.post(rank, window, &swap)
    }

    /// One rank's part of a window.
    fn start_window(&mut self, rank: u32, len: usize, unit: u32) -> Result<(WindowId, SyncCall), RmaError> {
        let engine = &mut self.engines[rank as usize];
        let Some(given) = &mut self.given else { return engine.start_allocate(len, unit) };
        let words: Box<[_]> = (0..len.div_ceil(size_of::<u64>())).map(|_| UnsafeCell::new(0)).collect();
        let base = UnsafeCell::raw_get(words.as_ptr()).cast();
        given.push(words);
        // SAFETY: of so many bytes, which are kept until the engines are gone; nobody else accesses them.
        unsafe { engine.start_create(base, len, unit) }
    }

    /// One allocated window, `len(rank)` bytes at each rank, displacements in `unit(rank)` bytes.
    pub fn allocate_uneven(&mut self, len: impl Fn(u32) -> usize, unit: impl Fn(u32) -> u32) -> WindowId {
        let mut calls = Vec::new();
        let mut id = None;
        for rank in self.ranks() {
            let started = self.start_window(rank, len(rank), unit(rank));
            let (window, sync) = started.expect("memory can be had");
            assert!(id.is_none_or(|id| id == window), "all ranks give it the same number");
            id = Some(window);
            calls.push((rank, sync));
        }
        self.wait_all(calls).expect("a window is created");
        id.expect("there is at least one rank")
    }

    /// One allocated window of `len` bytes at each rank, displacements in bytes.
    pub fn allocate(&mut self, len: usize) -> WindowId {
        self.allocate_uneven(|_| len, |_| 1)
    }

    /// Frees a window at all ranks.
    pub fn free(&mut self, window: WindowId) -> Result<(), RmaError> {
        let mut calls = Vec::new();
        for rank in self.ranks() {
            calls.push((rank, self.engines[rank as usize].start_free(window)?));
        }
        self.wait_all(calls)
    }

    /// lock, to its end.
    pub fn lock(
        &mut self,
        rank: u32,
        window: WindowId,
        target: u32,
        lock_type: LockType,
    ) -> Result<(), RmaError> {
        let started = self.engines[rank as usize].start_lock(window, Rank(target), lock_type, false);
        self.wait(rank, started)
    }

    /// unlock, to its end.
    pub fn unlock(&mut self, rank: u32, window: WindowId, target: u32) -> Result<(), RmaError> {
        let started = self.engines[rank as usize].start_unlock(window, Rank(target));
        self.wait(rank, started)
    }

    /// flush, to its end.
    pub fn flush(&mut self, rank: u32, window: WindowId, target: u32) -> Result<(), RmaError> {
        let started = self.engines[rank as usize].start_flush(window, Rank(target));
        self.wait(rank, started)
    }

    /// The same fence at all ranks.
    pub fn fence(&mut self, window: WindowId, assert: FenceAssert) -> Result<(), RmaError> {
        let mut calls = Vec::new();
        for rank in self.ranks() {
            calls.push((rank, self.engines[rank as usize].start_fence(window, assert)?));
        }
        self.wait_all(calls)
    }

    /// The group of these ranks.
    pub fn group(&self, ranks: &[u32]) -> Group {
        let ranks: Vec<Rank> = ranks.iter().map(|&rank| Rank(rank)).collect();
        Group::new(&ranks, self.engines.len() as u32).expect("distinct ranks of the job")
    }

    /// MPI's post, to its end.
    pub fn expose(&mut self, rank: u32, window: WindowId, origins: &[u32]) -> Result<(), RmaError> {
        let group = self.group(origins);
        let started = self.engines[rank as usize].start_post(window, &group, PostAssert::default());
        self.wait(rank, started)
    }

    /// start, to its end.
    pub fn start(&mut self, rank: u32, window: WindowId, targets: &[u32]) -> Result<(), RmaError> {
        let group = self.group(targets);
        let started = self.engines[rank as usize].start_start(window, &group, StartAssert::default());
        self.wait(rank, started)
    }

    /// complete, to its end.
    pub fn complete(&mut self, rank: u32, window: WindowId) -> Result<(), RmaError> {
        let started = self.engines[rank as usize].start_complete(window);
        self.wait(rank, started)
    }

    /// MPI's wait, to its end.
    pub fn wait_exposed(&mut self, rank: u32, window: WindowId) -> Result<(), RmaError> {
        let started = self.engines[rank as usize].start_wait(window);
        self.wait(rank, started)
    }

    /// A copy of a rank's window memory.
    pub fn memory(&self, rank: u32, window: WindowId) -> Vec<u8> {
        let (base, len) = self.engines[rank as usize].window_memory(window).expect("the window exists");
        if len == 0 {
            return Vec::new();
        }
        // SAFETY: the window owns `len` bytes at `base`, and nothing runs meanwhile.
        unsafe { std::slice::from_raw_parts(base, len) }.to_vec()
    }

    /// The `u64` at a byte offset of a rank's window memory.
    pub fn word(&self, rank: u32, window: WindowId, offset: usize) -> u64 {
        let memory = self.memory(rank, window);
        u64::from_le_bytes(memory[offset..offset + 8].try_into().expect("eight bytes"))
    }

    /// Nothing is left in the pools, and no packet made no sense. What a real fabric owes may come later than all that
    /// has moved for a while: it is waited for until this is so, or the world's time is over.
    pub fn check_idle(&mut self) {
        self.settle();
        let is_idle = |world: &Self| world.engines.iter().all(|engine| engine.elements_in_use() == (0, 0));
        if self.now_ns().is_none() {
            self.step_until("nothing is left in the pools", is_idle);
        }
        for (rank, engine) in self.engines.iter().enumerate() {
            assert_eq!(engine.elements_in_use(), (0, 0), "rank {rank} still uses elements");
            assert_eq!(engine.counters().malformed_packets, 0, "rank {rank} got a packet without sense");
        }
    }
}

/// An operation without buffers.
pub(crate) fn operation(call: Call, kind: OpKind, target: u32, disp: u64, len: usize) -> Operation {
    Operation {
        call,
        kind,
        dtype: Dtype::U8,
        op: ReduceOp::Replace,
        target: Rank(target),
        disp,
        len,
        origin: std::ptr::null(),
        result: std::ptr::null_mut(),
        compare: std::ptr::null(),
    }
}
