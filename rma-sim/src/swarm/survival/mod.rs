//! Random programs in which a rank dies: the others go through all of theirs, and leave nothing behind.
//!
//! Unlike [`super::run_with_death`], in which who gets an error ends, every call must return here, with success or with
//! an error that names the dead, and the next one follows; what the living did with each other counts exactly; and the
//! fabric may keep silent about the death, so that only the launcher tells of it. Half of the programs have locks, post
//! and start, puts, gets and counts; the others have everything.
#![allow(unsafe_code)] // posts buffers that it keeps

mod calls;
mod shared;
mod tasks;
mod wide;

use core::cell::RefCell;
use core::ptr::NonNull;
use core::task::Poll;
use std::collections::VecDeque;
use std::rc::Rc;

use rma_core::config::Config;
use rma_core::engine::{Engine, Notification, Operation, Request, SyncCall};
use rma_core::error::RmaError;
use rma_core::ids::{Rank, WindowId};
use rma_core::info::LockProtocol;
use rma_core::layout::Layouts;

use super::draw::{plan, Bounds};
use super::haunt::{cast, fabric_for, SimGhost};
use super::memory::{Buffer, Exposed};
use super::run::{supervise, Report};
use super::SimEngine;
use crate::fabric::SimFabric;
use crate::random::Random;
use crate::world::{Failure, Fault, RankProgram, SimWorld, Step};
use shared::{Flavor, Shared};
use tasks::{Task, DYNAMIC};

/// Most looks for ghosts while one thing is waited for: for ever would hide that nothing comes.
const PROBES_MAX: u32 = 64;

/// Bytes of each origin's part of a window: one word, or more than a packet takes.
const PART_BYTES: [usize; 2] = [8, 12_000];

/// The same where operations have layouts.
const WIDE_PART_BYTES: [usize; 2] = [64, 12_000];

/// Most ranks with long parts: of more, copies would take most of the time.
const WIDE_RANKS_MAX: u32 = 8;

/// The bit of a seed whose programs use everything.
const WIDE: u64 = 32;

/// Where a rank is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Creating,
    Working,
    Meeting,
    Detaching,
    LastBarrier,
    Freeing(usize),
    Finished,
}

/// What a thread of a rank waits for.
#[derive(Debug)]
enum Pending {
    Call(SyncCall),
    Test(WindowId),
    Request(Request),
    Post(Box<Posting>),
}

/// An operation that is posted.
#[derive(Debug)]
struct Posting {
    operation: Operation,
    window: WindowId,
    by_request: bool,
    layouts: Option<Layouts>,
    note: Option<Notification>,
}

/// One thread of a rank: the first goes on when the others are through.
#[derive(Default, Debug)]
struct Lane {
    tasks: VecDeque<Task>,
    pending: Option<Pending>,
    /// The epoch that the task under way opens.
    opening: Option<(usize, Option<u32>)>,
    /// The number of the fence under way, if it waits for the others.
    fence: Option<u32>,
}

