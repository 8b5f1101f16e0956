//! Random programs in which a rank dies: the others go through all of theirs, and leave nothing behind.
//!
//! Unlike [`super::run_with_death`], which runs the swarm's programs until something fails, every call must return
//! here, with success or with an error that names the dead; what the living did with each other counts exactly; and
//! the fabric may keep silent about the death, so that only the launcher tells of it.
#![allow(unsafe_code)] // posts buffers that it keeps, and reads window memory

mod tasks;

use core::cell::RefCell;
use core::task::Poll;
use std::collections::VecDeque;
use std::rc::Rc;

use rma_core::dtype::Dtype;
use rma_core::engine::{Engine, Operation, PostAssert, Request, StartAssert, SyncCall};
use rma_core::error::{Call, RmaError};
use rma_core::group::Group;
use rma_core::ids::{Rank, WindowId};
use rma_core::info::LockProtocol;
use rma_core::lock::LockType;
use rma_core::op::ReduceOp;
use rma_core::wire::OpKind;

use super::draw::{plan, Bounds};
use super::haunt::{cast, fabric_for, SimGhost};
use super::run::{supervise, Report};
use super::SimEngine;
use crate::fabric::SimFabric;
use crate::random::Random;
use crate::world::{Failure, Fault, RankProgram, SimWorld, Step};
use tasks::{Task, What, EXPOSED, LOCKED};

/// Most looks for ghosts while one thing is waited for: for ever would hide that nothing comes.
const PROBES_MAX: u32 = 64;

/// Bytes of each origin's part of a window: one word, or more than a packet takes.
const PART_BYTES: [usize; 2] = [8, 12_000];

/// The counter before the parts.
const COUNTER_BYTES: usize = 8;

/// What the ranks of a run know of each other outside of the library.
#[derive(Debug)]
struct Shared {
    ranks: u32,
    part_bytes: usize,
    victim: u32,
    is_silent: bool,
    is_dead: bool,
    /// Ranks that have made their windows; nobody dies before all have.
    created: u32,
    /// Ranks that are through with their tasks.
    arrived: Vec<bool>,
    /// By window, target and origin: increments posted, and the number put last.
    counted: [Vec<Vec<u64>>; 2],
    put: [Vec<Vec<u64>>; 2],
}

impl Shared {
    fn new(ranks: u32, part_bytes: usize, victim: u32, is_silent: bool) -> Self {
        let table = || vec![vec![0; ranks as usize]; ranks as usize];
        let (counted, put) = ([table(), table()], [table(), table()]);
        let arrived = vec![false; ranks as usize];
        Self { ranks, part_bytes, victim, is_silent, is_dead: false, created: 0, arrived, counted, put }
    }

    /// Whether everybody who lives is through.
    fn have_arrived(&self) -> bool {
        let is_dead = |rank: usize| self.is_dead && rank == self.victim as usize;
        self.arrived.iter().enumerate().all(|(rank, &arrived)| arrived || is_dead(rank))
    }
}

/// Where a rank is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Creating,
    Working,
    Meeting,
    LastBarrier,
    Freeing(usize),
    Finished,
}

/// What a rank waits for.
#[derive(Debug)]
enum Pending {
    Call(SyncCall),
    Test(WindowId),
    Request(Request),
    Post { operation: Operation, window: WindowId, by_request: bool },
}

/// A rank of such a run.
#[derive(Debug)]
struct Survivor {
    rank: u32,
    engine: SimEngine,
    fabric: SimFabric,
    shared: Rc<RefCell<Shared>>,
    windows: Vec<WindowId>,
    tasks: VecDeque<Task>,
    pending: Option<Pending>,
    stage: Stage,
    /// Buffers of operations, kept until the end.
    buffers: Vec<Box<[u64]>>,
    /// Steps until it dies; `None`: it lives on.
    steps_left: Option<u64>,
    /// The place of its ghost, if it has one.
    ghost_place: Option<u32>,
    /// Times that it may still look for ghosts that owe it an answer, for one thing that it waits for.
    probes_left: u32,
    milestones: u64,
}

impl RankProgram for Survivor {
    fn step(&mut self) -> Result<Step, Fault> {
        if self.shared.borrow().is_dead && self.rank == self.shared.borrow().victim {
            return Ok(Step::Finished);
        }
        if self.shared.borrow().created == self.shared.borrow().ranks && self.is_time_to_die() {
            return Ok(Step::WakesAll);
        }
        let heard = self.engine.hear_of_losses();
        let moved = self.engine.progress() + heard;
        let (milestones, stage) = (self.milestones, self.stage);
        if self.poll()? {
            self.probes_left = PROBES_MAX;
            self.proceed()?;
        } else if moved == 0 {
            self.probe();
        }
        Ok(match self.stage {
            Stage::Finished => Step::Finished,
            _ if self.stage != stage => Step::WakesAll,
            _ if moved > 0 || self.milestones != milestones => Step::Busy,
            _ => Step::Waiting,
        })
    }

