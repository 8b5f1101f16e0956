//! Who changes the elements of a region at one time.
//!
//! As a rule everybody: each element is changed by an atomic of the processor, and nobody knows of the others. Of many elements
//! that is ten times as slow as a plain loop. So whoever has changed many of them that way makes the region one that is changed by
//! *turns*: one process after the other has all elements for a bounded time, and its loop is plain. Such a turn costs a single element
//! more than its atomic, so after some of these with nothing large between the region is everybody's again.
//!
//! A word of the region says how it is, and whose turn it is. Who changes elements by atomics looks at it within an access that it
//! has announced ([`crate::guard`]), and so pays nothing more than the look. Who begins with turns sets the word, fences for all, and waits
//! for the accesses that are under way: either such a one has seen the word, or it is waited for. From a process that has died its
//! turn is taken.

mod head;
mod owner;
mod peer;

use rma_core::mem::Begun;

pub(crate) use head::Patience;
pub(crate) use owner::OwnElements;
pub(crate) use peer::PeerElements;

/// A region's word.
pub(crate) trait TurnWord {
    /// What others have done before they wrote it is seen.
    fn load(&self) -> u64;
    /// Changes it if it is as expected: a full fence of these processors.
    fn change(&self, from: u64, into: u64) -> bool;
    /// Sets it, by an exchange: what was done before is seen, and it is a full fence of these processors, too.
    fn set(&self, word: u64);
}

/// A process that changes elements of one region.
pub(crate) trait Party {
    /// Announces an access, and fences.
    fn begin(&mut self);
    /// It is over.
    fn end(&mut self);
    /// Whether the region is there, within an access.
    fn is_there(&self) -> bool;
    /// The region's word.
    fn word(&self) -> impl TurnWord;
    /// Fences for all, and waits for the accesses of others that are under way. `false`: they were not over in time.
    fn settle(&self) -> bool;
    /// Waits a little, as it is another's turn by this word, for a change of such a size. Whether to go on.
    fn wait(&mut self, seen: u64, size: Size) -> bool;
}

/// How many elements are to be changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Size {
    /// So few that atomics are cheap.
    Small,
    /// So many that a turn is cheaper.
    Large,
    /// And so many were changed by atomics that turns are to begin.
    Enough,
}

/// What tells when turns are to begin, of one process and region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Appetite {
    /// Bytes that were changed by atomics in large changes, since turns were asked for last.
    by_atomics: u64,
    /// So many are enough.
    enough: u64,
}

impl Appetite {
    pub(crate) const FIRST: Self = Self { by_atomics: 0, enough: ENOUGH_BYTES };

    /// How large a change of so many bytes is.
    #[inline]
    pub(crate) fn size_of(&self, bytes: usize) -> Size {
        match bytes {
            0..LARGE_BYTES => Size::Small,
            _ if self.by_atomics.saturating_add(bytes as u64) < self.enough => Size::Large,
            _ => Size::Enough,
        }
    }

    /// Such a large change was made like this.
    pub(crate) fn note(&mut self, bytes: usize, size: Size, begun: Begun) {
        match (size, begun) {
            (Size::Small, _) | (Size::Large, Begun::Alone(_)) => {}
            (Size::Large, Begun::ByAtomics) => self.by_atomics += bytes as u64,
            (Size::Enough, Begun::Alone(_)) => *self = Self::FIRST,
            // Others were not over in time. As they may be next time, that comes later.
            (Size::Enough, Begun::ByAtomics) => {
                *self = Self { by_atomics: 0, enough: (2 * self.enough).min(ENOUGH_BYTES_MAX) };
            }
        }
    }
}

/// The answer to who wants to change elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// It may, as this says, within an access until [`leave`].
    Begun(Begun),
    /// The region is gone.
    Gone,
    /// It is another's turn. Nothing was begun.
    NotNow,
}

/// A turn: the word as its holder has set it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Turn(u64);

/// How the elements may be changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// Each by an atomic, within this access.
    Atomics,
    /// In whatever way, within this access.
    Alone(Turn),
    /// In whatever way, as soon as the accesses are over that are under way.
    Closing(Turn),
    /// By this word it is another's turn.
    Wait(u64),
}

