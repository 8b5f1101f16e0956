//! Where a target's stream of operations is cut: by a flush that nobody waits for, and by order.

/// Marks of one target that may be open at one time; more requests share the last.
const MARKS_MAX: usize = 4;

/// A flush that nobody waits for: it is over when the operations posted before it are complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mark {
    /// The call that made it, in the window's numbering.
    pub(crate) ticket: u32,
    /// Operations whose number is less belong to it.
    pub(crate) boundary: u32,
    /// Only completion at the origin is wanted.
    pub(crate) is_local: bool,
    /// The DONE, and the provider's flush, that are behind all of them; `None`: not on their way yet.
    pub(crate) covered: Option<Covered>,
}

/// What must come back before a mark is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Covered {
    /// Token of a DONE.
    pub(crate) done: u32,
    /// Number of a flush of the provider.
    pub(crate) flush: u32,
}

/// The open marks of a target, oldest first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks {
    open: [Mark; MARKS_MAX],
    count: usize,
}

impl Marks {
    pub(crate) const NONE: Self =
        Self { open: [Mark { ticket: 0, boundary: 0, is_local: false, covered: None }; MARKS_MAX], count: 0 };

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Mark> {
        self.open[..self.count].iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Mark> {
        self.open[..self.count].iter_mut()
    }

    /// Opens a mark. Where the last one says as much already, or none is free, they share the last: its
    /// older ticket serves both.
    pub(crate) fn open(&mut self, ticket: u32, boundary: u32, is_local: bool) {
        let is_full = self.count == MARKS_MAX;
        if let Some(last) = self.open[..self.count].last_mut() {
            if last.boundary == boundary && (is_local || !last.is_local) {
                return;
            }
            if is_full {
                (last.boundary, last.covered) = (boundary, None);
                last.is_local &= is_local;
                return;
            }
        }
        self.open[self.count] = Mark { ticket, boundary, is_local, covered: None };
        self.count += 1;
    }

    /// Whether one more says no more than what it is opened for, and shares none that others go on to move.
    pub(crate) fn has_room(&self, boundary: u32, is_local: bool) -> bool {
        let says_as_much = |last: &Mark| last.boundary == boundary && (is_local || !last.is_local);
        self.count < MARKS_MAX || self.iter().last().is_some_and(says_as_much)
    }

    /// Closes those that are over.
    pub(crate) fn close(&mut self, is_over: impl Fn(&Mark) -> bool) {
        let mut kept = 0;
        for index in 0..self.count {
            if !is_over(&self.open[index]) {
                self.open[kept] = self.open[index];
                kept += 1;
            }
        }
        self.count = kept;
    }

    /// Whether a mark of this ticket, or of an earlier one, is open.
    pub(crate) fn has(&self, ticket: u32) -> bool {
        self.iter().any(|mark| !is_before(ticket, mark.ticket))
    }

    /// Whether a DONE is wanted for any of them.
    #[inline]
    pub(crate) fn want_done(&self) -> bool {
        self.iter().any(|mark| !mark.is_local && mark.covered.is_none())
    }
}

/// Whether one number of a sequence that wraps around is less than another.
#[inline]
pub(crate) fn is_before(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) < 0
}

/// What the order calls of an epoch have cut a target's operations into: sections, each ordered behind those
/// before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Order {
    /// The section of the next operation.
    pub(crate) section: u32,
    /// Something of an earlier section may be under way: fast paths are closed.
    pub(crate) in_force: bool,
    /// The section of the native operations that are under way.
    pub(crate) natives: u32,
    /// The section of the oldest packet of operations that is under way.
    pub(crate) messages: u32,
    /// An earlier element of this target was given up with packets under way: the window counts them.
    pub(crate) behind_detached: bool,
}

impl Order {
    pub(crate) const NONE: Self =
        Self { section: 0, in_force: false, natives: 0, messages: 0, behind_detached: false };

    /// What follows is ordered behind what was posted so far.
    pub(crate) fn begin(&mut self) {
        if !self.in_force {
            (self.in_force, self.natives, self.messages) = (true, self.section, self.section);
        }
        self.section = self.section.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_beyond_the_most_share_the_last_and_wait_for_all() {
        let mut marks = Marks::NONE;
        for index in 0..7 {
            marks.open((u32::MAX - 2).wrapping_add(index), index, false);
        }
        assert_eq!(marks.iter().count(), MARKS_MAX);
        let last = *marks.iter().last().unwrap();
        assert_eq!((last.ticket, last.boundary), (u32::MAX.wrapping_add(1), 6));
        marks.close(|mark| mark.boundary < 3);
        // The last mark serves all tickets from its own on.
        assert!(!marks.has(u32::MAX - 2) && !marks.has(u32::MAX));
        assert!(marks.has(0) && marks.has(4));
        marks.close(|_| true);
        assert!(marks.is_empty() && !marks.has(4));
    }

    #[test]
    fn a_mark_that_says_as_much_is_shared() {
        let mut marks = Marks::NONE;
        marks.open(1, 5, true);
        marks.open(2, 5, true);
        assert_eq!(marks.iter().count(), 1);
        assert!(!marks.want_done());
        marks.open(3, 5, false);
        marks.open(4, 5, true);
        assert_eq!(marks.iter().count(), 2);
        assert!(marks.want_done() && marks.has(4) && marks.has(1) && !marks.has(0));
    }
}
