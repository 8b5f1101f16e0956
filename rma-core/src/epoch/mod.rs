//! Pure machines behind the epochs: they know no transport, only ranks and sequence numbers.

mod dissemination;
mod few;
mod lock_all;
mod pscw;

pub use dissemination::{Dissemination, Round};
pub use few::FewRanks;
pub use lock_all::{LockAllCursor, DETACHED_IN_FLIGHT};
pub use pscw::{Access, Exposure, Notices, PostSeen};
