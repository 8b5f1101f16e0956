//! The head of an endpoint's shared memory: who it is, its bell, its lanes and its regions. The lanes' rings
//! follow it, so that a peer maps the head and its own lane's, and nobody else's.
//!
//! | from | what | written by |
//! | --- | --- | --- |
//! | 0 | sizes, where the bell is, and whether it fences for its peers | owner, before anybody knows it |
//! | `STATE`, `SLEEPING` | whether it is closed, whether it sleeps | owner; who wakes it |
//! | `OWNER_BUSY` | its word while it changes elements of its regions itself | owner |
//! | `TURN` | who changes elements that no atomic covers | whoever does |
//! | `MARKS` | a bit for each lane with news | senders set, owner takes |
//! | lanes | a lane's sender, its word during accesses, positions in its rings | sender; `consumed` by the owner |
//! | regions | registered memory; whose turn it is to change its elements ([`crate::turns`]) | owner; whoever changes them |

use core::sync::atomic::{compiler_fence, fence, AtomicU64, Ordering};

use crate::address::Identity;
use crate::assist::{Slot, SLOT_BYTES};
use crate::bell::{Bell, TAKE};
use crate::fences;
use crate::guard::Busy;
use crate::mapping::Mapping;
use crate::options::Options;
use crate::process::{is_running, still_runs};
use crate::ring::Ring;

/// Classes of packets, a ring each.
pub(crate) const CLASSES: usize = 2;

/// The sizes of an endpoint's shared memory, which its peers must have as well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub(crate) lanes: usize,
    pub(crate) regions: usize,
    pub(crate) ring_bytes: usize,
    pub(crate) packet_bytes: usize,
}

impl Shape {
    pub(crate) fn of(options: &Options) -> Self {
        Self {
            lanes: options.senders_max,
            regions: options.regions_max,
            ring_bytes: options.ring_bytes,
            packet_bytes: options.packet_bytes,
        }
    }

    /// Words of marks.
    pub(crate) fn marks(&self) -> usize {
        self.lanes.div_ceil(MARKS_PER_WORD)
    }

    fn lanes_at(&self) -> usize {
        MARKS + self.marks().next_multiple_of(LINE / WORD) * WORD
    }

    fn regions_at(&self) -> usize {
        self.lanes_at() + self.lanes * LANE_BYTES
    }

    /// Bytes of the head.
    pub(crate) fn head_bytes(&self) -> usize {
        (self.regions_at() + self.regions * REGION_BYTES).next_multiple_of(page())
    }

    /// Bytes of one lane's rings, and of its slot.
    pub(crate) fn body_bytes(&self) -> usize {
        (self.slot_at() + SLOT_BYTES).next_multiple_of(page())
    }

    /// Where the slot for small copies is behind the beginning of a lane's rings.
    pub(crate) fn slot_at(&self) -> usize {
        (CLASSES * self.ring_bytes).next_multiple_of(LINE)
    }

    /// Where a lane's rings are in the file.
    pub(crate) fn body_at(&self, lane: usize) -> usize {
        self.head_bytes() + lane * self.body_bytes()
    }

    /// Bytes of everything.
    pub(crate) fn total_bytes(&self) -> usize {
        self.body_at(self.lanes)
    }
}

/// A pipe of some process, by its descriptor there and the pipe's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pipe {
    pub(crate) fd: u32,
    pub(crate) inode: u64,
}

/// What a lane's first word says: who sends on it, and whether it still does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Claim {
    pub(crate) state: ClaimState,
    pub(crate) by: Identity,
    /// Counts changes, so that one that was made and undone shows.
    pub(crate) turn: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClaimState {
    Free,
    Open,
    /// The sender has gone; what it sent may not have been read.
    Closed,
    /// The reader has found nonsense: used never again.
    Broken,
}

impl Claim {
    pub(crate) fn decode(word: u64) -> Self {
        let state = match word & 3 {
            0 => ClaimState::Free,
            1 => ClaimState::Open,
            2 => ClaimState::Closed,
            _ => ClaimState::Broken,
        };
        let serial = (word >> 2) as u32 & ((1 << crate::address::SERIAL_BITS) - 1);
        let pid = (word >> PID_AT) as u32 & ((1 << PID_BITS) - 1);
        Self { state, by: Identity { pid, serial }, turn: (word >> TURN_AT) as u16 }
    }

    pub(crate) fn encode(self) -> u64 {
        let state = match self.state {
            ClaimState::Free => 0,
            ClaimState::Open => 1,
            ClaimState::Closed => 2,
            ClaimState::Broken => 3,
        };
        state
            | u64::from(self.by.serial) << 2
            | u64::from(self.by.pid) << PID_AT
            | u64::from(self.turn) << TURN_AT
    }
}

