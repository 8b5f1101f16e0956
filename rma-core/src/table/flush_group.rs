//! Calls about several targets that are under way (flush_targets), of which each target knows those that have named it.
//! Several threads may be in one at a time, and who waited for what another one has named might wait for a lock that is
//! not to come before its own is given back.

/// Calls that are told apart. More share the last of these: each of them waits for what any of them has named.
const CALLS_MAX: u32 = u32::BITS;

/// Some of these calls; or one of them, by itself.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct FlushGroups(u32);

impl FlushGroups {
    /// None.
    pub(crate) const NONE: Self = Self(0);

    const LAST: Self = Self(1 << (CALLS_MAX - 1));

    /// Whether there is none.
    pub(crate) fn is_empty(self) -> bool {
        self == Self::NONE
    }

    /// Whether the call is among them.
    pub(crate) fn has(self, call: Self) -> bool {
        self.0 & call.0 != 0
    }

    /// Adds these.
    pub(crate) fn add(&mut self, others: Self) {
        self.0 |= others.0;
    }

    /// Takes the call out.
    pub(crate) fn remove(&mut self, call: Self) {
        self.0 &= !call.0;
    }
}

/// Those under way in one window, and the numbers of those that are known by their marks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenFlushes {
    taken: FlushGroups,
    /// How many share the last place.
    sharing: u32,
    /// The number of the last one that has opened marks.
    ticket: u32,
}

impl OpenFlushes {
    /// None.
    pub(crate) const NONE: Self = Self { taken: FlushGroups::NONE, sharing: 0, ticket: 0 };

    /// A number for one that opens marks.
    pub(crate) fn next_ticket(&mut self) -> u32 {
        // 0 is no call's.
        self.ticket = self.ticket.wrapping_add(1).max(1);
        self.ticket
    }

    /// All those about several targets.
    pub(crate) fn all(&self) -> FlushGroups {
        self.taken
    }

    /// One more about several targets.
    pub(crate) fn begin(&mut self) -> FlushGroups {
        let free = self.taken.0.trailing_ones().min(CALLS_MAX - 1);
        let call = FlushGroups(1 << free);
        self.sharing += u32::from(call == FlushGroups::LAST);
        self.taken.add(call);
        call
    }

    /// It is over. Whether nobody has its place any more.
    pub(crate) fn end(&mut self, call: FlushGroups) -> bool {
        if call == FlushGroups::LAST {
            self.sharing = self.sharing.saturating_sub(1);
            if self.sharing > 0 {
                return false;
            }
        }
        self.taken.remove(call);
        true
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn calls_are_told_apart_as_long_as_there_is_room() {
        let mut open = OpenFlushes::NONE;
        let calls: Vec<_> = (0..CALLS_MAX + 2).map(|_| open.begin()).collect();
        let (apart, sharing) = calls.split_at(CALLS_MAX as usize - 1);
        let mut seen = FlushGroups::NONE;
        for &call in apart {
            assert!(!seen.has(call) && open.all().has(call));
            seen.add(call);
        }
        assert!(sharing.iter().all(|&call| call == FlushGroups::LAST && !seen.has(call)));
        assert!(open.end(apart[3]) && !open.all().has(apart[3]));
        assert_eq!(open.begin(), apart[3], "the first free one");
        let ends: Vec<_> = sharing.iter().map(|&call| open.end(call)).collect();
        assert_eq!(ends, [false, false, true], "the last of them ends for all");
        assert!(apart.iter().all(|&call| open.end(call)) && open.all().is_empty());
    }
}
