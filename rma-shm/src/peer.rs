//! What an endpoint knows of a peer: its shared memory as far as it is mapped here, and the way to wake it.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rma_core::bootstrap::AddressBytes;
use rma_core::ids::RemoteKey;
use rma_core::provider::{FabricCode, ProviderError, RemoteAddr};

use crate::address::Location;
use crate::assist::{Asking, May, Slot};
use crate::atomics::fence_behind_exchange;
use crate::attach;
use crate::bell::Bell;
use crate::door::Doors;
use crate::error::{call_failed, refused, CLOSED, NO_FILE, NO_REGION, OUT_OF_REGION};
use crate::guard;
use crate::head::{Head, LaneRing, Pipe, Shape, CLASSES};
use crate::lane;
use crate::mapping::{open_file, open_pipe, strike, Mapping};
use crate::memory::{self, InFile};
use crate::options::Reach;
use crate::own::{self, Entry, Own};
use crate::pages::advise_huge;
use crate::process::watch;
use crate::ring::Writer;
use crate::turns::Appetite;

/// Regions of one peer that are remembered; of more, those that were found first are looked up again.
const KNOWN_MAX: usize = 64;

/// Where a region's bytes are for this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Mapped here.
    Mapped(*mut u8),
    /// At this address of the peer's.
    Attached(u64),
}

/// A region that was looked up in the peer's table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) key: RemoteKey,
    pub(crate) slot: usize,
    pub(crate) sequence: u64,
    pub(crate) len: u64,
    /// What origins call its first byte.
    pub(crate) first: u64,
    pub(crate) place: Place,
    /// The device and the number of the file that it is mapped from.
    file: Option<(u32, u64)>,
    pub(crate) appetite: Appetite,
}

impl Known {
    /// Whether the region is still there. Only an access that is guarded can rely on it.
    #[inline]
    pub(crate) fn is_there(&self, head: &Head) -> bool {
        own::sequence(head, self.slot) == self.sequence
    }

    /// How far behind the region's first byte a place of this address of the peer's is.
    #[inline]
    pub(crate) fn offset_of(&self, attached: u64) -> u64 {
        match self.place {
            Place::Attached(base) => attached.wrapping_sub(base),
            Place::Mapped(_) => 0,
        }
    }

    /// How far behind the region's first byte this address of the region's is.
    #[inline]
    pub(crate) fn offset(&self, addr: u64) -> u64 {
        // An address in front of the first is a large offset.
        addr.wrapping_sub(self.first)
    }

    /// Where `len` bytes from this address of the region's on are.
    #[inline]
    pub(crate) fn at(&self, addr: u64, len: usize) -> Result<Place, FabricCode> {
        let offset = self.offset(addr);
        let is_inside = offset.checked_add(len as u64).is_some_and(|end| end <= self.len);
        if !is_inside {
            return Err(OUT_OF_REGION);
        }
        Ok(match self.place {
            Place::Mapped(base) => Place::Mapped(base.wrapping_add(offset as usize)),
            Place::Attached(base) => Place::Attached(base.wrapping_add(offset)),
        })
    }
}

/// A peer's file, mapped, and the region that was found in it last: it stays as long as that is there, as it could not be
/// mapped again where there are no descriptors left.
#[derive(Debug)]
struct MappedFile {
    device: u32,
    inode: u64,
    mapping: Arc<Mapping>,
    slot: usize,
    sequence: u64,
}

/// A connected peer.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) location: Location,
    /// It is the endpoint itself.
    is_own: bool,
    /// How often it was connected.
    pub(crate) references: u32,
    pub(crate) down: Option<FabricCode>,
    pub(crate) head: Head,
    /// Our lane there.
    pub(crate) lane: usize,
    body: Mapping,
    writers: [Writer; CLASSES],
    asking: Asking,
    /// Bytes of a packet for which there was no room, by class.
    pub(crate) refused: [Option<usize>; CLASSES],
    /// Whether the lane is this endpoint's still, for who has a way there of his own.
    pub(crate) has_lane: Arc<AtomicBool>,
    /// What a region's word says when it is this endpoint's turn.
    pub(crate) own_turn: u64,
    /// Becomes readable when its process ends; none where that is this process.
    pub(crate) process: Option<OwnedFd>,
    bell: Option<OwnedFd>,
    pub(crate) known: Vec<Known>,
    pub(crate) doors: Doors,
    files: Vec<MappedFile>,
    /// Transparent huge pages are wished for where this process is the first to touch the peer's memory.
    pub(crate) asks_for_huge: bool,
}

