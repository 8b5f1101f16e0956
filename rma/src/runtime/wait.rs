//! The loop behind every blocking call: poll the call, make progress, and the longer nothing happens
//! the more of the processor is left to others: spin, yield, sleep on the fabric's descriptor.

use std::hint;
use std::task::Poll;
use std::time::Duration;

use rma_core::engine::{Operation, SyncCall};
use rma_core::error::{Call, RmaError};
use rma_core::ids::{Rank, WindowId};

use super::{Core, Guarded, Held, Phase};
use crate::error::Result;
use crate::platform::{say, yield_now, Engine, Instant, Ordering};

/// Polls between two looks at the clock; the guard is offered to other threads as often.
const BATCH: u32 = 32;

/// Polls after which a batch ends early because another thread wants the guard. More than one, so that
/// what a poll has begun has been issued before the thread may sleep.
const POLLS_MIN: u32 = 4;

/// Times that who waits for neighbours' words looks at them before it makes progress in any case: some tens of the times that a
/// line takes from one cache to another, about a microsecond. Meanwhile it makes some only when a peer leaves a mark in its memory.
pub(super) const LOOKS: u32 = 64;

/// How long nothing may happen until a spinning thread yields: above a round trip over loopback.
const SPIN: Duration = Duration::from_micros(50);

/// How long it yields until it sleeps.
const YIELD: Duration = Duration::from_micros(50);

/// The first sleeps are short, because some providers have descriptors that miss something.
const SLEEP_FIRST: Duration = Duration::from_millis(1);

/// Times in a row that a thread is woken for nothing, by what others wait for, until it sleeps without
/// being woken: or each of another thread's operations would cost two switches between threads.
const VAIN_MAX: u32 = 16;

/// Sleeps of that kind before the longer ones begin.
const SLEEPS_FIRST: u32 = 100;

/// The first sleep between two looks at a lock of which perhaps nobody tells, and how many times as long later ones are
/// at most.
const LOOK: Duration = Duration::from_micros(200);
const LOOKS_MAX: u32 = 5;

/// The longer sleeps.
const SLEEP_LATER: Duration = Duration::from_millis(10);

/// Sleeps between two times that ghosts which owe an answer are looked for.
const SLEEPS_TO_PROBE: u32 = 50;

/// How long a ghost that takes nothing at all is believed to live.
const PROBE_LIMIT: Duration = Duration::from_secs(10);

/// Naps where the fabric has no descriptor.
const NAP: Duration = Duration::from_micros(50);

/// After this time a call that does not end is reported once.
const NOTICE: Duration = Duration::from_secs(60);

/// Something to be polled until it is ready.
pub(crate) trait Awaited {
    fn poll(&mut self, engine: &mut Engine) -> Poll<std::result::Result<(), RmaError>>;
    fn call(&self) -> Call;
    fn window(&self) -> Option<WindowId>;
    fn waiting_for(&self, engine: &Engine) -> &'static str;

    /// Whether it may be ready without progress, as neighbours tell of it by words that each poll looks at.
    fn is_told_by_words(&self, _: &mut Engine) -> bool {
        false
    }
}

impl Awaited for SyncCall {
    fn poll(&mut self, engine: &mut Engine) -> Poll<std::result::Result<(), RmaError>> {
        engine.poll(self)
    }

    fn call(&self) -> Call {
        Self::call(self)
    }

    fn window(&self) -> Option<WindowId> {
        Self::window(self)
    }

    fn waiting_for(&self, _: &Engine) -> &'static str {
        Self::waiting_for(self)
    }

    fn is_told_by_words(&self, engine: &mut Engine) -> bool {
        engine.is_told_by_words(self)
    }
}

/// An operation for which there were no resources.
#[derive(Debug)]
pub(crate) struct PendingOperation<'a> {
    window: WindowId,
    operation: &'a Operation,
}

impl<'a> PendingOperation<'a> {
    /// # Safety
    /// The operation's buffers are as [`rma_core::engine::Engine::post`] wants them, from now until the
    /// operation is complete.
    pub(crate) unsafe fn new(window: WindowId, operation: &'a Operation) -> Self {
        Self { window, operation }
    }
}

