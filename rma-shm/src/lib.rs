//! The shared-memory provider: ranks of one host, without a network between them.
//!
//! ```
//! use rma_core::provider::{CompletionBatch, Completion, Endpoint, SendClass};
//! use rma_shm::{Options, ShmEndpoint};
//!
//! let mut one = ShmEndpoint::open(&Options::default())?;
//! let mut other = ShmEndpoint::open(&Options::default())?;
//! println!("{}", one.description());
//! // As a process of this user would that was given the address.
//! let peer = other.connect(&one.address())?;
//! other.send(peer, b"hello", b"", SendClass::Request).unwrap();
//! let mut said = CompletionBatch::new();
//! one.poll(&mut said);
//! let Some(Completion::Packet(packet)) = said.pop() else { panic!("no packet") };
//! assert_eq!(packet.len, 5);
//! one.release(packet);
//! # Ok::<(), rma_core::provider::ProviderError>(())
//! ```
//!
//! docs/shared-memory.md says how it works.

mod address;
mod ask;
mod assist;
mod atomics;
mod attach;
mod available;
mod bell;
mod buffers;
mod door;
mod endpoint;
mod error;
mod fences;
mod guard;
mod head;
#[cfg(test)]
mod interleavings;
mod lane;
mod mapping;
mod memory;
mod options;
mod own;
mod pages;
mod pair;
mod passage;
mod peer;
mod poll;
mod post;
mod process;
mod ring;
mod transfer;
mod turns;

pub use address::host_number;
pub use endpoint::ShmEndpoint;
pub use memory::Memory;
pub use options::{HugePages, Options, Pages, Reach};
pub use own::ShmRegion;
pub use pages::reserve;
pub use passage::ShmPassage;