// SAFETY: the raw pointers are into mappings that the peer owns, which every thread may use.
unsafe impl Send for Peer {}

impl Peer {
    /// The peer of a published address.
    pub(crate) fn connect(own: &Own, address: &AddressBytes, reach: Reach) -> Result<Self, ProviderError> {
        let location = decode(own, address)?;
        let Location { pid, fd, inode, nonce, .. } = location;
        let failed = |what: &str, error| call_failed(&format!("connect to process {pid}: {what}"), error);
        // Before anything is opened: what is found then is this process's and not a later one's of that
        // number.
        let process = match pid == own.identity.pid {
            true => None,
            false => Some(watch(pid).map_err(|error| failed("pidfd_open", error))?),
        };
        let shape = own.head.shape;
        let opened;
        let file = if location == own.location {
            // Also where there is no descriptor left: its own locks it takes as those of others.
            own.file.as_fd()
        } else {
            opened = open_file(pid, fd, (None, inode), 1)
                .map_err(|error| failed("opening its shared memory", error))?;
            opened.as_fd()
        };
        let has = rustix::fs::fstat(file).map_err(|error| failed("fstat", error))?.st_size;
        check_length(has, &shape, pid)?;
        let mapped = Mapping::new(&file, 0, shape.head_bytes()).map_err(|error| failed("mmap", error))?;
        let mut head = Head::new(mapped, shape);
        head.check(nonce).map_err(|why| refused(format!("connect to process {pid}: {why}")))?;
        if reach == Reach::Attached && process.is_some() {
            probe(&head, &location)?;
        }
        let lane = lane::claim(&head, own.identity, own.bell).ok_or_else(|| {
            let lanes = shape.lanes;
            refused(format!(
                "connect to process {pid}: {lanes} others send to it already (Options::senders_max)"
            ))
        })?;
        let body = Mapping::new(&file, shape.body_at(lane) as u64, shape.body_bytes()).map_err(|error| {
            lane::close(&head, lane, own.identity);
            failed("mmap", error)
        })?;
        let base = body.base().as_ptr();
        let writers = core::array::from_fn(|class| Writer::new(&head.ring(lane, class, base)));
        let asking = Asking::new(&Slot::new(&body, shape.slot_at()));
        Ok(Self {
            location,
            is_own: location == own.location,
            references: 1,
            down: None,
            head,
            lane,
            body,
            writers,
            asking,
            refused: [None; CLASSES],
            has_lane: Arc::new(AtomicBool::new(true)),
            own_turn: own.identity.turn(),
            process,
            bell: None,
            known: Vec::with_capacity(KNOWN_MAX),
            doors: Doors::NONE,
            files: Vec::new(),
            asks_for_huge: false,
        })
    }

    /// Why nothing can be posted to it.
    #[inline]
    pub(crate) fn loss(&self) -> Option<FabricCode> {
        self.head.is_closed().then_some(CLOSED)
    }

    /// The ring of a class, and its writer.
    #[inline]
    pub(crate) fn ring(&mut self, class: usize) -> (LaneRing<'_>, &mut Writer) {
        let ring = self.head.ring(self.lane, class, self.body.base().as_ptr());
        (ring, &mut self.writers[class])
    }

    /// Whether its processor may be asked for a small copy, or an atomic; `may_wake`, if it sleeps, after it was woken.
    #[inline]
    pub(crate) fn may_assist(&mut self, may_wake: bool) -> May {
        let is_asleep = self.head.sleeping() != 0;
        let slot = Slot::new(&self.body, self.head.shape.slot_at());
        match self.asking.has_slot(&slot) {
            true => self.asking.may_ask(is_asleep, may_wake),
            false => May::Not,
        }
    }

    /// The slot for that, and who asks.
    #[inline]
    pub(crate) fn slot(&mut self) -> (Slot<'_>, &mut Asking, &Head, &Option<OwnedFd>) {
        (Slot::new(&self.body, self.head.shape.slot_at()), &mut self.asking, &self.head, &self.process)
    }

