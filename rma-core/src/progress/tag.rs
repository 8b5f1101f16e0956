//! What a completion's tag says: two bits of kind, 28 of generation, 32 of index.

use crate::ids::Tag;
use crate::lock::words::Word;

/// What completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TagKind {
    /// A put that only its target element counts.
    CountedPut,
    /// A get that only its target element counts.
    CountedGet,
    /// A native piece of the operation element.
    Operation,
    /// A provider flush of the target element.
    Flush,
    /// An atomic on a word of a lock. The generation says of which ([`LockSeat`]).
    Lock,
}

impl TagKind {
    #[inline]
    pub(crate) fn tag(self, generation: u32, index: u32) -> Tag {
        let kind = (self as u64).min(Self::Flush as u64);
        Tag(kind << 62 | u64::from(generation & (u32::MAX >> 4)) << 32 | u64::from(index))
    }

    /// Kind, generation and index.
    #[inline]
    pub(crate) fn parse(tag: Tag) -> (Self, u32, u32) {
        let kind = match tag.0 >> 62 {
            0 => Self::CountedPut,
            1 => Self::CountedGet,
            2 => Self::Operation,
            // Flushes have no generation, and locks have one that is not 0.
            _ if (tag.0 >> 32) as u32 & (u32::MAX >> 4) == 0 => Self::Flush,
            _ => Self::Lock,
        };
        (kind, (tag.0 >> 32) as u32 & (u32::MAX >> 4), tag.0 as u32)
    }
}

/// Whose lock an atomic belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LockSeat {
    /// That of a target element, which is the tag's index.
    Target,
    /// That of a seat of a window, which is the tag's index.
    Window(usize),
    /// None: who waits was written down or woken, and nothing depends on that.
    Waiters,
}

/// Of those atomics.
const OF_WAITERS: u32 = u32::MAX >> 4;

impl LockSeat {
    /// The tag of an atomic on one of its words.
    pub(crate) fn tag(self, word: Word, index: u32) -> Tag {
        let seat = match self {
            Self::Target => 0,
            Self::Window(seat) => 1 + seat as u32,
            Self::Waiters => return TagKind::Lock.tag(OF_WAITERS, index),
        };
        TagKind::Lock.tag(1 + 2 * seat + word as u32, index)
    }

    /// The seat and the word of a tag with this generation.
    pub(crate) fn parse(generation: u32) -> (Self, Word) {
        if generation == OF_WAITERS {
            return (Self::Waiters, Word::Tickets);
        }
        let number = generation.wrapping_sub(1);
        let word = if number % 2 == 0 { Word::Tickets } else { Word::Holder };
        let seat = (number / 2).checked_sub(1).map_or(Self::Target, |seat| Self::Window(seat as usize));
        (seat, word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_says_whose_lock_it_is_about() {
        for seat in [LockSeat::Target, LockSeat::Window(0), LockSeat::Window(16)] {
            for word in Word::BOTH {
                let (kind, generation, index) = TagKind::parse(seat.tag(word, 7));
                assert_eq!((kind, index), (TagKind::Lock, 7));
                assert_eq!(LockSeat::parse(generation), (seat, word));
            }
        }
        let (kind, generation, _) = TagKind::parse(LockSeat::Waiters.tag(Word::Tickets, 7));
        assert_eq!((kind, LockSeat::parse(generation).0), (TagKind::Lock, LockSeat::Waiters));
        assert_eq!(TagKind::parse(TagKind::Flush.tag(0, 7)), (TagKind::Flush, 0, 7));
    }

    #[test]
    fn a_tag_says_what_was_put_into_it() {
        for kind in [TagKind::CountedPut, TagKind::CountedGet, TagKind::Operation] {
            assert_eq!(TagKind::parse(kind.tag(u32::MAX >> 4, 7)), (kind, u32::MAX >> 4, 7));
        }
    }
}
