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

mod connect;
mod device;
mod endpoint;
mod error;
mod memory;
mod objects;
mod options;
mod origin;
mod peer;
mod poll;
mod post;
mod region;
mod sys;
mod wire;

pub use device::device_names;
pub use endpoint::VerbsEndpoint;
pub use options::Options;
pub use region::VerbsRegion;
