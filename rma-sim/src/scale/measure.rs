//! Runs epochs and reads the figures.

use core::task::Poll;

use rma_core::config::Config;
use rma_core::engine::{Engine, FenceAssert, PostAssert, StartAssert, SyncCall};
use rma_core::error::RmaError;
use rma_core::group::Group;
use rma_core::ids::{Rank, WindowId};

use super::endpoint::{LogGp, Part, ScaleBootstrap, ScaleEndpoint, ScaleNet};

/// Bytes of each rank's window; the costs do not depend on it.
const WINDOW_BYTES: usize = 64;

/// Ranks that a rank exchanges data with, as many below it as above, in a ring.
const NEIGHBOURS: u32 = 8;

/// The neighbours of a rank.
pub fn neighbours(rank: u32, ranks: u32) -> impl Iterator<Item = u32> {
    let half = NEIGHBOURS / 2;
    (1..=half).chain(ranks - half..ranks).map(move |distance| (rank + distance) % ranks)
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Epoch {
    /// fence, a put of 8 bytes to the next rank, fence.
    Fence,
    /// post to 8 neighbours and start, a put of 8 bytes to each, complete, wait.
    Neighbours,
    /// lock_all, a put of 8 bytes to each of so many ranks, unlock_all.
    LockAll(u32),
}

impl Epoch {
    /// Everything that is measured: the last one has a target more than there are elements, so that the
    /// window protocol has to lock all ranks.
    pub fn all() -> Vec<Self> {
        let elements = Self::elements();
        let lock_alls = [1, 32, elements, elements + 1].map(Self::LockAll);
        [Self::Fence, Self::Neighbours].into_iter().chain(lock_alls).collect()
    }

    /// Target elements of a process, with default settings and one window.
    fn elements() -> u32 {
        let config = Config::default();
        config.target_pool + config.target_pool_global
    }

    /// Its name in tables.
    pub fn name(self) -> String {
        match self {
            Self::Fence => "fence, put, fence".into(),
            Self::Neighbours => format!("post and start, {NEIGHBOURS} puts"),
            Self::LockAll(targets) => {
                format!("lock_all, {targets} put{}", if targets == 1 { "" } else { "s" })
            }
        }
    }

    /// Whether its cost must grow with the number of ranks: who asks everybody sends so many packets.
    pub fn asks_everybody(self) -> bool {
        self == Self::LockAll(Self::elements() + 1)
    }

    /// Fewest ranks for which it is what its name says.
    pub fn ranks_min(self) -> u32 {
        match self {
            Self::Fence => 2,
            Self::Neighbours => NEIGHBOURS + 1,
            Self::LockAll(targets) => targets + 1,
        }
    }

    /// Whether one rank does it and the others only answer; else all do the same.
    fn is_lone(self) -> bool {
        matches!(self, Self::LockAll(_))
    }
}

/// What one epoch costs one rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cost {
    /// Packets that it sends, answers to others included where all ranks do the same.
    pub packets: u64,
    /// Bytes in them.
    pub packet_bytes: u64,
    /// Packets behind one another on the critical path; two are a round trip.
    pub latencies: u64,
    /// Time after LogGP, in picoseconds.
    pub time_ps: u64,
}

/// Everything for one number of ranks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Figures {
    /// Ranks.
    pub ranks: u32,
    /// Bytes of one window at one rank.
    pub window_bytes: usize,
    /// Bytes beside the windows at one rank.
    pub shared_bytes: usize,
    /// Each epoch of [`Epoch::all`], if there are enough ranks for it.
    pub costs: Vec<(Epoch, Option<Cost>)>,
}

/// One or two engines that stand for all.
struct Job {
    net: ScaleNet,
    origin: Engine<ScaleEndpoint, ScaleBootstrap>,
    others: Option<Engine<ScaleEndpoint, ScaleBootstrap>>,
    window: WindowId,
}

/// Measures everything in a job of `ranks`.
///
/// # Errors
/// What the engine says against it, or that it does not get any further.
pub fn measure(ranks: u32, model: LogGp) -> Result<Figures, String> {
    let mut costs = Vec::new();
    let (mut window_bytes, mut shared_bytes) = (0, 0);
    for epoch in Epoch::all() {
        if ranks < epoch.ranks_min() {
            costs.push((epoch, None));
            continue;
        }
        let (by_latency, job) = run(ranks, epoch, LogGp::LATENCY_ONLY)?;
        let (by_model, _) = run(ranks, epoch, model)?;
        window_bytes = job.origin.window_bytes(job.window).unwrap_or_default();
        shared_bytes = job.origin.shared_bytes();
        costs.push((epoch, Some(Cost { latencies: by_latency.time_ps, ..by_model })));
    }
    Ok(Figures { ranks, window_bytes, shared_bytes, costs })
}

