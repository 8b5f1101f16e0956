//! Runs the simulator's random programs with real processes, over whatever fabric the job has, and compares
//! what they read and what their windows hold with a simulated run of the same program.
//!
//! `rmarun -n 3 rma-programs --seeds 10 --from 0`

use std::ptr::NonNull;

use clap::Parser;
use rma::raw::RawWindow;
use rma::{FenceAssert, Group, Job, LockType, PostAssert, Rank, StartAssert};
use rma_sim::swarm::{
    plan, run_rank, Bounds, Call, Exposed, FenceAssertions, Library, Members, OperationPlan, OriginBuffers,
    Progress, Verb,
};
use rma_sim::Fault;

/// Runs random programs, each in all ranks of the job.
#[derive(Parser, Debug)]
#[command(version)]
struct Cli {
    /// How many programs.
    #[arg(long, default_value_t = 10)]
    seeds: u64,
    /// The first one's seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
}

/// The library as the programs see it. Calls that block are over when they return.
struct RawLibrary {
    job: Job,
    windows: Vec<Option<RawWindow>>,
    /// The window whose exposure epoch is asked for again and again.
    testing: Option<usize>,
}

impl RawLibrary {
    fn window(&self, window: usize) -> Result<&RawWindow, String> {
        let found = self.windows.get(window).and_then(Option::as_ref);
        found.ok_or_else(|| format!("window {window} does not exist"))
    }

    fn group(&self, members: Members) -> Result<Group, String> {
        let ranks: Vec<Rank> = members.iter().map(Rank).collect();
        Group::new(&ranks, self.job.size()).map_err(|error| error.to_string())
    }

    fn create(&mut self, memory: Option<NonNull<u8>>, len: usize, disp_unit: u32) -> Result<(), String> {
        let window = match memory {
            // SAFETY: the script keeps the memory until the window is freed, and accesses it through pointers
            // only; after an error the process ends.
            Some(base) => unsafe { RawWindow::create(&self.job, base.as_ptr(), len, disp_unit) },
            None => RawWindow::allocate(&self.job, len, disp_unit),
        };
        self.windows.push(Some(window.map_err(say)?));
        Ok(())
    }

    /// Posts an operation that is neither put nor get.
    ///
    /// # Safety
    /// As for [`Library::post`].
    unsafe fn accumulate(
        &self,
        plan: &OperationPlan,
        disp: u64,
        buffers: &OriginBuffers,
    ) -> Result<(), String> {
        let window = self.window(plan.window)?;
        let (target, dtype, op) = (Rank(plan.target), plan.dtype, plan.op);
        let count = plan.len / dtype.size();
        let (origin, result) = (buffers.origin.as_ptr().cast_const(), buffers.result.as_ptr());
        let posted = match plan.verb {
            // SAFETY: the caller's promise is the library's.
            Verb::Accumulate => unsafe { window.accumulate(origin, count, dtype, target, disp, op) },
            Verb::GetAccumulate => {
                // SAFETY: as above.
                unsafe { window.get_accumulate(origin, result, count, dtype, target, disp, op) }
            }
            // SAFETY: as above.
            Verb::FetchAndOp => unsafe { window.fetch_and_op(origin, result, dtype, target, disp, op) },
            _ => {
                let compare = buffers.compare.as_ptr().cast_const();
                // SAFETY: as above.
                unsafe { window.compare_and_swap(origin, compare, result, dtype, target, disp) }
            }
        };
        posted.map_err(say)
    }
}

impl Library for RawLibrary {
    fn start(&mut self, call: &Call) -> Result<(), String> {
        let done = match *call {
            Call::Create { memory, len, disp_unit, .. } => return self.create(memory, len, disp_unit),
            Call::Free { window } => {
                let freed = self.windows.get_mut(window).and_then(Option::take);
                freed.map_or(Ok(()), RawWindow::free)
            }
            Call::Fence { window, assertions } => self.window(window)?.fence(assert(assertions)),
            Call::Lock { window, target, is_exclusive, no_check } => {
                let lock_type = if is_exclusive { LockType::Exclusive } else { LockType::Shared };
                self.window(window)?.lock(lock_type, Rank(target), no_check)
            }
            Call::Unlock { window, target } => self.window(window)?.unlock(Rank(target)),
            Call::LockAll { window, no_check } => self.window(window)?.lock_all(no_check),
            Call::UnlockAll { window } => self.window(window)?.unlock_all(),
            Call::Post { window, group, no_check } => {
                let assert = PostAssert { no_check, ..PostAssert::default() };
                self.window(window)?.post(&self.group(group)?, assert)
            }
            Call::Start { window, group, no_check } => {
                self.window(window)?.start(&self.group(group)?, StartAssert { no_check })
            }
            Call::Complete { window } => self.window(window)?.complete(),
            Call::Wait { window, by_test: false } => self.window(window)?.wait(),
            Call::Wait { window, by_test: true } => {
                self.testing = Some(window);
                Ok(())
            }
            Call::Flush { window, target: Some(target), is_local: false } => {
                self.window(window)?.flush(Rank(target))
            }
            Call::Flush { window, target: Some(target), is_local: true } => {
                self.window(window)?.flush_local(Rank(target))
            }
            Call::Flush { window, target: None, is_local: false } => self.window(window)?.flush_all(),
            Call::Flush { window, target: None, is_local: true } => self.window(window)?.flush_local_all(),
        };
        done.map_err(say)
    }

