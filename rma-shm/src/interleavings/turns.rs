//! Elements that are changed by atomics, or by turns ([`crate::turns`]): whichever it is, no change is lost.

use core::cell::Cell;

use loom::sync::atomic::{fence, AtomicU64, Ordering};
use loom::sync::Arc;
use loom::thread;
use rma_core::mem::Begun;

use super::check_with;
use crate::guard::{self, Busy};
use crate::turns::Size::{self, Enough, Large, Small};
use crate::turns::{leave, take_from_dead, take_part, Part, Party, TurnWord};

/// A region of one element, and the words of three who change it.
struct Region {
    word: AtomicU64,
    busy: [AtomicU64; 3],
    /// The number of who has died.
    dead: AtomicU64,
    element: AtomicU64,
}

impl Region {
    fn new() -> Arc<Self> {
        let word = || AtomicU64::new(0);
        Arc::new(Self { word: word(), busy: [word(), word(), word()], dead: word(), element: word() })
    }
}

struct Word<'a> {
    word: &'a AtomicU64,
    /// Nothing is changed any more.
    is_dead: bool,
}

// As `crate::turns::head`.
impl TurnWord for Word<'_> {
    fn load(&self) -> u64 {
        self.word.load(Ordering::Acquire)
    }
    fn change(&self, from: u64, into: u64) -> bool {
        !self.is_dead && self.word.compare_exchange(from, into, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }
    fn set(&self, word: u64) {
        self.word.swap(word, Ordering::SeqCst);
    }
}

struct BusyWord<'a>(&'a AtomicU64);

impl Busy for BusyWord<'_> {
    fn word(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
    fn set(&self, word: u64) {
        self.0.store(word, Ordering::Release);
    }
    // The kernel's fence in others is modelled as one in each of both.
    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}

/// One who changes the element, with a number from 1 on.
struct One {
    region: Arc<Region>,
    number: usize,
    /// It waits for others' accesses, when it begins with turns.
    waits_for_accesses: bool,
    /// It waits for its turn, or goes without.
    waits_for_turn: bool,
    /// It dies when it has begun with turns, before it is alone.
    dies_early: bool,
    is_dead: Cell<bool>,
}

impl Party for One {
    fn begin(&mut self) {
        if !self.is_dead.get() {
            guard::begin(&BusyWord(&self.region.busy[self.number - 1]));
        }
    }
    fn end(&mut self) {
        if !self.is_dead.get() {
            guard::end(&BusyWord(&self.region.busy[self.number - 1]));
        }
    }
    fn is_there(&self) -> bool {
        true
    }
    fn word(&self) -> impl TurnWord {
        Word { word: &self.region.word, is_dead: self.is_dead.get() }
    }
    fn settle(&self) -> bool {
        if self.dies_early {
            self.is_dead.set(true);
            self.region.dead.store(self.number as u64, Ordering::Release);
            return false;
        }
        fence(Ordering::SeqCst);
        let others = (1..).zip(&self.region.busy).filter(|(number, _)| *number != self.number);
        others.into_iter().all(|(_, busy)| {
            guard::wait(&BusyWord(busy), || {
                thread::yield_now();
                self.waits_for_accesses
            })
        })
    }
    fn wait(&mut self, seen: u64, _size: Size) -> bool {
        // The number of whom has died; nobody's is 0, and then nothing is taken.
        let dead = self.region.dead.load(Ordering::Acquire);
        if dead == seen & 0b11 {
            take_from_dead(&self.word(), seen);
        } else {
            thread::yield_now();
        }
        self.waits_for_turn && !self.is_dead.get()
    }
}

impl One {
    fn new(region: &Arc<Region>, number: usize) -> Self {
        Self {
            region: Arc::clone(region),
            number,
            waits_for_accesses: true,
            waits_for_turn: true,
            dies_early: false,
            is_dead: Cell::new(false),
        }
    }

    fn begin_change(&mut self, size: Size) -> Option<Begun> {
        match take_part(self, self.number as u64, size) {
            Part::Begun(begun) => Some(begun),
            Part::NotNow | Part::Gone => None,
        }
    }

