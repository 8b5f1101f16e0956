//! The endpoint's own shared memory, and the table of its regions.

use core::ptr::NonNull;
use core::sync::atomic::{fence, Ordering};
use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rma_core::ids::RemoteKey;
use rma_core::mem::{Changes, WindowMemory};
use rma_core::provider::{MemoryRegion, ProviderError};
use rustix::pipe::{pipe_with, PipeFlags};

use crate::address::{Host, Identity, Location};
use crate::assist::{Change, Element, Kind, Request, Slot, What, BYTES_MAX};
use crate::attach::Direction;
use crate::error::{call_failed, refused};
use crate::guard;
use crate::head::{Claim, ClaimState, Head, Pipe, Shape, WHOSE_TURN};
use crate::mapping::{inode, new_file, open_pipe, strike, Mapping};
use crate::memory;
use crate::turns::{self, OwnElements, Size};

/// What peers see of an endpoint. Regions keep it until they are gone.
#[derive(Debug)]
pub(crate) struct Own {
    pub(crate) head: Head,
    pub(crate) identity: Identity,
    pub(crate) location: Location,
    pub(crate) bell: Pipe,
    /// The bell's other end.
    pub(crate) listener: OwnedFd,
    table: Mutex<Table>,
    // Others open these by their numbers.
    pub(crate) file: OwnedFd,
    _bell: OwnedFd,
    /// What peers read to see whether they can.
    _probe: Box<u64>,
}

#[derive(Debug)]
struct Table {
    free: Vec<u32>,
    keys: BTreeSet<u64>,
    next_key: u64,
    /// By slot: what the owner itself copies from and to. What peers see of it they could change.
    spans: Vec<Span>,
}

/// A region as only its owner sees it.
#[derive(Clone, Copy, Debug)]
struct Span {
    /// Even: there is none.
    sequence: u64,
    base: usize,
    len: usize,
}

impl Span {
    const NONE: Self = Self { sequence: 0, base: 0, len: 0 };
}

