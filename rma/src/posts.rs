//! The look for posts that are on their way when an access epoch ends.

use rma_core::engine::SyncCall;
use rma_core::error::RmaError;
use rma_core::ids::WindowId;

use crate::platform::Engine;

/// How often progress is made for a post before complete leaves without it: for as long as a post is on its way over tcp,
/// once its rank has begun to send it (about 10 us), and for less where progress takes less.
const LOOKS: u32 = 32;

/// Begins complete. What is kept for a target that has not posted is sent by whatever call makes progress next (weak
/// synchronization); where the ranks access each other in turn that call sends this rank's own post first, and the target
/// waits for both. So whoever has something for such a target looks for its post a while, and leaves all the same.
pub(crate) fn start_complete(engine: &mut Engine, window: WindowId) -> Result<SyncCall, RmaError> {
    let complete = engine.start_complete(window)?;
    for _ in 0..LOOKS {
        if !engine.keeps_for_posts(window) {
            break;
        }
        engine.progress();
    }
    Ok(complete)
}
