//! What a window is, what was said about it, and sync.

use core::sync::atomic::{fence, Ordering};

use super::{epoch_error, Engine};
use crate::bootstrap::Bootstrap;
use crate::check::AccessKind;
use crate::dtype::Dtype;
use crate::error::{Call, RmaError, Rule};
use crate::ids::WindowId;
use crate::info::{AccumulateOps, Flavor, MemoryModel, WindowInfo, WindowOptions};
use crate::op::ReduceOp;
use crate::path::Path;
use crate::provider::Endpoint;
use crate::state::WindowState;
use crate::window::{Line, Window};

/// What MPI keeps as a window's attributes (MPI-4.1 section 13.2.6), at this rank.
///
/// Implements: MPI_WIN_BASE, MPI_WIN_SIZE, MPI_WIN_DISP_UNIT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowAttributes {
    /// First byte of the window's memory; where it would be in a shared window when it has none, and null in other
    /// windows then.
    pub base: *mut u8,
    /// Bytes of it; 0 for dynamic windows.
    pub len: usize,
    /// Bytes of one unit of displacement.
    pub disp_unit: u32,
    /// How the memory was had.
    pub flavor: Flavor,
    /// The memory model.
    pub model: MemoryModel,
}

impl<E: Endpoint, B: Bootstrap> Engine<E, B> {
    /// The window's attributes (MPI_Win_get_attr), if there is such a window.
    ///
    /// Implements: MPI_Win_get_attr.
    pub fn window_attributes(&self, window: WindowId) -> Option<WindowAttributes> {
        let w = self.windows.peek(window)?;
        // Empty parts of shared memory have a place between those of their neighbours.
        let is_nowhere = w.memory.is_empty() && w.flavor != Flavor::Shared;
        let base = if is_nowhere { core::ptr::null_mut() } else { w.memory.base_ptr() };
        Some(WindowAttributes {
            base,
            len: w.memory.len(),
            disp_unit: w.own.disp_unit,
            flavor: w.flavor,
            model: w.options.model.unwrap_or_default(),
        })
    }

    /// First byte and length of this rank's window memory, if there is such a window.
    pub fn window_memory(&self, window: WindowId) -> Option<(*mut u8, usize)> {
        let w = self.windows.peek(window)?;
        Some((w.memory.base_ptr(), w.memory.len()))
    }

    /// Bytes that the window holds at this rank besides its memory. The same whatever the job's size.
    pub fn window_bytes(&self, window: WindowId) -> Option<usize> {
        self.windows.peek(window).map(Window::bytes)
    }

    /// Which operations are native on this window: put, get, and the accumulate family on `dtype`.
    pub fn window_paths(&self, window: WindowId, dtype: Dtype) -> Option<[Path; 3]> {
        use crate::wire::OpKind::{Get, Put};
        let paths = self.windows.peek(window)?.paths;
        let [put, get] = [Put, Get].map(|kind| paths.of(kind, dtype, ReduceOp::Replace));
        Some([put, get, paths.of_all(dtype)])
    }

    /// How accumulates with one reduction on `dtype` travel, fetching or not. Where `same_op` was said that may be
    /// another way than for the type as a whole.
    pub fn accumulate_path(&self, window: WindowId, dtype: Dtype, op: ReduceOp) -> Option<Path> {
        Some(self.windows.peek(window)?.paths.of(crate::wire::OpKind::Accumulate, dtype, op))
    }

    /// The options that are in force (MPI_Win_get_info), if there is such a window.
    ///
    /// Implements: MPI_Win_get_info.
    pub fn window_options(&self, window: WindowId) -> Option<WindowOptions> {
        self.windows.peek(window).map(|w| w.options)
    }

    /// The two words with which this rank's part of the window is locked (docs/locks.md), where it is locked so: for
    /// people and programs that look at a job that does not move. They are others' to change at any time.
    pub fn lock_words(&self, window: WindowId) -> Option<[u64; 2]> {
        self.windows.peek(window)?.words.as_ref().map(|words| words.look())
    }