/// The mapped head of one endpoint, the own or a peer's.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) mapping: Mapping,
    pub(crate) shape: Shape,
    /// The owner fences for this process, or this process for its peers where the head is its own.
    are_fences_shared: bool,
    lanes_at: usize,
    regions_at: usize,
}

impl Head {
    /// `mapping` has at least the head of that shape.
    pub(crate) fn new(mapping: Mapping, shape: Shape) -> Self {
        let (lanes_at, regions_at) = (shape.lanes_at(), shape.regions_at());
        Self { mapping, shape, are_fences_shared: false, lanes_at, regions_at }
    }

    /// What the owner says before it publishes its address. `probe`: where its copy of the nonce is.
    pub(crate) fn introduce(&mut self, nonce: u64, probe: u64, bell: Pipe) {
        let Shape { lanes, regions, ring_bytes, packet_bytes } = self.shape;
        let sizes = [lanes, regions, ring_bytes, packet_bytes].map(|size| size as u64);
        self.are_fences_shared = fences::are_shared();
        self.mapping.half(FENCES).store(self.are_fences_shared.into(), Ordering::Release);
        let said = [MAGIC, nonce].into_iter().chain(sizes).chain([probe, bell.fd.into(), bell.inode]);
        for (index, word) in said.enumerate() {
            self.mapping.word(index * WORD).store(word, Ordering::Release);
        }
    }

