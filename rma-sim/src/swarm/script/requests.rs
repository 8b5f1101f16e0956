//! Requests of a script, and the notified puts that it waits for.

use super::super::library::Library;
use super::super::plan::{Action, Form};
use super::{RankScript, Stage};

/// A flush that nobody waits for.
#[derive(Debug)]
pub(super) struct FlushRequest {
    pub(super) id: u64,
    /// When it was called for.
    pub(super) since: u64,
    pub(super) window: usize,
    pub(super) target: Option<u32>,
    pub(super) is_local: bool,
}

impl<L: Library> RankScript<L> {
    /// Requests were found done: operations are complete here, and what flushes were for, everywhere.
    pub(super) fn on_awaited(&mut self) -> Result<(), String> {
        for id in self.library.finished(self.current) {
            self.complete_those(|entry| entry.id == id)?;
            let Some(at) = self.flush_requests.iter().position(|flush| flush.id == id) else { continue };
            let FlushRequest { since, window, target, is_local, .. } = self.flush_requests.swap_remove(at);
            self.complete(window, target, since)?;
            if !is_local {
                self.on_flushed(window, target, since)?;
            }
        }
        Ok(())
    }

    /// The word of a span says that so many puts have come: their data must be here.
    pub(super) fn on_noticed(&self) -> Result<(), String> {
        let Stage::Phase(index) = self.stage else { return Ok(()) };
        let Some(Action::AwaitNotice { span, until, .. }) = self.action() else { return Ok(()) };
        let shared = self.shared.borrow();
        let phase = &shared.plan.phases[index];
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
