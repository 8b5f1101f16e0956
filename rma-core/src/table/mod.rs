//! The operation table: window -> slots -> target elements -> operation elements (seed: "Data structures").

mod op;
mod slot;
mod target;

pub(crate) use op::{List, OperationElement, OperationState};
pub(crate) use slot::Slots;
pub(crate) use target::{Direct, Sync, TargetElement, TargetError};