    fn milestones(&self) -> u64 {
        self.milestones
    }

    fn describe(&self) -> String {
        format!("{:?}, {} tasks to do, waits for {:?}", self.stage, self.tasks.len(), self.pending)
    }
}

impl Survivor {
    fn is_time_to_die(&mut self) -> bool {
        let Some(left) = self.steps_left.as_mut() else { return false };
        *left = left.saturating_sub(1);
        if *left > 0 {
            return false;
        }
        let mut shared = self.shared.borrow_mut();
        shared.is_dead = true;
        for place in [Some(self.rank), self.ghost_place].into_iter().flatten() {
            if shared.is_silent {
                self.fabric.kill_silently(place);
            } else {
                self.fabric.kill(place);
            }
        }
        if !shared.is_silent {
            self.fabric.announce_death(self.rank);
        }
        true
    }

    /// Looks for ghosts that owe an answer, as a caller does who has waited for long.
    fn probe(&mut self) {
        if self.ghost_place.is_some() && self.probes_left > 0 && self.shared.borrow().is_dead {
            self.probes_left -= 1;
            self.engine.probe_ghosts(false);
        }
    }

    /// Whether what was waited for is there. An error that names the dead is as good as success.
    fn poll(&mut self) -> Result<bool, Fault> {
        let Some(pending) = &mut self.pending else { return Ok(true) };
        let result = match pending {
            Pending::Call(sync) => self.engine.poll(sync),
            Pending::Request(request) => self.engine.poll_request(request),
            Pending::Test(window) => match self.engine.test(*window) {
                Ok(false) => Poll::Pending,
                result => Poll::Ready(result.map(drop)),
            },
            Pending::Post { operation, window, by_request } => {
                let (window, by_request) = (*window, *by_request);
                let posted = if by_request {
                    // SAFETY: the buffers are kept until the run is over.
                    unsafe { self.engine.post_request(window, operation) }.map_ok(Some)
                } else {
                    // SAFETY: as above.
                    unsafe { self.engine.post(window, operation) }.map_ok(|()| None)
                };
                if let Poll::Ready(Ok(Some(request))) = posted {
                    self.pending = Some(Pending::Request(request));
                    return Ok(false);
                }
                posted.map_ok(drop)
            }
        };
        let Poll::Ready(result) = result else { return Ok(false) };
        self.pending = None;
        self.milestones += 1;
        self.judge(result).map(|()| true)
    }

    /// An error must name the dead; of collective calls nothing else may come, unless the dead was there, too.
    fn judge(&self, result: Result<(), RmaError>) -> Result<(), Fault> {
        let shared = self.shared.borrow();
        let is_collective = matches!(self.stage, Stage::LastBarrier | Stage::Freeing(_));
        match result {
            Err(RmaError::Peer { target, .. }) if shared.is_dead && target == Rank(shared.victim) => Ok(()),
            Ok(()) if !is_collective || !shared.is_dead || shared.arrived[shared.victim as usize] => Ok(()),
            result => Err(self.fault(format!("{result:?}"))),
        }
    }

    fn fault(&self, text: String) -> Fault {
        Fault::Engine(format!("{:?}, {} tasks left: {text}", self.stage, self.tasks.len()))
    }

    fn proceed(&mut self) -> Result<(), Fault> {
        match self.stage {
            Stage::Creating => self.create(),
            Stage::Working => match self.tasks.pop_front() {
                Some(task) => self.begin(&task),
                None => {
                    self.shared.borrow_mut().arrived[self.rank as usize] = true;
                    self.stage = Stage::Meeting;
                    Ok(())
                }
            },
            Stage::Meeting if !self.shared.borrow().have_arrived() => Ok(()),
            Stage::Meeting => {
                self.check_memory()?;
                self.stage = Stage::LastBarrier;
                let barrier = self.engine.start_barrier();
                self.wait_for(barrier)
            }
            Stage::LastBarrier => self.free(0),
            Stage::Freeing(index) if index + 1 < self.windows.len() => self.free(index + 1),
            Stage::Freeing(_) => {
                self.stage = Stage::Finished;
                let left = (self.engine.elements_in_use(), self.engine.window_count());
                (left == ((0, 0), 0)).then_some(()).ok_or_else(|| self.fault(format!("{left:?} is left")))
            }
            Stage::Finished => Ok(()),
        }
    }

