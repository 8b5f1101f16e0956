//! Epoch states as tables: the nine window states and the three per-target states of the design.
//!
//! Each event is a row; a call that has no row for the present state is misuse and becomes an error
//! value. docs/epochs.md is generated from the same rows, and a test keeps the two equal.

use alloc::format;
use alloc::string::String;
use core::fmt;

/// An event that has no row for the state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InvalidTransition {
    /// Name of the state.
    pub state: &'static str,
    /// Name of the event.
    pub event: &'static str,
}

impl fmt::Display for InvalidTransition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has no row for state {}", self.event, self.state)
    }
}

macro_rules! state_table {
    (
        $(#[$meta:meta])*
        $name:ident { $($(#[$variant_meta:meta])* $variant:ident),+ $(,)? }
        $($(#[doc = $event_doc:literal])+ $event:ident($($from:ident)|+ => $to:ident);)+
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $name { $($(#[$variant_meta])* $variant),+ }

        impl $name {
            /// Every state, in the design's order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
            /// Every row: event, from, to.
            pub const ROWS: &'static [(&'static str, &'static [Self], Self)] =
                &[$((stringify!($event), &[$(Self::$from),+], Self::$to)),+];

            /// The state's name in the design's words.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => stringify!($variant)),+ }
            }

            $(
                $(#[doc = $event_doc])+
                ///
                /// # Errors
                /// When the table has no row for the present state; nothing changes then.
                #[inline]
                #[allow(unreachable_patterns)]
                pub fn $event(&mut self) -> Result<(), InvalidTransition> {
                    match *self {
                        $(Self::$from)|+ => { *self = Self::$to; Ok(()) }
                        state => Err(InvalidTransition { state: state.name(), event: stringify!($event) }),
                    }
                }
            )+

            /// The table as Markdown: an event a row, a state a column, the next state in the cell.
            pub fn markdown() -> String {
                let mut text = String::from("| event |");
                for state in Self::ALL { text += &format!(" {} |", state.name()); }
                text += "\n| --- |";
                for _ in Self::ALL { text += " --- |"; }
                text.push('\n');
                for (event, from, to) in Self::ROWS {
                    text += &format!("| `{event}` |");
                    for state in Self::ALL {
                        text += &if from.contains(state) { format!(" {} |", to.name()) } else { String::from(" |") };
                    }
                    text.push('\n');
                }
                text
            }

            /// The table as a Graphviz digraph.
            pub fn dot() -> String {
                let mut text = format!("digraph {} {{\n", stringify!($name));
                for (event, from, to) in Self::ROWS {
                    for state in *from {
                        text += &format!("  {} -> {} [label=\"{event}\"];\n", state.name(), to.name());
                    }
                }
                text + "}\n"
            }
        }
    };
}

state_table! {
    /// The access-epoch state of a window: what holds for all targets at once.
    ///
    /// Implements: seed: UNSET, seed: FENCE_ISSUED, seed: FENCE_GRANTED, seed: PSCW_ISSUED, seed: PSCW_GRANTED, seed: LOCK_ALL_CALLED, seed: LOCK_ALL_ISSUED, seed: LOCK_ALL_GRANTED, seed: PER_TARGET.
    WindowState {
        /// No epoch.
        Unset,
        /// A fence's barrier is running: operations are kept until it is complete.
        FenceIssued,
        /// Everybody has reached the fence: operations flow.
        FenceGranted,
        /// Started, not every post has arrived.
        PscwIssued,
        /// Started, every post has arrived.
        PscwGranted,
        /// lock_all was called; targets are locked one by one, when touched (per-target protocol).
        LockAllCalled,
        /// Target elements ran out; all ranks are being locked (window protocol).
        LockAllIssued,
        /// All ranks are locked, or need no lock.
        LockAllGranted,
        /// One or more ranks are locked, each with its own state.
        PerTarget,
    }
    /// A fence began its barrier.
    on_fence(Unset | FenceIssued | FenceGranted => FenceIssued);
    /// The fence's barrier is complete.
    on_fence_barrier(FenceIssued => FenceGranted);
    /// The fence said that no operation succeeds it.
    on_fence_no_succeed(FenceIssued | FenceGranted => Unset);
    /// Start was called.
    on_start(Unset | FenceIssued | FenceGranted => PscwIssued);
    /// The last post arrived.
    on_posts(PscwIssued => PscwGranted);
    /// Complete was called.
    on_complete(PscwIssued | PscwGranted => Unset);
    /// lock was called for a rank.
    on_lock(Unset | FenceIssued | FenceGranted | PerTarget => PerTarget);
    /// The last locked rank was unlocked.
    on_last_unlock(PerTarget => Unset);
    /// lock_all was called.
    on_lock_all(Unset | FenceIssued | FenceGranted => LockAllCalled);
    /// lock_all was called with NOCHECK: no lock is needed.
    on_lock_all_no_check(Unset | FenceIssued | FenceGranted => LockAllGranted);
    /// Target elements ran out under lock_all.
    on_out_of_targets(LockAllCalled => LockAllIssued);
    /// The last rank's lock was granted.
    on_all_granted(LockAllIssued => LockAllGranted);
    /// unlock_all completed.
    on_unlock_all(LockAllCalled | LockAllGranted => Unset);
}

state_table! {
    /// The lock state of one target.
    ///
    /// Implements: seed: LOCK_CALLED, seed: LOCK_ISSUED, seed: LOCK_GRANTED.
    TargetLockState {
        /// lock was called; no packet has gone out.
        Called,
        /// The lock request is on its way or waits at the target.
        Issued,
        /// The lock is held, or none is needed.
        Granted,
    }
    /// The lock request was sent, alone or with operations.
    on_issue(Called => Issued);
    /// The target granted the lock.
    on_grant(Issued => Granted);
    /// The target's queue was full: ask again.
    on_retry(Issued => Called);
    /// Nobody contends for the lock by the user's promise (NOCHECK).
    on_no_check(Called => Granted);
}

impl WindowState {
    /// Whether operations may be posted at all.
    #[inline]
    pub const fn is_access_epoch(self) -> bool {
        !matches!(self, Self::Unset)
    }

    /// Whether operations may leave, as far as the window (not the single target) is concerned.
    #[inline]
    pub const fn may_issue(self) -> bool {
        !matches!(self, Self::Unset | Self::FenceIssued)
    }

    /// Whether the epoch is one of fence's.
    #[inline]
    pub const fn is_fence(self) -> bool {
        matches!(self, Self::FenceIssued | Self::FenceGranted)
    }

    /// Whether the epoch is one of start's. Its targets are granted one by one, as their posts arrive.
    #[inline]
    pub const fn is_pscw(self) -> bool {
        matches!(self, Self::PscwIssued | Self::PscwGranted)
    }

    /// Whether the epoch is one of lock or lock_all.
    #[inline]
    pub const fn is_passive(self) -> bool {
        self.is_lock_all() || matches!(self, Self::PerTarget)
    }

    /// Whether the epoch is one of lock_all's.
    #[inline]
    pub const fn is_lock_all(self) -> bool {
        matches!(self, Self::LockAllCalled | Self::LockAllIssued | Self::LockAllGranted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_window_states_and_three_target_states() {
        assert_eq!(WindowState::ALL.len(), 9);
        assert_eq!(TargetLockState::ALL.len(), 3);
    }

    #[test]
    fn an_event_without_a_row_changes_nothing() {
        let mut state = WindowState::LockAllCalled;
        let error = state.on_lock().unwrap_err();
        assert_eq!((error.state, error.event), ("LockAllCalled", "on_lock"));
        assert_eq!(state, WindowState::LockAllCalled);
    }

    #[test]
    fn docs_show_the_tables_of_the_code() {
        let docs = include_str!("../../docs/epochs.md");
        for table in [WindowState::markdown(), TargetLockState::markdown()] {
            assert!(docs.contains(&table), "docs/epochs.md must contain:\n{table}");
        }
    }
}
