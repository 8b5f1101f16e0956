//! Two providers as one: shared memory for the ranks of this rank's host, a network for all others.
//!
//! Which of the two a peer is reached over is decided when it is connected, and is a bit of its name from then on: an
//! operation costs a branch more than over either provider alone.
//!
//! ```no_run
//! use rma_composite::CompositeEndpoint;
//! use rma_core::provider::{Endpoint, ProviderError};
//! use rma_ofi::{Ofi, OfiEndpoint};
//! use rma_shm::ShmEndpoint;
//!
//! // As the ranks of a job do, here of host 0.
//! let options = rma_ofi::Options::default();
//! let network = OfiEndpoint::open(&Ofi::discover(&options)?, &options)?;
//! let shm = ShmEndpoint::open(&rma_shm::Options::default());
//! // SAFETY: libfabric's tables number peers, and the endpoint its buffers, from 0.
//! let endpoint = unsafe { CompositeEndpoint::new(network, shm, 0, rma_core::bootstrap::ADDRESS_BYTES_MAX) };
//! println!("{:?}", endpoint.limits());
//! # Ok::<(), ProviderError>(())
//! ```
//!
//! docs/shared-memory.md says what this means for windows.

mod address;
mod clock;
mod endpoint;
mod limits;
mod region;

pub use endpoint::CompositeEndpoint;
pub use region::CompositeRegion;
