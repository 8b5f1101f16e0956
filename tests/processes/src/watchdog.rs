//! Says where a rank is when a behaviour takes too long, and ends it.

use std::panic::Location;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rma::Rank;

/// The last call that this rank's main thread has begun.
static PLACE: Mutex<Option<(&'static str, &'static Location<'static>)>> = Mutex::new(None);

fn locked() -> MutexGuard<'static, Option<(&'static str, &'static Location<'static>)>> {
    PLACE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes that a call begins.
#[track_caller]
pub(crate) fn at(call: &'static str) {
    *locked() = Some((call, Location::caller()));
}

/// The last call, for people.
pub(crate) fn place() -> String {
    match *locked() {
        Some((call, location)) => format!("{call} at {}:{}", location.file(), location.line()),
        None => "none".to_owned(),
    }
}

/// How long the other ranks have to say where they are, before this one ends and the launcher ends them.
const GRACE: Duration = Duration::from_secs(15);

/// A thread that waits for the behaviours to end.
pub(crate) struct Watchdog {
    behaviours: Sender<&'static str>,
}

impl Watchdog {
    /// Starts it; each behaviour may take `limit`.
    pub(crate) fn start(rank: Rank, limit: Duration) -> Self {
        let (behaviours, begun) = mpsc::channel::<&'static str>();
        std::thread::spawn(move || {
            let mut current = "start";
            loop {
                match begun.recv_timeout(limit) {
                    Ok(behaviour) => current = behaviour,
                    // The program has ended.
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => {
                        let seconds = limit.as_secs();
                        eprintln!("HANGS {current}: after {seconds} s rank {rank} is in {}", place());
                        std::thread::sleep(GRACE);
                        std::process::exit(3);
                    }
                }
            }
        });
        Self { behaviours }
    }

    /// A behaviour begins.
    pub(crate) fn begin(&self, behaviour: &'static str) {
        // The thread ends only with the process.
        let _ = self.behaviours.send(behaviour);
    }
}
