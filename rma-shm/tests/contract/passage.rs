//! The way to a lock and to memory that epochs repeat: line 19 of the contract.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rma_core::dtype::Dtype;
use rma_core::ids::{PeerAddr, RemoteKey, Tag};
use rma_core::op::ReduceOp;
use rma_core::provider::{
    Accepted, Allocation, Atomic, Endpoint, FabricCode, Mapping, MemoryRegion, Passage, RemoteAddr,
    RemotePiece, Swapped, WordChange,
};
use rma_shm::{Options, Reach, ShmEndpoint, ShmPassage, ShmRegion};

use crate::lanes::is_woken_within;
use crate::world::World;

const LEN: usize = 10_000;

/// How many words of a swap were as expected, and what the next one was.
const fn swapped(count: usize, other: u64) -> Swapped {
    Swapped { count, other }
}

/// Two endpoints, of which the second has a lock, which is mapped, and memory.
struct Lent {
    world: World<ShmEndpoint>,
    peer: PeerAddr,
    words: Option<ShmRegion>,
    memory: Option<ShmRegion>,
    lock: [&'static AtomicU64; 2],
    bytes: NonNull<u8>,
    /// Dropped last.
    _mapping: Box<dyn Mapping>,
    _heap: Vec<u8>,
}

impl Lent {
    /// The memory is allocated like the lock, or the program's own.
    fn new(reach: Reach, is_allocated: bool) -> Self {
        let open = || ShmEndpoint::open(&Options { reach: Some(reach), ..Options::default() }).unwrap();
        let mut world = World::new(vec![open(), open()]);
        let owner = &mut world.nodes[1].ep;
        let Allocation::Here { base, mapping } = owner.allocate(2 * LEN, 64) else { panic!("no memory") };
        // SAFETY: the mapping is dropped behind the region; so for the next one.
        let words = unsafe { owner.register(base, 64, RemoteKey(5)) }.unwrap();
        let mut heap = vec![0; LEN];
        let bytes = match is_allocated {
            true => NonNull::new(base.as_ptr().wrapping_add(LEN)).unwrap(),
            false => NonNull::new(heap.as_mut_ptr()).unwrap(),
        };
        // SAFETY: as above; or the vector is, and nobody has a reference to its bytes meanwhile.
        let memory = unsafe { owner.register(bytes, LEN, RemoteKey(6)) }.unwrap();
        let lock = [0, 8].map(|offset| {
            // SAFETY: mapped as long as the mapping is there, which outlives all that looks at them; all access them by atomics.
            unsafe { AtomicU64::from_ptr(base.as_ptr().wrapping_add(offset).cast()) }
        });
        let peer = world.nodes[0].peers[1];
        let (words, memory) = (Some(words), Some(memory));
        Self { world, peer, words, memory, lock, bytes, _mapping: mapping, _heap: heap }
    }

    fn at(region: Option<&ShmRegion>) -> RemoteAddr {
        let region = region.expect("it is registered");
        RemoteAddr { addr: region.remote_base(), key: region.remote_key() }
    }

    /// The passage, if it is known where both are.
    fn passage(&mut self) -> Option<ShmPassage> {
        let (words, memory) = (Self::at(self.words.as_ref()), Self::at(self.memory.as_ref()));
        self.world.nodes[0].ep.passage(self.peer, Some(words), RemotePiece { at: memory, len: LEN })
    }

    /// Has both looked up.
    fn look_up(&mut self) {
        for region in [&self.words, &self.memory] {
            let (ep, at) = (&mut self.world.nodes[0].ep, Self::at(region.as_ref()));
            // SAFETY: the operand is there during the call, when all is over.
            let posted = unsafe { ep.put(self.peer, [0; 16].as_ptr(), 16, at, Tag(1)) };
            assert_eq!(posted, Ok(Accepted::Complete));
        }
    }

    fn swap<const N: usize>(
        &mut self,
        passage: &mut ShmPassage,
        first: usize,
        swaps: [(u64, u64); N],
    ) -> Option<Swapped> {
        // SAFETY: this endpoint has lent it.
        unsafe { passage.swap(&mut self.world.nodes[0].ep, first, swaps) }
    }

    fn swap_and_put<const N: usize>(
        &mut self,
        passage: &mut ShmPassage,
        swaps: [(u64, u64); N],
        (bytes, offset): (&[u8], u64),
    ) -> Option<(Swapped, bool)> {
        assert!(offset as usize + bytes.len() <= LEN);
        let (ep, from) = (&mut self.world.nodes[0].ep, (bytes.as_ptr(), bytes.len()));
        // SAFETY: the bytes are there during the call, and inside of the memory.
        unsafe { passage.swap_and_put(ep, 0, swaps, from, offset) }
    }

