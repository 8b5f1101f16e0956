//! What ranks come to a window's barrier for.

/// What ranks have come to a barrier for, a bit for each: with those of all of them, every rank knows at its end whether
/// all came for one thing.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Purposes(u8);

impl Purposes {
    /// Nothing that others could mistake.
    pub const NONE: Self = Self(0);
    /// A fence.
    pub const FENCE: Self = Self(1);
    /// To free the window.
    pub const FREE: Self = Self(2);

    /// For nothing any more, as a rank is lost to somebody. In packets only, where that rank takes the place of the sequence.
    pub const LOST: Self = Self(4);

    /// All that there are.
    pub const ALL: Self = Self(Self::FENCE.0 | Self::FREE.0 | Self::LOST.0);

    /// Where the first two lie in a word that is told: above the count.
    pub(crate) const SHIFT: u32 = 62;

    /// Of bits that came from elsewhere.
    pub fn from_bits(bits: u64) -> Self {
        Self(bits as u8 & Self::ALL.0)
    }

    /// As bits of a word that is told.
    pub(crate) const fn above_count(self) -> u64 {
        (self.0 as u64) << Self::SHIFT
    }

    /// As bits of a packet.
    pub const fn bits(self) -> u16 {
        self.0 as u16
    }

    pub(crate) fn join(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Whether they have come for different things.
    pub(crate) fn are_different(self) -> bool {
        self.0 == Self::FENCE.0 | Self::FREE.0
    }

    /// Whether a rank is lost to somebody.
    pub(crate) fn have_lost(self) -> bool {
        self.0 & Self::LOST.0 != 0
    }
}