    /// Whether this is the endpoint with the nonce, and with the same shape. From then on its owner fences for this process,
    /// if both can.
    pub(crate) fn check(&mut self, nonce: u64) -> Result<(), &'static str> {
        let said = |index: usize| self.mapping.word(index * WORD).load(Ordering::Acquire);
        let Shape { lanes, regions, ring_bytes, packet_bytes } = self.shape;
        if said(0) != MAGIC || said(1) != nonce {
            return Err("it is another endpoint's, or of another version of this library");
        }
        let sizes = [lanes, regions, ring_bytes, packet_bytes].map(|size| size as u64);
        if (2..).zip(sizes).any(|(index, size)| said(index) != size) {
            return Err("its sizes are different; all ranks must open their endpoints with the same options");
        }
        self.are_fences_shared = self.leaves_fences() && fences::are_shared();
        Ok(())
    }

    /// Full fences for the owner and its peers, which is what the owner does.
    pub(crate) fn fence_all(&self) {
        fences::seldom_anyhow(self.are_fences_shared);
    }

    /// Where the owner's copy of the nonce is in its own memory.
    pub(crate) fn probe(&self) -> u64 {
        self.mapping.word(PROBE).load(Ordering::Relaxed)
    }

    /// The owner's bell.
    pub(crate) fn bell(&self) -> Pipe {
        let fd = self.mapping.word(BELL_FD).load(Ordering::Relaxed) as u32;
        Pipe { fd, inode: self.mapping.word(BELL_INODE).load(Ordering::Relaxed) }
    }

    #[cfg(test)]
    pub(crate) fn set_bell(&self, bell: Pipe) {
        self.mapping.word(BELL_FD).store(bell.fd.into(), Ordering::Relaxed);
        self.mapping.word(BELL_INODE).store(bell.inode, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.mapping.half(STATE).load(Ordering::Acquire) != 0
    }

    pub(crate) fn close(&self) {
        self.mapping.half(STATE).store(1, Ordering::Release);
    }

    /// Whether a lane that was used has a mark.
    #[inline]
    pub(crate) fn has_marks(&self) -> bool {
        let used = self.lanes_used().div_ceil(64).min(self.shape.marks());
        (0..used).any(|word| self.mapping.word(MARKS + word * WORD).load(Ordering::Relaxed) != 0)
    }

    /// The marks of 64 lanes, taken.
    #[inline]
    pub(crate) fn take_marks(&self, word: usize) -> u64 {
        let marks = self.mapping.word(MARKS + word * WORD);
        if marks.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        // Bits of lanes that there are not are nobody's.
        let lanes = self.shape.lanes - word * MARKS_PER_WORD;
        let mask = if lanes < MARKS_PER_WORD { (1 << lanes) - 1 } else { u64::MAX };
        marks.swap(0, TAKE) & mask
    }

    /// Lanes that were ever claimed; the others were not.
    pub(crate) fn lanes_used(&self) -> usize {
        (self.mapping.half(LANES_USED).load(Ordering::Acquire) as usize).min(self.shape.lanes)
    }

    /// This many were.
    pub(crate) fn use_lanes(&self, count: usize) {
        self.mapping.half(LANES_USED).fetch_max(count as u32, Ordering::AcqRel);
    }

    /// Regions whose words were ever written.
    pub(crate) fn regions_used(&self) -> usize {
        (self.mapping.half(REGIONS_USED).load(Ordering::Acquire) as usize).min(self.shape.regions)
    }

    pub(crate) fn use_regions(&self, count: usize) {
        self.mapping.half(REGIONS_USED).fetch_max(count as u32, Ordering::AcqRel);
    }

    #[inline]
    fn lane_word(&self, lane: usize, offset: usize) -> &AtomicU64 {
        debug_assert!(lane < self.shape.lanes);
        self.mapping.word(self.lanes_at + lane * LANE_BYTES + offset)
    }

    /// The word with the lane's [`Claim`].
    #[inline]
    pub(crate) fn claim(&self, lane: usize) -> &AtomicU64 {
        self.lane_word(lane, CLAIM)
    }

    /// The bell of the lane's sender, for when there is room again.
    pub(crate) fn sender_bell(&self, lane: usize) -> Pipe {
        let fd = self.lane_word(lane, SENDER_FD).load(Ordering::Relaxed) as u32;
        Pipe { fd, inode: self.lane_word(lane, SENDER_INODE).load(Ordering::Relaxed) }
    }

    pub(crate) fn set_sender_bell(&self, lane: usize, pipe: Pipe) {
        self.lane_word(lane, SENDER_FD).store(pipe.fd.into(), Ordering::Relaxed);
        self.lane_word(lane, SENDER_INODE).store(pipe.inode, Ordering::Relaxed);
    }

    /// Notes which process it is that has claimed the lane, with this count of changes: its number alone may be another's
    /// later.
    pub(crate) fn set_sender_number(&self, lane: usize, turn: u16, number: Option<u64>) {
        let word = number.map_or(0, |number| number << u16::BITS | u64::from(turn));
        self.lane_word(lane, SENDER_NUMBER).store(word, Ordering::Release);
    }

    /// Whether the process runs that has made the lane's claim, as far as can be told.
    pub(crate) fn is_sender_running(&self, lane: usize, claim: Claim) -> bool {
        let word = self.lane_word(lane, SENDER_NUMBER).load(Ordering::Acquire);
        // A lane that was closed or broken off has changed once since.
        let claimed = match claim.state {
            ClaimState::Free | ClaimState::Open => claim.turn,
            ClaimState::Closed | ClaimState::Broken => claim.turn.wrapping_sub(1),
        };
        // Not noted yet: that of an earlier claim says nothing of this one.
        let is_noted = word != 0 && word as u16 == claimed;
        still_runs(claim.by.pid, is_noted.then_some(word >> u16::BITS))
    }

    /// Whether the process of an endpoint that has a lane here runs.
    pub(crate) fn is_there(&self, who: Identity) -> bool {
        let claims = (0..self.lanes_used())
            .map(|lane| (lane, Claim::decode(self.claim(lane).load(Ordering::Acquire))));
        match claims.into_iter().find(|(_, claim)| claim.by == who && claim.state != ClaimState::Free) {
            Some((lane, claim)) => self.is_sender_running(lane, claim),
            None => is_running(who.pid),
        }
    }

    /// The word that says that the lane's sender waits for room in a ring.
    #[inline]
    pub(crate) fn wants_room(&self, lane: usize, class: usize) -> &AtomicU64 {
        self.lane_word(lane, RINGS + class * RING_WORDS + WANTS)
    }

    /// The lane's word during accesses to regions.
    pub(crate) fn busy(&self, lane: usize) -> BusyWord<'_> {
        BusyWord { word: self.lane_word(lane, BUSY), are_fences_shared: self.are_fences_shared }
    }

    /// Whether its owner has said that whoever fences seldom does so for it, too.
    pub(crate) fn leaves_fences(&self) -> bool {
        self.mapping.half(FENCES).load(Ordering::Acquire) != 0
    }

    /// Fences for all that leave it to others. `false`: that could not be done.
    pub(crate) fn fence_for_all(&self) -> bool {
        (self.are_fences_shared || !self.leaves_fences()) && fences::seldom(self.are_fences_shared)
    }

    /// The owner's own word while it changes elements of its regions.
    pub(crate) fn owner_busy(&self) -> BusyWord<'_> {
        BusyWord { word: self.mapping.word(OWNER_BUSY), are_fences_shared: self.are_fences_shared }
    }

    /// The ring of a class. `body` is where the lane's rings are mapped, for as long as the head is.
    #[inline]
    pub(crate) fn ring(&self, lane: usize, class: usize, body: *mut u8) -> LaneRing<'_> {
        LaneRing {
            written: self.lane_word(lane, RINGS + class * RING_WORDS),
            consumed: self.lane_word(lane, RINGS + class * RING_WORDS + LINE),
            data: body.wrapping_add(class * self.shape.ring_bytes),
            capacity: self.shape.ring_bytes,
        }
    }

    /// Whether everything that was sent on the lane has been read.
    pub(crate) fn is_drained(&self, lane: usize) -> bool {
        let position = |offset| self.lane_word(lane, RINGS + offset).load(Ordering::Acquire);
        (0..CLASSES).all(|class| position(class * RING_WORDS) == position(class * RING_WORDS + LINE))
    }

    /// The slot of a lane of the own head, of which the whole file is mapped.
    #[inline]
    pub(crate) fn slot(&self, lane: usize) -> Slot<'_> {
        Slot::new(&self.mapping, self.shape.body_at(lane) + self.shape.slot_at())
    }

    /// One of a region's words.
    #[inline]
    pub(crate) fn region_word(&self, region: usize, word: usize) -> &AtomicU64 {
        self.mapping.word(self.region_at(region, word))
    }

    /// Where it is.
    #[inline]
    pub(crate) fn region_at(&self, region: usize, word: usize) -> usize {
        debug_assert!(region < self.shape.regions && word < REGION_BYTES / WORD);
        self.regions_at + region * REGION_BYTES + word * WORD
    }
}

