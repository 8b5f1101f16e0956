//! The group of an epoch.

use crate::group::Group;

/// The group of the epoch that is open, if any. That of the last one is kept: a program that opens epochs of the same group
/// again counts no clones of its list up and down.
#[derive(Debug, Default)]
pub(super) struct CurrentGroup {
    kept: Option<Group>,
    is_open: bool,
}

impl CurrentGroup {
    #[inline]
    pub(super) fn open(&mut self, group: &Group) {
        if !self.kept.as_ref().is_some_and(|kept| kept.is_clone_of(group)) {
            self.kept = Some(group.clone());
        }
        self.is_open = true;
    }

    #[inline]
    pub(super) fn close(&mut self) {
        self.is_open = false;
    }

    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    #[inline]
    pub(super) fn get(&self) -> Option<&Group> {
        self.kept.as_ref().filter(|_| self.is_open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Rank;

    #[test]
    fn a_group_is_that_of_the_epoch_that_is_open() {
        let (first, second) = (Group::new(&[Rank(1)], 9).unwrap(), Group::new(&[Rank(2)], 9).unwrap());
        let mut current = CurrentGroup::default();
        assert_eq!(current.get(), None);
        for group in [&first, &second, &second, &Group::all(2), &Group::all(3), &first] {
            current.open(group);
            assert!(current.is_open() && current.get() == Some(group));
            current.close();
            assert!(!current.is_open() && current.get().is_none());
        }
    }
}
