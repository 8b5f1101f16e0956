//! The target's side of window locks: who holds the lock, who waits, in which order.

mod deferred;
mod queue;
mod sharers;

pub use deferred::{DeferredRing, Span};
pub use queue::{LockType, NotHeld, Request, Waiter, WindowLock};
