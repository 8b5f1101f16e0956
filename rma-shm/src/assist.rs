//! Small puts and gets of memory that is not mapped here, and atomics that only the owner of the memory may do, done by the
//! processor of that owner while it polls: the kernel's copy (`crate::attach`) is one system call, and an atomic two packets,
//! which take longer than two lines of memory take to the other processor and back.
//!
//! Each lane has one slot. The origin writes a request into it, marks its lane as for a packet, and looks for a short
//! time whether it was done. It takes back what nobody has taken, and has the kernel copy, or sends a packet: so nothing
//! depends on the peer's progress. Who was asked in vain is asked again after a while only. One compare-and-swap of the
//! slot's word decides between the owner that takes a request and the origin that takes it back, so that each is done once.

use core::sync::atomic::{AtomicU64, Ordering};

use rma_core::dtype::Dtype;
use rma_core::op::ReduceOp;

use crate::attach::Direction;
use crate::mapping::Mapping;

/// Bytes of a slot: one page for each lane.
pub(crate) const SLOT_BYTES: usize = 4096;

/// Larger copies are the kernel's: what is copied twice here then takes longer than the call.
pub(crate) const BYTES_MAX: usize = 2048;

/// Looks before a request is taken back: as long as the kernel's copy takes, about.
const LOOKS: u32 = if cfg!(test) { 2 } else { 40 };

/// Looks between two times that the peer is asked after which has taken a request.
const LOOKS_TO_ASK: u32 = 256;

/// Copies for which nobody is asked after a request that was in vain, twice as many after the next. A peer that polls must
/// not fall asleep meanwhile for want of work.
const PAUSE_FIRST: u32 = 1;
const PAUSE_LAST: u32 = 16;

/// Copies for which nobody is asked where the peer says that it sleeps, until it is woken: as long as that is worth a wake-up.
/// It polls for a while then. Twice as many when it has done fewer before it slept again.
const PAUSE_ASLEEP: u32 = 64;
const PAUSE_ASLEEP_LAST: u32 = 4096;

/// Looks for one that is being woken.
const LOOKS_WAKING: u32 = if cfg!(test) { 4 } else { 2000 };

/// Whether a peer is to be asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum May {
    Not,
    Ask,
    /// After it was woken.
    Wake,
}

/// What a request's word says; above it is the number of the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Free,
    Posted,
    Taken,
    Done,
    Refused,
}

const PHASE_BITS: u32 = 3;

fn word_of(turn: u64, phase: Phase) -> u64 {
    turn << PHASE_BITS | phase as u64
}

/// The word of a slot, as both sides see it.
pub(crate) trait Word {
    /// With `Acquire`.
    fn load(&self) -> u64;
    /// With `Release`.
    fn store(&self, word: u64);
    /// A compare-and-swap with `AcqRel`.
    fn exchange(&self, from: u64, into: u64) -> bool;
}

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Done,
    /// The owner has no such region, or the slot says nonsense.
    Refused,
    /// Nobody has taken it, and nobody will.
    Left,
    /// The peer has ended.
    Ended,
}

/// The origin's side of a slot.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    turn: u64,
    /// Requests that are not to be made.
    skipped: u32,
    pause: u32,
    /// Copies until a peer that says that it sleeps is woken, and how many there were the last time.
    until_woken: u32,
    pause_asleep: u32,
    /// Requests that were done since then.
    answers: u32,
    is_waking: bool,
    /// The last request was done.
    is_answered: bool,
    /// The word of a request of the lane's last origin, which has died: its owner may still write the slot, as long as that
    /// is the word.
    left: Option<u64>,
}

impl Asking {
    /// Goes on behind the last origin of the lane.
    pub(crate) fn new(word: &impl Word) -> Self {
        let seen = word.load();
        let turn = seen >> PHASE_BITS;
        let (posted, taken) = (word_of(turn, Phase::Posted), word_of(turn, Phase::Taken));
        // One that died has asked for it, and the owner may have taken it just now.
        let is_taken = seen == posted && !word.exchange(posted, word_of(turn, Phase::Free));
        let left = (is_taken || seen == taken).then_some(taken);
        Self { turn, left, ..Self::default() }
    }

