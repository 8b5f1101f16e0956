//! Launchers that speak PMIx: Slurm's `srun --mpi=pmix`, Open MPI's `mpirun`, PRRTE's `prun`.
//!
//! PMIx is an interface of a library, so the library is opened at run time (`library.rs`); its data types are
//! declared here (`abi.rs`) and no header is needed. Its look-ups wait at the rank that is asked about, one
//! rank at a time, so nothing is gathered and there is no barrier at the start; one at the end tells that all
//! ranks have finalized. A rank pays one put, one commit, one get for each rank that it talks to, and one
//! fence.

mod abi;
mod answers;
mod client;
mod library;
mod questions;

pub use client::PmixClient;
