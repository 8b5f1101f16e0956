//! Runs the simulator's random programs with real processes, over whatever fabric the job has, and compares
//! what they read and what their windows hold with a simulated run of the same program.
//!
//! `rmarun -n 3 rma-programs --seeds 10 --from 0`

mod addresses;
mod threads;

use std::ptr::NonNull;
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use rma::raw::{Buffer, Layout, Notification, RawWindow, Request, TargetBuffer};
use rma::{FenceAssert, Group, Job, LockType, PostAssert, Rank, StartAssert, WindowOptions};
use rma_core::layout::Layouts;
use rma_sim::swarm::{
    layouts_of, plan, run_rank, Bounds, Call, Exposed, FenceAssertions, Form, Library, Members,
    OperationPlan, OriginBuffers, Place, Posted, Progress, Verb, Which,
};
use rma_sim::Fault;

use self::threads::{Answer, Task, Worker};

/// How long an answer is awaited where all threads were asked, and where one of them was not.
const LONG: Duration = Duration::from_secs(1);
const SHORT: Duration = Duration::from_millis(1);

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

/// The library as one thread sees it. Calls that block are over when they return.
struct Caller {
    job: Job,
    windows: Vec<Option<Arc<RawWindow>>>,
    /// The window whose exposure epoch is asked for again and again.
    testing: Option<usize>,
    /// Requests that were not found done, and their names.
    requests: Vec<Request>,
    names: Vec<u64>,
    finished: Vec<u64>,
    /// Which of them are asked for again and again.
    asking: Option<Which>,
}

impl Caller {
    fn new(job: &Job) -> Self {
        Self {
            job: job.clone(),
            windows: Vec::new(),
            testing: None,
            requests: Vec::new(),
            names: Vec::new(),
            finished: Vec::new(),
            asking: None,
        }
    }

    /// One more for the same windows.
    fn beside(&self) -> Self {
        Self { windows: self.windows.clone(), ..Self::new(&self.job) }
    }

    fn window(&self, window: usize) -> Result<&RawWindow, String> {
        let found = self.windows.get(window).and_then(Option::as_deref);
        found.ok_or_else(|| format!("window {window} does not exist"))
    }

    fn group(&self, members: Members) -> Result<Group, String> {
        let ranks: Vec<Rank> = members.iter().map(Rank).collect();
        Group::new(&ranks, self.job.size()).map_err(|error| error.to_string())
    }