    /// Whether the owner is done with what the lane's last origin has asked for.
    #[inline]
    pub(crate) fn has_slot(&mut self, word: &impl Word) -> bool {
        self.left = self.left.filter(|&left| word.load() == left);
        self.left.is_none()
    }

    /// Whether the peer may be asked now; `is_asleep`: that is what it says, and only who wakes it takes that back, so that
    /// one that woke by itself goes on saying it while it polls. `may_wake`: nothing else would wake it.
    #[inline]
    pub(crate) fn may_ask(&mut self, is_asleep: bool, may_wake: bool) -> May {
        self.is_waking = false;
        if is_asleep && !self.is_answered {
            return if may_wake { self.may_wake() } else { May::Not };
        }
        if self.skipped > 0 {
            self.skipped -= 1;
            return May::Not;
        }
        May::Ask
    }

    #[inline(never)]
    fn may_wake(&mut self) -> May {
        if self.answers >= PAUSE_ASLEEP || self.pause_asleep == 0 {
            (self.answers, self.pause_asleep, self.until_woken) = (0, PAUSE_ASLEEP, PAUSE_ASLEEP);
        }
        self.until_woken -= 1;
        if self.until_woken > 0 {
            return May::Not;
        }
        self.pause_asleep = (self.pause_asleep * 2).min(PAUSE_ASLEEP_LAST);
        (self.until_woken, self.answers, self.is_waking) = (self.pause_asleep, 0, true);
        May::Wake
    }

    /// Publishes the request that was written.
    #[inline]
    pub(crate) fn post(&mut self, word: &impl Word) {
        self.turn = self.turn.wrapping_add(1) & (u64::MAX >> PHASE_BITS);
        word.store(word_of(self.turn, Phase::Posted));
    }

    /// Waits for the owner, shortly until it takes the request, and then until it is done or has ended: what was taken may be
    /// in the middle of a copy, and cannot be had back. An owner that is stopped (SIGSTOP) just there is waited for until it
    /// goes on, as one is in whose access to a region the origin was stopped. `between` is called between two
    /// looks; its argument says when to ask whether the peer runs, which it returns.
    #[inline]
    pub(crate) fn wait(&mut self, word: &impl Word, mut between: impl FnMut(bool) -> bool) -> Outcome {
        let of = |phase| word_of(self.turn, phase);
        let most = if self.is_waking { LOOKS_WAKING } else { LOOKS };
        let mut looks = 0_u32;
        let outcome = loop {
            let seen = word.load();
            if seen == of(Phase::Done) {
                break Outcome::Done;
            }
            let is_left = seen == of(Phase::Posted) && looks >= most && word.exchange(seen, of(Phase::Free));
            if is_left {
                break Outcome::Left;
            }
            if seen != of(Phase::Posted) && seen != of(Phase::Taken) {
                break Outcome::Refused;
            }
            looks = looks.wrapping_add(1);
            if !between(looks % LOOKS_TO_ASK == 0) {
                break Outcome::Ended;
            }
        };
        self.pause = match outcome {
            Outcome::Done => 0,
            _ => (self.pause * 2).clamp(PAUSE_FIRST, PAUSE_LAST),
        };
        self.skipped = self.pause;
        self.is_answered = outcome == Outcome::Done;
        self.answers = self.answers.saturating_add(self.is_answered.into());
        outcome
    }
}

/// The owner's side: takes a request, and returns whether there was one. `read` says what is asked for, before it is taken:
/// what is read is then what this origin has asked for, and not the next one, should it die. `copy` says whether it was done.
#[inline]
pub(crate) fn serve<R>(word: &impl Word, read: impl FnOnce() -> R, copy: impl FnOnce(R) -> bool) -> bool {
    let seen = word.load();
    let of = |phase: Phase| seen & (u64::MAX << PHASE_BITS) | phase as u64;
    if seen != of(Phase::Posted) {
        return false;
    }
    let request = read();
    if !word.exchange(seen, of(Phase::Taken)) {
        return false;
    }
    word.store(of(if copy(request) { Phase::Done } else { Phase::Refused }));
    true
}