    /// Sets a word in mapped memory, in a region that is known, and wakes the process if it sleeps. `false`: it is not there, or
    /// not a word.
    #[inline(always)]
    pub(crate) fn tell_known(&mut self, at: RemoteAddr, word: u64) -> bool {
        let Self { head, lane, known, doors, .. } = self;
        let Some((door, place)) = doors.told((known, head), at) else { return false };
        if place.addr() % size_of::<u64>() != 0 {
            return false;
        }
        let is_told = guard::with(&head.busy(*lane), || {
            let is_there = door.is_open(head);
            if is_there {
                // SAFETY: aligned and mapped, inside of a region whose owner has agreed to such accesses as long as the
                // guard is held; all who access such a word do so by atomics.
                let told = unsafe { AtomicU64::from_ptr(place.cast()) };
                // An exchange is a fence as well, where a store would need one behind it: of a weaker one, whose answer nobody
                // wants, a compiler may make a store.
                told.swap(word, Ordering::SeqCst);
                // Between that and the look, as there is one in `bell::may_sleep`; and the caller's own.
                fence_behind_exchange();
            }
            is_there
        });
        if is_told {
            self.wake_if_asleep();
        }
        is_told
    }

    /// Wakes the process if it sleeps: a word that was changed may be what it waits for. Who says that it sleeps and then
    /// looks at the word once more misses nothing that came of a reduction; who does not look, or waits for a word that
    /// was merely replaced, looks again by itself, as it must over every fabric with atomics.
    #[inline]
    pub(crate) fn notify(&mut self) {
        // Between the change and the look, as there is one in `bell::may_sleep`. These processors' reductions are one.
        fence_behind_exchange();
        self.wake_if_asleep();
    }

    #[inline]
    pub(crate) fn wake_if_asleep(&mut self) {
        let word = self.head.sleeping();
        if word != 0 && self.wake() {
            self.head.take_back(word);
        }
    }

    /// Wakes the process, which sleeps. `false`: it was not, as where there is no descriptor left. It goes on saying that it
    /// sleeps then, so that the next one who has something for it tries again.
    #[cold]
    #[inline(never)]
    pub(crate) fn wake(&mut self) -> bool {
        if self.bell.is_none() {
            let Pipe { fd, inode } = self.head.bell();
            // Where it is gone, the process is, or the endpoint.
            self.bell = open_pipe(self.location.pid, fd, inode).ok();
        }
        self.bell.as_ref().map(strike).is_some()
    }

    /// The region with a key, as it is now.
    #[inline]
    pub(crate) fn region(&mut self, key: RemoteKey) -> Result<Known, FabricCode> {
        match self.known.iter().position(|known| known.key == key) {
            Some(index) if self.known[index].is_there(&self.head) => Ok(self.known[index]),
            Some(index) => {
                self.known.remove(index);
                self.look_up(key)
            }
            None => self.look_up(key),
        }
    }

    #[cold]
    #[inline(never)]
    fn look_up(&mut self, key: RemoteKey) -> Result<Known, FabricCode> {
        // One may lead to what had the key before.
        self.doors = Doors::NONE;
        let entry = own::find(&self.head, key).ok_or(NO_REGION)?;
        let (place, file) = match entry.file {
            None => (Place::Attached(entry.base), None),
            Some(file) => {
                let fits = file.offset.checked_add(entry.len).is_some_and(|end| end <= file.file_len);
                let base = self.map(&file, &entry).filter(|_| fits).ok_or(NO_FILE)?;
                (Place::Mapped(base.wrapping_add(file.offset as usize)), Some((file.device, file.inode)))
            }
        };
        let Entry { slot, sequence, len, first, .. } = entry;
        let known = Known { key, slot, sequence, len, first, place, file, appetite: Appetite::FIRST };
        if self.known.len() == KNOWN_MAX {
            self.known.remove(0);
        }
        self.known.push(known);
        Ok(known)
    }

