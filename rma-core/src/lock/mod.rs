//! Window locks: the target's side of those that are asked for by packets (who holds the lock, who waits, in which
//! order), and the origin's side of those that are words of the target's memory.

mod deferred;
mod queue;
mod sharers;
pub mod words;

pub use deferred::{DeferredRing, Span};
pub use queue::{LockType, NotHeld, Request, Waiter, WindowLock};
