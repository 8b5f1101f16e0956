//! The operation table: window -> slots -> target elements -> operation elements (seed: "Data structures").

mod arena;
mod cells;
mod flush_group;
mod kept;
mod mark;
mod op;
mod packet_shortcut;
mod parked;
mod repeated;
mod shortcut;
mod slot;
mod target;
mod unreported;

pub(crate) use arena::OperationArena;
pub(crate) use cells::{CellPlace, LockCells};
pub(crate) use flush_group::{FlushGroups, OpenFlushes};
pub(crate) use kept::KeptPassage;
pub(crate) use mark::{is_before, Covered, Mark, Marks, Order};
pub use op::{Change, Notification};
pub(crate) use op::{List, OperationElement, OperationState, NOTE_BYTES, NOTE_PAYLOAD_BYTES};
pub(crate) use packet_shortcut::{FlushedAlone, PacketShortcut, PacketStage};
pub(crate) use parked::{ParkedLock, ParkedLocks};
pub(crate) use repeated::{RepeatedLock, RepeatedStage};
pub(crate) use shortcut::{AtomicKind, Shortcut};
pub(crate) use slot::Slots;
pub(crate) use target::{Direct, LeftCall, Question, Sync, TargetElement, TargetError};
pub(crate) use unreported::Unreported;