    fn poll(&mut self) -> Result<Progress, String> {
        let Some(window) = self.testing else { return Ok(Progress::Returned) };
        if !self.window(window)?.test().map_err(say)? {
            return Ok(Progress::Waiting);
        }
        self.testing = None;
        Ok(Progress::Returned)
    }

    unsafe fn post(
        &mut self,
        plan: &OperationPlan,
        disp: u64,
        buffers: &OriginBuffers,
    ) -> Result<bool, String> {
        let (window, target) = (self.window(plan.window)?, Rank(plan.target));
        let (origin, result) = (buffers.origin.as_ptr().cast_const(), buffers.result.as_ptr());
        let posted = match plan.verb {
            // SAFETY: the caller's promise is the library's.
            Verb::Put => unsafe { window.put(origin, plan.len, target, disp) }.map_err(say),
            // SAFETY: the caller's promise is the library's.
            Verb::Get => unsafe { window.get(result, plan.len, target, disp) }.map_err(say),
            // SAFETY: the caller's promise.
            _ => unsafe { self.accumulate(plan, disp, buffers) },
        };
        posted.map(|()| true)
    }

    fn progress(&mut self) -> Result<Progress, String> {
        Ok(if self.job.progress() > 0 { Progress::Moved } else { Progress::Waiting })
    }

    fn exposed(&self, window: usize) -> Exposed {
        let found = self.windows.get(window).and_then(Option::as_ref);
        let base = found.and_then(|window| Some((NonNull::new(window.base())?, window.len())));
        match base {
            // SAFETY: the window's memory stays until it is freed, after which nobody looks.
            Some((base, len)) => unsafe { Exposed::new(base, len) },
            None => Exposed::NONE,
        }
    }

    fn check_idle(&self) -> Result<(), String> {
        Ok(())
    }

    fn describe(&self) -> String {
        format!("{} windows", self.windows.len())
    }
}

#[allow(clippy::needless_pass_by_value)] // for map_err
fn say(error: rma::Error) -> String {
    error.to_string()
}

fn assert(assertions: FenceAssertions) -> FenceAssert {
    let FenceAssertions { no_store, no_put, no_precede, no_succeed } = assertions;
    FenceAssert { no_store, no_put, no_precede, no_succeed }
}

fn run(cli: &Cli) -> Result<(), String> {
    let job = Job::init().map_err(say)?;
    let (rank, ranks) = (job.rank().0, job.size());
    for seed in cli.from..cli.from.saturating_add(cli.seeds) {
        let drawn = plan(seed, Bounds { ranks_min: ranks, ranks_max: ranks });
        let library = RawLibrary { job: job.clone(), windows: Vec::new(), testing: None };
        let meeting = job.clone();
        let barrier = move || meeting.barrier().map_err(say);
        if let Err(fault) = run_rank(&drawn, rank, library, barrier) {
            let what = match fault {
                Fault::Engine(text) | Fault::Oracle(text) => text,
            };
            let again = format!("rmarun -n {ranks} rma-programs --seeds 1 --from {seed}");
            return Err(format!("program {seed} at rank {rank}: {what}\n  again: {again}"));
        }
    }
    job.barrier().map_err(say)?;
    if rank == 0 {
        println!("{} programs from {} in {ranks} ranks: all passed", cli.seeds, cli.from);
    }
    job.finalize().map_err(say)
}

fn main() {
    if let Err(text) = run(&Cli::parse()) {
        eprintln!("{text}");
        // Not back through `main`: the memory of windows that still exist must stay until the process ends.
        std::process::exit(1);
    }
}
