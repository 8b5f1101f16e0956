//! Threads of one rank, model-checked: the guard, the loop that waits and the agent are the production
//! code (`src/runtime`, compiled here over the checker's threads), and so is the engine, over the simulated
//! fabric. The checker runs each program under many schedules, and reports what deadlocks or runs in
//! circles with a schedule that replays it.
#![allow(unreachable_pub)] // as in the library, where these are public

mod clocks;
mod endpoint;
#[path = "../../src/error.rs"]
#[allow(dead_code)]
mod error;
#[path = "../../src/events.rs"]
#[allow(dead_code)]
mod events;
mod legal;
mod misuse;
mod platform;
#[path = "../../src/runtime/mod.rs"]
#[allow(dead_code, unused_imports)]
mod runtime;
#[path = "../../src/trace/mod.rs"]
#[allow(dead_code)]
mod trace;
mod waiting;

use std::task::Poll;

use rma_core::bootstrap::Bootstrap;
use rma_core::config::Config;
use rma_core::dtype::Dtype;
use rma_core::engine::{FenceAssert, Operation};
use rma_core::error::Call;
use rma_core::ids::{Rank, WindowId};
use rma_core::lock::LockType;
use rma_core::op::ReduceOp;
use rma_core::wire::OpKind;
use rma_sim::{FabricConfig, SimFabric};
use shuttle::rand::Rng;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};

use endpoint::ModelEndpoint;
use error::Result;
use platform::{Arc, AtomicBool, Engine, JoinHandle, ModelBootstrap, Network, Ordering};
use runtime::{agent::Agent, Core, PendingOperation};

/// Steps after which an execution is reported as one that never ends.
const STEPS_MAX: usize = 400_000;

/// Mistakes that need so many steps in a certain order are looked for: priorities change once less.
const PRIORITY_DEPTH: usize = 4;

/// A thread's part of a program.
type Part = Box<dyn FnOnce(&Rig) + Send>;

/// One rank of the job as its threads see it.
#[derive(Clone)]
pub(crate) struct Rig {
    pub(crate) core: Arc<Core>,
    pub(crate) window: WindowId,
}

/// Runs `program`, which is one execution, under `schedules` schedules drawn at random.
pub(crate) fn check(schedules: usize, program: impl Fn() + Send + Sync + 'static) {
    check_with(RandomScheduler::new(schedules), program);
}

/// The same, and under as many in which threads have priorities: one goes as far as it can while the others
/// stand still, which chance hardly ever lets happen. Not for a thread that goes on until another one has got
/// somewhere.
pub(crate) fn check_by_priority_too(schedules: usize, program: impl Fn() + Send + Sync + 'static) {
    let program = Arc::new(program);
    let again = Arc::clone(&program);
    check(schedules, move || program());
    check_with(PctScheduler::new(PRIORITY_DEPTH, schedules), move || again());
}

fn check_with(scheduler: impl Scheduler + 'static, program: impl Fn() + Send + Sync + 'static) {
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    config.max_steps = shuttle::MaxSteps::FailAfter(STEPS_MAX);
    shuttle::Runner::new(scheduler, config).run(program);
}

/// A job of two ranks: threads of rank 0 and one of rank 1, each in an epoch that `open` and `close` are
/// for. With agents, both ranks have one.
pub(crate) fn job(has_agents: bool, threads: Vec<Part>, peer: Part) {
    job_of(has_agents, &Config::default(), threads, vec![peer]);
}