/// Begins a change of elements by `me`.
#[inline]
pub(crate) fn take_part(party: &mut impl Party, me: u64, mut size: Size) -> Part {
    let mut closed = None;
    loop {
        party.begin();
        if !party.is_there() {
            party.end();
            return Part::Gone;
        }
        let way = closed.map_or_else(|| enter(&party.word(), me, size), Way::Alone);
        match way {
            Way::Atomics => return Part::Begun(Begun::ByAtomics),
            Way::Alone(Turn(turn)) => return Part::Begun(Begun::Alone(turn)),
            // Nobody waits within an access, as others wait for its end.
            Way::Closing(_) | Way::Wait(_) => party.end(),
        }
        match way {
            Way::Closing(turn) if party.settle() => closed = Some(turn),
            Way::Closing(turn) => {
                give_up(&party.word(), turn);
                size = Size::Large;
            }
            Way::Wait(seen) if !party.wait(seen, size) => return Part::NotNow,
            _ => {}
        }
    }
}

/// Asks the word, within an access.
#[inline]
fn enter(word: &impl TurnWord, me: u64, size: Size) -> Way {
    let now = word.load();
    if now == BY_ATOMICS && size != Size::Enough {
        return Way::Atomics;
    }
    if now & HOLDER != 0 {
        return Way::Wait(now);
    }
    let turn = BY_TURNS | now & SMALL | me & HOLDER;
    match word.change(now, turn) {
        false => Way::Wait(word.load()),
        true if now == BY_ATOMICS => Way::Closing(Turn(turn)),
        true => Way::Alone(Turn(turn)),
    }
}

/// The change is over.
#[inline]
pub(crate) fn leave(party: &mut impl Party, size: Size, begun: Begun) {
    if let Begun::Alone(turn) = begun {
        let small = turn & SMALL;
        let next = match size {
            Size::Small if small == SMALL => BY_ATOMICS,
            Size::Small => BY_TURNS | (small + SMALL_ONE),
            Size::Large | Size::Enough => BY_TURNS,
        };
        party.word().set(next);
    }
    party.end();
}

/// The turn is given up before it has begun.
fn give_up(word: &impl TurnWord, Turn(turn): Turn) {
    // Outside of an access the region, and its word, may be another one meanwhile.
    let _ = word.change(turn, BY_ATOMICS);
}

/// Takes the turn from a holder who has died, as the word says: be it within, with elements that are changed by half, or before it
/// was alone. As it is not any more, others may do what they did before there were turns.
pub(crate) fn take_from_dead(word: &impl TurnWord, seen: u64) {
    let _ = word.change(seen, BY_ATOMICS);
}

/// Whose turn it is, by a word that says so.
fn holder(word: u64) -> Option<u64> {
    (word & HOLDER != 0).then_some(word & HOLDER)
}

/// Bytes from which on a change is large: that of 64 words takes as long by atomics as a few turns.
const LARGE_BYTES: usize = 512;
/// Bytes that were changed by atomics, in large changes, when turns begin: that has taken twice the time of a fence for all others.
const ENOUGH_BYTES: u64 = 64 << 10;
/// Where others were never over in time.
const ENOUGH_BYTES_MAX: u64 = 1 << 30;