fn run(ranks: u32, epoch: Epoch, model: LogGp) -> Result<(Cost, Job), String> {
    let mut job = Job::open(ranks, epoch.is_lone(), model)?;
    let before = job.net.figures();
    job.epoch(epoch)?;
    let after = job.net.figures();
    let cost = Cost {
        packets: after.1 - before.1,
        packet_bytes: after.2 - before.2,
        latencies: 0,
        time_ps: after.0 - before.0,
    };
    Ok((cost, job))
}

impl Job {
    /// A job with one window.
    fn open(ranks: u32, is_lone: bool, model: LogGp) -> Result<Self, String> {
        let net = ScaleNet::new(ranks, model);
        let open = |part, rank| {
            let bootstrap = ScaleBootstrap { rank, size: ranks };
            Engine::open(net.open(part), bootstrap, Config::default()).map_err(say)
        };
        let mut origin = open(if is_lone { Part::Origin } else { Part::Mirror }, 0)?;
        let (window, mut call) = origin.start_allocate(WINDOW_BYTES, 1).map_err(say)?;
        let mut others = None;
        if is_lone {
            let mut stand_in = open(Part::StandIn, 1)?;
            let (_, mut call) = stand_in.start_allocate(WINDOW_BYTES, 1).map_err(say)?;
            while !is_over(stand_in.poll(&mut call))? {
                if stand_in.progress() == 0 && !net.advance_stand_in() {
                    return Err("the window could not be made".into());
                }
            }
            others = Some(stand_in);
        }
        while !is_over(origin.poll(&mut call))? {
            if origin.progress() == 0 && !net.advance_origin() {
                return Err("the window could not be made".into());
            }
        }
        Ok(Self { net, origin, others, window })
    }

    fn epoch(&mut self, epoch: Epoch) -> Result<(), String> {
        match epoch {
            Epoch::Fence => {
                let open = FenceAssert { no_precede: true, ..FenceAssert::default() };
                let close = FenceAssert { no_succeed: true, ..FenceAssert::default() };
                let call = self.origin.start_fence(self.window, open).map_err(say)?;
                self.finish(call)?;
                self.put(1)?;
                let call = self.origin.start_fence(self.window, close).map_err(say)?;
                self.finish(call)
            }
            Epoch::Neighbours => {
                let size = self.origin.size();
                let group = Group::new(&neighbours(0, size).map(Rank).collect::<Vec<_>>(), size);
                let group = group.map_err(say)?;
                let call = self.origin.start_post(self.window, &group, PostAssert::default()).map_err(say)?;
                self.finish(call)?;
                let call =
                    self.origin.start_start(self.window, &group, StartAssert::default()).map_err(say)?;
                self.finish(call)?;
                neighbours(0, size).try_for_each(|target| self.put(target))?;
                let call = self.origin.start_complete(self.window).map_err(say)?;
                self.finish(call)?;
                let call = self.origin.start_wait(self.window).map_err(say)?;
                self.finish(call)
            }
            Epoch::LockAll(targets) => {
                let call = self.origin.start_lock_all(self.window, false).map_err(say)?;
                self.finish(call)?;
                (1..=targets).try_for_each(|target| self.put(target))?;
                let call = self.origin.start_unlock_all(self.window).map_err(say)?;
                self.finish(call)
            }
        }
    }

    fn finish(&mut self, mut call: SyncCall) -> Result<(), String> {
        while !is_over(self.origin.poll(&mut call))? {
            self.step()?;
        }
        Ok(())
    }

    fn put(&mut self, target: u32) -> Result<(), String> {
        // Small enough for the element itself, so that the source is free on return.
        let source = [7_u8; 8];
        loop {
            // SAFETY: the source is readable for 8 bytes, and copied.
            #[allow(unsafe_code)]
            let posted = unsafe { self.origin.put(self.window, Rank(target), 0, source.as_ptr(), 8) };
            match posted {
                Poll::Ready(result) => return result.map_err(say),
                Poll::Pending => self.step()?,
            }
        }
    }

    /// Makes progress; the clock moves when there is none without it.
    fn step(&mut self) -> Result<(), String> {
        let mut moved = self.origin.progress();
        if let Some(others) = &mut self.others {
            while self.net.advance_stand_in() {
                moved += others.progress();
            }
        }
        if moved == 0 && !self.net.advance_origin() {
            return Err("nothing is on the way any more".into());
        }
        Ok(())
    }
}

fn is_over(polled: Poll<Result<(), RmaError>>) -> Result<bool, String> {
    match polled {
        Poll::Ready(result) => result.map(|()| true).map_err(say),
        Poll::Pending => Ok(false),
    }
}

#[allow(clippy::needless_pass_by_value)] // for map_err
fn say(error: RmaError) -> String {
    error.to_string()
}
