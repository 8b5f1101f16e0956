//! Windows whose memory the ranks of a host load and store directly.

use std::sync::Arc;

use rma_core::engine::SharedPart;
use rma_core::error::{Call, ErrorClass, RmaError, Rule};
use rma_core::ids::Rank;
use rma_core::info::{Flavor, WindowOptions};

use super::{hosts, RawWindow};
use crate::error::Result;
use crate::job::Job;
use crate::segment::{Founding, Segment, SharedMemory};

impl RawWindow {
    /// Makes a window of `len` zeroed bytes at this rank, in memory that the ranks of its host may load and store
    /// directly (MPI_Win_allocate_shared). Collective. The parts of a host's ranks ([`Job::local_ranks`]) lie one behind
    /// the other in the order of ranks, unless `alloc_shared_noncontig` says that they need not. To ranks on other hosts
    /// it is a window like others: operations reach them, loads and stores do not.
    ///
    /// All of it is reserved when the call returns: no access finds that there is none.
    ///
    /// # Errors
    /// When a host does not have the memory, or its ranks cannot map each other's (`MPI_ERR_RMA_SHARED`): at all ranks of
    /// the job. The message names what was asked for and what there is, elsewhere the rank that has it.
    pub fn allocate_shared(job: &Job, len: usize, disp_unit: u32, options: &WindowOptions) -> Result<Self> {
        let (call, core) = (Call::AllocateShared, job.core());
        let (founding, place) = hosts::tell(job, Founding::new(job))?;
        let segment = Arc::new(Segment::make(core, founding, place, (len, disp_unit), options)?);
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
    /// (MPI_Win_shared_query). [`Rank::NULL`] asks for the lowest rank of this host that has any memory here. The
    /// pointer is valid until the window is freed.
    ///
    /// Memory that this process cannot load and store has no bytes and a null pointer: in a shared window that of ranks
    /// on other hosts. In a window that was allocated or created that is the memory of every other rank today; later
    /// versions may reach more.
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
            return Err(self.fail(RmaError::Invalid {
                call,
                class: ErrorClass::RmaFlavor,
                what,
                rule: Rule::HasOwnMemory,
            }));
        }
        let is_own = rank == self.job.rank() || rank == Rank::NULL && own.len > 0;
        let memory = SharedMemory { base: own.base, len: own.len, disp_unit: own.disp_unit };
        Ok(if is_own { memory } else { SharedMemory::UNREACHABLE })
    }
}
