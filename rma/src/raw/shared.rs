//! Windows whose memory the ranks of a host load and store directly.

use std::sync::Arc;

use rma_core::engine::SharedPart;
use rma_core::error::{Call, ErrorClass, RmaError};
use rma_core::ids::Rank;
use rma_core::info::{Flavor, WindowOptions};

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
            is_allocated: true,
        });
        let mut window = Self::make(job, call, |engine| {
            // SAFETY: the part is mapped as long as the segment lives, which the mapping keeps. Others access
            // it through pointers and atomics only.
            unsafe { engine.start_shared(part, disp_unit, options) }
        })?;
        window.segment = Some(segment);
        Ok(window)
    }

    /// Where the memory of `rank` is in this process, its length and its displacement unit
    /// (MPI_Win_shared_query). [`Rank::NULL`] asks for the lowest rank that has any memory here. The pointer is
    /// valid until the window is freed.
    ///
    /// Memory that this process cannot load and store has no bytes and a null pointer. In a window that was
    /// allocated or created that is the memory of every other rank today; later versions may reach more.
    ///
    /// Others may write what it points to: within the epochs of MPI's shared memory, and with
    /// [`RawWindow::sync`] where no other synchronization call lies between.
    ///
    /// # Errors
    /// When the window is dynamic (`MPI_ERR_RMA_FLAVOR`), or there is no such rank.
    ///
    /// Implements: MPI_Win_shared_query.
    pub fn shared_query(&self, rank: Rank) -> Result<SharedMemory> {
        let (call, size) = (Call::SharedQuery, self.job.size());
        if rank != Rank::NULL && rank.0 >= size {
            return Err(self.fail(RmaError::Rank { call, target: rank, size }));
        }
        let Some(segment) = &self.segment else { return self.query_apart(rank) };
        let asked = if rank == Rank::NULL { segment.first_with_memory() } else { Some(rank) };
        let part = asked.map_or(Ok(SharedMemory::UNREACHABLE), |rank| segment.part(rank));
        part.map_err(|error| self.fail(error))
    }

    /// The same where each rank reaches its own memory only.
    fn query_apart(&self, rank: Rank) -> Result<SharedMemory> {
        let call = Call::SharedQuery;
        let attributes = self.core.enter(call)?.engine.window_attributes(self.id);
        let own = attributes.ok_or_else(|| self.is_gone(call))?;
        if own.flavor == Flavor::Dynamic {
            let what = "a dynamic window has no memory of its own; what is attached is known by its address";
            return Err(self.fail(RmaError::Invalid { call, class: ErrorClass::RmaFlavor, what }));
        }
        let is_own = rank == self.job.rank() || rank == Rank::NULL && own.len > 0;
        let memory = SharedMemory { base: own.base, len: own.len, disp_unit: own.disp_unit };
        Ok(if is_own { memory } else { SharedMemory::UNREACHABLE })
    }
}