    fn create(
        &mut self,
        memory: Option<NonNull<u8>>,
        len: usize,
        disp_unit: u32,
        (is_dynamic, is_shared): (bool, bool),
        options: &WindowOptions,
    ) -> Result<(), String> {
        let window = match memory {
            _ if is_dynamic => RawWindow::create_dynamic(&self.job, options),
            _ if is_shared => RawWindow::allocate_shared(&self.job, len, disp_unit, options),
            // SAFETY: the script keeps the memory until the window is freed, and accesses it through pointers
            // only; after an error the process ends.
            Some(base) => unsafe {
                RawWindow::create_with(&self.job, base.as_ptr(), len, disp_unit, options)
            },
            None => RawWindow::allocate_with(&self.job, len, disp_unit, options),
        };
        self.windows.push(Some(Arc::new(window.map_err(say)?)));
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

/// Operations in their other forms, and requests.
impl Caller {
    /// # Safety
    /// As for [`Library::post`].
    unsafe fn post_plain(
        &mut self,
        plan: &OperationPlan,
        disp: u64,
        buffers: &OriginBuffers,
    ) -> Result<(), String> {
        let (window, target) = (self.window(plan.window)?, Rank(plan.target));
        let (origin, result) = (buffers.origin.as_ptr().cast_const(), buffers.result.as_ptr());
        match plan.verb {
            // SAFETY: the caller's promise is the library's.
            Verb::Put => unsafe { window.put(origin, plan.len, target, disp) }.map_err(say),
            // SAFETY: the caller's promise is the library's.
            Verb::Get => unsafe { window.get(result, plan.len, target, disp) }.map_err(say),
            // SAFETY: the caller's promise.
            _ => unsafe { self.accumulate(plan, disp, buffers) },
        }
    }

    /// # Safety
    /// As for [`Library::post`].
    unsafe fn post_request(
        &mut self,
        plan: &OperationPlan,
        disp: u64,
        buffers: &OriginBuffers,
    ) -> Result<(), String> {
        let window = self.window(plan.window)?;
        let &OperationPlan { len, dtype, op, .. } = plan;
        let (target, count) = (Rank(plan.target), len / dtype.size());
        let (origin, result) = (buffers.origin.as_ptr().cast_const(), buffers.result.as_ptr());
        let request = match plan.verb {
            // SAFETY: the caller's promise is the library's.
            Verb::Put => unsafe { window.rput(origin, len, target, disp) },
            // SAFETY: as above.
            Verb::Get => unsafe { window.rget(result, len, target, disp) },
            // SAFETY: as above.
            Verb::Accumulate => unsafe { window.raccumulate(origin, count, dtype, target, disp, op) },
            // SAFETY: as above.
            _ => unsafe { window.rget_accumulate(origin, result, count, dtype, target, disp, op) },
        };
        self.keep(buffers.id, request.map_err(say)?);
        Ok(())
    }

    /// # Safety
    /// As for [`Library::post`]; the buffers were made for the layouts.
    unsafe fn post_layouts(
        &mut self,
        plan: &OperationPlan,
        disp: u64,
        buffers: &OriginBuffers,
        layouts: &Layouts,
    ) -> Result<(), String> {
        let &OperationPlan { verb, op, .. } = plan;
        let whole = Layout::contiguous((plan.len / plan.dtype.size()) as u64, &Layout::of(plan.dtype));
        let whole = whole.map_err(|error| error.to_string())?;
        let window = self.window(plan.window)?;
        let origin = layouts.origin.as_ref().unwrap_or(&whole);
        let origin = Buffer::new(buffers.origin.as_ptr().cast_const(), 1, origin);
        let result = Buffer::new(buffers.result.as_ptr(), 1, layouts.result.as_ref().unwrap_or(&whole));
        let layout = layouts.target.as_ref().unwrap_or(&whole);
        let target = TargetBuffer { rank: Rank(plan.target), disp, count: 1, layout };
        let requested = match (verb, plan.form == Form::Request) {
            // SAFETY: the caller's promise is the library's.
            (Verb::Put, false) => unsafe { window.put_layout(origin, target) }.map(|()| None),
            // SAFETY: as above.
            (Verb::Get, false) => unsafe { window.get_layout(result, target) }.map(|()| None),
            (Verb::Accumulate, false) => {
                // SAFETY: as above.
                unsafe { window.accumulate_layout(origin, target, op) }.map(|()| None)
            }
            (_, false) => {
                // SAFETY: as above.
                unsafe { window.get_accumulate_layout(Some(origin), result, target, op) }.map(|()| None)
            }
            // SAFETY: as above.
            (Verb::Put, true) => unsafe { window.rput_layout(origin, target) }.map(Some),
            // SAFETY: as above.
            (Verb::Get, true) => unsafe { window.rget_layout(result, target) }.map(Some),
            (Verb::Accumulate, true) => {
                // SAFETY: as above.
                unsafe { window.raccumulate_layout(origin, target, op) }.map(Some)
            }
            (_, true) => {
                // SAFETY: as above.
                unsafe { window.rget_accumulate_layout(Some(origin), result, target, op) }.map(Some)
            }
        };
        if let Some(request) = requested.map_err(say)? {
            self.keep(buffers.id, request);
        }
        Ok(())
    }

    fn request_flush(
        &mut self,
        window: usize,
        target: Option<Rank>,
        is_local: bool,
        id: u64,
    ) -> Result<(), String> {
        let window = self.window(window)?;
        let request = match (target, is_local) {
            (Some(target), false) => window.iflush(target),
            (Some(target), true) => window.iflush_local(target),
            (None, false) => window.iflush_all(),
            (None, true) => window.iflush_local_all(),
        };
        self.keep(id, request.map_err(say)?);
        Ok(())
    }

    fn keep(&mut self, id: u64, request: Request) {
        self.requests.push(request);
        self.names.push(id);
    }

    fn wait(&mut self, which: Which) -> Result<(), String> {
        let requests = &mut self.requests;
        let done = match which {
            Which::All => self.job.wait_all(requests),
            Which::Any => self.job.wait_any(requests).map(drop),
            Which::Oldest => requests.first_mut().map_or(Ok(()), |request| self.job.wait(request)),
            Which::Newest => requests.last_mut().map_or(Ok(()), |request| self.job.wait(request)),
        };
        done.map_err(say)?;
        self.settle();
        Ok(())
    }

    fn test(&mut self, which: Which) -> Result<bool, String> {
        let requests = &mut self.requests;
        let is_over = match which {
            Which::All => self.job.test_all(requests),
            Which::Any if requests.is_empty() => Ok(true),
            Which::Any => {
                requests.iter_mut().try_fold(false, |any, request| Ok(any | self.job.test(request)?))
            }
            Which::Oldest => requests.first_mut().map_or(Ok(true), |request| self.job.test(request)),
            Which::Newest => requests.last_mut().map_or(Ok(true), |request| self.job.test(request)),
        };
        self.settle();
        is_over.map_err(say)
    }

    /// Takes the requests out that were found done.
    fn settle(&mut self) {
        let done: Vec<bool> = self.requests.iter().map(Request::is_null).collect();
        let mut each = done.iter();
        self.requests.retain(|_| each.next() == Some(&false));
        for (id, is_done) in std::mem::take(&mut self.names).into_iter().zip(done) {
            if is_done { &mut self.finished } else { &mut self.names }.push(id);
        }
    }
}

/// What the programs call.
impl Caller {
    fn start(&mut self, call: &Call) -> Result<(), String> {
        let done = match *call {
            Call::Create { memory, len, disp_unit, is_dynamic, is_shared, ref options, .. } => {
                return self.create(memory, len, disp_unit, (is_dynamic, is_shared), options)
            }
            // SAFETY: as for the memory of windows.
            Call::Attach { window, base, len } => unsafe { self.window(window)?.attach(base.as_ptr(), len) },
            Call::Detach { window, base } => self.window(window)?.detach(base.as_ptr()),
            Call::Free { window } => {
                let freed = self.windows.get_mut(window).and_then(Option::take);
                freed.and_then(Arc::into_inner).map_or(Ok(()), RawWindow::free)
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
            Call::FlushTargets { window, targets } => {
                self.window(window)?.flush_targets(&targets.iter().map(Rank).collect::<Vec<_>>())
            }
            Call::RequestFlush { window, target, is_local, id } => {
                return self.request_flush(window, target.map(Rank), is_local, id);
            }
            Call::Await { which, by_test: false } => return self.wait(which),
            Call::Await { which, by_test: true } => {
                self.asking = Some(which);
                Ok(())
            }
            Call::Order { window, target: Some(target) } => self.window(window)?.order(Rank(target)),
            Call::Order { window, target: None } => self.window(window)?.order_all(),
            Call::Sync { window } => self.window(window)?.sync(),
            Call::AwaitNotice { window, disp, until } => {
                self.window(window)?.wait_notification(disp, until).map(drop)
            }
        };
        done.map_err(say)
    }

    fn poll(&mut self) -> Result<Progress, String> {
        if let Some(which) = self.asking {
            if !self.test(which)? {
                return Ok(Progress::Waiting);
            }
            self.asking = None;
        }
        let Some(window) = self.testing else { return Ok(Progress::Returned) };
        if !self.window(window)?.test().map_err(say)? {
            return Ok(Progress::Waiting);
        }
        self.testing = None;
        Ok(Progress::Returned)
    }

    /// # Safety
    /// As for [`Library::post`].
    unsafe fn post(
        &mut self,
        plan: &OperationPlan,
        place: Place,
        buffers: &OriginBuffers,
    ) -> Result<(), String> {
        let disp = place.disp(plan.offset);
        match (plan.form, layouts_of(plan)) {
            (Form::Notified { word, change }, _) => {
                let (window, target) = (self.window(plan.window)?, Rank(plan.target));
                let notification = Notification { disp: place.disp(word), change };
                let origin = buffers.origin.as_ptr().cast_const();
                // SAFETY: the caller's promise is the library's.
                unsafe { window.put_notify(origin, plan.len, target, disp, notification) }.map_err(say)?;
            }
            // SAFETY: the caller's promise is the library's; the buffers were made for the layouts.
            (_, Some(layouts)) => unsafe { self.post_layouts(plan, disp, buffers, &layouts) }?,
            // SAFETY: the caller's promise.
            (Form::Request, None) => unsafe { self.post_request(plan, disp, buffers) }?,
            // SAFETY: the caller's promise.
            (Form::Plain, None) => unsafe { self.post_plain(plan, disp, buffers) }?,
        }
        Ok(())
    }

    /// Does what a task is, to its end.
    fn perform(&mut self, task: &Task) -> Result<(), String> {
        match task {
            Task::Call(call) => {
                self.start(call)?;
                while self.poll()? != Progress::Returned {
                    std::thread::yield_now();
                }
                Ok(())
            }
            // SAFETY: the script keeps the buffers, as it promised when it handed them over.
            Task::Post(plan, place, buffers) => unsafe { self.post(plan, *place, buffers) },
        }
    }
}

/// The library as the programs see it: what their threads call is called by threads.
struct RawLibrary {
    own: Caller,
    /// None, unless the program has forked.
    workers: Vec<Worker>,
    answers: Option<Receiver<Answer>>,
}

impl RawLibrary {
    fn new(job: &Job) -> Self {
        Self { own: Caller::new(job), workers: Vec::new(), answers: None }
    }

    fn ask(&mut self, thread: usize, task: Task) -> Result<(), String> {
        let Some(worker) = self.workers.get_mut(thread) else {
            return Err(format!("there is no thread {thread}"));
        };
        worker.is_asked = true;
        worker.tasks.send(task).map_err(|_| format!("thread {thread} has ended"))
    }
}

impl Library for RawLibrary {
    fn fork(&mut self, threads: usize) {
        let (answer, answers) = channel();
        self.answers = Some(answers);
        for number in 0..threads {
            let mut caller = self.own.beside();
            if number == 0 {
                caller.requests = std::mem::take(&mut self.own.requests);
                caller.names = std::mem::take(&mut self.own.names);
            }
            self.workers.push(Worker::spawn(number, caller, answer.clone()));
        }
    }

    fn join(&mut self) {
        for Worker { tasks, thread, .. } in self.workers.drain(..) {
            drop(tasks);
            let caller = thread.join().expect("it catches the panics of what it calls");
            self.own.requests.extend(caller.requests);
            self.own.names.extend(caller.names);
        }
        self.answers = None;
    }

    fn has_real_threads(&self) -> bool {
        true
    }

    fn start(&mut self, thread: usize, call: &Call) -> Result<(), String> {
        if self.workers.is_empty() {
            return self.own.start(call);
        }
        self.ask(thread, Task::Call(*call))
    }

    /// Of several threads, waits until one of them has answered; not long where another one may have something to do first, which
    /// what this one waits for may wait for in turn.
    fn poll(&mut self, thread: usize) -> Result<Progress, String> {
        let Some(answers) = &self.answers else { return self.own.poll() };
        if self.workers.iter().all(|worker| worker.answer.is_none()) {
            let are_all_asked = self.workers.iter().all(|worker| worker.is_asked);
            let (number, done, finished) =
                match answers.recv_timeout(if are_all_asked { LONG } else { SHORT }) {
                    Ok(answer) => answer,
                    Err(RecvTimeoutError::Timeout) => return Ok(Progress::Waiting),
                    Err(error) => return Err(error.to_string()),
                };
            let worker = &mut self.workers[number];
            worker.is_asked = false;
            worker.finished.extend(finished);
            worker.answer = Some(done);
        }
        match self.workers[thread].answer.take() {
            Some(done) => done.map(|()| Progress::Returned),
            None => Ok(Progress::Waiting),
        }
    }

    unsafe fn post(
        &mut self,
        thread: usize,
        plan: &OperationPlan,
        place: Place,
        buffers: &OriginBuffers,
    ) -> Result<Posted, String> {
        if self.workers.is_empty() {
            // SAFETY: the caller's promise.
            return unsafe { self.own.post(plan, place, buffers) }.map(|()| Posted::Done);
        }
        self.ask(thread, Task::Post(*plan, place, *buffers))?;
        Ok(Posted::UnderWay)
    }

    fn takes_layouts(&self) -> bool {
        true
    }

    fn finished(&mut self, thread: usize) -> Vec<u64> {
        let finished = self.workers.get_mut(thread).map(|worker| &mut worker.finished);
        std::mem::take(finished.unwrap_or(&mut self.own.finished))
    }

    fn progress(&mut self) -> Result<Progress, String> {
        Ok(if self.own.job.progress() > 0 { Progress::Moved } else { Progress::Waiting })
    }

    fn exposed(&self, window: usize) -> Exposed {
        let found = self.own.windows.get(window).and_then(Option::as_ref);
        let base = found.and_then(|window| Some((NonNull::new(window.base())?, window.len())));
        match base {
            // SAFETY: the window's memory stays until it is freed, after which nobody looks.
            Some((base, len)) => unsafe { Exposed::new(base, len) },
            None => Exposed::NONE,
        }
    }

    fn shared_part(&self, window: usize, rank: u32) -> Option<Exposed> {
        let part = self.own.window(window).ok()?.shared_query(Rank(rank)).ok()?;
        // SAFETY: as above; what others access meanwhile are other places of it.
        NonNull::new(part.base).map(|base| unsafe { Exposed::new(base, part.len) })
    }

    fn check_idle(&self) -> Result<(), String> {
        Ok(())
    }

    fn describe(&self) -> String {
        format!("{} windows", self.own.windows.len())
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
    let has_shared = job.local_size() == ranks;
    for seed in cli.from..cli.from.saturating_add(cli.seeds) {
        let drawn = plan(seed, Bounds { has_shared, ..Bounds::of(ranks, ranks) });
        let library = RawLibrary::new(&job);
        let meeting = job.clone();
        let barrier = move || meeting.barrier().map_err(say);
        let teller = job.clone();
        let exchange = move |address| addresses::exchange(&teller, address).map_err(say);
        if let Err(fault) = run_rank(&drawn, rank, library, barrier, exchange) {
            let what = match fault {
                Fault::Engine(text) | Fault::Oracle(text) => text,
            };
            // Quoted, as the shell would end the command at the semicolon of `tcp;ofi_rxm`.
            let provider = &job.provider().provider;
            let again =
                format!("rmarun -n {ranks} --provider '{provider}' rma-programs --seeds 1 --from {seed}");
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