/// What is asked for. Nothing of it is believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub(crate) what: What,
    /// The region's place in the owner's table, and its sequence number.
    pub(crate) region: usize,
    pub(crate) sequence: u64,
    /// From the region's first byte on.
    pub(crate) offset: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    /// A copy between the region and the slot's data.
    Copy {
        direction: Direction,
        len: usize,
    },
    /// An atomic, whose result is the slot's element afterwards.
    Change(Change),
    Nonsense,
}

/// An atomic of one element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Change {
    pub(crate) kind: Kind,
    pub(crate) dtype: Dtype,
    pub(crate) op: ReduceOp,
    pub(crate) operand: Element,
    /// What a swap compares with.
    pub(crate) compare: Element,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Reduce,
    Fetch,
    Swap,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Reduce, Self::Fetch, Self::Swap];
}

/// Room for any element, which begins with the first byte.
pub(crate) type Element = [u8; Dtype::SIZE_MAX];

/// A slot in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot<'a> {
    /// The request's words, and the first bytes of the data as words: all that an atomic takes is in one line of memory.
    words: &'a [AtomicU64; WORDS],
    data: *mut u8,
}

/// Words of a request, without operands.
const HEAD_WORDS: usize = 4;
/// Words of an element.
const ELEMENT_WORDS: usize = Dtype::SIZE_MAX / size_of::<u64>();
const WORDS: usize = HEAD_WORDS + 2 * ELEMENT_WORDS;

/// In the word of a request that has the region: it is a get, or an atomic. Below the region is the length, or what the
/// atomic is, a byte each.
const GET: u64 = 1 << 63;
const CHANGE: u64 = 1 << 62;

impl<'a> Slot<'a> {
    /// The slot that begins there. The mapping has all its bytes.
    #[inline]
    pub(crate) fn new(mapping: &'a Mapping, at: usize) -> Self {
        let data = mapping.at(at + size_of::<[AtomicU64; HEAD_WORDS]>(), BYTES_MAX);
        Self { words: mapping.words(at), data }
    }

    /// The bytes that are put, or that a get brings.
    #[inline]
    pub(crate) fn data(&self) -> *mut u8 {
        self.data
    }

    #[inline]
    pub(crate) fn write(&self, request: &Request) {
        let what = match request.what {
            What::Copy { direction: Direction::Put, len } => len as u64,
            What::Copy { direction: Direction::Get, len } => GET | len as u64,
            What::Change(change) => self.write_change(&change),
            What::Nonsense => CHANGE | u64::from(u32::MAX),
        };
        let what = what | (request.region as u64) << 32;
        for (word, value) in self.words[1..].iter().zip([what, request.sequence, request.offset]) {
            word.store(value, Ordering::Relaxed);
        }
    }

    fn write_change(&self, change: &Change) -> u64 {
        let Change { kind, dtype, op, operand, compare } = *change;
        self.write_element(0, &operand);
        self.write_element(1, &compare);
        CHANGE | kind as u64 | (dtype as u64) << 8 | (op as u64) << 16
    }

    #[inline]
    pub(crate) fn read(&self) -> Request {
        let [what, sequence, offset] = [1, 2, 3].map(|word: usize| self.words[word].load(Ordering::Relaxed));
        let region = (what & !(GET | CHANGE)) as usize >> 32;
        let what = if what & CHANGE != 0 {
            self.read_change(what as u32).map_or(What::Nonsense, What::Change)
        } else {
            let direction = if what & GET == 0 { Direction::Put } else { Direction::Get };
            What::Copy { direction, len: what as u32 as usize }
        };
        Request { what, region, sequence, offset }
    }

    fn read_change(&self, what: u32) -> Option<Change> {
        let [kind, dtype, op, _] = what.to_le_bytes();
        Some(Change {
            kind: *Kind::ALL.get(usize::from(kind))?,
            dtype: Dtype::from_code(dtype)?,
            op: ReduceOp::from_code(op)?,
            operand: self.element(0),
            compare: self.element(1),
        })
    }

    /// The operand, and where it was the result; or what a swap compares with.
    #[inline]
    fn element(&self, index: usize) -> Element {
        let mut element = Element::default();
        let words = self.words[HEAD_WORDS + index * ELEMENT_WORDS..].iter();
        for (bytes, word) in element.chunks_exact_mut(size_of::<u64>()).zip(words) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        element
    }

