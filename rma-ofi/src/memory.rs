//! The memory that libfabric sees: one slot for each operation in flight, the packet buffers, and places for small
//! buffers of the program's where those must be registered.

use core::ffi::c_void;
use core::ptr::NonNull;
use std::alloc::{self, Layout};

use ofi_sys as fi;
use rma_core::provider::registrations::COPIED_BYTES_MAX;

use crate::lane::CLASSES;
use crate::nonce::Nonce;

/// What an operation's context points to. The first member is storage for providers that demand it
/// (`FI_CONTEXT`, `FI_CONTEXT2`) while the operation is in flight.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Slot {
    context: fi::fi_context2,
    /// The engine's tag; of tracked operations only.
    pub(crate) tag: u64,
    /// Index of the peer.
    pub(crate) peer: u32,
    /// Of a put that was gathered with others ([`crate::gather`]): the next one's slot, or [`NO_SLOT`].
    pub(crate) next: u32,
    /// Whether the provider holds it.
    pub(crate) is_in_flight: bool,
    /// Whether the provider holds it although its end has been said; of tracked operations only.
    pub(crate) is_given_up: bool,
}

/// No slot: there are not so many.
pub(crate) const NO_SLOT: u32 = u32::MAX;

/// What a slot is for; slots of one purpose are contiguous.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// A put, get, atomic or flush.
    Tracked,
    /// A packet on its way out, in the buffer with this index among those for outgoing packets.
    Outgoing(usize),
    /// A buffer waiting for a packet, with this index among the receive buffers.
    Incoming(usize),
}

/// How many slots and buffers there are. Of the buffers, the first half is for requests and the second
/// for replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sizes {
    pub(crate) tracked: usize,
    /// Buffers of outgoing packets of a class.
    pub(crate) outgoing: usize,
    /// Buffers for incoming packets of a class.
    pub(crate) incoming: usize,
    /// Largest packet of the engine's.
    pub(crate) packet_bytes: usize,
    /// Places for copies of small buffers of the program's.
    pub(crate) places: usize,
}

impl Sizes {
    pub(crate) fn slots(&self) -> usize {
        self.tracked + self.buffers()
    }

    /// Buffers of both classes and both directions.
    pub(crate) fn buffers(&self) -> usize {
        CLASSES * (self.outgoing + self.incoming)
    }

    /// Largest packet as it travels: with the number of the endpoint that it is for.
    #[inline]
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.packet_bytes + Nonce::BYTES
    }

    /// What the slot with this index is for.
    pub(crate) fn purpose(&self, slot: usize) -> Purpose {
        let incoming = self.slot_of_incoming(0);
        if slot < self.tracked {
            Purpose::Tracked
        } else if slot < incoming {
            Purpose::Outgoing(slot - self.tracked)
        } else {
            Purpose::Incoming(slot - incoming)
        }
    }

    /// The slot of a packet in this buffer for outgoing packets.
    pub(crate) fn slot_of_outgoing(&self, buffer: usize) -> usize {
        self.tracked + buffer
    }

    /// The slot of this buffer for incoming packets.
    pub(crate) fn slot_of_incoming(&self, buffer: usize) -> usize {
        self.tracked + CLASSES * self.outgoing + buffer
    }

    /// The class, as an index, that this buffer for outgoing packets belongs to.
    pub(crate) fn class_of_outgoing(&self, buffer: usize) -> usize {
        usize::from(buffer >= self.outgoing)
    }

    /// The class, as an index, that this buffer for incoming packets belongs to.
    pub(crate) fn class_of_incoming(&self, buffer: usize) -> usize {
        usize::from(buffer >= self.incoming)
    }

    fn slot_layout(&self) -> Option<Layout> {
        Layout::array::<Slot>(self.slots()).ok()
    }

    fn packet_layout(&self) -> Option<Layout> {
        let bytes = self.buffers().checked_mul(self.stride())?.checked_add(self.places * COPIED_BYTES_MAX)?;
        Layout::from_size_align(bytes, PAGE_BYTES).ok()
    }

    /// Bytes from one buffer to the next: whole cache lines.
    fn stride(&self) -> usize {
        self.buffer_bytes().next_multiple_of(CACHE_LINE_BYTES)
    }
}

/// Slots and buffers, at addresses that do not change. The provider writes to them on its own, so
/// they are reached through raw pointers only.
#[derive(Debug)]
pub(crate) struct Memory {
    slots: NonNull<Slot>,
    packets: NonNull<u8>,
    sizes: Sizes,
}

// SAFETY: Memory owns its allocations; it is used by whoever holds the endpoint.
unsafe impl Send for Memory {}
// SAFETY: a shared Memory gives out addresses only; `slot` asks for exclusive use of the slot.
unsafe impl Sync for Memory {}

impl Memory {
    /// Zeroed memory of these sizes; `None` when there is not so much.
    pub(crate) fn new(sizes: Sizes) -> Option<Self> {
        let slots = allocate(sizes.slot_layout()?)?.cast();
        let Some(packets) = sizes.packet_layout().and_then(allocate) else {
            release(slots.cast(), sizes.slot_layout());
            return None;
        };
        let memory = Self { slots, packets, sizes };
        for index in 0..sizes.slots() {
            // SAFETY: within the allocation, which is nobody else's yet.
            unsafe { (*memory.slot(index)).next = NO_SLOT };
        }
        Some(memory)
    }