    /// A put, and a get of what was put.
    fn put_and_get(&mut self, passage: &mut ShmPassage, bytes: &[u8], offset: u64) -> [bool; 2] {
        assert!(offset as usize + bytes.len() <= LEN);
        let (ep, mut back) = (&mut self.world.nodes[0].ep, vec![0; bytes.len()]);
        // SAFETY: the bytes are there during the call, and inside of the memory.
        let is_put = unsafe { passage.put(ep, (bytes.as_ptr(), bytes.len()), offset) };
        // SAFETY: as above.
        let is_got = unsafe { passage.get(ep, (back.as_mut_ptr(), back.len()), offset) };
        assert_eq!(is_got, back == bytes, "{} bytes", bytes.len());
        [is_put, is_got]
    }

    fn change(&mut self, passage: &mut ShmPassage, change: WordChange, offset: u64) -> Option<u64> {
        assert!(offset as usize + 8 <= LEN);
        // SAFETY: inside of the memory.
        unsafe { passage.change(&mut self.world.nodes[0].ep, change, offset) }
    }

    fn words(&self) -> [u64; 2] {
        self.lock.map(|word| word.load(Ordering::Relaxed))
    }

    fn byte(&self, offset: usize) -> u8 {
        // SAFETY: inside of the memory, which nobody changes meanwhile.
        unsafe { self.bytes.as_ptr().wrapping_add(offset).read() }
    }

    /// Nothing is done by a passage whose way is gone.
    fn leads_nowhere(&mut self, passage: &mut ShmPassage) {
        let (words, byte) = (self.words(), self.byte(64));
        assert_eq!(self.swap(passage, 0, [(words[0], 99)]), None);
        assert_eq!(self.swap(passage, 0, [(words[0], 99), (words[1], 99)]), None);
        assert_eq!(self.swap_and_put(passage, [(words[0], 99)], (&[99; 8], 64)), None);
        assert_eq!(self.put_and_get(passage, &[99; 8], 64), [false; 2]);
        for change in [WordChange::Add(99), WordChange::Tell(99), WordChange::Swap(0, 99)] {
            assert_eq!(self.change(passage, change, 64), None);
        }
        assert_eq!((self.words(), self.byte(64)), (words, byte), "something was done");
    }
}

/// Whether the memory is mapped here or copied by the kernel.
const KINDS: [(Reach, bool); 4] =
    [(Reach::Mapped, true), (Reach::Attached, true), (Reach::Allocated, true), (Reach::Attached, false)];

pub(crate) fn line_19_a_passage_does_what_its_endpoint_would_do() {
    for (reach, is_allocated) in KINDS {
        let mut lent = Lent::new(reach, is_allocated);
        assert!(lent.passage().is_none(), "what was never asked for has to be looked up first");
        lent.look_up();
        let mut passage = lent.passage().expect("both are known");
        lent.lock[0].store(5, Ordering::Relaxed);
        lent.lock[1].store(6, Ordering::Relaxed);
        assert_eq!(lent.swap(&mut passage, 0, [(5, 50), (6, 60)]), Some(swapped(2, 0)));
        assert_eq!(lent.swap(&mut passage, 0, [(5, 51), (60, 61)]), Some(swapped(0, 50)));
        assert_eq!(lent.swap(&mut passage, 0, [(50, 51), (6, 61)]), Some(swapped(1, 60)));
        assert_eq!(lent.words(), [51, 60]);
        assert_eq!(lent.swap(&mut passage, 1, [(60, 61)]), Some(swapped(1, 0)));
        assert_eq!(lent.swap(&mut passage, 1, [(60, 62)]), Some(swapped(0, 61)));
        assert_eq!(lent.swap(&mut passage, 1, [(61, 62), (0, 1)]), None, "a lock has two words");
        assert_eq!(lent.words(), [51, 61]);
        for len in [1, 8, 13, 4096] {
            assert_eq!(lent.put_and_get(&mut passage, &vec![len as u8 | 1; len], 64), [true; 2]);
        }
        let both = [(51, 1), (61, 2)];
        assert_eq!(lent.swap_and_put(&mut passage, both, (&[3; 8], 256)), Some((swapped(2, 0), true)));
        assert_eq!(lent.swap_and_put(&mut passage, both, (&[9; 8], 256)), Some((swapped(0, 1), false)));
        let half = [(1, 4), (3, 4)];
        assert_eq!(lent.swap_and_put(&mut passage, half, (&[9; 8], 256)), Some((swapped(1, 2), false)));
        let one = [(4, 7)];
        assert_eq!(lent.swap_and_put(&mut passage, one, (&[7; 8], 264)), Some((swapped(1, 0), true)));
        assert_eq!(lent.words(), [7, 2]);
        assert_eq!([255, 256, 263, 264, 271, 272].map(|offset| lent.byte(offset)), [1, 3, 3, 7, 7, 1]);
    }
}

/// Words are changed as the endpoint does it, and who waits for one that was added to without a result is woken.
pub(crate) fn line_19_words_are_changed_and_wake_who_sleeps() {
    for (reach, is_allocated) in KINDS {
        let mut lent = Lent::new(reach, is_allocated);
        lent.look_up();
        let mut passage = lent.passage().expect("both are known");
        // What is not mapped is its owner's to change, and needs no passage.
        let known = |before| is_allocated.then_some(before);
        assert_eq!(lent.change(&mut passage, WordChange::Add(5), 64), known(0));
        assert_eq!(lent.change(&mut passage, WordChange::Swap(5, 6), 64), known(5));
        assert_eq!(lent.change(&mut passage, WordChange::Swap(5, 7), 64), known(6));
        assert_eq!(lent.change(&mut passage, WordChange::Add(1), 60), None, "it is not aligned");
        assert_eq!(lent.byte(64), if is_allocated { 6 } else { 0 });
        assert_eq!(lent.change(&mut passage, WordChange::Tell(1), 64).is_some(), is_allocated);
        assert_eq!(lent.byte(64), if is_allocated { 7 } else { 0 });
        lent.world.until("the endpoint arms", |world| world.nodes[1].ep.arm_wait());
        let asleep = lent.change(&mut passage, WordChange::Tell(1), 64);
        assert_eq!(asleep, None, "the endpoint has to be asked, which wakes it");
    }
}

/// Who falls asleep just then is woken, too, unless he has seen it.
pub(crate) fn line_19_who_falls_asleep_meanwhile_is_woken() {
    const TELLS: u64 = 20_000;
    let mut lent = Lent::new(Reach::Mapped, true);
    lent.look_up();
    let mut passage = lent.passage().expect("both are known");
    let mut sleeper = lent.world.nodes.remove(1);
    let place = lent.bytes.as_ptr().wrapping_add(64).addr();
    let (seen, mut asked, mut slept) = (&AtomicU64::new(0), 0, 0);
    std::thread::scope(|scope| {
        let waits = scope.spawn(move || {
            // SAFETY: inside of the memory, which outlives the scope; all access it by atomics.
            let word = unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(place)) };
            let mut slept = 0_u32;
            for told in 1..=TELLS {
                while word.load(Ordering::Acquire) < told {
                    if sleeper.ep.arm_wait() && word.load(Ordering::Acquire) < told {
                        slept += 1;
                        assert!(is_woken_within(&sleeper.ep, 10_000), "tell {told}: nobody was woken");
                    }
                    sleeper.poll();
                }
                seen.store(told, Ordering::Release);
            }
            slept
        });
        let at = Lent::at(lent.memory.as_ref());
        let at = RemoteAddr { addr: at.addr + 64, ..at };
        for told in 0..TELLS {
            // He goes to sleep now, sooner or later.
            while seen.load(Ordering::Acquire) < told && !waits.is_finished() {
                std::thread::yield_now();
            }
            (0..told % 512).for_each(|_| std::hint::spin_loop());
            if lent.change(&mut passage, WordChange::Tell(1), 64).is_none() {
                asked += 1;
                let (ep, one) = (&mut lent.world.nodes[0].ep, 1_u64);
                let add = Atomic::Reduce { operand: (&raw const one).cast() };
                // SAFETY: the operand is there during the call.
                assert!(unsafe { ep.atomic_now(lent.peer, (add, 1), at, Dtype::U64, ReduceOp::Sum) });
            }
        }
        slept = waits.join().expect("who waits is woken");
    });
    println!("{TELLS} tells, {asked} of them by the endpoint; slept {slept} times");
}