impl Bell for Head {
    #[inline]
    fn mark(&self, sender: usize) {
        let bit = 1 << (sender % MARKS_PER_WORD);
        self.mapping.word(MARKS + sender / MARKS_PER_WORD * WORD).fetch_or(bit, Ordering::Release);
    }

    fn is_marked(&self) -> bool {
        (0..self.shape.marks())
            .any(|word| self.mapping.word(MARKS + word * WORD).load(Ordering::Acquire) != 0)
    }

    #[inline]
    fn sleeping(&self) -> u32 {
        self.mapping.half(SLEEPING).load(Ordering::Relaxed)
    }

    #[inline]
    fn set_sleeping(&self, word: u32) {
        self.mapping.half(SLEEPING).swap(word, Ordering::Relaxed);
    }

    fn take_back(&self, word: u32) {
        let _ = self.mapping.half(SLEEPING).compare_exchange(word, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    #[inline]
    fn fence(&self) {
        // Both sides come from a change of a word, and these processors' changes are full fences.
        if cfg!(any(target_arch = "x86", target_arch = "x86_64")) {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
    }
}

/// See [`Head::busy`].
#[derive(Debug)]
pub(crate) struct BusyWord<'a> {
    word: &'a AtomicU64,
    are_fences_shared: bool,
}

impl<'a> BusyWord<'a> {
    /// Such a word, and whether the owner fences for both.
    #[inline]
    pub(crate) fn new(word: &'a AtomicU64, are_fences_shared: bool) -> Self {
        Self { word, are_fences_shared }
    }

    /// The word, and that.
    pub(crate) fn parts(&self) -> (&'a AtomicU64, bool) {
        (self.word, self.are_fences_shared)
    }
}

impl Busy for BusyWord<'_> {
    #[inline]
    fn word(&self) -> u64 {
        self.word.load(Ordering::Acquire)
    }

    #[inline]
    fn set(&self, word: u64) {
        self.word.store(word, Ordering::Release);
    }

    #[inline]
    fn fence(&self) {
        fences::frequent(self.are_fences_shared);
    }
}

/// See [`Head::ring`].
#[derive(Debug)]
pub(crate) struct LaneRing<'a> {
    written: &'a AtomicU64,
    consumed: &'a AtomicU64,
    data: *mut u8,
    capacity: usize,
}

impl Ring for LaneRing<'_> {
    #[inline]
    fn capacity(&self) -> usize {
        self.capacity
    }

    #[inline]
    fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    #[inline]
    fn publish(&self, position: u64) {
        self.written.store(position, Ordering::Release);
    }

    #[inline]
    fn consumed(&self) -> u64 {
        self.consumed.load(Ordering::Acquire)
    }

    #[inline]
    fn give_back(&self, position: u64) {
        self.consumed.store(position, Ordering::Release);
    }

    #[inline]
    fn write(&self, at: usize, src: &[u8]) {
        debug_assert!(at + src.len() <= self.capacity);
        // SAFETY: inside of the ring, which is mapped as long as `self` lives, and by the protocol these
        // bytes are the writer's. A process that breaks the protocol spoils the bytes of its own packets
        // only.
        unsafe { self.data.wrapping_add(at).copy_from_nonoverlapping(src.as_ptr(), src.len()) };
    }

    #[inline]
    fn read(&self, at: usize, dst: &mut [u8]) {
        debug_assert!(at + dst.len() <= self.capacity);
        // SAFETY: as in `write`; these bytes are the reader's, and are used as plain bytes only.
        unsafe { self.data.wrapping_add(at).copy_to_nonoverlapping(dst.as_mut_ptr(), dst.len()) };
    }
}

