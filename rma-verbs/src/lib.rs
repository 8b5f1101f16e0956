//! The ibverbs provider: InfiniBand and RoCE without libfabric.
//!
//! ```no_run
//! use rma_core::provider::Endpoint;
//! use rma_verbs::{Options, VerbsEndpoint};
//!
//! let endpoint = VerbsEndpoint::open(&Options::default())?;
//! println!("{}", endpoint.description());
//! let published = endpoint.address();
//! # let _ = published;
//! # Ok::<(), rma_core::provider::ProviderError>(())
//! ```
//!
//! `libibverbs.so.1` is opened at run time: building needs no headers, and where there is no library or no device
//! [`VerbsEndpoint::open`] says so and nothing else happens. docs/verbs.md says how it works.

mod close;
mod connect;
mod datagram;
mod device;
mod endpoint;
mod error;
mod events;
mod list;
mod memory;
mod objects;
mod options;
mod origin;
mod peer;
mod poll;
mod post;
mod region;
mod sys;
mod vector;
mod wire;

pub use device::device_names;
pub use endpoint::VerbsEndpoint;
pub use options::{Options, RemoteCompletion};
pub use region::VerbsRegion;

#[cfg(test)]
#[path = "../../rma-ofi/tests/contract/at_once.rs"]
mod at_once;
#[cfg(test)]
#[path = "../tests/contract/atomics.rs"]
mod atomics;
#[cfg(test)]
#[path = "../tests/contract/connections.rs"]
mod connections;
/// The provider contract on a device in this process's memory; ci/softroce.sh runs it on one of the kernel's.
#[cfg(test)]
mod contract;
#[cfg(test)]
#[path = "../../rma-ofi/tests/contract/data.rs"]
mod data;
#[cfg(test)]
#[path = "../tests/contract/lists.rs"]
mod lists;
#[cfg(test)]
#[allow(dead_code)] // what takes a device of the kernel's
#[path = "../../rma-ofi/tests/contract/one_process.rs"]
mod one_process;
/// What devices refuse for a while, and words that come late.
#[cfg(test)]
mod troubles;
#[cfg(test)]
#[path = "../../rma-ofi/tests/contract/vectors.rs"]
mod vectors;
#[cfg(test)]
#[path = "../../rma-ofi/tests/contract/world.rs"]
mod world;

/// Longest time that anything bounded takes in tests, seconds.
#[cfg(test)]
const LIMIT_S: u64 = 120;
