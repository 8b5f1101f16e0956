//! What a window is, and what was said about it.

use rma_core::engine::WindowAttributes;
use rma_core::error::{Call, RmaError};
use rma_core::info::{WindowInfo, WindowOptions};

use super::RawWindow;
use crate::error::Result;
use crate::job::Job;

impl RawWindow {
    /// [`RawWindow::create`] with options (MPI's info argument). Other windows may be made over the same
    /// memory, or parts of it; each has its own epochs.
    ///
    /// # Safety
    /// As for [`RawWindow::create`].
    ///
    /// # Errors
    /// As for [`RawWindow::create`].
    pub unsafe fn create_with(
        job: &Job,
        base: *mut u8,
        len: usize,
        disp_unit: u32,
        options: &WindowOptions,
    ) -> Result<Self> {
        job.core().lend_memory();
        // SAFETY: the caller's promise.
        unsafe { Self::create_over(job, base, len, disp_unit, options) }
    }

    /// The same over memory that the job keeps if the window is not freed.
    ///
    /// # Safety
    /// As for [`RawWindow::create`], until the job is gone or the process.
    pub(crate) unsafe fn create_over(
        job: &Job,
        base: *mut u8,
        len: usize,
        disp_unit: u32,
        options: &WindowOptions,
    ) -> Result<Self> {
        Self::make(job, Call::Create, |engine| {
            // SAFETY: the caller's promise.
            unsafe { engine.start_create_with(base, len, disp_unit, options) }
        })
    }

    /// [`RawWindow::allocate`] with options.
    ///
    /// # Errors
    /// As for [`RawWindow::allocate`].
    pub fn allocate_with(job: &Job, len: usize, disp_unit: u32, options: &WindowOptions) -> Result<Self> {
        Self::make(job, Call::Allocate, |engine| engine.start_allocate_with(len, disp_unit, options))
    }

    /// Makes a window without memory, to which each rank attaches some later (MPI_Win_create_dynamic).
    /// Collective. A displacement in it is an address at the target.
    ///
    /// # Errors
    /// When a rank cannot be reached any more.
    pub fn create_dynamic(job: &Job, options: &WindowOptions) -> Result<Self> {
        Self::make(job, Call::CreateDynamic, |engine| engine.start_create_dynamic(options))
    }

    /// Attaches `len` bytes at `base` (MPI_Win_attach). Who accesses them gives their address as the
    /// displacement, and has learnt it by other means.
    ///
    /// # Safety
    /// Until the memory is detached, the window freed without an error, or the job's last clone dropped: `base` is valid for
    /// reads and writes of `len` bytes, and accessed otherwise only as shared memory that others may change.
    ///
    /// # Errors
    /// When the window is not dynamic, the memory overlaps what is attached, or it cannot be.
    pub unsafe fn attach(&self, base: *mut u8, len: usize) -> Result<()> {
        self.core.lend_memory();
        let mut guarded = self.core.enter(Call::Attach)?;
        // SAFETY: the caller's promise.
        let attached = unsafe { guarded.engine.attach(self.id, base, len) };
        attached.map_err(|error| self.fail(error))
    }

    /// Detaches what was attached at `base` (MPI_Win_detach). Accesses that come later are errors of who makes
    /// them. Where others have accessed the region natively (large puts and gets), they are asked to forget how,
    /// and waited for: each answers when it makes progress. The memory is not touched any more when it returns.
    ///
    /// # Errors
    /// When the window is not dynamic, or nothing was attached at `base`.
    pub fn detach(&self, base: *const u8) -> Result<()> {
        self.run(Call::Detach, |engine| engine.start_detach(self.id, base))
    }

    /// The window's attributes (MPI_Win_get_attr).
    ///
    /// # Errors
    /// When the window exists no more.
    pub fn attributes(&self) -> Result<WindowAttributes> {
        let guarded = self.core.enter(Call::GetInfo)?;
        guarded.engine.window_attributes(self.id).ok_or_else(|| self.is_gone(Call::GetInfo))
    }

    /// The options that are in force.
    ///
    /// # Errors
    /// When the window exists no more.
    pub fn options(&self) -> Result<WindowOptions> {
        let guarded = self.core.enter(Call::GetInfo)?;
        guarded.engine.window_options(self.id).ok_or_else(|| self.is_gone(Call::GetInfo))
    }

    /// The same as MPI's keys and values (MPI_Win_get_info).
    ///
    /// # Errors
    /// When the window exists no more.
    pub fn info(&self) -> Result<WindowInfo> {
        Ok(WindowInfo::of(self.options()?))
    }

    /// Accesses to this rank's window that were not compared with later ones because there were too many, where
    /// conflicts are looked for. Said on standard error, once, when the window is freed.
    pub fn accesses_forgotten(&self) -> u64 {
        self.core.enter_anyway().engine.accesses_forgotten(self.id)
    }

    /// Changes what may change while the window exists: `accumulate_ordering` and `accumulate_ops`
    /// (MPI_Win_set_info), where `info` has set them. Collective, between epochs; waits for nobody.
    ///
    /// # Errors
    /// When the window exists no more.
    pub fn set_info(&self, info: &WindowInfo) -> Result<()> {
        let mut guarded = self.core.enter(Call::SetInfo)?;
        let set = guarded.engine.set_window_info(self.id, info);
        set.map_err(|error| self.fail(error))
    }

    /// A full barrier for this thread's loads and stores of the window (MPI_Win_sync). Completes no operation.
    ///
    /// # Errors
    /// Outside of a lock or lock_all epoch, unless the window's memory is shared.
    pub fn sync(&self) -> Result<()> {
        let mut guarded = self.core.enter(Call::Sync)?;
        guarded.engine.sync(self.id).map_err(|error| self.fail(error))
    }

    #[cold]
    pub(super) fn is_gone(&self, call: Call) -> crate::Error {
        self.fail(RmaError::Window { call, window: self.id })
    }
}
