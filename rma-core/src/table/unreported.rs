//! Failed operations that have a request, whose elements may serve others before it is asked.

use alloc::collections::VecDeque;

/// So many are remembered: a program that drops requests of what failed leaves them here.
const MOST: usize = 256;

/// Their elements, each with its generation then.
#[derive(Debug)]
pub(crate) struct Unreported {
    failed: VecDeque<(u32, u32)>,
    /// There were more.
    has_forgotten: bool,
}

impl Unreported {
    /// None; with room for all, as what fails may be found in a handler of signals.
    pub(crate) fn new() -> Self {
        Self { failed: VecDeque::with_capacity(MOST), has_forgotten: false }
    }

    /// Remembers one.
    pub(crate) fn add(&mut self, element: u32, generation: u32) {
        if self.failed.len() == MOST {
            self.failed.pop_front();
            self.has_forgotten = true;
        }
        self.failed.push_back((element, generation));
    }

    /// Its request is asked: whether it is one of them.
    pub(crate) fn take(&mut self, element: u32, generation: u32) -> bool {
        let place = self.failed.iter().position(|&one| one == (element, generation));
        place.and_then(|place| self.failed.remove(place)).is_some()
    }

    /// Whether it may have been one.
    pub(crate) fn has_forgotten(&self) -> bool {
        self.has_forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_said_once_and_the_oldest_are_forgotten() {
        let mut unreported = Unreported::new();
        assert!(!unreported.take(1, 1));
        unreported.add(1, 1);
        assert!(!unreported.take(1, 2) && unreported.take(1, 1) && !unreported.take(1, 1));
        (0..MOST as u32).for_each(|element| unreported.add(element, 5));
        assert!(!unreported.has_forgotten());
        unreported.add(MOST as u32, 5);
        assert!(unreported.has_forgotten() && !unreported.take(0, 5) && unreported.take(1, 5));
    }
}