/// The same with some settings, and as many more ranks as there are peers.
pub(crate) fn job_of(has_agents: bool, config: &Config, threads: Vec<Part>, peers: Vec<Part>) {
    let mut random = shuttle::rand::thread_rng();
    let size = 1 + peers.len() as u32;
    let shape = FabricConfig { seed: random.gen(), ..FabricConfig::unit(size) };
    let is_native: bool = random.gen();
    let fabric_config = if is_native {
        shape
    } else {
        FabricConfig { native: FabricConfig::messages_only(size).native, ..shape }
    };
    let fabric = SimFabric::new(fabric_config);
    let network = Network::install(fabric.clone());
    let is_over = Arc::new(AtomicBool::new(false));
    let deliveries = {
        let (network, is_over) = (Arc::clone(&network), Arc::clone(&is_over));
        shuttle::thread::spawn(move || network.deliver(&is_over))
    };
    let cores: Vec<Arc<Core>> = (0..size).map(|rank| core(&fabric, &network, rank, config)).collect();
    let agents: Vec<_> =
        cores.iter().filter(|_| has_agents).map(|core| Agent::start(core).unwrap()).collect();
    let others: Vec<JoinHandle<()>> = peers
        .into_iter()
        .zip(&cores[1..])
        .map(|(peer, core)| {
            let core = Arc::clone(core);
            shuttle::thread::spawn(move || {
                let rig = make_window(&core);
                peer(&rig);
                leave(&rig);
            })
        })
        .collect();
    let rig = make_window(&cores[0]);
    let threads: Vec<JoinHandle<()>> = threads
        .into_iter()
        .map(|part| {
            let rig = rig.clone();
            shuttle::thread::spawn(move || part(&rig))
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    leave(&rig);
    for other in others {
        other.join().unwrap();
    }
    drop(agents);
    is_over.store(true, Ordering::SeqCst);
    network.change();
    deliveries.join().unwrap();
    for core in &cores {
        assert_eq!(core.enter_anyway().engine.elements_in_use(), (0, 0), "elements are left");
    }
}

fn core(fabric: &SimFabric, network: &Arc<Network>, rank: u32, config: &Config) -> Arc<Core> {
    let endpoint = ModelEndpoint::new(fabric.open(rank).unwrap(), Arc::clone(network), rank);
    let bootstrap = ModelBootstrap::new(fabric.bootstrap(rank));
    assert_eq!(bootstrap.rank(), Rank(rank));
    let config = Config { operation_pool: 8, operation_pool_global: 8, ..config.clone() };
    let engine = Engine::open(endpoint, bootstrap, config).unwrap();
    Arc::new(Core::new(engine, None, None).unwrap())
}

fn make_window(core: &Arc<Core>) -> Rig {
    let mut made = None;
    core.run(Call::Allocate, |engine| {
        let (id, sync) = engine.start_allocate(64, 8)?;
        made = Some(id);
        Ok(sync)
    })
    .unwrap();
    Rig { core: Arc::clone(core), window: made.unwrap() }
}

/// Frees the window, and leaves the job.
fn leave(rig: &Rig) {
    rig.barrier();
    rig.core.run(Call::Free, |engine| engine.start_free(rig.window)).unwrap();
    rig.core.finalize(None).unwrap();
}

/// An operation on one `u64`, without buffers.
fn word(call: Call, kind: OpKind, op: ReduceOp, target: u32, disp: u64) -> Operation {
    Operation {
        call,
        kind,
        dtype: Dtype::U64,
        op,
        target: Rank(target),
        disp,
        len: 8,
        origin: std::ptr::null(),
        result: std::ptr::null_mut(),
        compare: std::ptr::null(),
    }
}

impl Rig {
    pub(crate) fn barrier(&self) {
        self.core.run(Call::Barrier, |engine| engine.start_barrier()).unwrap();
    }

    pub(crate) fn lock_all(&self) {
        self.core.run(Call::LockAll, |engine| engine.start_lock_all(self.window, false)).unwrap();
    }

    pub(crate) fn unlock_all(&self) -> Result<()> {
        self.core.run(Call::UnlockAll, |engine| engine.start_unlock_all(self.window))
    }

    pub(crate) fn lock(&self, target: u32, lock_type: LockType) -> Result<()> {
        let target = Rank(target);
        self.core.run(Call::Lock, |engine| engine.start_lock(self.window, target, lock_type, false))
    }

    pub(crate) fn unlock(&self, target: u32) -> Result<()> {
        self.core.run(Call::Unlock, |engine| engine.start_unlock(self.window, Rank(target)))
    }

    pub(crate) fn flush(&self, target: u32) -> Result<()> {
        self.core.run(Call::Flush, |engine| engine.start_flush(self.window, Rank(target)))
    }

    pub(crate) fn flush_all(&self) {
        self.core.run(Call::FlushAll, |engine| engine.start_flush_all(self.window)).unwrap();
    }

    /// Flushes a few targets together.
    pub(crate) fn flush_targets(&self, targets: &[Rank]) {
        self.core.run(Call::FlushTargets, |engine| engine.start_flush_targets(self.window, targets)).unwrap();
    }

    pub(crate) fn flush_local(&self, target: u32) {
        self.core
            .run(Call::FlushLocal, |engine| engine.start_flush_local(self.window, Rank(target)))
            .unwrap();
    }

    pub(crate) fn fence(&self, assert: FenceAssert) {
        self.core.run(Call::Fence, |engine| engine.start_fence(self.window, assert)).unwrap();
    }

    /// Adds 1 to a word of the target. The origin's memory lives for ever.
    pub(crate) fn add(&self, target: u32, disp: u64) {
        static ONE: u64 = 1;
        let origin = std::ptr::from_ref(&ONE).cast();
        let operation = word(Call::Accumulate, OpKind::Accumulate, ReduceOp::Sum, target, disp);
        self.post(&Operation { origin, ..operation }).unwrap();
    }

    /// Puts a word that is one of a table which lives for ever.
    pub(crate) fn put(&self, target: u32, disp: u64, value: usize) {
        static VALUES: [u64; 8] = [0, 1, 2, 3, 4, 5, 6, 7];
        let origin = std::ptr::from_ref(&VALUES[value]).cast();
        let operation = word(Call::Put, OpKind::Put, ReduceOp::Replace, target, disp);
        self.post(&Operation { origin, dtype: Dtype::U8, ..operation }).unwrap();
    }

    /// Adds 1 and returns what was there, after a flush.
    pub(crate) fn ticket(&self, target: u32, disp: u64) -> u64 {
        let (one, mut old) = (1u64, u64::MAX);
        let origin = std::ptr::from_ref(&one).cast();
        let result = std::ptr::from_mut(&mut old).cast();
        let operation = word(Call::FetchAndOp, OpKind::GetAccumulate, ReduceOp::Sum, target, disp);
        self.post(&Operation { origin, result, ..operation }).unwrap();
        self.flush(target).unwrap();
        old
    }

    /// Posts as the library's calls do.
    pub(crate) fn post(&self, operation: &Operation) -> Result<()> {
        let mut guarded = self.core.enter(operation.call)?;
        // SAFETY: the buffers live until the operation is complete, as said where it is made.
        match unsafe { guarded.engine.post(self.window, operation) } {
            Poll::Ready(Ok(())) => {
                self.core.posted(&mut guarded);
                Ok(())
            }
            Poll::Ready(Err(error)) => Err(self.core.fail(error)),
            Poll::Pending => {
                // SAFETY: as above.
                let mut pending = unsafe { PendingOperation::new(self.window, operation) };
                self.core.wait(guarded, &mut pending, None)
            }
        }
    }

    /// A word of this rank's own window memory.
    pub(crate) fn own(&self, disp: usize) -> u64 {
        let guarded = self.core.enter_anyway();
        let (base, len) = guarded.engine.window_memory(self.window).unwrap();
        assert!(disp * 8 + 8 <= len);
        // SAFETY: inside of the window, as asked above.
        let word = unsafe { base.cast::<u64>().add(disp) };
        // SAFETY: as above; the fabric runs on this very thread, so nobody writes meanwhile.
        unsafe { word.read() }
    }
}