    /// The first byte of a file of the peer's.
    fn map(&mut self, file: &InFile, region: &Entry) -> Option<*mut u8> {
        let Entry { slot, sequence, .. } = *region;
        let is_it = |mapped: &&mut MappedFile| {
            (mapped.device, mapped.inode) == (file.device, file.inode)
                && mapped.mapping.len() as u64 == file.file_len
        };
        if let Some(mapped) = self.files.iter_mut().find(is_it) {
            (mapped.slot, mapped.sequence) = (slot, sequence);
            return Some(mapped.mapping.base().as_ptr());
        }
        // What windows have left behind that are gone, so that it does not grow with the windows to come.
        self.sweep();
        let len = usize::try_from(file.file_len).ok()?;
        // This endpoint's own memory is found without a descriptor.
        let own = if self.is_own { memory::mapped_as((file.device, file.inode), len) } else { None };
        let mapping = match own {
            Some(mapping) => mapping,
            None => self.map_anew(file, len)?,
        };
        if self.asks_for_huge {
            advise_huge(&mapping);
        }
        let base = mapping.base().as_ptr();
        let InFile { device, inode, .. } = *file;
        self.files.push(MappedFile { device, inode, mapping, slot, sequence });
        Some(base)
    }

    fn map_anew(&self, file: &InFile, len: usize) -> Option<Arc<Mapping>> {
        let opened =
            open_file(self.location.pid, file.fd, (Some(file.device), file.inode), file.file_len).ok()?;
        match memory::mapped_here(&opened, len) {
            Some(mapping) => Some(mapping),
            None => Mapping::new(&opened, 0, len).ok().map(Arc::new),
        }
    }

    /// The region in which `len` bytes are, what keeps it mapped here, and where they are. `None`: it is not, or not known yet.
    pub(crate) fn mapped(&self, at: RemoteAddr, len: usize) -> Option<(Known, Arc<Mapping>, *mut u8)> {
        let known = *self.known.iter().find(|known| known.key == at.key)?;
        let Ok(Place::Mapped(place)) = known.at(at.addr, len) else { return None };
        // By addresses: one file may be mapped with several lengths.
        let has_it = |file: &&MappedFile| {
            let offset = place.addr().wrapping_sub(file.mapping.base().as_ptr().addr());
            offset <= file.mapping.len() && len <= file.mapping.len() - offset
        };
        let file = self.files.iter().find(has_it)?;
        Some((known, Arc::clone(&file.mapping), place))
    }

    /// Forgets regions that are gone, and unmaps files of which no region is known.
    pub(crate) fn sweep(&mut self) {
        self.doors = Doors::NONE;
        let head = &self.head;
        self.known.retain(|known| known.is_there(head));
        let known = &self.known;
        self.files.retain(|file| {
            own::sequence(head, file.slot) == file.sequence
                || known.iter().any(|known| known.file == Some((file.device, file.inode)))
        });
    }

    /// Nothing will be posted to it any more.
    pub(crate) fn lose(&mut self, own: &Own, code: FabricCode) {
        self.down = Some(code);
        self.doors = Doors::NONE;
        self.known.clear();
        self.files.clear();
        (self.process, self.bell) = (None, None);
        self.leave(own);
    }

    /// Gives the lane back.
    pub(crate) fn leave(&self, own: &Own) {
        self.has_lane.store(false, Ordering::Release);
        lane::close(&self.head, self.lane, own.identity);
    }
}

const OTHER_PROVIDER: &str =
    "connect: the peer's endpoint is not one of the shared-memory provider: RMA_PROVIDER must be the \
                              same at all ranks";

fn decode(own: &Own, address: &AddressBytes) -> Result<Location, ProviderError> {
    let location = Location::decode(address).ok_or_else(|| refused(OTHER_PROVIDER))?;
    if location.host != own.location.host {
        return Err(refused(format!(
            "connect to process {}: it is on another host, or in another PID namespace, where shared memory does not \
             reach; RMA_PROVIDER=ofi goes over the network",
            location.pid
        )));
    }
    Ok(location)
}

/// A shorter file is another shape's, and even its sizes could not be read safely.
fn check_length(has: i64, shape: &Shape, pid: u32) -> Result<(), ProviderError> {
    if u64::try_from(has).unwrap_or(0) >= shape.total_bytes() as u64 {
        return Ok(());
    }
    Err(refused(format!(
        "connect to process {pid}: its shared memory has {has} bytes instead of {}; all ranks must open their endpoints with \
         the same options",
        shape.total_bytes()
    )))
}

