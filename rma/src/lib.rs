//! One-sided communication for Rust programs: memory windows that other processes put to, get from and
//! accumulate into, with the synchronization of MPI's one-sided chapter (MPI-4.1 chapter 13), over shared
//! memory on one host, and over whatever libfabric finds, or ibverbs, between hosts.
//!
//! A program joins its job, makes windows, accesses other ranks' windows within epochs, and finalizes:
//!
//! ```
//! use rma::{Job, LockType, Rank, ReduceOp};
//!
//! let job = Job::init()?;
//! let window = job.allocate::<u64>(1)?;
//! // A ticket from the counter of rank 0, which need not do anything for it.
//! let ticket = window.lock(Rank(0), LockType::Shared, |epoch| epoch.fetch_and_op(0, 1, ReduceOp::Sum))?;
//! println!("rank {} has ticket {ticket}", job.rank());
//! job.barrier()?;
//! window.free()?;
//! job.finalize()?;
//! # Ok::<(), rma::Error>(())
//! ```
//!
//! Started by itself, the program is a job of one rank; `rmarun -n 4 program` makes it four.
//!
//! * [`Window`] is the safe layer. Epochs are scopes ([`Window::fence`], [`Window::lock`],
//!   [`Window::lock_all`], [`Window::start`]); operations exist only within them, and the compiler keeps buffers of operations
//!   in flight from being touched.
//! * An operation that is waited for by itself has a [`Request`]; one that tells the target of itself is a notified put
//!   ([`Epoch::put_notify`], [`Window::wait_notification`]).
//! * [`raw`] is the unsafe layer with MPI's own calls, for ports and bindings. Only there are shared and dynamic windows,
//!   assertions (`no_check` and the others), `sync`, `set_info`, local flushes, `test_any`, `test_some` and `wait_some`.
//! * [`Job::split`] makes jobs of some of the ranks, with windows of their own.
//! * Misuse that the compiler cannot find is an [`Error`] that names the call, the state and the rule.
//! * While the program is outside of the library, an agent thread serves the other ranks
//!   (`RMA_PROGRESS=none` does without). It stands aside while the program makes progress itself.
//! * `RMA_TRACE=FILE` makes a timeline of all ranks, `RMA_METRICS=FILE` and [`Job::metrics`] text of the counters. With the
//!   feature `tracing` joining, windows, synchronization calls and errors are events of that crate.

pub mod raw;

mod blocks;
mod cancellation;
mod driver;
mod element;
mod epoch;
mod error;
mod events;
mod exposure;
mod fabric;
mod ghost;
mod job;
mod local;
mod notify;
mod observation;
mod operands;
mod options;
mod platform;
mod request;
mod runtime;
mod segment;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod signal;
mod termination;
mod trace;
mod window;

pub use blocks::Blocks;
pub use element::{Bf16, Complex, Element, IndexedValue, Integer, Logical, ValueIndex, F16};
pub use epoch::{Epoch, LockAllEpoch, LockEpoch};
pub use error::{Error, ErrorKind, Result};
pub use exposure::Exposure;
pub use fabric::{Description, FabricEndpoint, FabricOptions, FabricRegion, VerbsOptions};
pub use job::Job;
pub use local::Local;
pub use options::{Options, Progress};
pub use platform::Engine;
pub use request::{Request, Source};
pub use rma_core::config::Config;
pub use rma_core::counters::Counters;
pub use rma_core::dtype::Dtype;
pub use rma_core::engine::{Change, FenceAssert, Notification, PostAssert, StartAssert, WindowAttributes};
pub use rma_core::error::{Call, ErrorClass, RmaError, Rule};
pub use rma_core::group::Group;
pub use rma_core::ids::{Rank, WindowId};
pub use rma_core::info::{
    AccumulateOps, AccumulateOrdering, Flavor, LockProtocol, MemoryKinds, MemoryModel, WindowInfo,
    WindowOptions,
};
pub use rma_core::lock::LockType;
pub use rma_core::op::ReduceOp;
pub use rma_core::path::Path;

pub use rma_shm::HugePages;
pub use segment::SharedMemory;
pub use window::Window;
