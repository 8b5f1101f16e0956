//! Windows of other kinds, and with options.

use rma_core::bootstrap::Bootstrap;
use rma_core::engine::SyncCall;
use rma_core::error::RmaError;
use rma_core::ids::WindowId;
use rma_core::info::WindowOptions;
use rma_core::provider::Endpoint;

use crate::World;

/// What a rank's part of a collective creation returns.
type Started = Result<(WindowId, SyncCall), RmaError>;

impl<E: Endpoint, B: Bootstrap> World<E, B> {
    /// Makes a window by whatever each rank does for it; the outcome at each rank.
    pub fn make_each(
        &mut self,
        mut start: impl FnMut(&mut rma_core::engine::Engine<E, B>, u32) -> Started,
    ) -> (WindowId, Vec<Result<(), RmaError>>) {
        let mut calls = Vec::new();
        let mut id = None;
        for rank in self.ranks() {
            let (window, sync) = start(&mut self.engines[rank as usize], rank).expect("the endpoint works");
            assert!(id.is_none_or(|id| id == window), "all ranks give it the same number");
            id = Some(window);
            calls.push((rank, sync));
        }
        (id.expect("there is at least one rank"), self.wait_each(calls))
    }

    /// The same where every rank must succeed.
    pub fn make(
        &mut self,
        start: impl FnMut(&mut rma_core::engine::Engine<E, B>, u32) -> Started,
    ) -> WindowId {
        let (window, results) = self.make_each(start);
        for result in results {
            result.expect("a window is made");
        }
        window
    }

    /// detach, to its end.
    pub fn detach(&mut self, rank: u32, window: WindowId, base: *const u8) -> Result<(), RmaError> {
        let started = self.engines[rank as usize].start_detach(window, base);
        self.wait(rank, started)
    }

    /// One allocated window of `len` bytes at each rank, with options.
    pub fn allocate_with(&mut self, len: usize, options: &WindowOptions) -> WindowId {
        self.make(|engine, _| engine.start_allocate_with(len, 1, options))
    }

    /// One window over the first `len` bytes of each rank's part of another, from byte `offset` on.
    pub fn create_over(&mut self, other: WindowId, offset: usize, len: usize) -> WindowId {
        self.make(|engine, _| {
            let (base, had) = engine.window_memory(other).expect("the other window exists");
            assert!(offset + len <= had);
            // SAFETY: inside of the other window's memory; the bodies free this window before that one.
            unsafe { engine.start_create(base.wrapping_add(offset), len, 1) }
        })
    }
}