impl Own {
    pub(crate) fn new(shape: Shape) -> Result<Self, ProviderError> {
        let mut nonce = [0; 8];
        rustix::rand::getrandom(&mut nonce[..], rustix::rand::GetRandomFlags::empty())
            .map_err(|error| call_failed("getrandom", error))?;
        let nonce = u64::from_ne_bytes(nonce);
        let total = shape.total_bytes();
        let file = new_file("rma-shm", total)?;
        let mapping = Mapping::new(&file, 0, total)
            .map_err(|error| call_failed(&format!("mmap of {total} bytes of rings"), error))?;
        let (listener, bell_end) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
            .map_err(|error| call_failed("pipe2", error))?;
        let bell = Pipe { fd: bell_end.as_raw_fd() as u32, inode: inode(&bell_end)? };
        let probe = Box::new(nonce);
        let mut head = Head::new(mapping, shape);
        head.introduce(nonce, (&raw const *probe).addr() as u64, bell);
        let identity = Identity::new();
        let location = Location {
            host: Host::here()?,
            pid: identity.pid,
            fd: file.as_raw_fd() as u32,
            inode: inode(&file)?,
            nonce,
        };
        let free = (0..shape.regions as u32).rev().collect();
        let table = Mutex::new(Table { free, keys: BTreeSet::new(), next_key: OWN_KEYS, spans: Vec::new() });
        Ok(Self { head, identity, location, bell, listener, table, file, _bell: bell_end, _probe: probe })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what a peer asks for in its slot. Whether it could be done.
    #[inline]
    pub(crate) fn serve(&self, request: &Request, slot: &Slot<'_>) -> bool {
        match request.what {
            What::Copy { direction, len } => self.copy(request, direction, len, slot.data()),
            What::Change(change) => self.change(request, &change, slot),
            What::Nonsense => false,
        }
    }

    /// A small copy between a region and the data of a slot.
    #[inline]
    fn copy(&self, request: &Request, direction: Direction, len: usize, data: *mut u8) -> bool {
        // Held until the end: who takes the region back waits for it.
        let table = self.table();
        let Some(memory) = table.place(request, len).filter(|_| len <= BYTES_MAX) else { return false };
        let (from, into) = match direction {
            Direction::Put => (data, memory),
            Direction::Get => (memory, data),
        };
        // SAFETY: inside of a region, whose owner has agreed to accesses of peers, and of the slot's data; a region is
        // not part of a slot.
        unsafe { core::ptr::copy_nonoverlapping(from, into, len) };
        true
    }

    /// An atomic of one element of a region. The engine whose endpoint this is executes those that come in packets, by the
    /// same code and between its endpoint's calls, so that both are atomic towards each other at any address.
    #[inline(never)]
    fn change(&self, request: &Request, change: &Change, slot: &Slot<'_>) -> bool {
        let Change { kind, dtype, op, operand, compare } = change;
        let (dtype, op, len) = (*dtype, *op, dtype.size());
        let table = self.table();
        let Some(place) = table.place(request, len) else { return false };
        // SAFETY: inside of a region, whose owner has agreed to accesses of peers, and which is there as long as the table
        // is held.
        let memory = unsafe { WindowMemory::new(place, len) };
        let mut result = Element::default();
        let (operand, compare, into) = (&operand[..len], &compare[..len], &mut result[..len]);
        let begun = self.begin_change(request.region, Size::Small);
        let done = match kind {
            Kind::Reduce => memory.accumulate(0, dtype, op, operand),
            Kind::Fetch => memory.get_accumulate(0, dtype, op, operand, into),
            Kind::Swap => memory.compare_and_swap(0, dtype, compare, operand, into),
        };
        self.end_change(request.region, Size::Small, begun);
        slot.set_result(&result);
        done.is_ok()
    }

    /// Wakes the sender of a lane, if it sleeps. `false`: it could not be, as where there is no descriptor left.
    #[cold]
    #[inline(never)]
    pub(crate) fn wake_sender(&self, lane: usize) -> bool {
        let claim = Claim::decode(self.head.claim(lane).load(Ordering::Acquire));
        let bell = self.head.sender_bell(lane);
        if claim.state != ClaimState::Open {
            return true;
        }
        open_pipe(claim.by.pid, bell.fd, bell.inode).map(|bell| strike(&bell)).is_ok()
    }

    /// Wakes everybody who has connected, to see that the endpoint is closed.
    pub(crate) fn wake_senders(&self) {
        for lane in 0..self.head.lanes_used() {
            // Whom this does not wake looks again by itself.
            let _ = self.wake_sender(lane);
        }
    }

    /// Takes back a region: no access is under way when this returns, and none will be. Who is stopped (SIGSTOP) during one
    /// is waited for: its access goes on when it does.
    fn remove(&self, slot: usize, key: u64) {
        self.table().spans[slot] = Span::NONE;
        let sequence = self.head.region_word(slot, SEQUENCE);
        sequence.store(sequence.load(Ordering::Relaxed).wrapping_add(1), Ordering::SeqCst);
        self.head.fence_all();
        for lane in 0..self.head.lanes_used() {
            let claim = Claim::decode(self.head.claim(lane).load(Ordering::Acquire));
            if claim.state == ClaimState::Free {
                continue;
            }
            let mut turns = 0_u32;
            guard::wait(&self.head.busy(lane), || {
                std::thread::yield_now();
                turns = turns.wrapping_add(1);
                turns % TURNS_TO_ASK != 0 || self.head.is_sender_running(lane, claim)
            });
        }
        let mut table = self.table();
        table.keys.remove(&key);
        table.free.push(slot as u32);
    }
}

/// A registered region; taken back when dropped, which waits for the accesses that are under way.
#[derive(Debug)]
pub struct ShmRegion {
    own: Arc<Own>,
    slot: usize,
    key: u64,
    /// What peers call the first byte.
    first: u64,
    /// Peers map it, and change its elements.
    is_mapped: bool,
}

impl ShmRegion {
    /// Registers a span.
    pub(crate) fn new(
        own: &Arc<Own>,
        base: NonNull<u8>,
        len: usize,
        wish: RemoteKey,
        Terms { must_be_mapped, by_address }: Terms,
    ) -> Result<Self, ProviderError> {
        let base = base.as_ptr().addr();
        let place = memory::find(base, len);
        if must_be_mapped && place.is_none() && len > 0 {
            return Err(refused(format!(
                "register: the {len} bytes lie in no rma_shm::Memory, and with this Reach peers reach no other; \
                 allocate them there, or open the endpoint with Reach::Attached"
            )));
        }
        let mut table = own.table();
        let slot = table.free.pop().ok_or_else(|| {
            refused(format!(
                "register: all {} regions are in use (Options::regions_max)",
                own.head.shape.regions
            ))
        })?;
        let key = if table.keys.insert(wish.0) { wish.0 } else { table.another_key() };
        drop(table);
        let slot = slot as usize;
        let (fd, device, inode, file_len, offset) = place.map_or((0, 0, 0, 0, 0), |place| {
            (place.fd + 1, place.device, place.inode, place.file_len, place.offset)
        });
        let flag = if by_address { BY_ADDRESS } else { 0 };
        let place_word = u64::from(fd) | flag | u64::from(device) << DEVICE_AT;
        let words = [key, base as u64, len as u64, place_word, inode, file_len, offset];
        for (index, word) in (1..).zip(words) {
            own.head.region_word(slot, index).store(word, Ordering::Relaxed);
        }
        own.head.region_word(slot, WHOSE_TURN).store(turns::BY_ATOMICS, Ordering::Relaxed);
        let sequence = own.head.region_word(slot, SEQUENCE);
        let next = sequence.load(Ordering::Relaxed).wrapping_add(1);
        own.table().set(slot, Span { sequence: next, base, len });
        sequence.store(next, Ordering::Release);
        own.head.use_regions(slot + 1);
        let first = if by_address { base as u64 } else { 0 };
        Ok(Self { own: Arc::clone(own), slot, key, first, is_mapped: place.is_some() })
    }
}

/// How a region is registered.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Terms {
    /// No other memory than [`crate::Memory`].
    pub(crate) must_be_mapped: bool,
    /// Peers count from the owner's address of the first byte, and not from 0.
    pub(crate) by_address: bool,
}

