//! The protocols between processes, model-checked: the interleavings of two or three threads in which a thread is kept from
//! going on at most as often as each check says, and in them every value that the memory model lets a load see. The code is
//! that of the provider; the words and bytes are the checker's, which reports bytes that are accessed from two sides at a time.

mod locks;
mod turns;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};
use loom::sync::Arc;
use loom::thread;

use crate::assist::{self, Outcome, Word};
use crate::bell::{self, Bell};
use crate::guard::{self, Busy};
use crate::ring::{Reader, Ring, Writer};

/// Bytes of the ring: two packets of a word.
const CAPACITY: usize = 32;

/// Every interleaving with as many switches as find what there is in a second or two.
fn check(program: impl Fn() + Sync + Send + 'static) {
    check_with(3, program);
}

/// The same with so many switches where a thread could have gone on.
fn check_with(switches: usize, program: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(switches);
    // Who waits for one of two others looks often.
    model.max_branches = 10_000;
    model.check(program);
}

struct Words {
    written: AtomicU64,
    consumed: AtomicU64,
    bytes: Vec<UnsafeCell<u8>>,
}

impl Words {
    fn new() -> Self {
        let bytes = (0..CAPACITY).map(|_| UnsafeCell::new(0)).collect();
        Self { written: AtomicU64::new(0), consumed: AtomicU64::new(0), bytes }
    }
}

impl Ring for Words {
    fn capacity(&self) -> usize {
        CAPACITY
    }
    fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }
    fn publish(&self, position: u64) {
        self.written.store(position, Ordering::Release);
    }
    fn consumed(&self) -> u64 {
        self.consumed.load(Ordering::Acquire)
    }
    fn give_back(&self, position: u64) {
        self.consumed.store(position, Ordering::Release);
    }
    fn write(&self, at: usize, src: &[u8]) {
        for (cell, &byte) in self.bytes[at..].iter().zip(src) {
            // SAFETY: the checker fails where another thread accesses it.
            cell.with_mut(|cell| unsafe { *cell = byte });
        }
    }
    fn read(&self, at: usize, dst: &mut [u8]) {
        for (cell, byte) in self.bytes[at..].iter().zip(dst) {
            // SAFETY: as above.
            *byte = cell.with(|cell| unsafe { *cell });
        }
    }
}

