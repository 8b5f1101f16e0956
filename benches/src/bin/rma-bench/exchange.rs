//! Epochs of all ranks, timed at the origins.

use std::sync::Barrier;
use std::time::Instant;

use rma::raw::RawWindow;
use rma::{FenceAssert, Group, Job, LockType, Rank};

use crate::ground::{Ground, Operation, Room};
use crate::measure::Subject;
use crate::pattern::{Part, Side};
use crate::team::{compute, TargetKind, Team};
use crate::Outcome;

/// What completes the operations that are measured.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
#[value(rename_all = "snake_case")]
pub(crate) enum Sync {
    /// lock, operations, unlock
    Lock,
    /// lock_all, operations, unlock_all
    LockAll,
    /// operations, flush, within a lock epoch that stays open
    Flush,
    /// operations, flush_local, within a lock epoch that stays open
    FlushLocal,
    /// operations, fence, at all ranks
    Fence,
    /// start, operations, complete; post, wait
    Pscw,
}

impl Sync {
    /// As it is given and stored.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::LockAll => "lock_all",
            Self::Flush => "flush",
            Self::FlushLocal => "flush_local",
            Self::Fence => "fence",
            Self::Pscw => "pscw",
        }
    }

    /// Whether targets take no part.
    pub(crate) const fn is_passive(self) -> bool {
        !matches!(self, Self::Fence | Self::Pscw)
    }
}

/// What is measured at one size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Row {
    pub(crate) operation: Operation,
    pub(crate) size: usize,
    /// Operations to each partner in an epoch.
    pub(crate) outstanding: usize,
    pub(crate) work: Work,
}

impl Row {
    /// Without a computation.
    pub(crate) const fn new(operation: Operation, size: usize, outstanding: usize) -> Self {
        Self { operation, size, outstanding, work: Work { steps: 0, slices: 1 } }
    }
}

/// What an origin computes between its operations and what completes them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Work {
    /// 0: nothing.
    pub(crate) steps: u64,
    /// Pieces, between two of which the library makes progress.
    pub(crate) slices: u32,
}

impl Work {
    #[inline]
    fn run(self, job: &Job) {
        if self.steps == 0 {
            return;
        }
        for slice in 0..self.slices {
            if slice > 0 {
                job.progress();
            }
            compute(self.steps / u64::from(self.slices));
        }
    }
}

/// How it is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    pub(crate) sync: Sync,
    pub(crate) lock_type: LockType,
    pub(crate) target: TargetKind,
    /// Origin and target access each other in turn, so that the time of an epoch, which is half of the time of both
    /// turns, has its end at the other side in it; for post-start-complete-wait, whose calls at the origin do not.
    pub(crate) takes_turns: bool,
    pub(crate) threads: usize,
}

/// Batches of epochs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Batches {
    pub(crate) count: u64,
    /// Epochs that are timed together.
    pub(crate) epochs: u64,
}

/// What an origin measured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times {
    /// Nanoseconds of each batch.
    pub(crate) batches: Vec<u64>,
    /// From the begin of the first to the end of the last, of all threads together.
    pub(crate) wall: u64,
}

/// The windows of one measurement, one for each thread.
pub(crate) struct Exchange<'a> {
    team: &'a Team<'a>,
    part: Part,
    group: Group,
    grounds: Vec<Ground>,
    manner: Manner,
}

impl<'a> Exchange<'a> {
    /// Collective.
    pub(crate) fn new(team: &'a Team<'a>, manner: Manner, room: &Room) -> Outcome<Self> {
        let job = team.job();
        let part = Part::new(room.pattern, job.rank(), job.size(), room.pairs);
        let group = Group::new(&part.partners, job.size()).map_err(|error| error.to_string())?;
        let grounds =
            (0..manner.threads).map(|_| Ground::new(team, &part, room)).collect::<Outcome<Vec<_>>>()?;
        Ok(Self { team, part, group, grounds, manner })
    }

    /// Collective.
    pub(crate) fn free(self) -> Outcome<()> {
        self.grounds.into_iter().try_for_each(|ground| ground.free().map(drop))
    }

    /// Whether this rank measures: targets that take turns do not.
    fn measures(&self) -> bool {
        self.part.is_origin()
    }