impl Table {
    /// The memory of the request's region that it is about, if there is such a region, with so many bytes.
    #[inline]
    fn place(&self, request: &Request, len: usize) -> Option<*mut u8> {
        let Request { region, sequence, offset, .. } = *request;
        let span = self.spans.get(region).filter(|span| sequence & 1 == 1 && span.sequence == sequence)?;
        let is_inside = offset.checked_add(len as u64).is_some_and(|end| end <= span.len as u64);
        is_inside.then(|| core::ptr::with_exposed_provenance_mut(span.base + offset as usize))
    }

    fn set(&mut self, slot: usize, span: Span) {
        if self.spans.len() <= slot {
            self.spans.resize(slot + 1, Span::NONE);
        }
        self.spans[slot] = span;
    }

    /// A key that no region has.
    fn another_key(&mut self) -> u64 {
        while !self.keys.insert(self.next_key) {
            self.next_key = self.next_key.wrapping_add(1);
        }
        self.next_key
    }
}

impl MemoryRegion for ShmRegion {
    fn remote_key(&self) -> RemoteKey {
        RemoteKey(self.key)
    }

    fn remote_base(&self) -> u64 {
        self.first
    }

    fn changes(&self) -> Option<Arc<dyn Changes>> {
        self.is_mapped.then(|| OwnElements::of(&self.own, self.slot))
    }
}

