//! Whether a neighbour is to be asked for an atomic, or sent a packet.

/// How many atomics are posted one behind the other before a call completes them. A neighbour does one in less time than a
/// packet takes, but a packet has many; so as many as a packet is worth are asked for, where there were no more the last time.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Burst {
    count: u32,
    last: u32,
    /// Times that all was complete, and how many there were when the burst began.
    ends: u32,
    began: u32,
}

/// What was done at once since everything was complete the last time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DoneAtOnce {
    is_any: bool,
    is_unfenced: bool,
}

impl DoneAtOnce {
    pub(crate) const NOTHING: Self = Self { is_any: false, is_unfenced: false };
    /// Something, the last of which was a full fence of the processor, as atomics at once are.
    pub(crate) const FENCED: Self = Self { is_any: true, is_unfenced: false };
    /// Something that others may see in another order.
    pub(crate) const UNFENCED: Self = Self { is_any: true, is_unfenced: true };

    #[inline]
    pub(crate) fn is_nothing(self) -> bool {
        !self.is_any
    }

    #[inline]
    pub(crate) fn is_unfenced(self) -> bool {
        self.is_unfenced
    }

    /// Notes something that others may see in another order, if it was at once.
    #[inline]
    pub(crate) fn note(&mut self, is_at_once: bool) {
        if is_at_once {
            *self = Self::UNFENCED;
        }
    }
}

/// A packet and its answer take three times as long as one request, about.
const ASKED_MAX: u32 = 2;

impl Burst {
    /// One more atomic; whether it is to be asked for.
    pub(crate) fn go_on(&mut self) -> bool {
        if self.began != self.ends {
            (self.last, self.count, self.began) = (self.count, 0, self.ends);
        }
        self.count = self.count.saturating_add(1);
        self.count.max(self.last) <= ASKED_MAX
    }

    /// All is complete.
    #[inline]
    pub(crate) fn end(&mut self) {
        self.ends = self.ends.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_bursts_are_packets_from_the_second_on() {
        let mut burst = Burst::default();
        let mut asked = |count: usize| {
            let asked = (0..count).filter(|_| burst.go_on()).count();
            burst.end();
            // What completes nothing new says nothing of bursts.
            burst.end();
            asked
        };
        assert_eq!([1, 2, 1].map(&mut asked), [1, 2, 1]);
        assert_eq!([10, 10, 3].map(&mut asked), [2, 0, 0]);
        assert_eq!([1, 1, 2].map(&mut asked), [0, 1, 2]);
    }
}
