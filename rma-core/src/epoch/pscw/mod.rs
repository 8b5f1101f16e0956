//! post-start-complete-wait (MPI-4.1 section 13.5.2): the origin's access epoch, the target's exposure epoch,
//! and the notices that come before somebody waits for them.
//!
//! What must be known of each member of a group is a bit, kept by its place in the group. That a member has
//! completed is known to the target exactly, because a question of an origin ("have you posted for me?") may
//! come after its complete, and must then not be answered for the exposure epoch that it has completed.

mod access;
mod current;
mod exposure;
mod members;
mod notices;

pub use access::{Access, PostSeen};
pub use exposure::Exposure;
pub use notices::Notices;

#[cfg(test)]
mod tests;