impl Drop for ShmRegion {
    fn drop(&mut self) {
        self.own.remove(self.slot, self.key);
    }
}

/// A region as its owner's table has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) slot: usize,
    /// Odd; another number as soon as the region is gone.
    pub(crate) sequence: u64,
    pub(crate) base: u64,
    pub(crate) len: u64,
    /// What peers call the first byte.
    pub(crate) first: u64,
    pub(crate) file: Option<memory::InFile>,
}

/// Finds the region with the key in an endpoint's table.
pub(crate) fn find(head: &Head, key: RemoteKey) -> Option<Entry> {
    (0..head.regions_used()).find_map(|slot| {
        let word = |index| head.region_word(slot, index).load(Ordering::Relaxed);
        let sequence = sequence(head, slot);
        if sequence & 1 == 0 || word(1) != key.0 {
            return None;
        }
        let fd = word(4) as u32;
        let (device, inode) = ((word(4) >> DEVICE_AT) as u32, word(5));
        let file =
            memory::InFile { fd: fd.wrapping_sub(1), device, inode, file_len: word(6), offset: word(7) };
        let base = word(2);
        let first = if word(4) & BY_ADDRESS != 0 { base } else { 0 };
        let entry = Entry { slot, sequence, base, len: word(3), first, file: (fd != 0).then_some(file) };
        // The words are one region's only if it has not changed since.
        fence(Ordering::Acquire);
        (self::sequence(head, slot) == entry.sequence).then_some(entry)
    })
}

/// The number of what the slot holds now.
#[inline]
pub(crate) fn sequence(head: &Head, slot: usize) -> u64 {
    head.region_word(slot, SEQUENCE).load(Ordering::Acquire)
}

/// Where that number is in the head.
pub(crate) fn sequence_at(head: &Head, slot: usize) -> usize {
    head.region_at(slot, SEQUENCE)
}

/// Keys of our choice, where a wish is taken.
const OWN_KEYS: u64 = 1 << 63;
/// Turns of waiting between two times that the other process is asked after.
const TURNS_TO_ASK: u32 = 64;
/// In the word with a region's descriptor, which has 32 bits: see [`Terms::by_address`].
const BY_ADDRESS: u64 = 1 << 32;
/// In the same word: see [`memory::InFile`].
const DEVICE_AT: u32 = u64::BITS - memory::DEVICE_BITS;
/// A region's word that counts its changes.
const SEQUENCE: usize = 0;

#[cfg(test)]
mod tests {
    use rma_core::dtype::Dtype;
    use rma_core::op::ReduceOp;

    use super::*;
    use crate::guard::Busy;
    use crate::Memory;

    fn own(regions: usize) -> Arc<Own> {
        Arc::new(Own::new(Shape { lanes: 2, regions, ring_bytes: 1024, packet_bytes: 512 }).unwrap())
    }

    fn region(own: &Arc<Own>, memory: &mut [u8], key: u64) -> Result<ShmRegion, ProviderError> {
        ShmRegion::new(own, NonNull::from(&mut memory[0]), memory.len(), RemoteKey(key), Terms::default())
    }

    #[test]
    fn regions_are_found_by_key_until_they_are_gone() {
        let own = own(3);
        let mut memory = [0; 100];
        let base = memory.as_ptr().addr() as u64;
        let one = region(&own, &mut memory, 7).unwrap();
        assert_eq!((one.remote_key(), one.remote_base()), (RemoteKey(7), 0));
        let found = find(&own.head, RemoteKey(7)).unwrap();
        assert_eq!((found.base, found.len, found.file), (base, 100, None));
        let other = region(&own, &mut memory[..10], 7).unwrap();
        assert_ne!(other.remote_key(), one.remote_key(), "a key is one region's");
        assert_eq!(find(&own.head, other.remote_key()).unwrap().len, 10);
        assert_eq!(find(&own.head, RemoteKey(8)), None);
        drop(one);
        assert_eq!(find(&own.head, RemoteKey(7)), None);
        let again = region(&own, &mut memory[..20], 7).unwrap();
        assert_eq!(again.remote_key(), RemoteKey(7));
        let new = find(&own.head, RemoteKey(7)).unwrap();
        assert!(new.slot != found.slot || new.sequence != found.sequence, "who knew the old one sees that");
    }

