//! The agent: a thread that makes progress while the program is outside the library, so that its
//! windows serve the other ranks meanwhile.
//!
//! *Standby.* The program is inside, or was a moment ago: the agent looks at `activity` every 50 to
//! 200 microseconds and does nothing else: no guard, no endpoint, no shared wake-up. It looks again at once
//! when much less has happened than before, since the program has then probably just left. While the
//! program sleeps in a blocking call, the agent is parked until it is back.
//!
//! *Takeover.* Between two looks the program made no progress: the agent takes the guard, makes progress
//! until nothing is left, arms the endpoint's descriptor, gives the guard back and sleeps on the
//! descriptor. When it wakes and `activity` has changed meanwhile, the program is back, and the agent
//! goes to standby.
//!
//! The program pays a load and a store for each progress it makes itself, and nothing else.
//!
//! Implements: notes: agent as a thread.

use std::hint;
use std::time::Duration;

use super::{Core, Guarded};
use crate::error::{Error, Result};
use crate::platform::{
    park_timeout, sleep, spawn, yield_now, Arc, AtomicBool, Event, JoinHandle, Ordering, Sleeper,
};

/// Time between two looks when the program may just have left.
const LOOK: Duration = Duration::from_micros(50);

/// Time between two looks when it probably has.
const LOOK_SOON: Duration = Duration::from_micros(20);

/// Longest time between two looks while it stays inside, with a processor for the agent and without.
const LOOK_LATER: Duration = Duration::from_micros(100);
const LOOK_LATER_CROWDED: Duration = Duration::from_micros(200);

/// Longest sleep on the descriptor: what the descriptor cannot tell (time limits of look-ups) waits no
/// longer.
const SLEEP: Duration = Duration::from_millis(20);

/// The same where a lock is waited for of which nobody tells.
const SLEEP_TO_LOOK: Duration = Duration::from_millis(1);

/// Naps where the fabric has no descriptor, from the first to the longest.
const NAP_FIRST: Duration = Duration::from_micros(50);
const NAP_LONGEST: Duration = Duration::from_millis(1);

/// Tries to get the guard: a program that looks at its own window memory has it for moments only.
const TRIES: u32 = 64;

/// Most rounds of progress before the guard is offered to the program.
const ROUNDS: u32 = 64;

/// The agent's thread; ends when dropped.
///
/// Implements: notes: agent as a thread.
#[derive(Debug)]
pub(crate) struct Agent {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Stop {
    /// The thread runs: what starting one allocates has been allocated.
    has_begun: AtomicBool,
    is_asked: AtomicBool,
    event: Event,
}

impl Agent {
    /// Starts the thread.
    pub(crate) fn start(core: &Arc<Core>) -> Result<Self> {
        let event = Event::new("the progress agent's event")?;
        let stop =
            Arc::new(Stop { has_begun: AtomicBool::new(false), is_asked: AtomicBool::new(false), event });
        let has_descriptor = core.sleeper.is_some();
        let sleeper = has_descriptor.then(|| Sleeper::new(&core.descriptors, &stop.event)).transpose()?;
        let (its_core, its_stop) = (Arc::clone(core), Arc::clone(&stop));
        let body = move || {
            its_stop.has_begun.store(true, Ordering::SeqCst);
            run(&its_core, &its_stop, sleeper.as_ref());
        };
        let thread = spawn("rma-agent", body).map_err(|error| {
            Error::system("the progress agent cannot be started (RMA_PROGRESS=none does without)", &error)
        })?;
        while !stop.has_begun.load(Ordering::SeqCst) {
            yield_now();
        }
        // The job starts its agent once, so nothing was there.
        let _ = core.agent_thread.set(thread.thread().clone());
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop.is_asked.store(true, Ordering::SeqCst);
        self.stop.event.ring();
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic of the thread was reported by its hook.
            let _ = thread.join();
        }
    }
}

impl Core {
    /// Changes whenever the program makes progress by itself.
    pub(crate) fn activity(&self) -> u64 {
        self.activity.load(Ordering::Relaxed)
    }