pub(crate) fn page() -> usize {
    rustix::param::page_size()
}

const MAGIC: u64 = u64::from_le_bytes(*b"rma-shm5");
const WORD: usize = 8;
const LINE: usize = 64;
const MARKS_PER_WORD: usize = 64;
const PROBE: usize = 6 * WORD;
const BELL_FD: usize = 7 * WORD;
const BELL_INODE: usize = 8 * WORD;
const STATE: usize = 9 * WORD;
pub(crate) const TURN: usize = 10 * WORD;
const FENCES: usize = 11 * WORD;
const SLEEPING: usize = 2 * LINE;
const LANES_USED: usize = 3 * LINE;
const REGIONS_USED: usize = LANES_USED + 4;
const OWNER_BUSY: usize = LANES_USED + WORD;
const MARKS: usize = 4 * LINE;
// A lane: its claim and its sender's bell, its word during accesses, and of each ring the writer's line and
// the reader's.
const CLAIM: usize = 0;
const SENDER_FD: usize = WORD;
const SENDER_INODE: usize = 2 * WORD;
const SENDER_NUMBER: usize = 3 * WORD;
const BUSY: usize = LINE;
const RINGS: usize = 2 * LINE;
const RING_WORDS: usize = 2 * LINE;
const WANTS: usize = WORD;
const LANE_BYTES: usize = RINGS + CLASSES * RING_WORDS;
/// A region has a line, and one for its turns.
const REGION_BYTES: usize = 2 * LINE;
pub(crate) const WHOSE_TURN: usize = LINE / WORD;
// Of a claim: two bits of state, the serial number, then these.
const PID_AT: u32 = 2 + crate::address::SERIAL_BITS;
/// Linux numbers no more than 2^22 processes.
const PID_BITS: u32 = 22;
const TURN_AT: u32 = PID_AT + PID_BITS;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_words_and_back() {
        let by = Identity { pid: (1 << PID_BITS) - 1, serial: 0xab_cdef };
        for state in [ClaimState::Free, ClaimState::Open, ClaimState::Closed, ClaimState::Broken] {
            let claim = Claim { state, by, turn: u16::MAX };
            assert_eq!(Claim::decode(claim.encode()), claim);
        }
        assert_eq!(Claim::decode(0).state, ClaimState::Free);
    }

    #[test]
    fn a_turn_is_one_endpoints_and_not_that_of_the_dead() {
        let shape = Shape { lanes: 1, regions: 1, ring_bytes: 1024, packet_bytes: 512 };
        let file = crate::mapping::new_file("rma-shm-test", shape.total_bytes()).unwrap();
        let head = Head::new(Mapping::new(&file, 0, shape.head_bytes()).unwrap(), shape);
        let (one, other) = (Identity::new(), Identity::new());
        assert!(head.take_turn(one) && !head.take_turn(other) && !head.take_turn(one));
        head.give_turn(other);
        assert!(!head.take_turn(other), "who has not got it cannot give it back");
        head.give_turn(one);
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let dead = Identity { pid: child.id(), serial: 1 };
        assert!(head.take_turn(dead) && head.take_turn(other));
        head.give_turn(dead);
        assert!(!head.take_turn(one));
    }

    #[test]
    fn parts_do_not_overlap() {
        for (lanes, regions) in [(1, 1), (64, 3), (65, 4096), (65_536, 65_536)] {
            let shape = Shape { lanes, regions, ring_bytes: 1024, packet_bytes: 512 };
            assert!(shape.lanes_at() >= MARKS + 8 * shape.marks() && shape.lanes_at() % LINE == 0);
            assert!(shape.head_bytes() >= shape.regions_at() + regions * REGION_BYTES);
            assert_eq!(shape.body_at(0), shape.head_bytes());
            assert_eq!(shape.body_at(1) - shape.body_at(0), shape.body_bytes());
            assert!(shape.body_bytes() >= CLASSES * shape.ring_bytes + SLOT_BYTES);
            assert_eq!(shape.total_bytes(), shape.head_bytes() + lanes * shape.body_bytes());
        }
    }
}