/// Three packets through a ring that holds two: none is lost, torn, or overwritten before it is read.
#[test]
fn packets_go_through_a_ring() {
    check(|| {
        let ring = Arc::new(Words::new());
        let sender = thread::spawn({
            let ring = Arc::clone(&ring);
            move || {
                let mut writer = Writer::new(&*ring);
                for value in 1..=3_u8 {
                    while !writer.push(&*ring, [&[value], &[value]]).unwrap() {
                        thread::yield_now();
                    }
                }
            }
        });
        let mut reader = Reader::new();
        let mut into = [0; 2];
        for value in 1..=3_u8 {
            let len = loop {
                match reader.pop(&*ring, &mut into).unwrap() {
                    Some(len) => break len,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(into[..len], [value; 2]);
        }
        sender.join().unwrap();
    });
}

struct Door {
    marks: AtomicU64,
    sleeping: AtomicU32,
    /// Times that the owner was woken, and did not take it in yet.
    pipe: AtomicU32,
}

impl Door {
    fn new() -> Arc<Self> {
        Arc::new(Self { marks: AtomicU64::new(0), sleeping: AtomicU32::new(0), pipe: AtomicU32::new(0) })
    }

    fn ring(&self, sender: usize) {
        if let Some(word) = bell::announce(self, sender) {
            self.pipe.fetch_add(1, Ordering::Relaxed);
            self.take_back(word);
        }
    }

    /// As `crate::peer::Peer::wake_if_asleep`.
    fn wake_if_asleep(&self) {
        let word = self.sleeping();
        if word != 0 {
            self.pipe.fetch_add(1, Ordering::Relaxed);
            self.take_back(word);
        }
    }

    /// Whether the owner was woken, which it takes in.
    fn take_ring(&self) -> bool {
        self.pipe.swap(0, Ordering::Relaxed) != 0
    }

    fn is_rung(&self) -> bool {
        self.pipe.load(Ordering::Relaxed) != 0
    }

    /// The owner looks twice, and goes to sleep when there is nothing: whom it has heard, and whether it
    /// sleeps.
    fn listen(&self) -> (u64, bool) {
        let (mut heard, mut turn) = (0, 0);
        for _ in 0..2 {
            heard |= self.marks.swap(0, bell::TAKE);
            let sleeps = bell::may_sleep(self, &mut turn);
            if sleeps && !self.take_ring() {
                return (heard, true);
            }
        }
        (heard, false)
    }
}

impl Bell for Door {
    fn mark(&self, sender: usize) {
        self.marks.fetch_or(1 << sender, Ordering::Release);
    }
    fn is_marked(&self) -> bool {
        self.marks.load(Ordering::Acquire) != 0
    }
    fn sleeping(&self) -> u32 {
        self.sleeping.load(Ordering::Relaxed)
    }
    fn set_sleeping(&self, word: u32) {
        self.sleeping.swap(word, Ordering::Relaxed);
    }
    fn take_back(&self, word: u32) {
        let _ = self.sleeping.compare_exchange(word, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}

/// Of two senders nobody is left unheard by an owner that sleeps and is not woken. The first may die when it
/// has seen the sleeper and before it wakes it: the other does.
#[test]
fn a_sleeper_is_woken() {
    for dies in [false, true] {
        check(move || {
            let door = Door::new();
            let first = thread::spawn({
                let door = Arc::clone(&door);
                move || {
                    if dies {
                        let _ = bell::announce(&*door, 0);
                    } else {
                        door.ring(0);
                    }
                }
            });
            let second = thread::spawn({
                let door = Arc::clone(&door);
                move || door.ring(1)
            });
            let (heard, sleeps) = door.listen();
            first.join().unwrap();
            second.join().unwrap();
            let is_woken = door.is_rung();
            let unheard = if dies { 2 } else { 3 } & !heard;
            assert!(!sleeps || is_woken || unheard == 0, "senders {unheard:b} are not heard");
        });
    }
}

struct Copy {
    word: AtomicU64,
    data: UnsafeCell<u64>,
    memory: UnsafeCell<u64>,
}

impl Word for Copy {
    fn load(&self) -> u64 {
        self.word.load(Ordering::Acquire)
    }
    fn store(&self, word: u64) {
        self.word.store(word, Ordering::Release);
    }
    fn exchange(&self, from: u64, into: u64) -> bool {
        self.word.compare_exchange(from, into, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

impl Copy {
    fn put(&self, value: u64) {
        // SAFETY: the checker fails where another thread accesses it.
        self.memory.with_mut(|memory| unsafe { *memory = value });
    }
    fn write(&self, value: u64) {
        // SAFETY: as above.
        self.data.with_mut(|data| unsafe { *data = value });
    }
    fn read(&self) -> u64 {
        // SAFETY: as above.
        self.data.with(|data| unsafe { *data })
    }
}

/// Two small puts, each of which the owner does or the origin takes back and does itself: each is done once, the later one
/// behind the earlier one, and nobody touches the data while the other one has them.
#[test]
fn small_puts_are_done_by_one_side() {
    check(|| {
        let (data, memory) = (UnsafeCell::new(0), UnsafeCell::new(0));
        let copy = Arc::new(Copy { word: AtomicU64::new(0), data, memory });
        let owner = thread::spawn({
            let copy = Arc::clone(&copy);
            move || {
                for _ in 0..2 {
                    assist::serve(
                        &*copy,
                        || (),
                        |()| {
                            copy.put(copy.read());
                            true
                        },
                    );
                    thread::yield_now();
                }
            }
        });
        let mut asking = assist::Asking::new(&*copy);
        for value in 1..=2 {
            copy.write(value);
            asking.post(&*copy);
            let outcome = asking.wait(&*copy, |_| {
                thread::yield_now();
                true
            });
            match outcome {
                Outcome::Done => {}
                Outcome::Left => copy.put(value),
                other => panic!("{other:?}"),
            }
        }
        owner.join().unwrap();
        // SAFETY: the other thread has ended.
        assert_eq!(copy.memory.with(|memory| unsafe { *memory }), 2);
    });
}

struct Number {
    word: AtomicU64,
    /// The operand, and then the result.
    element: AtomicU64,
    memory: UnsafeCell<u64>,
}

impl Word for Number {
    fn load(&self) -> u64 {
        self.word.load(Ordering::Acquire)
    }
    fn store(&self, word: u64) {
        self.word.store(word, Ordering::Release);
    }
    fn exchange(&self, from: u64, into: u64) -> bool {
        self.word.compare_exchange(from, into, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

impl Number {
    /// What the owner does when it is asked to add.
    fn add(&self, operand: u64) -> bool {
        // SAFETY: the checker fails where another thread accesses it.
        let before = self.memory.with(|memory| unsafe { *memory });
        // SAFETY: as above.
        self.memory.with_mut(|memory| unsafe { *memory = before + operand });
        self.element.store(before, Ordering::Relaxed);
        true
    }
}

/// The owner is asked to add two numbers: what was done is done once, with the operand that was asked for, and the result is
/// that of this request; what was taken back never is.
#[test]
fn numbers_are_added_once_or_not_at_all() {
    check(|| {
        let (element, memory) = (AtomicU64::new(0), UnsafeCell::new(0));
        let number = Arc::new(Number { word: AtomicU64::new(0), element, memory });
        let owner = thread::spawn({
            let number = Arc::clone(&number);
            move || {
                for _ in 0..2 {
                    let read = || number.element.load(Ordering::Relaxed);
                    assist::serve(&*number, read, |operand| number.add(operand));
                    thread::yield_now();
                }
            }
        });
        let (mut asking, mut sum) = (assist::Asking::new(&*number), 0);
        for operand in [1, 16] {
            number.element.store(operand, Ordering::Relaxed);
            asking.post(&*number);
            let outcome = asking.wait(&*number, |_| {
                thread::yield_now();
                true
            });
            match outcome {
                Outcome::Done => {
                    assert_eq!(number.element.load(Ordering::Relaxed), sum);
                    sum += operand;
                }
                Outcome::Left => {}
                other => panic!("{other:?}"),
            }
        }
        owner.join().unwrap();
        // SAFETY: the other thread has ended.
        assert_eq!(number.memory.with(|memory| unsafe { *memory }), sum);
    });
}

struct Region {
    busy: AtomicU64,
    sequence: AtomicU64,
    memory: UnsafeCell<u64>,
}

impl Busy for Region {
    fn word(&self) -> u64 {
        self.busy.load(Ordering::Acquire)
    }
    fn set(&self, word: u64) {
        self.busy.store(word, Ordering::Release);
    }
    // The kernel's fence in others is modelled as one in each of both: loom has none that reaches other threads.
    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}

/// An origin writes to a region twice while its owner takes it back: when the owner has it, nobody writes
/// there, and an access that came too late says so.
#[test]
fn a_region_that_was_taken_back_is_left_alone() {
    check(|| {
        let region = Arc::new(Region {
            busy: AtomicU64::new(0),
            sequence: AtomicU64::new(1),
            memory: UnsafeCell::new(0),
        });
        let origin = thread::spawn({
            let region = Arc::clone(&region);
            move || {
                let mut done = 0;
                for _ in 0..2 {
                    done += guard::with(&*region, || {
                        if region.sequence.load(Ordering::Acquire) != 1 {
                            return 0;
                        }
                        // SAFETY: the checker fails where another thread accesses it.
                        region.memory.with_mut(|memory| unsafe { *memory += 1 });
                        1
                    });
                }
                done
            }
        });
        region.sequence.store(2, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        guard::wait(&*region, || {
            thread::yield_now();
            true
        });
        // SAFETY: as above: the memory is the owner's again.
        let seen = region.memory.with_mut(|memory| unsafe { core::mem::replace(&mut *memory, 100) });
        assert_eq!(
            origin.join().unwrap(),
            seen,
            "an access that was said to be done was not, or the reverse"
        );
    });
}
