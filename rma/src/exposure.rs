//! General active target synchronization with types: groups, start's scope, and post's guard.

use std::fmt;

use rma_core::engine::{PostAssert, StartAssert};
use rma_core::error::Call;
use rma_core::group::Group;
use rma_core::ids::Rank;

use crate::element::Element;
use crate::epoch::Epoch;
use crate::error::Result;
use crate::job::Job;
use crate::runtime::start_complete;
use crate::window::{Open, Window, PANIC_PATIENCE};

impl Job {
    /// The group of these ranks, in any order; none at all is legal. To be made once, outside of epochs.
    ///
    /// # Errors
    /// When a rank is not one of the job, or is there twice.
    pub fn group(&self, ranks: &[Rank]) -> Result<Group> {
        Group::new(ranks, self.size()).map_err(|error| self.core().fail(error))
    }
}

impl<T: Element> Window<T> {
    /// The ranks of the window, which are those of its job. Costs nothing, whatever their number.
    ///
    /// Implements: MPI_Win_get_group.
    pub fn group(&self) -> Group {
        self.raw().group()
    }

    /// An access epoch to the members of `group` (MPI-4.1 section 13.5.2): they expose their windows to this rank
    /// by [`Window::post`]. Nobody else takes part. Operations to a member leave when it has posted.
    ///
    /// When it returns, the buffers of its operations are free; the members' [`Exposure::wait`] says when
    /// the operations are complete there. Small puts to a member that has not posted yet are kept and sent
    /// later. A rank that is a member of its own group posts first: an operation on itself waits for that.
    ///
    /// ```
    /// # let job = rma::Job::init()?;
    /// let window = job.allocate::<u64>(4)?;
    /// let partner = job.group(&[job.rank()])?;
    /// let exposure = window.post(&partner)?;
    /// window.start(&partner, |epoch| epoch.put(job.rank(), 2, &[7]))?;
    /// exposure.wait()?;
    /// assert_eq!(window.local().to_vec()?, [0, 0, 7, 0]);
    /// window.free()?;
    /// # Ok::<(), rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// When another access epoch is open, an operation failed, or `body` says so.
    /// When it takes longer than [`crate::Options::timeout`], which may end the process: see there.
    pub fn start<'env, R>(
        &'env self,
        group: &Group,
        body: impl for<'scope> FnOnce(&'scope Epoch<'scope, 'env, T>) -> Result<R>,
    ) -> Result<R> {
        let _open = self.open(Call::Start, None, Open::Start)?;
        self.raw().start(group, StartAssert::default())?;
        let epoch = Epoch::new(self);
        self.epoch(|| body(&epoch), start_complete)
    }

    /// Exposes this rank's window to the members of `group`, which access it by [`Window::start`] (MPI-4.1
    /// section 13.5.2), until the result is waited for. Does not wait for anybody itself.
    ///
    /// # Errors
    /// When the window is exposed already, or locked, or an earlier exposure whose wait took longer than
    /// [`crate::Options::timeout`] still is not over.
    pub fn post(&self, group: &Group) -> Result<Exposure<'_, T>> {
        self.resume_exposure()?;
        self.raw().post(group, PostAssert::default())?;
        Ok(Exposure { window: self, is_over: false })
    }
}

/// An open exposure epoch: [`Window::post`]. It borrows the window, so that it cannot be freed meanwhile.
///
/// To be ended by [`Exposure::wait`], or by [`Exposure::test`] until it is true; dropped before that it waits
/// too, and an error is lost.
#[must_use = "the origins' operations are complete when it was waited for"]
pub struct Exposure<'w, T: Element> {
    window: &'w Window<T>,
    is_over: bool,
}

impl<T: Element> Exposure<'_, T> {
    /// Waits until every member of the group has left its epoch: what they did is complete, and seen by
    /// [`Window::local`].
    ///
    /// # Errors
    /// When a member was lost.
    pub fn wait(mut self) -> Result<()> {
        if self.is_over {
            return Ok(());
        }
        self.is_over = true;
        self.window.end_exposure(self.window.raw().wait())
    }

    /// Whether every member has left its epoch, without waiting. Once true it stays so.
    ///
    /// # Errors
    /// As for [`Exposure::wait`].
    pub fn test(&mut self) -> Result<bool> {
        if !self.is_over {
            // After an error the epoch is over too.
            self.is_over = self.window.raw().test().inspect_err(|_| self.is_over = true)?;
        }
        Ok(self.is_over)
    }
}

impl<T: Element> Drop for Exposure<'_, T> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let core = self.window.raw().core();
        let limit = if std::thread::panicking() { Some(PANIC_PATIENCE) } else { core.timeout() };
        // Nowhere to report an error to; the job knows that a call has failed.
        let waited = core.close(limit, |engine| engine.start_wait(self.window.id()), drop);
        let _ = self.window.end_exposure(waited);
    }
}

impl<T: Element> fmt::Debug for Exposure<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exposure({:?})", self.window)
    }
}
