//! The agent: a thread that makes progress while the program is outside the library, so that its
//! windows serve the other ranks meanwhile.
//!
//! *Standby.* The program is inside, or was a moment ago: the agent looks at `activity` every 50 to
//! 100 microseconds and does nothing else: no guard, no endpoint, no shared wake-up. Where it takes the program's
//! processor for that, it looks ever more seldom while the program stays inside, up to every 2 milliseconds. It looks again
//! at once when much less has happened than before, since the program has then probably just left. While the
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

/// Longest time between two looks while it stays inside, with a processor for the agent and without. There each look
/// interrupts the program: a virtual machine's timer and two changes of threads took it 21 us.
const LOOK_LATER: Duration = Duration::from_micros(100);
const LOOK_LATER_CROWDED: Duration = Duration::from_millis(2);

/// Where looks interrupt the program their distance is this part of the time for which it has been inside, so that
/// whoever asks it for something just after it has left waits for a part of that time.
const PART_OF_STAY: u32 = 2;

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
    let longest = if core.has_spare_processors { LOOK_LATER } else { LOOK_LATER_CROWDED };
    let mut watch = Watch::START;
    while !stop.is_asked.load(Ordering::SeqCst) {
        stand_by(core, stop, &mut watch, longest);
        if take_over(core, stop, sleeper, &mut watch.posts_left) {
            watch = Watch { posts_left: watch.posts_left, ..Watch::START };
        } else {
            watch.lengthen(longest);
        }
    }
}

/// How the program has been seen to stay inside.
struct Watch {
    /// Time until the next look.
    interval: Duration,
    /// For how long it has been inside.
    stay: Duration,
    /// What it did in a millisecond, by the last look.
    rate: u64,
    /// What it could still post without progress when the agent had the guard last.
    posts_left: u32,
}

impl Watch {
    const START: Self = Self { interval: LOOK, stay: Duration::ZERO, rate: 0, posts_left: 0 };

    /// The program did so much in the last interval: when to look again.
    fn note(&mut self, done: u64, longest: Duration) {
        // Per time, so that looks of different lengths compare.
        let rate = done * 1000 / self.interval.as_micros() as u64;
        let has_slowed = rate < self.rate / 2;
        self.lengthen(longest);
        if has_slowed {
            self.interval = LOOK_SOON;
        }
        self.rate = rate;
    }

    /// The program was inside for the last interval as well.
    fn lengthen(&mut self, longest: Duration) {
        self.stay += self.interval;
        self.interval = (self.stay / PART_OF_STAY).clamp(LOOK, longest);
    }
}

/// Returns when the program has left the library, or does one thing in it for long.
fn stand_by(core: &Core, stop: &Stop, watch: &mut Watch, longest: Duration) {
    let mut last = core.activity();
    let mut was_asleep = false;
    while !stop.is_asked.load(Ordering::SeqCst) {
        if core.sleepers.load(Ordering::SeqCst) > 0 {
            // The second look in a row: the program's sleep is a long one.
            if was_asleep {
                park(core, stop);
                *watch = Watch { posts_left: watch.posts_left, ..Watch::START };
            }
            was_asleep = !was_asleep;
            sleep(watch.interval);
            last = core.activity();
            continue;
        }
        was_asleep = false;
        sleep(watch.interval);
        let now = core.activity();
        if now == last {
            return;
        }
        watch.note(now.saturating_sub(last), longest);
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

/// Makes progress until the program is back. `false`: it was inside all the time, in one call of the fabric that serves
/// much at once, or posting: where each post is a call of the kernel's, as many as are posted without progress take longer
/// than the agent's patience.
fn take_over(core: &Core, stop: &Stop, sleeper: Option<&Sleeper>, posts_left: &mut u32) -> bool {
    let mut nap = NAP_FIRST;
    let mut was_outside = false;
    while !stop.is_asked.load(Ordering::SeqCst) {
        // Who has the guard for longer is inside of the library.
        let Some(mut guarded) = (0..TRIES).find_map(|_| {
            hint::spin_loop();
            core.try_visit()
        }) else {
            return was_outside;
        };
        if !was_outside && std::mem::replace(posts_left, guarded.posts_left) != guarded.posts_left {
            return false;
        }
        was_outside = true;
        let seen = core.activity();
        let rounds = core.serve(&mut guarded);
        core.hear(&mut guarded);
        let is_quiet = rounds < ROUNDS;
        let length = if guarded.engine.wants_looks() { SLEEP_TO_LOOK } else { SLEEP };
        let may_sleep = is_quiet && (sleeper.is_none() || guarded.engine.arm_wait());
        drop(guarded);
        match (may_sleep, sleeper) {
            (false, _) => yield_now(),
            (true, Some(sleeper)) => {
                sleeper.sleep(length);
            }
            (true, None) => {
                nap = if rounds > 0 { NAP_FIRST } else { (2 * nap).min(NAP_LONGEST) };
                sleep(nap);
            }
        }
        if core.activity() != seen {
            return true;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_grow_rarer_with_the_stay_and_come_soon_when_the_program_slows_down() {
        let mut watch = Watch::START;
        let (mut stay, mut looks) = (Duration::ZERO, 0);
        while stay < 20 * LOOK_LATER_CROWDED {
            stay += watch.interval;
            watch.note(watch.interval.as_micros() as u64, LOOK_LATER_CROWDED);
            assert!(watch.interval <= LOOK.max(stay / PART_OF_STAY));
            looks += 1;
        }
        assert_eq!(watch.interval, LOOK_LATER_CROWDED);
        assert!(looks < 60, "{looks}");
        watch.note(watch.interval.as_micros() as u64 / 3, LOOK_LATER_CROWDED);
        assert_eq!(watch.interval, LOOK_SOON);
        watch.note(watch.interval.as_micros() as u64 / 3, LOOK_LATER_CROWDED);
        assert_eq!(watch.interval, LOOK_LATER_CROWDED);
    }
}