/// Reads a word of the peer's own memory, as puts and gets will.
fn probe(head: &Head, location: &Location) -> Result<(), ProviderError> {
    let code = match attach::read_word(location.pid, head.probe()) {
        Ok(word) if word == location.nonce => return Ok(()),
        Ok(_) => CLOSED,
        Err(code) => code,
    };
    Err(refused(format!(
        "connect to process {}: its memory cannot be read: {code}; open all endpoints with Reach::Allocated, or go over the \
         network (RMA_PROVIDER=ofi)",
        location.pid
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ENDED;

    /// An endpoint, and itself as its peer.
    fn own_and_peer() -> (Arc<Own>, Peer) {
        let shape = Shape { lanes: 2, regions: 2, ring_bytes: 1024, packet_bytes: 512 };
        let own = Arc::new(Own::new(shape).unwrap());
        let peer = Peer::connect(&own, &own.location.encode().unwrap(), Reach::Mapped).unwrap();
        (own, peer)
    }

    /// Who cannot be woken now goes on saying that it sleeps, and is woken by the next one who can.
    #[test]
    fn whom_nobody_could_wake_is_not_taken_to_be_awake() {
        let (own, mut peer) = own_and_peer();
        let bell = own.head.bell();
        // As if it could not be opened.
        own.head.set_bell(Pipe { inode: bell.inode + 1, ..bell });
        own.head.set_sleeping(5);
        peer.wake_if_asleep();
        assert_eq!(own.head.sleeping(), 5);
        own.head.set_bell(bell);
        peer.wake_if_asleep();
        assert_eq!(own.head.sleeping(), 0);
        assert_eq!(rustix::io::read(&own.listener, &mut [0; 8]), Ok(1));
        // A sender, likewise.
        own.head.set_sender_bell(peer.lane, Pipe { inode: bell.inode + 1, ..bell });
        assert!(!own.wake_sender(peer.lane));
        own.head.set_sender_bell(peer.lane, bell);
        assert!(own.wake_sender(peer.lane));
    }

    /// A door is shut when its region is gone, and forgotten before anything is unmapped, or known anew.
    #[test]
    fn no_door_leads_to_what_is_gone() {
        let (own, mut peer) = own_and_peer();
        let memory = crate::Memory::new(4096).unwrap();
        let terms = own::Terms { must_be_mapped: true, by_address: false };
        let region = own::ShmRegion::new(&own, memory.base(), 64, RemoteKey(1), terms).unwrap();
        let at = RemoteAddr { addr: 8, key: RemoteKey(1) };
        let is_open = |peer: &mut Peer, len| {
            let Peer { head, known, doors, .. } = peer;
            doors.part((known, head), at, len).map(|(door, _)| door.is_open(head))
        };
        assert_eq!(is_open(&mut peer, 8), None, "nobody has looked it up");
        peer.region(RemoteKey(1)).unwrap();
        assert_eq!(is_open(&mut peer, 56), Some(true));
        assert_eq!(is_open(&mut peer, 57), None, "a byte behind it");
        drop(region);
        assert_eq!(is_open(&mut peer, 8), Some(false));
        let region = own::ShmRegion::new(&own, memory.base(), 64, RemoteKey(1), terms).unwrap();
        assert_eq!(is_open(&mut peer, 8), Some(false), "it leads to what had the key before");
        peer.region(RemoteKey(1)).unwrap();
        assert_eq!(is_open(&mut peer, 8), Some(true));
        drop(region);
        peer.sweep();
        assert_eq!(is_open(&mut peer, 8), None);
        let region = own::ShmRegion::new(&own, memory.base(), 64, RemoteKey(1), terms).unwrap();
        peer.region(RemoteKey(1)).unwrap();
        assert_eq!(is_open(&mut peer, 8), Some(true));
        peer.lose(&own, ENDED);
        assert_eq!(is_open(&mut peer, 8), None);
        drop(region);
    }

    /// Files of two devices may have one number.
    #[test]
    fn a_file_of_another_device_is_another_file() {
        let (own, mut peer) = own_and_peer();
        let memory = crate::Memory::new(4096).unwrap();
        let terms = own::Terms { must_be_mapped: true, by_address: false };
        let region = own::ShmRegion::new(&own, memory.base(), 64, RemoteKey(1), terms).unwrap();
        let entry = own::find(&own.head, RemoteKey(1)).unwrap();
        let file = entry.file.unwrap();
        let len = memory.len();
        assert!(memory::mapped_as((file.device, file.inode), len).is_some());
        assert!(memory::mapped_as((file.device ^ 1, file.inode), len).is_none());
        assert!(peer.map(&file, &entry).is_some());
        assert!(peer.map(&InFile { device: file.device ^ 1, ..file }, &entry).is_none());
        drop(region);
    }
}
