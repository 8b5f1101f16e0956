//! What a packet does: building it at the origin is `progress`; executing it at the target is here.

mod execute;
mod runs;

pub use execute::{execute, Executed, Watch};