    fn create(&mut self) -> Result<(), Fault> {
        if self.windows.len() == 2 {
            self.stage = Stage::Working;
            self.shared.borrow_mut().created += 1;
            return Ok(());
        }
        let bytes = COUNTER_BYTES + self.shared.borrow().part_bytes * self.shared.borrow().ranks as usize;
        let started = self.engine.start_allocate(bytes, 1);
        let (window, sync) = started.map_err(|error| self.fault(error.to_string()))?;
        self.windows.push(window);
        self.pending = Some(Pending::Call(sync));
        Ok(())
    }

    fn free(&mut self, index: usize) -> Result<(), Fault> {
        self.stage = Stage::Freeing(index);
        let free = self.engine.start_free(self.windows[index]);
        self.wait_for(free)
    }

    fn wait_for(&mut self, started: Result<SyncCall, RmaError>) -> Result<(), Fault> {
        match started {
            Ok(sync) => {
                self.pending = Some(Pending::Call(sync));
                Ok(())
            }
            Err(error) => self.judge(Err(error)),
        }
    }

    fn begin(&mut self, task: &Task) -> Result<(), Fault> {
        let (locked, exposed) = (self.windows[LOCKED], self.windows[EXPOSED]);
        let size = self.shared.borrow().ranks;
        let group = |ranks: &[u32]| Group::new(&ranks.iter().copied().map(Rank).collect::<Vec<_>>(), size);
        let engine = &mut self.engine;
        let started = match *task {
            Task::Lock { target, is_exclusive } => {
                let lock_type = if is_exclusive { LockType::Exclusive } else { LockType::Shared };
                engine.start_lock(locked, Rank(target), lock_type, false)
            }
            Task::Unlock { target } => engine.start_unlock(locked, Rank(target)),
            Task::LockAll => engine.start_lock_all(locked, false),
            Task::UnlockAll => engine.start_unlock_all(locked),
            Task::Post { ref origins, no_check } => group(origins).and_then(|group| {
                engine.start_post(exposed, &group, PostAssert { no_check, ..PostAssert::default() })
            }),
            Task::Start { ref targets } => {
                group(targets).and_then(|group| engine.start_start(exposed, &group, StartAssert::default()))
            }
            Task::Complete => engine.start_complete(exposed),
            Task::Wait { by_test: false } => engine.start_wait(exposed),
            Task::Wait { by_test: true } => {
                self.pending = Some(Pending::Test(exposed));
                return Ok(());
            }
            Task::Flush { target: Some(target), is_local: false } => engine.start_flush(locked, Rank(target)),
            Task::Flush { target: Some(target), is_local: true } => {
                engine.start_flush_local(locked, Rank(target))
            }
            Task::Flush { target: None, is_local: false } => engine.start_flush_all(locked),
            Task::Flush { target: None, is_local: true } => engine.start_flush_local_all(locked),
            Task::IFlush { target } => {
                return match engine.flush_request(locked, target.map(Rank), false) {
                    Ok(request) => {
                        self.pending = Some(Pending::Request(request));
                        Ok(())
                    }
                    Err(error) => self.judge(Err(error)),
                };
            }
            Task::Operate { window, target, what } => {
                self.operate(window, target, what);
                return Ok(());
            }
        };
        self.wait_for(started)
    }

    fn operate(&mut self, window: usize, target: u32, what: What) {
        let mut shared = self.shared.borrow_mut();
        let (part_bytes, at) = (shared.part_bytes, (target as usize, self.rank as usize));
        let place = (COUNTER_BYTES + part_bytes * self.rank as usize) as u64;
        let (call, kind, op, disp, bytes, value, by_request) = match what {
            What::Count => {
                shared.counted[window][at.0][at.1] += 1;
                (Call::Accumulate, OpKind::Accumulate, ReduceOp::Sum, 0, COUNTER_BYTES, 1, false)
            }
            What::Put { value, by_request } => {
                shared.put[window][at.0][at.1] = value;
                (Call::Put, OpKind::Put, ReduceOp::Replace, place, part_bytes, value, by_request)
            }
            What::Get { by_request } => {
                (Call::Get, OpKind::Get, ReduceOp::Replace, place, part_bytes, 0, by_request)
            }
        };
        let mut buffer = vec![value; bytes / 8].into_boxed_slice();
        let base: *mut u8 = buffer.as_mut_ptr().cast();
        self.buffers.push(buffer);
        let dtype = if kind == OpKind::Accumulate { Dtype::U64 } else { Dtype::U8 };
        let (target, len) = (Rank(target), bytes);
        let (origin, result, compare) = (base.cast_const(), base, core::ptr::null());
        let operation = Operation { call, kind, dtype, op, target, disp, len, origin, result, compare };
        self.pending = Some(Pending::Post { operation, window: self.windows[window], by_request });
    }