    #[test]
    fn peers_count_from_the_address_if_that_is_wished() {
        let own = own(1);
        let mut memory = [0; 8];
        let base = NonNull::from(&mut memory[0]);
        let terms = Terms { by_address: true, ..Terms::default() };
        let region = ShmRegion::new(&own, base, 8, RemoteKey(7), terms).unwrap();
        assert_eq!(region.remote_base(), base.as_ptr().addr() as u64);
        let found = find(&own.head, RemoteKey(7)).unwrap();
        assert_eq!((found.first, found.file), (region.remote_base(), None));
    }

    #[test]
    fn small_copies_stay_inside_of_a_region_that_is_there() {
        let own = own(2);
        let mut memory = [0_u8; 16];
        let one = region(&own, &mut memory, 1).unwrap();
        let found = find(&own.head, RemoteKey(1)).unwrap();
        let of = |len| What::Copy { direction: Direction::Put, len };
        let put = Request { what: of(8), region: found.slot, sequence: found.sequence, offset: 8 };
        let slot = own.head.slot(0);
        // SAFETY: the slot has so many bytes, and nobody else is there.
        unsafe { core::ptr::write_bytes(slot.data(), 7, BYTES_MAX) };
        let copy = |request: Request| own.serve(&request, &slot);
        assert!(copy(put) && copy(Request { offset: 16, what: of(0), ..put }));
        for wrong in [
            Request { offset: 9, ..put },
            Request { offset: u64::MAX, ..put },
            Request { what: of(9), ..put },
            Request { what: of(BYTES_MAX + 1), ..put },
            Request { what: What::Nonsense, ..put },
            Request { sequence: put.sequence + 2, ..put },
            Request { sequence: 0, region: put.region + 1, ..put },
            Request { region: usize::MAX, ..put },
        ] {
            assert!(!copy(wrong), "{wrong:?}");
        }
        drop(one);
        assert!(!copy(put), "it is gone");
        assert_eq!(memory, [0, 0, 0, 0, 0, 0, 0, 0, 7, 7, 7, 7, 7, 7, 7, 7]);
    }

