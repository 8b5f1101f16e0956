//! Failed operations whose elements serve others before their requests were asked.

use alloc::collections::VecDeque;

/// So many are remembered.
const MOST: usize = 1024;

/// Elements of operations that have a request, as they failed and were given back, each with its generation.
#[derive(Debug, Default)]
pub(crate) struct Unreported {
    failed: VecDeque<(u32, u32)>,
    /// There were more: of an element that serves another nobody knows any more what became of what it served before.
    has_forgotten: bool,
}

impl Unreported {
    /// Remembers one.
    #[cold]
    #[inline(never)]
    pub(crate) fn add(&mut self, element: u32, generation: u32) {
        if self.failed.len() == MOST {
            self.failed.pop_front();
            self.has_forgotten = true;
        }
        self.failed.push_back((element, generation));
    }

    /// Its request is asked: whether it failed, or may have.
    pub(crate) fn take(&mut self, element: u32, generation: u32) -> bool {
        let place = self.failed.iter().position(|&one| one == (element, generation));
        place.and_then(|place| self.failed.remove(place)).is_some() || self.has_forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_said_once_and_what_was_forgotten_is_doubted() {
        let mut unreported = Unreported::default();
        assert!(!unreported.take(1, 1));
        unreported.add(1, 1);
        assert!(!unreported.take(1, 2) && unreported.take(1, 1) && !unreported.take(1, 1));
        (0..MOST as u32).for_each(|element| unreported.add(element, 5));
        assert!(!unreported.take(1, 1));
        unreported.add(MOST as u32, 5);
        assert!(unreported.take(0, 5), "it was the first, and is forgotten");
        assert!(unreported.take(1, 1), "nobody knows");
    }
}
