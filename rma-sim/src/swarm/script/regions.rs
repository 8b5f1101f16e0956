//! Regions of dynamic windows in a script: where they are, and what becomes of accesses to others.

use core::ptr::NonNull;

use super::super::library::{Call, Library, Progress};
use super::super::plan::{Action, OperationPlan, Role};
use super::{RankScript, Stage};
use crate::random::Random;

/// How the error of an access to memory that is not attached is named.
const CLASS: &str = "MPI_ERR_RMA_RANGE";

/// An operation on memory that is not attached, or may be detached before it arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stray {
    window: usize,
    target: u32,
    /// It must fail.
    is_certain: bool,
}

impl<L: Library> RankScript<L> {
    /// The first byte of a region of this rank.
    pub(super) fn region(&self, window: usize, offset: usize) -> NonNull<u8> {
        let memory = &self.windows[window];
        memory.exposed().place(offset).unwrap_or_else(|| memory.base())
    }

    /// What the phase does with the span decides what an operation on it may come to.
    pub(super) fn note_stray(&mut self, plan: &OperationPlan, role: Option<Role>) {
        let is_certain = match role {
            Some(Role::Absent(_)) => true,
            Some(Role::Vanishing(_)) => false,
            _ => return,
        };
        let &OperationPlan { window, target, .. } = plan;
        self.strays.push(Stray { window, target, is_certain });
    }

    /// An access to memory of this rank itself that is not attached is refused at once.
    pub(super) fn is_stray_of_own(&self, plan: &OperationPlan, role: Option<Role>, error: &str) -> bool {
        let is_stray = matches!(role, Some(Role::Absent(_) | Role::Vanishing(_)));
        is_stray && plan.target == self.rank && error.contains(CLASS)
    }

    /// A call that completes strays may fail for them, and has done its work all the same.
    pub(super) fn take_stray(&mut self, call: &Call, error: String) -> Result<Progress, String> {
        let (Call::Flush { window, target: Some(target), is_local: false } | Call::Unlock { window, target }) =
            *call
        else {
            return Err(error);
        };
        if !error.contains(CLASS) || !self.forget_strays(window, target) {
            return Err(error);
        }
        Ok(Progress::Returned)
    }

    /// The call that completes operations to the target has returned: none of those that are left may be an
    /// error for certain.
    pub(super) fn expect_no_stray(&mut self, window: usize, target: u32) -> Result<(), String> {
        let is_certain = |stray: &Stray| (stray.window, stray.target) == (window, target) && stray.is_certain;
        if self.strays.iter().any(is_certain) {
            return Err("no error came of an access to memory that is not attached".into());
        }
        self.forget_strays(window, target);
        Ok(())
    }

    /// Whether there were any.
    fn forget_strays(&mut self, window: usize, target: u32) -> bool {
        let before = self.strays.len();
        self.strays.retain(|stray| (stray.window, stray.target) != (window, target));
        self.strays.len() < before
    }

    /// A region is this rank's own again. What it stores there must stay.
    pub(super) fn on_detached(&mut self) {
        let Stage::Phase(index) = self.stage else { return };
        let Some(Action::Detach { overwrites: Some(span), .. }) = self.action() else { return };
        let mut shared = self.shared.borrow_mut();
        let phase = &shared.plan.phases[index];
        let mut bytes = vec![0; phase.spans[span].len];
        Random::new(shared.plan.seed ^ span as u64).fill(&mut bytes);
        shared.oracle.on_vanished(span, &bytes);
    }
}
