//! The libfabric provider: [`Ofi::discover`] looks at what libfabric offers and chooses,
//! [`OfiEndpoint::open`] opens the choice as an [`rma_core::provider::Endpoint`].
//!
//! ```no_run
//! use rma_core::provider::Endpoint;
//! use rma_ofi::{Ofi, OfiEndpoint, Options};
//!
//! let options = Options { single_host: true, ..Options::from_env() };
//! let choice = Ofi::discover(&options)?;
//! print!("{choice}");
//! let endpoint = OfiEndpoint::open(&choice, &options)?;
//! print!("{}", endpoint.description());
//! let published = endpoint.address();
//! # let _ = published;
//! # Ok::<(), rma_core::provider::ProviderError>(())
//! ```
//!
//! What libfabric says of itself is read back after it answered, and where a claim is known to be
//! wrong the table in [`profile`] corrects it.

mod abandon;
mod address;
mod atomics;
mod calls;
mod data;
mod describe;
mod discover;
mod endpoint;
mod error;
pub mod exceptions;
mod gather;
mod handles;
mod interface;
mod lane;
mod ledger;
mod memory;
mod nic;
mod nonce;
mod options;
mod origin;
mod poll;
mod post;
mod probe;
pub mod profile;
mod region;
mod vector;

pub use describe::Description;
pub use discover::{Candidate, Choice, Ofi, Verdict};
pub use endpoint::OfiEndpoint;
pub use options::Options;
pub use region::OfiRegion;
