//! The seed's routines: ISSUE_OPS_*, CLEANUP_OPS_*, MAKE_RMA_PROGRESS_* for a target, a window, and all
//! windows; and the target role, which every call progresses too.

mod burst;
mod cleanup;
mod control;
mod deaths;
mod flood;
mod held;
mod inquiry;
mod issue;
mod issue_alone;
mod issue_layout;
mod issue_message;
mod issue_native;
mod issue_vector;
mod lock_choice;
mod marks;
mod mourning;
mod near;
mod neighbours;
mod notes;
mod origin_role;
mod packet_shortcut;
mod parked;
mod peers;
mod process;
mod proxies;
mod pscw;
mod receive;
mod regions;
mod repeated;
mod replies;
mod serve_alone;
mod swaps;
mod tag;
mod target_role;
mod waiters;
mod windows;
mod words;

pub(crate) use burst::DoneAtOnce;
pub(crate) use cleanup::TargetNews;
pub(crate) use control::NO_WINDOW;
pub(crate) use deaths::LEFT;
pub(crate) use peers::Place;
pub(crate) use process::{Failure, Process, NOTHING_CALLED, NO_ADDRESS, REDUCE_VALUES};
pub(crate) use tag::TagKind;
pub(crate) use windows::Windows;
