//! One-sided communication for Rust programs: memory windows that other processes put to, get from and
//! accumulate into, with every synchronization of MPI's one-sided chapter (MPI-4.1 chapter 12).
//!
//! A program joins its job, makes windows, accesses other ranks' windows within epochs, and finalizes:
//!
//! ```
//! let job = rma::Job::init()?;
//! # Ok::<(), rma::Error>(())
//! ```

pub mod raw;

mod element;
mod epoch;
mod error;
mod job;
mod local;
mod options;
mod runtime;
mod window;

pub use element::{Element, Integer};
pub use epoch::{Epoch, LockAllEpoch, LockEpoch};
pub use error::{Error, ErrorKind, Result};
pub use job::Job;
pub use local::Local;
pub use options::{Options, Progress};
pub use rma_core::config::Config;
pub use rma_core::counters::Counters;
pub use rma_core::dtype::Dtype;
pub use rma_core::engine::FenceAssert;
pub use rma_core::error::{Call, RmaError, Rule};
pub use rma_core::ids::{Rank, WindowId};
pub use rma_core::lock::LockType;
pub use rma_core::op::ReduceOp;
pub use rma_core::path::Path;
pub use runtime::Engine;
pub use window::Window;
