//! What the runtime tells the timeline of a job ([`crate::trace`]): its blocking calls, what they have waited for, and
//! progress outside of them. Without a timeline there is nothing to tell, and nobody is asked in a call that does not
//! wait: whether there is one is a part of the phase that every call looks at.

use std::path::Path;
use std::sync::PoisonError;
use std::time::Duration;

use rma_core::engine::SyncCall;
use rma_core::error::{Call, RmaError};
use rma_core::ids::{Rank, WindowId};

use super::wait::Awaited;
use super::{Core, Guarded, Held, Phase};
use crate::error::{Error, Result};
use crate::platform::{nanos, say, thread_number, Engine};
use crate::trace::clock::Bounds;
use crate::trace::{file, metrics, traffic, Alignment, Outputs, Record, Ring, What};

/// Pairs of reductions by which the clocks of hosts are compared.
const REDUCTIONS: u32 = 8;

/// Progress outside of calls is one event as long as no longer break is in it, nanoseconds.
const BREAK: u64 = 50_000;

/// Where in a program's course a call is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site {
    pub(super) window: Option<WindowId>,
    pub(super) target: Rank,
}

impl Site {
    const NOWHERE: Self = Self { window: None, target: Rank::NULL };
}

impl Guarded {
    /// Remembers something that has begun at `begun` and is over.
    fn note(&mut self, begun: u64, what: What, at: Site, error: Option<&Error>) {
        let (operations, bytes) = traffic(&self.engine.counters());
        let record = Record {
            begun,
            ended: nanos(),
            what,
            window: at.window,
            target: at.target,
            // A signal may have interrupted any thread, and its handler had better not ask which.
            thread: if matches!(what, What::Served { .. }) { 0 } else { thread_number() },
            error: error.map(Error::class),
            operations,
            bytes,
        };
        if let Some(trace) = &mut self.trace {
            trace.push(record);
        }
    }

    /// The time, if somebody wants to know.
    #[inline]
    pub(super) fn begin(&self) -> Option<u64> {
        self.trace.as_ref().map(|_| nanos())
    }

    /// Remembers a call on `at` that is over.
    pub(super) fn note_call(&mut self, begun: u64, call: Call, at: Site, error: Option<&Error>) {
        let state = at.window.and_then(|window| self.engine.window_state(window));
        let is_fence = state.is_some_and(|state| state.is_fence());
        self.note(begun, What::Call { call, is_fence }, at, error);
    }

    /// Remembers progress that nobody's call has made.
    pub(super) fn note_served(&mut self, begun: u64, moved: usize) {
        let moved = u32::try_from(moved).unwrap_or(u32::MAX);
        if let Some(record) = self.trace.as_mut().and_then(Ring::last_mut) {
            if let What::Served { moved: before } = &mut record.what {
                if begun.saturating_sub(record.ended) < BREAK {
                    *before = before.saturating_add(moved);
                    record.ended = nanos();
                    return;
                }
            }
        }
        self.note(begun, What::Served { moved }, Site::NOWHERE, None);
    }
}

impl Core {
    /// From now on remembers calls, as many as `events`, if there is to be a timeline, and writes what is wanted when
    /// the rank leaves.
    pub(crate) fn observe(&self, outputs: Outputs, events: usize) {
        // The first look at the clock finds out how to; what comes from a signal's handler must find it there.
        nanos();
        let mut guarded = self.enter_anyway();
        if outputs.trace.is_some() {
            guarded.trace = Some(Ring::new(events));
            guarded.phase = Phase::Traced;
        }
        guarded.outputs = outputs;
    }

