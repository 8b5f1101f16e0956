//! post, start, complete and wait, which among neighbours are over at once, as a rule (`at_once.rs` has the calls of passive
//! targets, and why all else has functions of its own).

use std::hint;

use rma_core::engine::{PostAssert, StartAssert, SyncCall};
use rma_core::error::{Call, RmaError};
use rma_core::group::Group;
use rma_core::ids::{Rank, WindowId};

use super::wait::LOOKS;
use super::{Core, Guarded, Held};
use crate::error::Result;
use crate::platform::Engine;

/// How often progress is made for a post before complete leaves without it: for as long as a post is on its way over tcp,
/// once its rank has begun to send it (about 10 us), and for less where progress takes less.
const LOOKS_FOR_POSTS: u32 = 32;

impl Core {
    /// Opens an exposure epoch.
    #[inline]
    pub(crate) fn post(&self, window: WindowId, group: &Group, assert: PostAssert) -> Result<()> {
        let mut guarded = self.enter_anyway();
        let may_be = guarded.is_at_work() && !assert.no_check && !assert.no_put;
        // It only says what is to come, as start does.
        if may_be && guarded.engine.post_at_once(window, group) {
            return Ok(());
        }
        self.post_slowly(guarded, window, group, assert)
    }

    #[cold]
    #[inline(never)]
    fn post_slowly(
        &self,
        guarded: Held<'_, Guarded>,
        window: WindowId,
        group: &Group,
        assert: PostAssert,
    ) -> Result<()> {
        self.run_slowly(guarded, (Call::Post, Rank::NULL), |engine| engine.start_post(window, group, assert))
    }

    /// Opens an access epoch.
    #[inline]
    pub(crate) fn start(&self, window: WindowId, group: &Group, assert: StartAssert) -> Result<()> {
        let mut guarded = self.enter_anyway();
        let may_be = guarded.is_at_work() && !assert.no_check;
        if may_be && guarded.engine.start_at_once(window, group) {
            return Ok(());
        }
        self.start_slowly(guarded, window, group, assert)
    }

    #[cold]
    #[inline(never)]
    fn start_slowly(
        &self,
        guarded: Held<'_, Guarded>,
        window: WindowId,
        group: &Group,
        assert: StartAssert,
    ) -> Result<()> {
        self.run_slowly(guarded, (Call::Start, Rank::NULL), |engine| {
            engine.start_start(window, group, assert)
        })
    }

    /// Ends it.
    #[inline]
    pub(crate) fn complete(&self, window: WindowId) -> Result<()> {
        let mut guarded = self.enter_anyway();
        if guarded.is_at_work() && guarded.engine.complete_at_once(window) {
            self.leave_ended(guarded);
            return Ok(());
        }
        self.complete_slowly(guarded, window)
    }

    #[cold]
    #[inline(never)]
    fn complete_slowly(&self, guarded: Held<'_, Guarded>, window: WindowId) -> Result<()> {
        self.run_slowly(guarded, (Call::Complete, Rank::NULL), |engine| start_complete(engine, window))
    }

    /// Waits until the exposure epoch is over.
    #[inline]
    pub(crate) fn wait_exposed(&self, window: WindowId) -> Result<()> {
        let mut guarded = self.enter_anyway();
        if guarded.is_at_work() && self.is_over_soon(&mut guarded, window) {
            self.leave_ended(guarded);
            return Ok(());
        }
        self.wait_slowly(guarded, window)
    }

    /// Whether who waits may look once more and do nothing else: nobody else wants the guard, and a member may first want something of
    /// this rank, as a put to its program's memory.
    #[inline(always)]
    fn may_look(&self, guarded: &mut Guarded) -> bool {
        self.may_spin && !guarded.engine.has_news() && !self.is_contended()
    }

    /// Looks for the members' words for a moment.
    #[inline(always)]
    fn is_over_soon(&self, guarded: &mut Guarded, window: WindowId) -> bool {
        for _ in 0..LOOKS {
            match guarded.engine.wait_at_once(window) {
                Some(true) => return true,
                Some(false) if self.may_look(guarded) => hint::spin_loop(),
                _ => return false,
            }
        }
        false
    }

    #[cold]
    #[inline(never)]
    fn wait_slowly(&self, guarded: Held<'_, Guarded>, window: WindowId) -> Result<()> {
        self.run_slowly(guarded, (Call::Wait, Rank::NULL), |engine| engine.start_wait(window))
    }
}

/// Begins complete. What is kept for a target that has not posted is sent by whatever call makes progress next (weak
/// synchronization); where the ranks access each other in turn that call sends this rank's own post first, and the target
/// waits for both. So whoever has something for such a target looks for its post a while, and leaves all the same.
pub(crate) fn start_complete(
    engine: &mut Engine,
    window: WindowId,
) -> std::result::Result<SyncCall, RmaError> {
    let complete = engine.start_complete(window)?;
    for _ in 0..LOOKS_FOR_POSTS {
        if !engine.keeps_for_posts(window) {
            break;
        }
        engine.progress();
    }
    Ok(complete)
}