    /// Whether this rank accesses others.
    fn accesses(&self) -> bool {
        self.measures() || self.takes_turns() && self.part.side == Side::Target
    }

    /// Whether the time of an epoch is half of what is timed. Ranks that are on both sides need no turns.
    fn takes_turns(&self) -> bool {
        self.manner.takes_turns && self.manner.sync == Sync::Pscw && self.part.side != Side::Both
    }

    /// The origin's side, in as many threads as there are windows.
    fn run(&mut self, row: &Row, batches: Batches) -> Outcome<Times> {
        let side = Origin {
            operation: row.operation,
            work: row.work,
            job: self.team.job(),
            manner: self.manner,
            group: &self.group,
            // Both ranks of an exchange access at once, and turns are for one after the other.
            is_exposed: self.part.side == Side::Both,
            takes_turns: self.takes_turns(),
        };
        if let [ground] = &mut self.grounds[..] {
            let begun = Instant::now();
            let times = side.batches(ground, batches)?;
            return Ok(Times { batches: times, wall: nanoseconds(begun) });
        }
        let ready = Barrier::new(self.grounds.len());
        let first = Instant::now();
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .grounds
                .iter_mut()
                .map(|ground| {
                    let (side, ready) = (&side, &ready);
                    scope.spawn(move || {
                        ready.wait();
                        let begun = nanoseconds(first);
                        // Errors of windows can be sent between threads as words.
                        let times = side.batches(ground, batches).map_err(|error| error.to_string());
                        times.map(|times| (times, begun, nanoseconds(first)))
                    })
                })
                .collect();
            threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
        });
        let (mut times, mut begun, mut ended) = (Times::default(), u64::MAX, 0);
        for outcome in outcomes {
            let (batches, from, to) = outcome.map_err(|_| "a thread has panicked")??;
            times.batches.extend(batches);
            (begun, ended) = (begun.min(from), ended.max(to));
        }
        times.wall = ended.saturating_sub(begun);
        Ok(times)
    }

    /// What a rank that does not measure does in epochs that it has to take part in.
    fn answer(&mut self, row: &Row, batches: Batches) -> Outcome<()> {
        let epochs = batches.count * batches.epochs;
        let (group, takes_turns) = (&self.group, self.takes_turns());
        let [ground] = &mut self.grounds[..] else { return Ok(()) };
        match self.manner.sync {
            Sync::Fence => {
                ground.window.fence(OPENING)?;
                for _ in 0..epochs {
                    ground.window.fence(FenceAssert::default())?;
                }
                ground.window.fence(CLOSING)?;
            }
            Sync::Pscw if self.part.side == Side::Target => {
                for _ in 0..epochs {
                    expose(&ground.window, group)?;
                    ground.window.wait()?;
                    if takes_turns {
                        access(ground, row.operation, group)?;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Subject for Exchange<'_> {
    type Row = Row;

    fn team(&self) -> &Team<'_> {
        self.team
    }

    fn threads(&self) -> usize {
        self.manner.threads
    }

    fn turns(&self) -> f64 {
        if self.takes_turns() {
            2.0
        } else {
            1.0
        }
    }

    fn segment(&mut self, row: &Row, batches: Batches) -> Outcome<Times> {
        let step = self.team.next_step();
        if self.accesses() {
            for ground in &mut self.grounds {
                ground.begin(row.operation, row.size, row.outstanding)?;
            }
        }
        self.team.job().barrier()?;
        let mut times = Times::default();
        if self.measures() {
            times = self.run(row, batches)?;
            if self.manner.sync.is_passive() {
                self.part.partners.iter().try_for_each(|&target| self.team.sign(target, step))?;
            }
        } else if self.manner.sync.is_passive() {
            self.team.rest(self.manner.target, &self.part.partners, step)?;
        } else {
            self.answer(row, batches)?;
        }
        self.team.job().barrier()?;
        if self.accesses() {
            for ground in &mut self.grounds {
                ground.check(row.operation)?;
            }
        }
        Ok(times)
    }
}

/// What an origin does, the same in each thread.
struct Origin<'a> {
    operation: Operation,
    work: Work,
    job: &'a Job,
    manner: Manner,
    group: &'a Group,
    is_exposed: bool,
    takes_turns: bool,
}

impl Origin<'_> {
    /// Nanoseconds of each batch.
    fn batches(&self, ground: &mut Ground, batches: Batches) -> Outcome<Vec<u64>> {
        let mut times = Vec::with_capacity(usize::try_from(batches.count)?);
        self.open(ground)?;
        for _ in 0..batches.count {
            let begun = Instant::now();
            for _ in 0..batches.epochs {
                self.epoch(ground)?;
            }
            times.push(nanoseconds(begun));
        }
        self.close(ground)?;
        Ok(times)
    }

    fn open(&self, ground: &Ground) -> rma::Result<()> {
        match self.manner.sync {
            Sync::Flush | Sync::FlushLocal => {
                each(ground, |window, rank| window.lock(self.manner.lock_type, rank, false))
            }
            Sync::Fence => ground.window.fence(OPENING),
            Sync::Lock | Sync::LockAll | Sync::Pscw => Ok(()),
        }
    }

    fn close(&self, ground: &Ground) -> rma::Result<()> {
        match self.manner.sync {
            Sync::Flush | Sync::FlushLocal => each(ground, RawWindow::unlock),
            Sync::Fence => ground.window.fence(CLOSING),
            Sync::Lock | Sync::LockAll | Sync::Pscw => Ok(()),
        }
    }

    /// What is timed.
    #[inline]
    fn epoch(&self, ground: &mut Ground) -> rma::Result<()> {
        match self.manner.sync {
            Sync::Lock => {
                each(ground, |window, rank| window.lock(self.manner.lock_type, rank, false))?;
                issue(ground, self.operation)?;
                self.work.run(self.job);
                each(ground, RawWindow::unlock)
            }
            Sync::LockAll => {
                ground.window.lock_all(false)?;
                issue(ground, self.operation)?;
                self.work.run(self.job);
                ground.window.unlock_all()
            }
            Sync::Flush => {
                issue(ground, self.operation)?;
                self.work.run(self.job);
                match ground.partners[..] {
                    [(rank, _)] => ground.window.flush(rank),
                    _ => ground.window.flush_all(),
                }
            }
            Sync::FlushLocal => {
                issue(ground, self.operation)?;
                self.work.run(self.job);
                match ground.partners[..] {
                    [(rank, _)] => ground.window.flush_local(rank),
                    _ => ground.window.flush_local_all(),
                }
            }
            Sync::Fence => {
                issue(ground, self.operation)?;
                ground.window.fence(FenceAssert::default())
            }
            Sync::Pscw => self.pscw(ground),
        }
    }

    fn pscw(&self, ground: &mut Ground) -> rma::Result<()> {
        if self.is_exposed {
            expose(&ground.window, self.group)?;
        }
        access(ground, self.operation, self.group)?;
        if self.takes_turns {
            expose(&ground.window, self.group)?;
        }
        if self.takes_turns || self.is_exposed {
            ground.window.wait()?;
        }
        Ok(())
    }
}

/// A call for each partner.
#[inline]
fn each(ground: &Ground, mut call: impl FnMut(&RawWindow, Rank) -> rma::Result<()>) -> rma::Result<()> {
    match ground.partners[..] {
        [(rank, _)] => call(&ground.window, rank),
        _ => ground.partners.iter().try_for_each(|&(rank, _)| call(&ground.window, rank)),
    }
}

/// The operations of an epoch.
#[inline]
fn issue(ground: &mut Ground, operation: Operation) -> rma::Result<()> {
    ground.next_epoch();
    ground.issue_all(operation)
}

/// An access epoch of start and complete.
fn access(ground: &mut Ground, operation: Operation, group: &Group) -> rma::Result<()> {
    ground.window.start(group, Default::default())?;
    issue(ground, operation)?;
    ground.window.complete()
}

fn expose(window: &RawWindow, group: &Group) -> rma::Result<()> {
    window.post(group, Default::default())
}

fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

const OPENING: FenceAssert =
    FenceAssert { no_precede: true, no_succeed: false, no_store: false, no_put: false };
const CLOSING: FenceAssert =
    FenceAssert { no_precede: false, no_succeed: true, no_store: false, no_put: false };