/// A rank of such a run.
#[derive(Debug)]
struct Survivor {
    rank: u32,
    engine: SimEngine,
    fabric: SimFabric,
    shared: Rc<RefCell<Shared>>,
    windows: Vec<WindowId>,
    /// What it has given to them.
    memory: Vec<Buffer>,
    lanes: Vec<Lane>,
    stage: Stage,
    /// Epochs that could not be opened: what belongs to them is left out.
    lost: Vec<(usize, Option<u32>)>,
    /// Buffers of operations, kept until the end.
    buffers: Vec<Buffer>,
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
        self.engine.on_time(1);
        let moved = self.engine.progress() + heard;
        let (milestones, stage) = (self.milestones, self.stage);
        let mut is_any_ready = false;
        for lane in (0..self.lanes.len()).rev() {
            if self.poll(lane)? {
                is_any_ready = true;
                self.proceed(lane)?;
            }
        }
        if is_any_ready {
            self.probes_left = PROBES_MAX;
            self.join();
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
        let lanes = self
            .lanes
            .iter()
            .map(|lane| format!("{} tasks to do, waits for {:?}", lane.tasks.len(), lane.pending));
        let shared = self.shared.borrow();
        let dead = shared.is_dead.then_some(shared.victim);
        format!("{:?}, {}, {dead:?} is dead", self.stage, lanes.collect::<Vec<_>>().join(" and "))
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

    /// Looks for ghosts that owe an answer, and asks who is still there, as a caller does who has waited for long.
    fn probe(&mut self) {
        if self.probes_left > 0 && self.shared.borrow().is_dead {
            self.probes_left -= 1;
            if self.ghost_place.is_some() {
                self.engine.probe_ghosts(false);
            }
            self.engine.inquire();
        }
    }

    /// Whether what the thread waited for is there. An error that names the dead is as good as success.
    fn poll(&mut self, lane: usize) -> Result<bool, Fault> {
        if lane == 0 && self.lanes.len() > 1 {
            return Ok(false);
        }
        let Some(pending) = &mut self.lanes[lane].pending else { return Ok(true) };
        let result = match pending {
            Pending::Call(sync) => self.engine.poll(sync),
            Pending::Request(request) => self.engine.poll_request(request),
            Pending::Test(window) => match self.engine.test(*window) {
                Ok(false) => Poll::Pending,
                result => Poll::Ready(result.map(drop)),
            },
            Pending::Post(posting) => {
                let posted = post(&mut self.engine, posting);
                if let Poll::Ready(Ok(Some(request))) = posted {
                    self.lanes[lane].pending = Some(Pending::Request(request));
                    return Ok(false);
                }
                posted.map_ok(drop)
            }
        };
        let Poll::Ready(result) = result else { return Ok(false) };
        self.lanes[lane].pending = None;
        self.milestones += 1;
        self.end(lane, result).map(|()| true)
    }

    /// A call has returned. An error must name the dead; of collective calls nothing else may come, unless the dead
    /// was there, too.
    fn end(&mut self, lane: usize, result: Result<(), RmaError>) -> Result<(), Fault> {
        let opening = self.lanes[lane].opening.take();
        let fence = self.lanes[lane].fence.take();
        let shared = self.shared.borrow();
        let is_collective = matches!(self.stage, Stage::LastBarrier | Stage::Freeing(_));
        let may_succeed = !is_collective || !shared.is_dead || shared.arrived[shared.victim as usize];
        match result {
            Err(RmaError::Peer { target, .. } | RmaError::Reported { target, .. })
                if shared.is_dead && target == Rank(shared.victim) =>
            {
                self.lost.extend(opening);
                Ok(())
            }
            Ok(()) if may_succeed && fence.is_none_or(|number| shared.has_victim_begun_fence(number)) => {
                Ok(())
            }
            result => Err(self.fault(format!("{result:?}"))),
        }
    }

    fn fault(&self, text: String) -> Fault {
        Fault::Engine(format!("{:?}, {} tasks left: {text}", self.stage, self.lanes[0].tasks.len()))
    }

    /// The next task of a thread that belongs to no epoch that could not be opened.
    fn next_task(&mut self, lane: usize) -> Option<Task> {
        loop {
            let task = self.lanes[lane].tasks.pop_front()?;
            let mut is_left_out = false;
            self.lost.retain(|&epoch| {
                let (follows, is_last) = task.follows(epoch);
                is_left_out |= follows;
                !is_last
            });
            if !is_left_out {
                return Some(task);
            }
        }
    }

    /// The threads are gone that are through.
    fn join(&mut self) {
        let is_first = |at: usize| at == 0;
        let mut at = 0;
        self.lanes.retain(|lane| {
            at += 1;
            is_first(at - 1) || lane.pending.is_some() || !lane.tasks.is_empty()
        });
    }

    fn proceed(&mut self, lane: usize) -> Result<(), Fault> {
        match self.stage {
            Stage::Creating => self.create_next(),
            Stage::Working => match self.next_task(lane) {
                Some(task) => self.begin(lane, &task),
                None if lane > 0 => Ok(()),
                None => {
                    self.shared.borrow_mut().arrived[self.rank as usize] = true;
                    self.stage = Stage::Meeting;
                    Ok(())
                }
            },
            Stage::Meeting if !self.shared.borrow().have_arrived() => Ok(()),
            Stage::Meeting => {
                self.stage = Stage::Detaching;
                // The others free the window with the region in it.
                if !self.shared.borrow().is_wide() || self.rank % 2 == 0 {
                    return Ok(());
                }
                let detach =
                    self.engine.start_detach(self.windows[DYNAMIC], self.memory[DYNAMIC].base().as_ptr());
                self.wait_for(0, detach)
            }
            Stage::Detaching => {
                self.check_memory()?;
                self.stage = Stage::LastBarrier;
                let barrier = self.engine.start_barrier();
                self.wait_for(0, barrier)
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

    fn create_next(&mut self) -> Result<(), Fault> {
        if self.windows.len() == DYNAMIC + 1 {
            self.attach()?;
        }
        let flavor = self.shared.borrow().flavors.get(self.windows.len()).copied();
        let Some(flavor) = flavor else {
            self.stage = Stage::Working;
            self.shared.borrow_mut().created += 1;
            return Ok(());
        };
        self.create(flavor)
    }

    fn free(&mut self, index: usize) -> Result<(), Fault> {
        self.stage = Stage::Freeing(index);
        let free = self.engine.start_free(self.windows[index]);
        self.wait_for(0, free)
    }

    fn wait_for(&mut self, lane: usize, started: Result<SyncCall, RmaError>) -> Result<(), Fault> {
        match started {
            Ok(sync) => {
                self.lanes[lane].pending = Some(Pending::Call(sync));
                Ok(())
            }
            Err(error) => self.end(lane, Err(error)),
        }
    }

    fn check_memory(&self) -> Result<(), Fault> {
        let shared = self.shared.borrow();
        for (index, &window) in self.windows.iter().enumerate() {
            let memory = if index == DYNAMIC {
                self.memory[DYNAMIC].exposed()
            } else {
                let found = self.engine.window_memory(window);
                let Some((base, len)) = found.and_then(|(base, len)| Some((NonNull::new(base)?, len))) else {
                    continue;
                };
                // SAFETY: the window's memory, until it is freed; nobody living accesses it any more.
                unsafe { Exposed::new(base, len) }
            };
            shared.check(index, self.rank, memory)?;
        }
        Ok(())
    }
}

/// Posts an operation; its request if it has one.
fn post(engine: &mut SimEngine, posting: &Posting) -> Poll<Result<Option<Request>, RmaError>> {
    let Posting { operation, window, by_request, layouts, note } = posting;
    let &Operation { target, disp, len, origin, .. } = operation;
    match (note, layouts, by_request) {
        (Some(note), ..) => {
            // SAFETY: the buffers are kept until the run is over.
            unsafe { engine.put_notify(*window, target, disp, origin, len, note) }.map_ok(|()| None)
        }
        (None, Some(layouts), true) => {
            // SAFETY: as above; they were made for the layouts.
            unsafe { engine.post_request_with_layouts(*window, operation, layouts) }.map_ok(Some)
        }
        (None, Some(layouts), false) => {
            // SAFETY: as above.
            unsafe { engine.post_with_layouts(*window, operation, layouts) }.map_ok(|()| None)
        }
        // SAFETY: as above.
        (None, None, true) => unsafe { engine.post_request(*window, operation) }.map_ok(Some),
        // SAFETY: as above.
        (None, None, false) => unsafe { engine.post(*window, operation) }.map_ok(|()| None),
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
    let mut part_bytes = random.pick(&PART_BYTES);
    let is_silent = random.chance(500);
    let is_wide = seed & WIDE != 0;
    let mut flavors = vec![Flavor::Allocated; 2];
    if is_wide {
        part_bytes = random.pick(&WIDE_PART_BYTES);
        if ranks > WIDE_RANKS_MAX {
            part_bytes = WIDE_PART_BYTES[0];
        }
        flavors = Shared::draw_flavors(&mut random);
    }
    let tasks = if is_wide { wide::draw(ranks, &mut random) } else { tasks::draw(ranks, &mut random) };
    make_room(&mut drawn.config, &tasks);
    let shared = Rc::new(RefCell::new(Shared::new(ranks, part_bytes, victim, is_silent, flavors)));
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
                memory: Vec::new(),
                lanes: vec![Lane { tasks: tasks.into(), ..Lane::default() }],
                lost: Vec::new(),
                stage: Stage::Creating,
                buffers: Vec::new(),
                steps_left: (rank == victim).then_some(steps),
                ghost_place: ghost.is_some().then_some(rank + ranks),
                probes_left: PROBES_MAX,
                milestones: 0,
            };
            Ok((survivor, ghost))
        };
        let programs = (0..).zip(tasks).map(open).collect::<Result<_, _>>()?;
        let mut world = SimWorld::new(fabric.clone(), cast(programs), drawn.schedule, seed);
        let outcome = world.run();
        *turns = world.turns();
        outcome
    })
}

/// A thread that waits for a lock keeps its elements meanwhile: where there are threads, there are enough
/// (docs/threads.md).
fn make_room(config: &mut Config, tasks: &[Vec<Task>]) {
    if tasks.iter().flatten().any(|task| matches!(task, Task::Fork { .. })) {
        let threads = wide::THREADS_MAX as u32;
        config.target_pool = config.target_pool.max(threads);
        config.operation_pool = config.operation_pool.max(threads * wide::OPERATIONS_MAX);
    }
}
