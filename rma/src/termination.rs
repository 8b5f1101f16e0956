//! What a rank that is told to end (SIGTERM) writes before it does: when a rank fails the launcher ends the others so,
//! and what they waited for is what their timelines are for.
//!
//! Only where something is to be written, and only if the program has left the signal alone. The handler wakes a
//! thread, which writes and then lets the signal do what it does by itself.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use std::sync::{Arc, Weak};
use std::time::Duration;

use signal_hook::consts::SIGTERM;
use signal_hook::low_level::{emulate_default_handler, pipe};

use crate::error::{Error, Result};
use crate::platform::spawn;
use crate::runtime::Core;

/// Longest time that writing may keep the process from ending, where nobody kills it before: less than batch systems
/// wait until they do.
const PATIENCE: Duration = Duration::from_secs(20);

/// Watches for the signal, until the process ends.
///
/// # Errors
/// When the system refuses a socket, a handler or a thread.
pub(crate) fn watch(core: &Arc<Core>) -> Result<()> {
    if !is_default() {
        return Ok(());
    }
    let failed =
        |error| Error::system("SIGTERM cannot be watched, as RMA_TRACE and RMA_METRICS want it", &error);
    let (mut told, teller) = UnixStream::pair().map_err(failed)?;
    let core = Arc::downgrade(core);
    // Who hears of it is there before anybody tells.
    spawn("rma-termination", move || {
        if told.read_exact(&mut [0]).is_ok() {
            write(core);
            // It returns only if it fails; who wants the process to end then kills it.
            let _ = emulate_default_handler(SIGTERM);
        }
    })
    .map_err(failed)?;
    pipe::register(SIGTERM, teller).map_err(failed)?;
    Ok(())
}

/// Writes what the job is to leave, if there is one still. Who has the guard meanwhile and does not give it back
/// does not keep the process from ending.
fn write(core: Weak<Core>) {
    let Some(core) = core.upgrade() else { return };
    let (is_over, over) = channel::<()>();
    let writing = spawn("rma-last-outputs", move || {
        core.write_outputs("ended by SIGTERM");
        drop(is_over);
    });
    if writing.is_ok() {
        // Nothing is ever sent: either it is over, or it has taken too long.
        let _ = over.recv_timeout(PATIENCE);
    }
}

/// Whether nobody handles or ignores the signal.
fn is_default() -> bool {
    // SAFETY: an all-zero action is a valid place for the present one to be written to.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: nothing is set, and `action` is writable.
    let asked = unsafe { libc::sigaction(SIGTERM, std::ptr::null(), &mut action) };
    asked == 0 && action.sa_sigaction == libc::SIG_DFL
}
