//! Requests and replies travel apart, so that requests which wait in their receive buffers, or in a
//! connection, never stand in the way of replies.
//!
//! A rank has two libfabric endpoints, one for each role. As an *origin* it sends requests, puts, gets
//! and atomics, and receives replies; as a *target* it is the other end of all that. What an origin and
//! a target say to each other goes through one connection, the two classes in opposite directions, which
//! are independent of each other. (An endpoint for each class would do too, but then nothing flows back
//! that a network protocol could put its acknowledgements on: over tcp a round trip takes half as much
//! time again.) Both endpoints report to one completion queue.

use std::sync::Arc;

use ofi_sys as fi;
use rma_core::provider::{ProviderError, SendClass};

use crate::handles::{AddressVector, CompletionQueue, Domain, Ep, Info};
use crate::memory::Sizes;

/// Classes of packets, and roles.
pub(crate) const CLASSES: usize = 2;
/// Index of requests.
pub(crate) const REQUESTS: usize = SendClass::Request as usize;
/// Index of replies.
pub(crate) const REPLIES: usize = SendClass::Reply as usize;

const _: () = assert!(REQUESTS == 0 && REPLIES == 1, "buffers of requests come first");

/// The libfabric objects of one role, closed in the order of the fields. Each endpoint has a table of
/// its own: an origin's peers are targets, a target's are origins.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) ep: Ep,
    pub(crate) av: AddressVector,
}

impl Link {
    /// Opens an endpoint with its table; completions go to `cq`.
    fn open(
        domain: &Arc<Domain>,
        info: &Info,
        cq: &CompletionQueue,
        name: &str,
    ) -> Result<Self, ProviderError> {
        let av = AddressVector::open(domain)?;
        let ep = Ep::open(domain, info, &av, cq, name)?;
        Ok(Self { ep, av })
    }
}

/// Both roles.
#[derive(Debug)]
pub(crate) struct Links {
    pub(crate) origin: Link,
    pub(crate) target: Link,
}

impl Links {
    pub(crate) fn open(
        domain: &Arc<Domain>,
        info: &Info,
        cq: &CompletionQueue,
        provider: &str,
    ) -> Result<Self, ProviderError> {
        let open = |role| Link::open(domain, info, cq, &format!("{provider}, as {role}"));
        Ok(Self { origin: open("origin")?, target: open("target")? })
    }
}

/// The packets of one class.
#[derive(Debug)]
pub(crate) struct Lane {
    /// What they are sent on.
    pub(crate) send_ep: *mut fi::fid_ep,
    /// What they arrive on.
    pub(crate) receive_ep: *mut fi::fid_ep,
    /// Buffers of outgoing packets that are free.
    pub(crate) free_outgoing: Vec<u32>,
    /// Receive buffers that were not given back to the provider yet, or that it did not take.
    pub(crate) unposted: Vec<u32>,
    /// The provider did not take one of them when it was to have it back.
    pub(crate) is_refused: bool,
}

impl Lane {
    /// Both lanes, by class; all buffers are here.
    pub(crate) fn both(links: &Links, sizes: &Sizes) -> [Self; CLASSES] {
        let (origin, target) = (links.origin.ep.as_ptr(), links.target.ep.as_ptr());
        let buffers = |class: usize, count: usize| (class * count) as u32..((class + 1) * count) as u32;
        [(REQUESTS, origin, target), (REPLIES, target, origin)].map(|(class, send_ep, receive_ep)| Self {
            send_ep,
            receive_ep,
            free_outgoing: buffers(class, sizes.outgoing).rev().collect(),
            unposted: buffers(class, sizes.incoming).collect(),
            is_refused: false,
        })
    }
}
