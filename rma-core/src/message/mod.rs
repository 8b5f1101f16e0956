//! What a packet does: building it at the origin is `progress`; executing it at the target is here.

mod execute;
mod runs;

pub use execute::{execute, execute_element, Executed, Watch};

#[cfg(test)]
mod tests;
