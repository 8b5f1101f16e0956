//! Launchers that speak PMI-1 or PMI-2: Hydra's `mpiexec`, Slurm's `srun --mpi=pmi2`, and `rmarun` for
//! programs of others. The protocol itself ([`wire`], [`mapping`]) serves both sides; no library is needed.
//!
//! PMI has no look-up that waits: a value can be asked for when all ranks have passed a barrier behind which
//! it was put. So this rank enters that barrier when it publishes its address, without waiting in it, and
//! look-ups are pending until it is over. A second barrier tells that all ranks have finalized. That is what
//! PMI costs a rank: 2 messages for each barrier, and then 2 for each rank that it talks to, however many
//! ranks there are. The fences of PMI-2 are barriers with Slurm and `rmarun`; with Hydra they are not, and whoever asks
//! for a value waits for it. So behind the last one a rank asks for a value that nobody puts: 2 messages more.

pub mod channel;
pub mod mapping;
pub mod wire;

mod client;
mod session;
mod value;

pub use client::{PmiClient, PmiTarget};
pub(crate) use session::Session;
pub use session::Version;
