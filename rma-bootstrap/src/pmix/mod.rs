//! Launchers that speak PMIx: Slurm's `srun --mpi=pmix`, Open MPI's `mpirun`, PRRTE's `prun`.
//!
//! PMIx is an interface of a library, so the library is opened at run time (`library.rs`); its data types are
//! declared here (`abi.rs`) and no header is needed. Its look-ups wait at the rank that is asked about, so nothing
//! is gathered and there is no barrier at the start; one at the end tells that all ranks have finalized. A rank
//! pays one put, one commit, one get for each rank that it talks to, and one fence.
//!
//! Servers from version 5 on lose look-ups that wait (5.0.11: "timeout" after two seconds, and again when the value
//! has come). There a fence behind publishing, which nobody waits in, says when to begin asking; a look-up of
//! a rank on the same host is answered at once from what the server has, and repeated.
//!
//! On several hosts, over IP, ranks tell each other where they listen before they know their addresses (`reach.rs`), so
//! that there are two values of a rank, with a fence behind each. The first look-up of the second one finds that the
//! server has only the first, and the server asks the rank's host again (from version 4 on).

mod abi;
mod answers;
mod client;
mod library;
mod questions;

pub use client::PmixClient;