    /// Adds 1.
    fn change(&mut self, begun: Begun) {
        let element = &self.region.element;
        match begun {
            Begun::ByAtomics => {
                element.fetch_add(1, Ordering::Relaxed);
            }
            // What others have added meanwhile would be lost.
            Begun::Alone(_) => element.store(element.load(Ordering::Relaxed) + 1, Ordering::Relaxed),
        }
    }

    /// How often it has added 1, which it tries for each size.
    fn add(mut self, sizes: &[Size]) -> u64 {
        let mut added = 0;
        for &size in sizes {
            if let Some(begun) = self.begin_change(size) {
                self.change(begun);
                leave(&mut self, size, begun);
                added += 1;
            }
        }
        assert!(!self.waits_for_turn || self.is_dead.get() || added == sizes.len() as u64);
        added
    }
}

/// They add at one time, the first as it is made: nothing is lost.
fn all_is_added<const N: usize>(
    switches: usize,
    all: [&'static [Size]; N],
    first: impl Fn(One) -> One + Send + Sync + 'static,
) {
    check_with(switches, move || {
        let region = Region::new();
        // Of three, two that wait would wait for each other's looks only, in an interleaving that never ends.
        let one = |number| One { waits_for_turn: N < 3, ..One::new(&region, number) };
        let others = (2..).zip(&all[1..]).map(|(number, &sizes)| {
            let one = one(number);
            thread::spawn(move || one.add(sizes))
        });
        let others: Vec<_> = others.collect();
        let mut added = first(one(1)).add(all[0]);
        added += others.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>();
        assert_eq!(region.element.load(Ordering::Relaxed), added);
        assert!(region.busy.iter().all(|busy| busy.load(Ordering::Relaxed) % 2 == 0));
    });
}

#[test]
fn whoever_begins_with_turns_is_alone() {
    all_is_added(3, [&[Enough, Small], &[Small, Small]], |one| one);
    all_is_added(3, [&[Enough, Large], &[Large, Small]], |one| one);
    all_is_added(3, [&[Small, Small], &[Enough, Small]], |one| one);
    all_is_added(2, [&[Enough, Small], &[Small], &[Large]], |one| one);
}

#[test]
fn two_may_begin_with_turns() {
    all_is_added(3, [&[Enough], &[Enough, Small]], |one| one);
    all_is_added(2, [&[Enough], &[Enough], &[Small]], |one| one);
}

#[test]
fn whoever_gives_up_adds_all_the_same() {
    let impatient = |one| One { waits_for_accesses: false, ..one };
    all_is_added(3, [&[Enough, Small], &[Small, Small]], impatient);
    all_is_added(2, [&[Enough, Large], &[Enough], &[Small]], impatient);
}

/// One dies in its turn, and others go on: by atomics, as none of them is alone.
#[test]
fn a_turn_of_the_dead_is_over() {
    check_with(2, || {
        let region = Region::new();
        let dying = thread::spawn({
            let mut one = One::new(&region, 1);
            move || {
                let begun = one.begin_change(Enough).unwrap();
                one.change(begun);
                // Nobody waits for an access of a process that does not run.
                guard::end(&BusyWord(&one.region.busy[0]));
                one.region.dead.store(1, Ordering::Release);
            }
        });
        let other = thread::spawn({
            let one = One::new(&region, 2);
            move || one.add(&[Small])
        });
        dying.join().unwrap();
        other.join().unwrap();
        assert_eq!(region.element.load(Ordering::Relaxed), 2);
        assert_eq!(region.word.load(Ordering::Relaxed) & 0b110, 0, "nobody else's turn was taken");
    });
}

/// One dies before it is alone, while others may be within an access: the next one is not alone either.
#[test]
fn who_dies_before_it_is_alone_leaves_nobody_alone() {
    check_with(3, || {
        let region = Region::new();
        let hasty = One { waits_for_turn: false, ..One::new(&region, 2) };
        let hasty = thread::spawn(move || hasty.add(&[Small]));
        let heir = One::new(&region, 3);
        let heir = thread::spawn(move || heir.add(&[Large]));
        let dying = One { dies_early: true, ..One::new(&region, 1) };
        let added = dying.add(&[Enough]) + hasty.join().unwrap() + heir.join().unwrap();
        assert_eq!(region.element.load(Ordering::Relaxed), added);
    });
}
