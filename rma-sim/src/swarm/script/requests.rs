//! Requests of a script, and the notified puts that it waits for.

use super::super::library::Library;
use super::super::plan::{Action, Form};
use super::{RankScript, Stage};

/// A flush that nobody waits for.
#[derive(Debug)]
pub(super) struct FlushRequest {
    id: u64,
    window: usize,
    target: Option<u32>,
    is_local: bool,
}

impl<L: Library> RankScript<L> {
    pub(super) fn on_flush_requested(&mut self, window: usize, target: Option<u32>, is_local: bool, id: u64) {
        self.flush_requests.push(FlushRequest { id, window, target, is_local });
        self.names += 1;
    }

    /// Requests were found done: operations are complete here, and what flushes were for, everywhere.
    pub(super) fn on_awaited(&mut self) -> Result<(), String> {
        for id in self.library.finished() {
            self.complete_those(|entry| entry.id == id)?;
            let Some(at) = self.flush_requests.iter().position(|flush| flush.id == id) else { continue };
            let FlushRequest { window, target, is_local, .. } = self.flush_requests.swap_remove(at);
            let is_meant = |of_window: usize, of_target: u32| {
                of_window == window && target.is_none_or(|target| target == of_target)
            };
            self.complete_those(|entry| entry.id < id && is_meant(entry.plan.window, entry.plan.target))?;
            // What was posted behind the flush may be anywhere, and be complete here.
            let is_last = self
                .last_posted
                .iter()
                .all(|(&(of_window, of_target), &last)| last < id || !is_meant(of_window, of_target));
            if !is_local && is_last {
                self.on_flushed(window, target)?;
            }
        }
        Ok(())
    }

    /// The word of a span says that so many puts have come: their data must be here.
    pub(super) fn on_noticed(&self) -> Result<(), String> {
        let Stage::Phase { index, action } = self.stage else { return Ok(()) };
        let shared = self.shared.borrow();
        let phase = &shared.plan.phases[index];
        let waited_for = phase.scripts[self.rank as usize].get(action);
        let Some(&Action::AwaitNotice { span, until, .. }) = waited_for else { return Ok(()) };
        let puts = phase.scripts.iter().flatten().filter_map(|action| match action {
            Action::Operation(plan) if plan.span == span => Some(plan),
            _ => None,
        });
        let puts = puts.filter(|plan| matches!(plan.form, Form::Notified { .. }));
        puts.take(until as usize).try_for_each(|plan| {
            let (payload, _) = self.payload(plan, None);
            shared.oracle.on_notified(plan, &payload)
        })
    }
}