pub(crate) fn line_19_a_passage_to_what_is_gone_leads_nowhere() {
    for (reach, is_allocated) in KINDS {
        let known = || {
            let mut lent = Lent::new(reach, is_allocated);
            lent.look_up();
            let passage = lent.passage().expect("both are known");
            (lent, passage)
        };
        // The memory: its owner waits for accesses under way, and there is none.
        let (mut lent, mut passage) = known();
        lent.memory = None;
        assert_eq!(lent.put_and_get(&mut passage, &[99; 8], 64), [false; 2]);
        let done = lent.swap_and_put(&mut passage, [(0, 1), (0, 1)], (&[99; 8], 64));
        assert!(done.is_none_or(|done| done == (swapped(2, 0), false)), "{done:?}");
        assert_eq!(lent.byte(64), 0);
        // All of it.
        lent.words = None;
        lent.leads_nowhere(&mut passage);
        // The connection, behind which another one takes its place.
        let (mut lent, mut passage) = known();
        let peer = lent.peer;
        lent.world.nodes[0].ep.disconnect(peer);
        lent.leads_nowhere(&mut passage);
        let address = lent.world.nodes[1].ep.address();
        lent.world.nodes[0].ep.connect(&address).unwrap();
        lent.leads_nowhere(&mut passage);
        (lent.words, lent.memory) = (None, None);
        // The peer.
        let (mut lent, mut passage) = known();
        lent.world.nodes[0].ep.abandon(peer, FabricCode { code: 1, text: "it has died" });
        lent.world.nodes[0].poll();
        lent.leads_nowhere(&mut passage);
        // The endpoint: its mappings are kept.
        let (lent, mut passage) = known();
        let Lent { mut world, words, memory, .. } = lent;
        let gone = world.nodes.remove(0);
        drop(gone);
        drop((words, memory));
        // SAFETY: the one that has lent it is gone, and nobody else has a passage.
        assert_eq!(unsafe { passage.swap(&mut world.nodes[0].ep, 0, [(0, 1)]) }, None);
    }
}
