//! What the driver does after the last rank has ended: it hands on what is still on its way.

use std::io;
use std::time::Duration;

use rma_bootstrap::tree::Down;

use super::Driver;
use crate::job::SIGKILL;
use crate::output::Sink;
use crate::view::View;

/// How long nothing may come, once all ranks ended, from streams that processes which outlived their rank have open.
const LAST_OUTPUT_PATIENCE: Duration = Duration::from_millis(200);

/// The same where it comes from other hosts.
const FAR_OUTPUT_PATIENCE: Duration = Duration::from_secs(5);

/// How long such processes are listened to in all: they may write for ever.
const LAST_OUTPUT_MAX: Duration = Duration::from_secs(20);

/// How long agents may take to leave when the job is over.
const LEAVE_PATIENCE: Duration = Duration::from_secs(4);

impl Driver {
    /// After the last rank: what ranks left running is killed, all output is handed on, and agents leave.
    pub(super) fn wind_up(&mut self) -> io::Result<()> {
        self.send(Down::Signal { number: SIGKILL as u8 });
        self.take_last_output()?;
        (0..self.job.size()).for_each(|rank| self.close_streams(rank));
        self.send(Down::Leave);
        let leave_by = self.now() + LEAVE_PATIENCE;
        while !self.branches.is_over() && self.now() < leave_by {
            if self.turn(Some(leave_by))? {
                break;
            }
        }
        self.say_traffic();
        // Only a signal ends the wait for a reader that takes its time.
        while self.sinks.iter().any(|sink| sink.wants_to_write().is_some()) {
            if self.turn(None)? {
                break;
            }
        }
        Ok(())
    }

    /// Waits for the output that is on its way, until all streams have ended or no more comes.
    fn take_last_output(&mut self) -> io::Result<()> {
        let is_far = !self.branches.is_over();
        let patience = if is_far { FAR_OUTPUT_PATIENCE } else { LAST_OUTPUT_PATIENCE };
        let (mut left, mut quiet_since) = (LAST_OUTPUT_MAX, self.now());
        while self.views.iter().any(View::has_open_stream) && !left.is_zero() {
            // A reader that takes its time delays the rest of the output and must not cost it.
            let is_held_up = self.sinks.iter().any(Sink::is_full);
            let begun = self.now();
            self.has_output = false;
            if self.turn((!is_held_up).then_some(quiet_since + patience))? {
                break;
            }
            if self.has_output || is_held_up {
                quiet_since = self.now();
            } else if begun >= quiet_since + patience {
                // This turn has looked once more, after the time: on a busy host that may be the first look.
                break;
            }
            if !is_held_up {
                left = left.saturating_sub(self.now() - begun);
            }
        }
        Ok(())
    }
}
