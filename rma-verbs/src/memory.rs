//! The memory that the device sees of our own: packet buffers, and places for small origin buffers.

use core::ptr::NonNull;
use std::alloc::{self, Layout};
use std::sync::Arc;

use rma_core::provider::registrations::COPIED_BYTES_MAX;
use rma_core::provider::ProviderError;

use crate::error::registration_failed;
use crate::objects::{Domain, Mr};
use crate::sys;

/// Classes of packets, and roles: an origin sends requests and receives replies, a target the reverse.
pub(crate) const CLASSES: usize = 2;

/// Bytes of origin buffers that are copied instead of registered.
pub(crate) const BOUNCE_BYTES: usize = COPIED_BYTES_MAX;
/// Most places for such copies.
const BOUNCES_MAX: usize = 256;
/// Receive and send buffers for datagrams.
pub(crate) const DATAGRAMS_IN: usize = 64;
pub(crate) const DATAGRAMS_OUT: usize = 16;
/// Bytes of a datagram's buffer, header included.
pub(crate) const DATAGRAM_BYTES: usize = 256;

/// How many buffers there are. Of each class there are as many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sizes {
    pub(crate) tracked: usize,
    pub(crate) outgoing: usize,
    pub(crate) incoming: usize,
    pub(crate) packet_bytes: usize,
}

impl Sizes {
    /// Places for copies of small origin buffers.
    pub(crate) fn bounces(&self) -> usize {
        self.tracked.min(BOUNCES_MAX)
    }

    /// Entries that the completion queue may hold at one time.
    pub(crate) fn completions(&self) -> usize {
        self.tracked + CLASSES * (self.outgoing + self.incoming) + DATAGRAMS_IN + DATAGRAMS_OUT
    }

    /// The class, as an index, of this buffer for outgoing packets.
    pub(crate) fn class_of_outgoing(&self, buffer: usize) -> usize {
        usize::from(buffer >= self.outgoing)
    }

    /// The class, as an index, of this buffer for incoming packets.
    pub(crate) fn class_of_incoming(&self, buffer: usize) -> usize {
        usize::from(buffer >= self.incoming)
    }

    /// Bytes from one packet buffer to the next: whole cache lines.
    fn stride(&self) -> usize {
        self.packet_bytes.next_multiple_of(CACHE_LINE_BYTES)
    }

    fn incoming_at(&self) -> usize {
        CLASSES * self.outgoing * self.stride()
    }

    fn bounces_at(&self) -> usize {
        self.incoming_at() + CLASSES * self.incoming * self.stride()
    }

    fn datagrams_at(&self) -> usize {
        self.bounces_at() + self.bounces() * BOUNCE_BYTES
    }

    fn bytes(&self) -> usize {
        self.datagrams_at() + (DATAGRAMS_IN + DATAGRAMS_OUT) * DATAGRAM_BYTES
    }
}

/// All buffers, registered, at addresses that do not change. The device writes to them on its own, so they are
/// reached through raw pointers only.
#[derive(Debug)]
pub(crate) struct Memory {
    mr: Mr,
    bytes: Bytes,
    sizes: Sizes,
}

/// The allocation; freed after its registration is gone (order of the fields of [`Memory`]).
#[derive(Debug)]
struct Bytes(NonNull<u8>, Layout);

// SAFETY: the allocation is owned, and used by whoever holds the endpoint.
unsafe impl Send for Bytes {}

impl Drop for Bytes {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and freed once.
        unsafe { alloc::dealloc(self.0.as_ptr(), self.1) };
    }
}

impl Memory {
    pub(crate) fn new(domain: &Arc<Domain>, sizes: Sizes) -> Result<Self, ProviderError> {
        let no_memory = || registration_failed(sizes.bytes(), libc::ENOMEM);
        let layout = Layout::from_size_align(sizes.bytes(), PAGE_BYTES).map_err(|_| no_memory())?;
        // SAFETY: the size is not zero: there are datagrams.
        let base = NonNull::new(unsafe { alloc::alloc_zeroed(layout) }).ok_or_else(no_memory)?;
        let bytes = Bytes(base, layout);
        // SAFETY: the allocation lives longer than its registration.
        let mr = unsafe { Mr::open(domain, base.as_ptr(), layout.size(), sys::IBV_ACCESS_LOCAL_WRITE) }
            .map_err(|code| registration_failed(layout.size(), code))?;
        Ok(Self { mr, bytes, sizes })
    }

    #[inline]
    pub(crate) fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    #[inline]
    pub(crate) fn lkey(&self) -> u32 {
        self.mr.lkey()
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.1.size()
    }

    #[inline]
    fn at(&self, offset: usize) -> NonNull<u8> {
        debug_assert!(offset < self.sizes.bytes());
        // SAFETY: within the allocation.
        unsafe { self.bytes.0.add(offset) }
    }

    /// The buffer of an outgoing packet.
    #[inline]
    pub(crate) fn outgoing(&self, index: usize) -> NonNull<u8> {
        self.at(index * self.sizes.stride())
    }

    /// The buffer for an incoming packet.
    #[inline]
    pub(crate) fn incoming(&self, index: usize) -> NonNull<u8> {
        self.at(self.sizes.incoming_at() + index * self.sizes.stride())
    }

    /// A place for a copy of a small origin buffer.
    #[inline]
    pub(crate) fn bounce(&self, index: usize) -> NonNull<u8> {
        self.at(self.sizes.bounces_at() + index * BOUNCE_BYTES)
    }

    /// The buffer for a received datagram.
    pub(crate) fn datagram_in(&self, index: usize) -> NonNull<u8> {
        self.at(self.sizes.datagrams_at() + index * DATAGRAM_BYTES)
    }

    /// The buffer of a datagram to send.
    pub(crate) fn datagram_out(&self, index: usize) -> NonNull<u8> {
        self.at(self.sizes.datagrams_at() + (DATAGRAMS_IN + index) * DATAGRAM_BYTES)
    }
}

const CACHE_LINE_BYTES: usize = 64;
const PAGE_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_do_not_overlap_and_have_their_class() {
        let sizes = Sizes { tracked: 3, outgoing: 2, incoming: 4, packet_bytes: 520 };
        assert_eq!(sizes.incoming_at(), 4 * 576);
        assert_eq!(sizes.bounces_at(), 12 * 576);
        assert_eq!(sizes.datagrams_at(), 12 * 576 + 3 * BOUNCE_BYTES);
        assert_eq!(sizes.bytes() - sizes.datagrams_at(), 80 * DATAGRAM_BYTES);
        assert_eq!([0, 1, 2, 3].map(|buffer| sizes.class_of_outgoing(buffer)), [0, 0, 1, 1]);
        assert_eq!([0, 3, 4, 7].map(|buffer| sizes.class_of_incoming(buffer)), [0, 0, 1, 1]);
        assert_eq!(Sizes { tracked: 5000, ..sizes }.bounces(), BOUNCES_MAX);
    }
}