/// A region's word at first.
pub(crate) const BY_ATOMICS: u64 = 0;
const BY_TURNS: u64 = 1 << 63;
/// Who it is, never 0: a process's number and the endpoint's in it, as in a lane's claim.
const HOLDER: u64 = (1 << HOLDER_BITS) - 1;
const HOLDER_BITS: u32 = 46;
/// Small changes since the last large one: after 64 turns are over.
const SMALL_ONE: u64 = 1 << HOLDER_BITS;
const SMALL: u64 = 63 * SMALL_ONE;

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;

    /// A word, a party of one.
    #[derive(Default)]
    struct One {
        word: Cell<u64>,
        is_within: bool,
        cannot_settle: bool,
        is_gone: Cell<bool>,
        /// It is gone when the others' accesses are over.
        goes_meanwhile: bool,
        settled: Cell<u32>,
    }

    impl TurnWord for &Cell<u64> {
        fn load(&self) -> u64 {
            self.get()
        }
        fn change(&self, from: u64, into: u64) -> bool {
            let is_it = self.get() == from;
            if is_it {
                Cell::set(self, into);
            }
            is_it
        }
        fn set(&self, word: u64) {
            Cell::set(self, word);
        }
    }

    impl Party for One {
        fn begin(&mut self) {
            assert!(!core::mem::replace(&mut self.is_within, true));
        }
        fn end(&mut self) {
            assert!(core::mem::replace(&mut self.is_within, false));
        }
        fn is_there(&self) -> bool {
            assert!(self.is_within);
            !self.is_gone.get()
        }
        fn word(&self) -> impl TurnWord {
            &self.word
        }
        fn settle(&self) -> bool {
            assert!(!self.is_within && holder(self.word.get()) == Some(ME));
            self.settled.set(self.settled.get() + 1);
            self.is_gone.set(self.goes_meanwhile);
            !self.cannot_settle
        }
        fn wait(&mut self, _seen: u64, _size: Size) -> bool {
            assert!(!self.is_within);
            false
        }
    }

    const ME: u64 = (1 << HOLDER_BITS) - 1;

    impl One {
        /// Changes elements, and says whether alone.
        fn change(&mut self, size: Size) -> Option<bool> {
            let Part::Begun(begun) = take_part(self, ME, size) else {
                assert!(!self.is_within);
                return None;
            };
            assert!(self.is_within);
            leave(self, size, begun);
            assert!(!self.is_within);
            Some(begun != Begun::ByAtomics)
        }
    }

    #[test]
    fn turns_begin_with_enough_and_end_with_small_changes() {
        let mut one = One::default();
        assert_eq!([Size::Small, Size::Large].map(|size| one.change(size)), [Some(false); 2]);
        assert_eq!((one.word.get(), one.settled.get()), (BY_ATOMICS, 0));
        assert_eq!(one.change(Size::Enough), Some(true));
        for _ in 0..3 {
            // A large one between begins the count anew.
            for _ in 0..63 {
                assert_eq!(one.change(Size::Small), Some(true));
            }
            assert_eq!(one.change(Size::Large), Some(true));
        }
        for _ in 0..64 {
            assert_eq!(one.change(Size::Small), Some(true));
        }
        assert_eq!((one.word.get(), one.settled.get()), (BY_ATOMICS, 1));
        assert_eq!(one.change(Size::Large), Some(false));
    }

    #[test]
    fn who_cannot_wait_for_the_others_goes_on_by_atomics() {
        let mut one = One { cannot_settle: true, ..One::default() };
        assert_eq!(one.change(Size::Enough), Some(false));
        assert_eq!((one.word.get(), one.settled.get()), (BY_ATOMICS, 1));
    }

    #[test]
    fn nothing_is_begun_in_anothers_turn_or_where_nothing_is() {
        let mut one = One::default();
        let theirs = BY_TURNS | 5;
        one.word.set(theirs);
        assert_eq!([Size::Small, Size::Large, Size::Enough].map(|size| one.change(size)), [None; 3]);
        assert_eq!(one.word.get(), theirs);
        take_from_dead(&&one.word, theirs ^ 1);
        assert_eq!(one.word.get(), theirs, "it is another's meanwhile");
        take_from_dead(&&one.word, theirs);
        assert_eq!(one.change(Size::Small), Some(false));
        one.is_gone.set(true);
        assert_eq!(one.change(Size::Enough), None);
        assert_eq!(one.word.get(), BY_ATOMICS);
    }

    #[test]
    fn who_finds_the_region_gone_leaves_its_word_alone() {
        let mut one = One { goes_meanwhile: true, ..One::default() };
        assert_eq!(one.change(Size::Enough), None);
        assert_eq!(holder(one.word.get()), Some(ME), "whoever registers the next one begins anew");
        let mut one = One { cannot_settle: true, ..one };
        // Meanwhile another one has begun there.
        let theirs = BY_TURNS | 5;
        one.word.set(theirs);
        assert_eq!(one.change(Size::Enough), None);
        assert_eq!(one.word.get(), theirs);
    }

    #[test]
    fn enough_is_what_atomics_took_long_for() {
        let change = |appetite: &mut Appetite, begun| {
            let size = appetite.size_of(4096);
            appetite.note(4096, size, begun);
            size
        };
        // How many it takes until it is enough.
        let until_enough = |appetite: &mut Appetite, then| {
            let large = (0..1000).take_while(|_| {
                appetite.size_of(4096) == Size::Large && {
                    assert_eq!(appetite.size_of(LARGE_BYTES - 1), Size::Small);
                    appetite.note(8, Size::Small, Begun::ByAtomics);
                    change(appetite, Begun::ByAtomics) == Size::Large
                }
            });
            let large = large.count();
            assert_eq!(change(appetite, then), Size::Enough);
            large
        };
        let mut appetite = Appetite::FIRST;
        assert_eq!(until_enough(&mut appetite, Begun::Alone(1)), 15);
        assert_eq!(change(&mut appetite, Begun::Alone(1)), Size::Large);
        assert_eq!(
            until_enough(&mut appetite, Begun::ByAtomics),
            15,
            "what was changed alone does not count"
        );
        assert_eq!(until_enough(&mut appetite, Begun::ByAtomics), 31, "in vain");
        assert_eq!(until_enough(&mut appetite, Begun::Alone(1)), 63);
        assert_eq!(until_enough(&mut appetite, Begun::Alone(1)), 15);
    }
}