    /// Writes what was wanted, once: `end` says how this rank leaves the job. What cannot be written is reported, and
    /// no reason to fail.
    pub(crate) fn write_outputs(&self, end: &str) {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut guarded = self.enter_anyway();
        if guarded.phase == Phase::Traced {
            guarded.phase = Phase::AtWork;
        }
        let (outputs, ring) = (std::mem::take(&mut guarded.outputs), guarded.trace.take());
        let counters = guarded.engine.counters();
        drop(guarded);
        let report = |what: &str, path: &Path, written: std::io::Result<()>| {
            if let Err(error) = written {
                let (rank, path) = (self.rank, path.display());
                say(format_args!("rank {rank}: {what} cannot be written to {path}: {error}"));
            }
        };
        if let Some(path) = &outputs.metrics {
            report("metrics", path, metrics::write(path, self.rank, &metrics::text(&counters, self.rank)));
        }
        if let (Some((path, origin)), Some(ring)) = (&outputs.trace, ring) {
            report("the trace", path, file::append(path, &ring, origin, end, nanos()));
        }
    }

    /// [`Core::run`] where its time is of interest, or the job is over.
    #[cold]
    #[inline(never)]
    pub(super) fn run_observed(
        &self,
        guarded: Held<'_, Guarded>,
        call: Call,
        target: Rank,
        start: impl FnOnce(&mut Engine) -> std::result::Result<SyncCall, RmaError>,
    ) -> Result<()> {
        if guarded.phase == Phase::Finalized {
            return Err(self.finalized(guarded, call));
        }
        let (begun, mut at) = (nanos(), Site { window: None, target });
        let result = self.run_started(guarded, |engine| {
            let sync = start(engine)?;
            at.window = sync.window();
            Ok(sync)
        });
        self.enter_anyway().note_call(begun, call, at, result.as_ref().err());
        result
    }

    /// Waits, and remembers for what.
    #[cold]
    #[inline(never)]
    pub(super) fn wait_observed<'core>(
        &'core self,
        guarded: Held<'core, Guarded>,
        awaited: &mut impl Awaited,
        limit: Option<Duration>,
    ) -> Result<()> {
        let (begun, call) = (nanos(), awaited.call());
        let at = Site { window: awaited.window(), ..Site::NOWHERE };
        let what = What::Wait { call, waiting_for: awaited.waiting_for(&guarded.engine) };
        let result = self.wait_until(guarded, awaited, limit);
        self.enter_anyway().note(begun, what, at, result.as_ref().err());
        result
    }

    /// Remembers that an exposure epoch was found to be over.
    pub(crate) fn note_tested(&self, guarded: &mut Guarded, window: WindowId) {
        if let Some(now) = guarded.begin() {
            guarded.note_call(now, Call::Test, Site { window: Some(window), ..Site::NOWHERE }, None);
        }
    }

    /// Finds out how much the clock of this host, which has the number `host`, is behind that of rank 0's. Collective.
    /// Takes as many reductions as there are hosts, twice, beside those that compare the clocks.
    pub(crate) fn align_clocks(&self, host: u64) -> Result<Alignment> {
        let call = Call::Init;
        let from_first = |value| if self.rank == 0 { value } else { 0 };
        let [first_host, ..] = self.agree_values(call, [from_first(host), 0, 0, 0])?;
        let mut bounds = Bounds::NONE;
        for _ in 0..REDUCTIONS {
            let entered = nanos();
            let [first_entered, ..] = self.agree_values(call, [from_first(entered), 0, 0, 0])?;
            let left = nanos();
            let [first_left, ..] = self.agree_values(call, [from_first(left), 0, 0, 0])?;
            bounds.narrow((entered, left), (first_entered, first_left));
        }
        let mut alignment = (host == first_host).then(Alignment::default);
        loop {
            let open = if alignment.is_none() { host } else { 0 };
            let [next, ..] = self.agree_values(call, [open, 0, 0, 0])?;
            if next == 0 {
                return Ok(alignment.unwrap_or_default());
            }
            let is_next = open == next;
            let [least, most] = if is_next { bounds.to_reduce() } else { [0, 0] };
            let [least, most, ..] = self.agree_values(call, [least, most, 0, 0])?;
            if is_next {
                alignment = Some(Bounds::reduced([least, most]).alignment());
            }
        }
    }
}