    /// The words by which neighbours tell this rank how far they are on the window (docs/shared-memory.md), if they do:
    /// for programs that compare states.
    pub fn neighbours_words(&self, window: WindowId) -> impl Iterator<Item = u64> + '_ {
        self.windows.peek(window).and_then(|w| w.line.as_ref()).into_iter().flat_map(Line::look)
    }

    /// Changes what may change while a window exists: the order of accumulates, which of them meet, and what is
    /// asserted of this rank's buffers (MPI_Win_set_info). Everything else is decided when the window is made, and stays. Every rank has
    /// to do it, between epochs; it needs no packet.
    ///
    /// Implements: MPI_Win_set_info.
    ///
    /// # Errors
    /// When there is no such window.
    pub fn set_window_options(&mut self, window: WindowId, options: &WindowOptions) -> Result<(), RmaError> {
        self.change_options(window, |current| {
            current.accumulate_ordering = options.accumulate_ordering;
            current.accumulate_ops = options.accumulate_ops;
            current.asserted_kinds = options.asserted_kinds;
        })
    }

    /// The same by MPI's keys: those that `info` has not set stay as they are.
    ///
    /// Implements: MPI_Win_set_info.
    ///
    /// # Errors
    /// As for [`Engine::set_window_options`].
    pub fn set_window_info(&mut self, window: WindowId, info: &WindowInfo) -> Result<(), RmaError> {
        let options = info.options();
        self.change_options(window, |current| {
            if info.is_set("accumulate_ordering") {
                current.accumulate_ordering = options.accumulate_ordering;
            }
            if info.is_set("accumulate_ops") {
                current.accumulate_ops = options.accumulate_ops;
            }
            // One that is not in force leaves the earlier one alone.
            current.asserted_kinds = options.asserted_kinds.or(current.asserted_kinds);
        })
    }

    fn change_options(
        &mut self,
        window: WindowId,
        change: impl FnOnce(&mut WindowOptions),
    ) -> Result<(), RmaError> {
        let w = self.window(Call::SetInfo, window)?;
        change(&mut w.options);
        // The other way round the window keeps what it has: what is under way elsewhere is not known.
        if w.options.accumulate_ops != AccumulateOps::SameOp {
            w.paths.join_reductions();
        }
        Ok(())
    }

    /// Compares a load or store that this process makes in its own window memory with what others did, where
    /// conflicts are looked for. `offset` and `len` are bytes.
    ///
    /// # Errors
    /// The conflict, if there is one.
    pub fn check_local(
        &mut self,
        window: WindowId,
        is_store: bool,
        offset: u64,
        len: u64,
    ) -> Result<(), RmaError> {
        let rank = self.process.rank;
        let Some(w) = self.windows.get_mut(window) else { return Ok(()) };
        let (call, kind) = if is_store {
            (Call::LocalWrite, AccessKind::Store)
        } else {
            (Call::LocalRead, AccessKind::Load)
        };
        let conflict = w.check_own(rank, kind, (Dtype::U8, ReduceOp::Replace), offset, len);
        conflict.map_or(Ok(()), |conflict| Err(conflict.report(call, rank)))
    }

    /// Accesses to the window that were not compared because the checker's table was full.
    pub fn accesses_forgotten(&self, window: WindowId) -> u64 {
        self.windows.peek(window).and_then(|w| w.checker.as_ref()).map_or(0, |checker| checker.forgotten())
    }

    /// Makes the window's private and public copies agree at this rank (MPI-4.1 section 13.5.4): both are one
    /// memory, so it is a full barrier for this thread's loads and stores. Completes no operation.
    ///
    /// Implements: MPI_Win_sync, seed: MEM_SYNC.
    ///
    /// # Errors
    /// Outside of a lock or lock_all epoch, unless the window's memory is shared.
    pub fn sync(&mut self, window: WindowId) -> Result<(), RmaError> {
        let call = Call::Sync;
        let w = self.window(call, window)?;
        let state = w.state();
        let is_passive = state.is_lock_all() || state == WindowState::PerTarget;
        if !is_passive && w.flavor != Flavor::Shared {
            return Err(epoch_error(call, None, state, Rule::SyncOutsidePassive));
        }
        // Seed table: SYNC, the MEM_SYNC that is the user's.
        fence(Ordering::SeqCst);
        Ok(())
    }
}
