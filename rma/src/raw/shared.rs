//! Windows whose memory the ranks of a host load and store directly.

use std::sync::Arc;

use rma_core::engine::SharedPart;
use rma_core::error::{Call, ErrorClass, RmaError};
use rma_core::ids::Rank;
use rma_core::info::WindowOptions;

use super::RawWindow;
use crate::error::Result;
use crate::job::Job;
use crate::segment::{Segment, SharedMemory};

impl RawWindow {
    /// Makes a window of `len` zeroed bytes at this rank, in memory that all ranks may load and store directly
    /// (MPI_Win_allocate_shared). Collective; all ranks of the job must be on one host. The parts lie one
    /// behind the other in the order of ranks, unless `alloc_shared_noncontig` says that they need not.
    ///
    /// All of it is reserved when the call returns: no access finds that there is none.
    ///
    /// # Errors
    /// When ranks are on several hosts (`MPI_ERR_RMA_SHARED`), or the memory cannot be had at some rank; the
    /// message names what was asked for and what there is.
    pub fn allocate_shared(job: &Job, len: usize, disp_unit: u32, options: &WindowOptions) -> Result<Self> {
        let call = Call::AllocateShared;
        let core = job.core();
        if job.local_size() != job.size() {
            let message = format!(
                "{} of the {} ranks are on this host, and memory is shared on one host only; allocate the window",
                job.local_size(),
                job.size()
            );
            return Err(core.fail(RmaError::Shared { call, message }));
        }
        let segment = Arc::new(Segment::make(core, len, disp_unit, options)?);
        let part = segment.part(job.rank()).map(|own| SharedPart {
            base: std::ptr::NonNull::new(own.base).unwrap_or(std::ptr::NonNull::dangling()),
            len: own.len,
            mapping: Box::new(Arc::clone(&segment)),
        });
        let mut window = Self::make(job, call, |engine| {
            // SAFETY: the part is mapped as long as the segment lives, which the mapping keeps. Others access
            // it through pointers and atomics only.
            unsafe { engine.start_shared(part, disp_unit, options) }
        })?;
        window.segment = Some(segment);
        Ok(window)
    }

    /// Where the part of `rank` is in this process, its length and its displacement unit
    /// (MPI_Win_shared_query). [`Rank::NULL`] asks for the lowest rank that has any memory. The pointer is
    /// valid until the window is freed.
    ///
    /// Implements: MPI_Win_shared_query.
    ///
    /// Others may write what it points to: within the epochs of MPI's shared memory, and with
    /// [`RawWindow::sync`] where no other synchronization call lies between.
    ///
    /// # Errors
    /// When the window's memory is not shared (`MPI_ERR_RMA_FLAVOR`), or there is no such rank.
    pub fn shared_query(&self, rank: Rank) -> Result<SharedMemory> {
        let call = Call::SharedQuery;
        let fail = |error| self.fail(error);
        let Some(segment) = &self.segment else {
            let what = "the window's memory is not shared; make it with allocate_shared";
            return Err(fail(RmaError::Invalid { call, class: ErrorClass::RmaFlavor, what }));
        };
        let nothing = SharedMemory { base: std::ptr::null_mut(), len: 0, disp_unit: 1 };
        let asked = if rank == Rank::NULL { segment.first_with_memory() } else { Some(rank) };
        let Some(target) = asked else { return Ok(nothing) };
        let size = self.job.size();
        if target.0 >= size {
            return Err(fail(RmaError::Rank { call, target, size }));
        }
        segment.part(target).map_err(fail)
    }
}