    pub(crate) fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// What the fabric reads and writes of it: the buffers and the places.
    pub(crate) fn shown(&self) -> (NonNull<u8>, usize) {
        (self.packets, self.sizes.packet_layout().map_or(0, |layout| layout.size()))
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        let bytes = |layout: Option<Layout>| layout.map_or(0, |layout| layout.size());
        bytes(self.sizes.slot_layout()) + bytes(self.sizes.packet_layout())
    }

    /// The slot with this index.
    #[inline]
    pub(crate) fn slot(&self, index: usize) -> *mut Slot {
        debug_assert!(index < self.sizes.slots());
        // SAFETY: within the allocation; zeroed memory is a valid Slot.
        unsafe { self.slots.as_ptr().add(index) }
    }

    /// The index of the slot that a context of a completion points to; `None` if it is not ours.
    #[inline]
    pub(crate) fn index_of(&self, context: *mut c_void) -> Option<usize> {
        let offset = (context as usize).wrapping_sub(self.slots.as_ptr() as usize);
        let index = offset / size_of::<Slot>();
        (offset % size_of::<Slot>() == 0 && index < self.sizes.slots()).then_some(index)
    }

    /// The buffer of an outgoing packet.
    #[inline]
    pub(crate) fn outgoing(&self, index: usize) -> NonNull<u8> {
        debug_assert!(index < CLASSES * self.sizes.outgoing);
        // SAFETY: within the allocation.
        unsafe { self.packets.add(index * self.sizes.stride()) }
    }

    /// The buffer for an incoming packet.
    #[inline]
    pub(crate) fn incoming(&self, index: usize) -> NonNull<u8> {
        debug_assert!(index < CLASSES * self.sizes.incoming);
        // SAFETY: within the allocation.
        unsafe { self.packets.add((CLASSES * self.sizes.outgoing + index) * self.sizes.stride()) }
    }

    /// The place for a copy of a small buffer of the program's.
    #[inline]
    pub(crate) fn place(&self, index: usize) -> NonNull<u8> {
        debug_assert!(index < self.sizes.places);
        let offset = self.sizes.buffers() * self.sizes.stride() + index * COPIED_BYTES_MAX;
        // SAFETY: within the allocation.
        unsafe { self.packets.add(offset) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        release(self.slots.cast(), self.sizes.slot_layout());
        release(self.packets, self.sizes.packet_layout());
    }
}

fn allocate(layout: Layout) -> Option<NonNull<u8>> {
    debug_assert!(layout.size() > 0, "sizes are checked to be at least 1");
    // SAFETY: the size is not zero.
    NonNull::new(unsafe { alloc::alloc_zeroed(layout) })
}

fn release(memory: NonNull<u8>, layout: Option<Layout>) {
    if let Some(layout) = layout {
        // SAFETY: came from `allocate` with the same layout, and is released once.
        unsafe { alloc::dealloc(memory.as_ptr(), layout) }
    }
}

const CACHE_LINE_BYTES: usize = 64;
const PAGE_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes { tracked: 3, outgoing: 2, incoming: 4, packet_bytes: 505, places: 2 };

    #[test]
    fn a_context_leads_back_to_its_slot_and_nothing_else_does() {
        let memory = Memory::new(SIZES).unwrap();
        for index in 0..SIZES.slots() {
            assert_eq!(memory.index_of(memory.slot(index).cast()), Some(index));
        }
        let beyond = memory.slot(0) as usize + SIZES.slots() * size_of::<Slot>();
        assert_eq!(memory.index_of(beyond as *mut c_void), None);
        assert_eq!(memory.index_of((memory.slot(1) as usize + 8) as *mut c_void), None);
        assert_eq!(memory.index_of(core::ptr::null_mut()), None);
    }

    #[test]
    fn slots_know_their_purpose() {
        assert_eq!(SIZES.purpose(2), Purpose::Tracked);
        assert_eq!(SIZES.purpose(3), Purpose::Outgoing(0));
        assert_eq!(SIZES.purpose(6), Purpose::Outgoing(3));
        assert_eq!(SIZES.purpose(7), Purpose::Incoming(0));
        assert_eq!(SIZES.purpose(SIZES.slots() - 1), Purpose::Incoming(7));
        for buffer in 0..4 {
            assert_eq!(SIZES.purpose(SIZES.slot_of_outgoing(buffer)), Purpose::Outgoing(buffer));
            assert_eq!(SIZES.purpose(SIZES.slot_of_incoming(buffer)), Purpose::Incoming(buffer));
        }
    }

    #[test]
    fn each_class_has_half_of_the_buffers() {
        assert_eq!([0, 1, 2, 3].map(|buffer| SIZES.class_of_outgoing(buffer)), [0, 0, 1, 1]);
        assert_eq!([0, 3, 4, 7].map(|buffer| SIZES.class_of_incoming(buffer)), [0, 0, 1, 1]);
    }

    #[test]
    fn buffers_do_not_overlap() {
        let memory = Memory::new(SIZES).unwrap();
        let first = memory.outgoing(0).as_ptr() as usize;
        // 513 bytes each: the number behind the packet has room, too.
        assert_eq!(memory.outgoing(1).as_ptr() as usize - first, 576);
        assert_eq!(memory.incoming(0).as_ptr() as usize - first, 4 * 576);
        assert_eq!(memory.place(0).as_ptr() as usize - first, 12 * 576);
        let end = memory.place(1).as_ptr() as usize + COPIED_BYTES_MAX;
        assert_eq!((memory.shown().0.as_ptr() as usize, memory.shown().1), (first, end - first));
    }
}