impl Awaited for PendingOperation<'_> {
    fn poll(&mut self, engine: &mut Engine) -> Poll<std::result::Result<(), RmaError>> {
        // SAFETY: promised to `new`.
        unsafe { engine.post(self.window, self.operation) }
    }

    fn call(&self) -> Call {
        self.operation.call
    }

    fn window(&self) -> Option<WindowId> {
        Some(self.window)
    }

    fn waiting_for(&self, engine: &Engine) -> &'static str {
        engine.operation_waits_for(self.window, self.operation.target)
    }
}

/// What a thread that waits does next.
///
/// Implements: seed: PROGRESS_WAIT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pause {
    Spin,
    Yield,
    Sleep,
}

/// How long a call has waited, and how long nothing has happened.
#[derive(Debug)]
struct Patience {
    may_spin: bool,
    started: Option<Instant>,
    idle_since: Option<Instant>,
    sleeps: u32,
    /// Times in a row that it was told of progress which was not its own.
    vain: u32,
    is_reported: bool,
    /// The fabric does not take all that is to find out which ghosts are gone.
    probing_since: Option<Instant>,
}

impl Patience {
    const fn new(may_spin: bool) -> Self {
        Self {
            may_spin,
            started: None,
            idle_since: None,
            sleeps: 0,
            vain: 0,
            is_reported: false,
            probing_since: None,
        }
    }

    /// What to do after a batch of polls.
    fn pause(&mut self, now: Instant, has_moved: bool) -> Pause {
        self.started.get_or_insert(now);
        if has_moved {
            (self.idle_since, self.sleeps) = (None, 0);
            return Pause::Spin;
        }
        let idle = now.saturating_duration_since(*self.idle_since.get_or_insert(now));
        let spin = if self.may_spin { SPIN } else { Duration::ZERO };
        if idle < spin {
            Pause::Spin
        } else if idle < spin + YIELD {
            Pause::Yield
        } else {
            Pause::Sleep
        }
    }

    /// Something has come or gone through the descriptors, whether the engine saw it or not: fabrics in software write and
    /// read a target's memory without a word to it, and who sleeps meanwhile keeps each of these accesses waiting.
    fn stir(&mut self) {
        self.idle_since = None;
    }

    fn waited(&self, now: Instant) -> Duration {
        self.started.map_or(Duration::ZERO, |started| now.saturating_duration_since(started))
    }

    /// How long to sleep at most.
    fn sleep_length(&mut self, has_descriptor: bool) -> Duration {
        self.sleeps += 1;
        match has_descriptor {
            true if self.sleeps <= SLEEPS_FIRST => SLEEP_FIRST,
            true => SLEEP_LATER,
            false => (NAP * self.sleeps.min(SLEEPS_FIRST)).min(SLEEP_FIRST),
        }
    }
}

impl Core {
    /// Starts a blocking call and waits for its end.
    #[inline]
    pub(crate) fn run(
        &self,
        call: Call,
        start: impl FnOnce(&mut Engine) -> std::result::Result<SyncCall, RmaError>,
    ) -> Result<()> {
        self.run_to(call, Rank::NULL, start)
    }

    /// The same for a call that names a target.
    #[inline]
    pub(crate) fn run_to(
        &self,
        call: Call,
        target: Rank,
        start: impl FnOnce(&mut Engine) -> std::result::Result<SyncCall, RmaError>,
    ) -> Result<()> {
        let guarded = self.enter_anyway();
        if guarded.phase != Phase::AtWork {
            return self.run_observed(guarded, call, target, start);
        }
        self.run_started(guarded, start)
    }

    /// A blocking call that could not be over at once.
    #[cold]
    #[inline(never)]
    pub(super) fn run_slowly(
        &self,
        guarded: Held<'_, Guarded>,
        (call, target): (Call, Rank),
        start: impl FnOnce(&mut Engine) -> std::result::Result<SyncCall, RmaError>,
    ) -> Result<()> {
        if guarded.phase != Phase::AtWork {
            return self.run_observed(guarded, call, target, start);
        }
        self.run_started(guarded, start)
    }