    /// What the living have done here counts exactly; what the dead did may have come or not.
    fn check_memory(&self) -> Result<(), Fault> {
        let shared = self.shared.borrow();
        for (index, &window) in self.windows.iter().enumerate() {
            let Some((base, len)) = self.engine.window_memory(window) else { continue };
            // SAFETY: the window's own words; nobody living accesses it any more, and this is one thread.
            let words = unsafe { core::slice::from_raw_parts(base.cast::<u64>(), len / 8) };
            let counted = &shared.counted[index][self.rank as usize];
            let is_dead = |origin: usize| shared.is_dead && origin == shared.victim as usize;
            let most: u64 = counted.iter().sum();
            let unsure = if shared.is_dead { counted[shared.victim as usize] } else { 0 };
            if words[0] > most || words[0] < most - unsure {
                let text = format!("window {index}: counter {} and not {most}, less {unsure}", words[0]);
                return Err(Fault::Oracle(text));
            }
            for (origin, part) in words[1..].chunks_exact(shared.part_bytes / 8).enumerate() {
                let put = shared.put[index][self.rank as usize][origin];
                if !is_dead(origin) && part.iter().any(|&word| word != put) {
                    let text = format!("window {index}: {} and not {put} of rank {origin}", part[0]);
                    return Err(Fault::Oracle(text));
                }
            }
        }
        Ok(())
    }
}

/// Runs the program of a seed, in which a rank dies.
pub fn run_survival(seed: u64, bounds: Bounds) -> Report {
    let mut drawn = plan(seed, Bounds { ranks_min: bounds.ranks_min.max(2), ..bounds });
    // The checker takes what a dead rank has begun for a conflict with what comes later.
    drawn.config.check = false;
    // So would be a lock that is lost with it, and then operations of the living do not count.
    drawn.config.lock_protocol = LockProtocol::Message;
    let mut random = Random::new(!seed);
    let ranks = drawn.fabric.ranks;
    // That peers are forgotten is the other programs' affair.
    drawn.config.peers = drawn.config.peers.max(ranks as usize + 1);
    let victim = random.below(u64::from(ranks)) as u32;
    let steps = 1 + random.below(random.clone().pick(&[50, 500, 3000]));
    let part_bytes = random.pick(&PART_BYTES);
    let shared = Rc::new(RefCell::new(Shared::new(ranks, part_bytes, victim, random.chance(500))));
    let fabric = fabric_for(seed, &drawn.fabric);
    // A rank that tells its ghost nothing is as good as away; then those who wait must.
    let ghosts_hear = seed & 16 == 0;
    supervise(&fabric, |turns| {
        let open = |(rank, tasks): (u32, Vec<Task>)| {
            let failed = |text| Failure::Program { rank, fault: Fault::Engine(text) };
            let ghost = SimGhost::open(seed, &fabric, rank, ranks, &drawn.config).map_err(failed)?;
            let endpoint = fabric.open(rank).map_err(|error| failed(error.to_string()))?;
            let config = drawn.config.clone();
            let engine = match &ghost {
                None => Engine::open(endpoint, fabric.bootstrap(rank), config),
                Some(ghost) => {
                    let (bootstrap, link) = (fabric.bootstrap_with_ghost(rank), ghost.link(ghosts_hear));
                    Engine::open_with_ghost(endpoint, bootstrap, config, link)
                }
            };
            let survivor = Survivor {
                rank,
                engine: engine.map_err(|error| failed(error.to_string()))?,
                fabric: fabric.clone(),
                shared: Rc::clone(&shared),
                windows: Vec::new(),
                tasks: tasks.into(),
                pending: None,
                stage: Stage::Creating,
                buffers: Vec::new(),
                steps_left: (rank == victim).then_some(steps),
                ghost_place: ghost.is_some().then_some(rank + ranks),
                probes_left: PROBES_MAX,
                milestones: 0,
            };
            Ok((survivor, ghost))
        };
        let programs = (0..).zip(tasks::draw(ranks, &mut random)).map(open).collect::<Result<_, _>>()?;
        let mut world = SimWorld::new(fabric.clone(), cast(programs), drawn.schedule, seed);
        let outcome = world.run();
        *turns = world.turns();
        outcome
    })
}
