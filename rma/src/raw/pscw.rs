//! General active target synchronization: post, start, complete, wait, test.

use rma_core::engine::{PostAssert, StartAssert};
use rma_core::error::Call;
use rma_core::group::Group;
use rma_core::ids::Rank;

use super::RawWindow;
use crate::error::Result;

impl RawWindow {
    /// The ranks of the window, which are those of its job (MPI_Win_get_group). Costs nothing, whatever their
    /// number.
    ///
    /// Implements: MPI_Win_get_group.
    pub fn group(&self) -> Group {
        Group::all(self.job.size())
    }

    /// Lets the members of `group` access this rank's window until [`RawWindow::wait`] (MPI_Win_post). Does not
    /// wait for anybody.
    ///
    /// # Errors
    /// When the window is exposed already, by post or in a fence epoch, or is locked.
    ///
    /// Implements: MPI_Win_post.
    pub fn post(&self, group: &Group, assert: PostAssert) -> Result<()> {
        self.over(Call::Post, Rank::NULL, self.core.post(self.id, group, assert))
    }

    /// Opens an access epoch to the members of `group` (MPI_Win_start). It waits for no post, but, after an
    /// epoch that was completed before its targets posted, for those.
    ///
    /// # Errors
    /// When another access epoch is open.
    ///
    /// Implements: MPI_Win_start.
    pub fn start(&self, group: &Group, assert: StartAssert) -> Result<()> {
        self.over(Call::Start, Rank::NULL, self.core.start(self.id, group, assert))
    }

    /// Ends it (MPI_Win_complete): the buffers of its operations are the caller's again. A target may get what
    /// the library has copied later, when it posts.
    ///
    /// # Errors
    /// When no epoch of start is open, or an operation failed.
    ///
    /// Implements: MPI_Win_complete.
    pub fn complete(&self) -> Result<()> {
        self.over(Call::Complete, Rank::NULL, self.core.complete(self.id))
    }

    /// Waits until every member of post's group has completed, and ends the exposure epoch (MPI_Win_wait): all
    /// their operations are complete and visible here.
    ///
    /// # Errors
    /// When no exposure epoch of post is open, or a member was lost.
    ///
    /// Implements: MPI_Win_wait.
    pub fn wait(&self) -> Result<()> {
        self.over(Call::Wait, Rank::NULL, self.core.wait_exposed(self.id))
    }

    /// Whether every member has completed, without waiting (MPI_Win_test). When it is true the exposure epoch is
    /// over.
    ///
    /// # Errors
    /// As for [`RawWindow::wait`].
    ///
    /// Implements: MPI_Win_test.
    pub fn test(&self) -> Result<bool> {
        let mut guarded = self.core.enter(Call::Test)?;
        self.core.progress(&mut guarded);
        let is_over = guarded.engine.test(self.id).map_err(|error| self.fail(error))?;
        if is_over {
            self.core.note_tested(&mut guarded, self.id);
        }
        Ok(is_over)
    }
}