    #[test]
    fn atomics_are_what_is_defined_on_elements_of_a_region_that_is_there() {
        let own = own(2);
        let mut memory = [0_u64; 3];
        let base = NonNull::from(&mut memory[0]).cast();
        let one = ShmRegion::new(&own, base, 20, RemoteKey(1), Terms::default()).unwrap();
        let found = find(&own.head, RemoteKey(1)).unwrap();
        let slot = own.head.slot(0);
        let change = Change {
            kind: Kind::Fetch,
            dtype: Dtype::U64,
            op: ReduceOp::Sum,
            operand: [1; 16],
            compare: [1; 16],
        };
        let of = |change| Request {
            what: What::Change(change),
            region: found.slot,
            sequence: found.sequence,
            offset: 8,
        };
        let mut all = 0;
        for (dtype, op) in Dtype::ALL.into_iter().flat_map(|dtype| ReduceOp::ALL.map(|op| (dtype, op))) {
            for kind in [Kind::Reduce, Kind::Fetch, Kind::Swap] {
                let is_defined = match kind {
                    Kind::Swap => dtype.has_compare_and_swap(),
                    _ => op.is_defined_for(dtype),
                };
                // Also where the processor has none.
                let offset = if dtype.size() > 8 { 1 } else { 11 };
                let request = Request { offset, ..of(Change { kind, dtype, op, ..change }) };
                assert_eq!(own.serve(&request, &slot), is_defined, "{kind:?} {} {}", dtype.name(), op.name());
                all += u32::from(is_defined);
            }
        }
        assert!(all > 100);
        // SAFETY: nobody else accesses it.
        unsafe { core::ptr::write_bytes(base.as_ptr(), 0, 24) };
        let ok = of(change);
        assert!(own.serve(&ok, &slot) && own.serve(&ok, &slot));
        assert_eq!(slot.result(), [1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        let swap = |compare| of(Change { kind: Kind::Swap, operand: [9; 16], compare, ..change });
        assert!(own.serve(&swap([1; 16]), &slot) && own.serve(&swap([2; 16]), &slot));
        assert_eq!(slot.result()[..8], [2; 8], "what the second one has found");
        for wrong in [
            Request { offset: 13, ..ok },
            Request { offset: u64::MAX - 3, ..ok },
            Request { offset: 5, ..of(Change { dtype: Dtype::F64Index, ..change }) },
            Request { sequence: ok.sequence + 2, ..ok },
            Request { sequence: 0, region: ok.region + 1, ..ok },
            Request { region: usize::MAX, ..ok },
        ] {
            assert!(!own.serve(&wrong, &slot), "{wrong:?}");
        }
        drop(one);
        assert!(!own.serve(&ok, &slot), "it is gone");
        // SAFETY: as above.
        let words = unsafe { core::slice::from_raw_parts(base.as_ptr().cast::<u64>(), 3) };
        assert_eq!(words, [0, u64::from_ne_bytes([9; 8]), 0]);
    }

    #[test]
    fn a_full_table_is_an_error_and_places_come_back() {
        let own = own(2);
        let mut memory = [0; 8];
        let one = region(&own, &mut memory, 1).unwrap();
        let _other = region(&own, &mut memory, 2).unwrap();
        assert!(region(&own, &mut memory, 3).unwrap_err().message.contains("all 2 regions"));
        drop(one);
        assert!(region(&own, &mut memory, 3).is_ok());
    }

    #[test]
    fn memory_is_found_in_its_file_and_other_memory_may_be_refused() {
        let own = own(2);
        let memory = Memory::new(10_000).unwrap();
        let inside = NonNull::new(memory.base().as_ptr().wrapping_add(64)).unwrap();
        let mapped = Terms { must_be_mapped: true, ..Terms::default() };
        let _region = ShmRegion::new(&own, inside, 128, RemoteKey(1), mapped).unwrap();
        let file = find(&own.head, RemoteKey(1)).unwrap().file.unwrap();
        assert_eq!((file.offset, file.file_len), (64, memory.len() as u64));
        let mut heap = [0_u8; 8];
        let refused = ShmRegion::new(&own, NonNull::from(&mut heap[0]), 8, RemoteKey(2), mapped);
        assert!(refused.unwrap_err().message.contains("Reach::Attached"));
    }

    #[test]
    fn taking_back_waits_for_an_access_and_not_for_the_dead() {
        let own = own(2);
        let mut memory = [0; 8];
        let lane = crate::lane::claim(&own.head, own.identity, own.bell).unwrap();
        let one = region(&own, &mut memory, 1).unwrap();
        own.head.busy(lane).set(5);
        std::thread::scope(|scope| {
            let taker = scope.spawn(|| drop(one));
            while find(&own.head, RemoteKey(1)).is_some() {
                std::thread::yield_now();
            }
            assert!(!taker.is_finished(), "it must wait");
            own.head.busy(lane).set(6);
            taker.join().unwrap();
        });
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let dead = Identity { pid: child.id(), serial: 1 };
        let lane = crate::lane::claim(&own.head, dead, own.bell).unwrap();
        own.head.busy(lane).set(5);
        drop(region(&own, &mut memory, 1).unwrap());
    }
}
