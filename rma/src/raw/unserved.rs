//! What is said of windows that ghosts cannot serve.

use std::sync::atomic::{AtomicU8, Ordering};

use rma_core::error::Call;

use super::RawWindow;
use crate::platform::say;

/// The kinds of windows of which it was said.
#[derive(Debug, Default)]
pub(crate) struct Said(AtomicU8);

impl Said {
    /// Whether it is said for the first time of windows that are made by this call.
    fn is_first(&self, call: Call) -> bool {
        let bit = match call {
            Call::Create => 1,
            Call::AllocateShared => 2,
            Call::CreateDynamic => 4,
            _ => 8,
        };
        self.0.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }
}

impl RawWindow {
    /// Says of a window that was made by this call, where a ghost should serve and does not, that its ranks' own calls
    /// do: once for each kind of window, at one rank, as all have windows alike.
    pub(super) fn tell_if_unserved(&self, call: Call) {
        if self.core.rank != 0 || self.core.size == 1 || self.job.ghost().is_none() || self.is_served() {
            return;
        }
        if self.job.unserved().is_first(call) {
            let (windows, remedy) = unserved(call);
            say(format_args!(
                "rank 0: window {}: RMA_PROGRESS=ghost does not serve {windows}: operations wait until their target \
                 makes a call; {remedy}",
                self.id
            ));
        }
    }
}

/// The kind of window, and what to do.
fn unserved(call: Call) -> (&'static str, &'static str) {
    match call {
        Call::Create => (
            "windows over the program's own memory",
            "let the library allocate the memory, or choose RMA_PROGRESS=thread",
        ),
        Call::AllocateShared => ("windows of shared memory", "choose RMA_PROGRESS=thread"),
        Call::CreateDynamic => ("dynamic windows", "choose RMA_PROGRESS=thread"),
        _ => {
            ("windows that are checked", "leave out RMA_CHECK (or the option), or choose RMA_PROGRESS=thread")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_said_once_and_has_words_of_its_own() {
        let said = Said::default();
        let calls = [Call::Create, Call::AllocateShared, Call::CreateDynamic, Call::Allocate];
        for call in calls {
            assert_eq!([said.is_first(call), said.is_first(call)], [true, false], "{call}");
            assert_eq!(calls.iter().filter(|other| unserved(**other).0 == unserved(call).0).count(), 1);
        }
    }
}