    /// Starts the call and waits, under the guard.
    #[inline]
    pub(super) fn run_started(
        &self,
        mut guarded: Held<'_, Guarded>,
        start: impl FnOnce(&mut Engine) -> std::result::Result<SyncCall, RmaError>,
    ) -> Result<()> {
        let mut sync = start(&mut guarded.engine).map_err(|error| self.fail(error))?;
        match guarded.engine.poll(&mut sync) {
            Poll::Ready(Ok(())) => {
                self.posted(&mut guarded);
                self.hand_over(&mut guarded);
                Ok(())
            }
            Poll::Ready(Err(error)) => {
                self.hand_over(&mut guarded);
                Err(self.fail(error))
            }
            Poll::Pending => {
                let waited = self.wait(guarded, &mut sync, self.timeout);
                if waited.is_err() {
                    self.enter_anyway().engine.abandon(&sync);
                }
                waited
            }
        }
    }

    /// Waits until `awaited` is ready, at most `limit`.
    pub(crate) fn wait<'core>(
        &'core self,
        guarded: Held<'core, Guarded>,
        awaited: &mut impl Awaited,
        limit: Option<Duration>,
    ) -> Result<()> {
        if guarded.trace.is_some() {
            return self.wait_observed(guarded, awaited, limit);
        }
        self.wait_until(guarded, awaited, limit)
    }

    /// The loop of everything that waits.
    #[inline(never)]
    pub(super) fn wait_until<'core>(
        &'core self,
        mut guarded: Held<'core, Guarded>,
        awaited: &mut impl Awaited,
        limit: Option<Duration>,
    ) -> Result<()> {
        if self.may_spin && awaited.is_told_by_words(&mut guarded.engine) {
            for _ in 0..LOOKS {
                if let Poll::Ready(result) = awaited.poll(&mut guarded.engine) {
                    // Who is always answered in time makes progress now and then all the same.
                    self.posted(&mut guarded);
                    self.hand_over(&mut guarded);
                    return result.map_err(|error| self.fail(error));
                }
                // Who tells may first want something of this rank: a put to its program's memory, say.
                if guarded.engine.has_news() {
                    self.progress(&mut guarded);
                    if self.is_contended() {
                        break;
                    }
                }
                hint::spin_loop();
            }
        }
        let mut patience = Patience::new(self.may_spin);
        loop {
            let mut has_moved = false;
            for polls in 1..=BATCH {
                has_moved |= self.progress(&mut guarded) > 0;
                if let Poll::Ready(result) = awaited.poll(&mut guarded.engine) {
                    self.hand_over(&mut guarded);
                    return result.map_err(|error| self.fail(error));
                }
                if polls >= POLLS_MIN && self.is_contended() {
                    break;
                }
                hint::spin_loop();
            }
            let now = Instant::now();
            if let Err(error) = self.check_patience(&guarded.engine, &mut patience, (awaited, limit), now) {
                self.hand_over(&mut guarded);
                return Err(error);
            }
            guarded = match patience.pause(now, has_moved) {
                Pause::Spin => {
                    self.give_turn(guarded);
                    self.enter_to_poll()
                }
                Pause::Yield => {
                    self.give_turn(guarded);
                    yield_now();
                    self.enter_to_poll()
                }
                Pause::Sleep => {
                    if let (0, Some(window)) = (patience.sleeps, awaited.window()) {
                        guarded.engine.on_kept_waiting(window);
                    }
                    self.sleep(guarded, &mut patience)
                }
            };
        }
    }

    /// Sleeps until something arrives, or another thread has made something move.
    #[cold]
    #[inline(never)]
    fn sleep<'core>(
        &'core self,
        mut guarded: Held<'core, Guarded>,
        patience: &mut Patience,
    ) -> Held<'core, Guarded> {
        let mut length = patience.sleep_length(self.sleeper.is_some());
        if guarded.engine.wants_looks() {
            length = length.min(LOOK * patience.sleeps.min(LOOKS_MAX));
        }
        if patience.probing_since.is_some() || patience.sleeps % SLEEPS_TO_PROBE == 0 {
            let now = Instant::now();
            let since = patience.probing_since.unwrap_or(now);
            let is_hopeless = now.saturating_duration_since(since) >= PROBE_LIMIT;
            patience.probing_since = guarded.engine.probe_ghosts(is_hopeless).then_some(since);
        }
        let Some(sleeper) = &self.sleeper else { return self.sleep_deaf(guarded, length) };
        if patience.vain >= VAIN_MAX {
            patience.vain = 0;
            return self.sleep_deaf(guarded, length.min(SLEEP_FIRST));
        }
        if guarded.sleeping.has_sentinel {
            let told = self.told.load(Ordering::Relaxed);
            let guarded = self.sleep_as_listener(guarded, length);
            patience.vain += u32::from(self.told.load(Ordering::Relaxed) != told);
            return guarded;
        }
        guarded.sleeping.is_stirred = false;
        let guarded = self.sleep_as_sentinel(guarded, sleeper, length);
        patience.vain += u32::from(guarded.sleeping.is_rung);
        if guarded.sleeping.is_stirred {
            patience.stir();
        }
        guarded
    }

    /// Reports a call that does not end; fails it where the user set a limit.
    fn check_patience(
        &self,
        engine: &Engine,
        patience: &mut Patience,
        (awaited, limit): (&impl Awaited, Option<Duration>),
        now: Instant,
    ) -> Result<()> {
        let waited = patience.waited(now);
        if limit.is_some_and(|limit| waited >= limit) {
            return Err(self.fail(RmaError::Stalled {
                call: awaited.call(),
                seconds: waited.as_secs(),
                waiting_for: awaited.waiting_for(engine).to_owned(),
            }));
        }
        if limit.is_none() && waited >= NOTICE && !patience.is_reported {
            patience.is_reported = true;
            let window = awaited.window().map(|id| format!(" on window {id}")).unwrap_or_default();
            say(format_args!(
                "rank {}: {}{window} has waited {} s for {} and goes on; RMA_TIMEOUT makes this an error",
                self.rank,
                awaited.call(),
                waited.as_secs(),
                awaited.waiting_for(engine)
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows: seed: PROGRESS_WAIT.
    #[test]
    fn waiting_spins_then_yields_then_sleeps_and_starts_over_when_something_moves() {
        let start = Instant::now();
        let at = |micros| start + Duration::from_micros(micros);
        let mut patience = Patience::new(true);
        assert_eq!(patience.pause(at(0), false), Pause::Spin);
        assert_eq!(patience.pause(at(49), false), Pause::Spin);
        assert_eq!(patience.pause(at(50), false), Pause::Yield);
        assert_eq!(patience.pause(at(100), false), Pause::Sleep);
        assert_eq!(patience.pause(at(101), true), Pause::Spin);
        assert_eq!(patience.pause(at(200), false), Pause::Spin);
        assert_eq!(patience.waited(at(200)), Duration::from_micros(200));
    }

    #[test]
    fn who_is_woken_by_what_the_engine_does_not_see_spins_again() {
        let start = Instant::now();
        let at = |micros| start + Duration::from_micros(micros);
        let mut patience = Patience::new(true);
        assert_eq!(patience.pause(at(0), false), Pause::Spin);
        assert_eq!(patience.pause(at(100), false), Pause::Sleep);
        patience.stir();
        assert_eq!(patience.pause(at(101), false), Pause::Spin);
        assert_eq!(patience.pause(at(150), false), Pause::Spin);
        assert_eq!(patience.pause(at(201), false), Pause::Sleep);
    }

    #[test]
    fn more_ranks_than_processors_never_spin() {
        let start = Instant::now();
        let mut patience = Patience::new(false);
        assert_eq!(patience.pause(start, false), Pause::Yield);
        assert_eq!(patience.pause(start + YIELD, false), Pause::Sleep);
    }

    #[test]
    fn sleeps_grow_and_stay_bounded() {
        let mut patience = Patience::new(true);
        assert_eq!(patience.sleep_length(true), SLEEP_FIRST);
        patience.sleeps = SLEEPS_FIRST;
        assert_eq!(patience.sleep_length(true), SLEEP_LATER);
        patience.sleeps = 0;
        assert_eq!(patience.sleep_length(false), NAP);
        patience.sleeps = 1_000_000;
        assert_eq!(patience.sleep_length(false), SLEEP_FIRST);
    }
}