    #[inline]
    fn write_element(&self, index: usize, element: &Element) {
        let words = self.words[HEAD_WORDS + index * ELEMENT_WORDS..].iter();
        for (bytes, word) in element.chunks_exact(size_of::<u64>()).zip(words) {
            let mut value = [0; size_of::<u64>()];
            value.copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(value), Ordering::Relaxed);
        }
    }

    /// The element as it was before the atomic.
    #[inline]
    pub(crate) fn result(&self) -> Element {
        self.element(0)
    }

    /// Sets that.
    #[inline]
    pub(crate) fn set_result(&self, element: &Element) {
        self.write_element(0, element);
    }
}

impl Word for Slot<'_> {
    #[inline]
    fn load(&self) -> u64 {
        self.words[0].load(Ordering::Acquire)
    }

    #[inline]
    fn store(&self, word: u64) {
        self.words[0].store(word, Ordering::Release);
    }

    #[inline]
    fn exchange(&self, from: u64, into: u64) -> bool {
        self.words[0].compare_exchange(from, into, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::head::page;
    use crate::mapping::new_file;

    #[derive(Default)]
    struct Local(Cell<u64>);

    impl Word for Local {
        fn load(&self) -> u64 {
            self.0.get()
        }
        fn store(&self, word: u64) {
            self.0.set(word);
        }
        fn exchange(&self, from: u64, into: u64) -> bool {
            self.0.get() == from && self.0.replace(into) == from
        }
    }

    fn ask(asking: &mut Asking, word: &Local, mut between: impl FnMut(bool) -> bool) -> Outcome {
        asking.post(word);
        asking.wait(word, &mut between)
    }

    #[test]
    fn a_peer_that_polls_is_asked_each_time() {
        let (word, mut asking) = (Local::default(), Asking::default());
        for _ in 0..100 {
            assert_eq!(asking.may_ask(false, true), May::Ask);
            let outcome = ask(&mut asking, &word, |_| serve(&word, || (), |()| true));
            assert_eq!(outcome, Outcome::Done);
        }
        assert!(!serve(&word, || (), |()| true), "there is no request");
    }

    #[test]
    fn a_peer_that_does_not_is_asked_seldom() {
        let (word, mut asking) = (Local::default(), Asking::default());
        let mut asked = 0;
        for _ in 0..1700 {
            if asking.may_ask(false, true) == May::Ask {
                asked += 1;
                assert_eq!(ask(&mut asking, &word, |_| true), Outcome::Left);
                assert!(!serve(&word, || (), |()| unreachable!("it was taken back")));
            }
        }
        assert!((100..=110).contains(&asked), "asked {asked} times");
    }

    #[test]
    fn a_peer_that_says_that_it_sleeps_is_woken_ever_more_seldom_if_it_does_little() {
        let (word, mut asking) = (Local::default(), Asking::default());
        let woken_after = |asking: &mut Asking| {
            let mut copies = 1;
            while asking.may_ask(true, true) != May::Wake {
                copies += 1;
            }
            copies
        };
        let is_taken = |_| serve(&word, || (), |()| true);
        for pause in [PAUSE_ASLEEP, 2 * PAUSE_ASLEEP, 4 * PAUSE_ASLEEP] {
            assert_eq!(woken_after(&mut asking), pause);
            assert_eq!(ask(&mut asking, &word, |_| true), Outcome::Left);
        }
        while woken_after(&mut asking) < PAUSE_ASLEEP_LAST {}
        assert_eq!(woken_after(&mut asking), PAUSE_ASLEEP_LAST);
        assert_eq!(asking.may_ask(true, false), May::Not, "which does not count");
        assert_eq!(ask(&mut asking, &word, is_taken), Outcome::Done);
        for _ in 1..PAUSE_ASLEEP {
            assert_eq!(asking.may_ask(true, true), May::Ask, "it polls");
            assert_eq!(ask(&mut asking, &word, is_taken), Outcome::Done);
        }
        assert_eq!(ask(&mut asking, &word, |_| true), Outcome::Left);
        assert_eq!(woken_after(&mut asking), PAUSE_ASLEEP, "it was worth it");
    }

    #[test]
    fn who_is_being_woken_is_waited_for_longer() {
        let (word, mut asking) = (Local::default(), Asking::default());
        let looks = |asking: &mut Asking| {
            let mut looks = 0;
            let outcome = ask(asking, &word, |_| {
                looks += 1;
                true
            });
            assert_eq!(outcome, Outcome::Left);
            looks
        };
        assert_eq!((asking.may_ask(false, true), looks(&mut asking)), (May::Ask, LOOKS));
        while asking.may_ask(true, true) != May::Wake {}
        assert_eq!(looks(&mut asking), LOOKS_WAKING);
    }

    #[test]
    fn what_was_taken_is_waited_for_as_long_as_the_peer_runs() {
        let (word, mut asking) = (Local::default(), Asking::default());
        let mut looks = 0;
        let outcome = ask(&mut asking, &word, |must_ask| {
            looks += 1;
            if looks == 1 {
                word.store(word_of(1, Phase::Taken));
            }
            !must_ask
        });
        assert_eq!((outcome, looks), (Outcome::Ended, LOOKS_TO_ASK));
    }

    #[test]
    fn refusals_and_nonsense_end_the_wait() {
        let (word, mut asking) = (Local::default(), Asking::default());
        assert_eq!(ask(&mut asking, &word, |_| serve(&word, || (), |()| false)), Outcome::Refused);
        for nonsense in [0, word_of(1, Phase::Done), word_of(7, Phase::Posted), u64::MAX] {
            let outcome = ask(&mut asking, &word, |_| {
                word.store(nonsense);
                true
            });
            assert_eq!(outcome, Outcome::Refused, "{nonsense:#x}");
        }
    }

    #[test]
    fn what_the_dead_have_asked_for_is_taken_back() {
        let word = Local::default();
        Asking::default().post(&word);
        let mut next = Asking::new(&word);
        assert!(next.has_slot(&word));
        assert!(!serve(&word, || (), |()| unreachable!("nobody waits for it")));
        assert_eq!(ask(&mut next, &word, |_| serve(&word, || (), |()| true)), Outcome::Done);
    }

    #[test]
    fn a_slot_is_used_when_what_was_taken_for_the_dead_is_over() {
        let word = Local::default();
        Asking::default().post(&word);
        let mut next = Asking::default();
        let take = |()| {
            next = Asking::new(&word);
            assert!(!next.has_slot(&word) && !next.has_slot(&word), "its owner may write there");
            true
        };
        assert!(serve(&word, || (), take));
        assert!(next.has_slot(&word));
        assert_eq!(ask(&mut next, &word, |_| serve(&word, || (), |()| true)), Outcome::Done);
    }

    #[test]
    fn requests_are_words_and_back() {
        let mapping = Mapping::new(&new_file("rma-shm-test", page()).unwrap(), 0, page()).unwrap();
        let slot = Slot::new(&mapping, 64);
        let change = |(kind, dtype, op): (Kind, Dtype, ReduceOp)| {
            What::Change(Change { kind, dtype, op, operand: [7; 16], compare: [9; 16] })
        };
        let copies =
            [Direction::Put, Direction::Get].map(|direction| What::Copy { direction, len: BYTES_MAX });
        let all = Dtype::ALL.into_iter().flat_map(|dtype| ReduceOp::ALL.map(|op| (dtype, op)));
        let changes = all.flat_map(|(dtype, op)| Kind::ALL.map(|kind| change((kind, dtype, op))));
        for what in copies.into_iter().chain(changes).chain([What::Nonsense]) {
            for region in [0, 65_535] {
                let request = Request { what, region, sequence: u64::MAX, offset: 1 << 63 | 5 };
                slot.write(&request);
                assert_eq!(slot.read(), request);
            }
        }
        slot.set_result(&[3; 16]);
        assert_eq!(slot.result(), [3; 16]);
        assert!(size_of::<[AtomicU64; HEAD_WORDS]>() + BYTES_MAX <= SLOT_BYTES);
        assert_eq!(size_of::<[AtomicU64; WORDS]>(), 64, "a line");
    }
}