    /// Makes progress in a thread that a signal interrupted outside of the library, unless somebody has the
    /// guard or sleeps in the library. Bounded; allocates nothing and waits for nothing.
    pub(crate) fn serve_interrupted(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            return;
        }
        let Some(mut guarded) = self.try_enter() else { return };
        guarded.engine.set_deferring(true);
        self.serve(&mut guarded);
        guarded.engine.set_deferring(false);
    }

    /// Makes progress until nothing is left, or for the most rounds; returns how many there were.
    fn serve(&self, guarded: &mut Guarded) -> u32 {
        let begun = guarded.begin();
        let (mut rounds, mut moved) = (0, 0);
        while rounds < ROUNDS {
            match self.progress_unnoticed(guarded) {
                0 => break,
                count => moved += count,
            }
            rounds += 1;
        }
        if let Some(begun) = begun.filter(|_| moved > 0) {
            guarded.note_served(begun, moved);
        }
        rounds
    }

    /// Wakes the agent, if it is parked, because nobody sleeps in the library any more.
    pub(super) fn unpark_agent(&self) {
        if self.agent_is_parked.load(Ordering::SeqCst) {
            if let Some(thread) = self.agent_thread.get() {
                thread.unpark();
            }
        }
    }
}

fn run(core: &Core, stop: &Stop, sleeper: Option<&Sleeper>) {
    while !stop.is_asked.load(Ordering::SeqCst) {
        stand_by(core, stop);
        take_over(core, stop, sleeper);
    }
}

/// Returns when the program has left the library.
fn stand_by(core: &Core, stop: &Stop) {
    let longest = if core.has_spare_processors { LOOK_LATER } else { LOOK_LATER_CROWDED };
    let mut last = core.activity.load(Ordering::Relaxed);
    let (mut interval, mut rate) = (LOOK, 0);
    let mut was_asleep = false;
    while !stop.is_asked.load(Ordering::SeqCst) {
        if core.sleepers.load(Ordering::SeqCst) > 0 {
            // The second look in a row: the program's sleep is a long one.
            if was_asleep {
                park(core, stop);
            }
            was_asleep = !was_asleep;
            sleep(interval);
            last = core.activity.load(Ordering::Relaxed);
            continue;
        }
        was_asleep = false;
        sleep(interval);
        let now = core.activity.load(Ordering::Relaxed);
        if now == last {
            return;
        }
        // Progress per time, so that looks of different lengths compare.
        let rate_now = now.wrapping_sub(last) * 1000 / interval.as_micros() as u64;
        interval = if rate_now < rate / 2 { LOOK_SOON } else { (2 * interval).clamp(LOOK, longest) };
        rate = rate_now;
        last = now;
    }
}

/// Sleeps until nobody sleeps in the library.
fn park(core: &Core, stop: &Stop) {
    core.agent_is_parked.store(true, Ordering::SeqCst);
    while core.sleepers.load(Ordering::SeqCst) > 0 && !stop.is_asked.load(Ordering::SeqCst) {
        park_timeout(SLEEP);
    }
    core.agent_is_parked.store(false, Ordering::SeqCst);
}

/// Makes progress until the program is back.
fn take_over(core: &Core, stop: &Stop, sleeper: Option<&Sleeper>) {
    let mut nap = NAP_FIRST;
    while !stop.is_asked.load(Ordering::SeqCst) {
        // Who has the guard for longer is inside of the library.
        let Some(mut guarded) = (0..TRIES).find_map(|_| {
            hint::spin_loop();
            core.try_visit()
        }) else {
            return;
        };
        let seen = core.activity.load(Ordering::Relaxed);
        let rounds = core.serve(&mut guarded);
        core.hear(&mut guarded);
        let is_quiet = rounds < ROUNDS;
        let length = if guarded.engine.wants_looks() { SLEEP_TO_LOOK } else { SLEEP };
        let may_sleep = is_quiet && (sleeper.is_none() || guarded.engine.arm_wait());
        drop(guarded);
        match (may_sleep, sleeper) {
            (false, _) => yield_now(),
            (true, Some(sleeper)) => sleeper.sleep(length),
            (true, None) => {
                nap = if rounds > 0 { NAP_FIRST } else { (2 * nap).min(NAP_LONGEST) };
                sleep(nap);
            }
        }
        if core.activity.load(Ordering::Relaxed) != seen {
            return;
        }
    }
}
