//! Registrations of the program's buffers, for providers whose device must be told of the memory that it accesses.
//!
//! Small buffers are copied. A larger one is registered while operations on it are in flight, and not longer: the
//! registration of memory that is unmapped and mapped again still names the old pages, and nothing would tell. The
//! memory of an operation in flight is valid by the contract, so what is found registered here is what is there. That is
//! so for as much of a registration as one operation uses: when the last that uses all of it is over, others that use
//! parts may still be under way, and it is not found any more.

use alloc::vec::Vec;

use super::PostError;

/// Bytes of a buffer that is copied instead of registered, at most.
pub const COPIED_BYTES_MAX: usize = 4096;

/// Buffers that may be registered at one time.
pub const REGISTRATIONS_MAX: usize = 64;

#[derive(Debug)]
struct Entry<R> {
    base: usize,
    len: usize,
    is_writable: bool,
    users: u32,
    /// Those of them that use all of it.
    whole_users: u32,
    registration: Option<R>,
}

impl<R> Entry<R> {
    fn of(base: usize, len: usize, is_writable: bool, registration: Option<R>) -> Self {
        Self { base, len, is_writable, users: 0, whole_users: 0, registration }
    }

    /// Whether operations use it of which none was given up.
    fn is_in_use(&self) -> bool {
        self.users > 0 && self.len > 0
    }

    fn covers(&self, base: usize, len: usize, is_written: bool) -> bool {
        self.whole_users > 0
            && self.base <= base
            && len <= self.len
            && base - self.base <= self.len - len
            && (self.is_writable || !is_written)
    }
}

/// A registration that one operation uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    index: u32,
    is_whole: bool,
}

/// The buffers that operations in flight use, with what the device's library made of each, which is dropped when the
/// last of them is over.
#[derive(Debug)]
pub struct Registrations<R> {
    entries: Vec<Entry<R>>,
}

impl<R> Default for Registrations<R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R> Registrations<R> {
    /// Room for [`REGISTRATIONS_MAX`]; nothing is allocated later.
    pub fn new() -> Self {
        Self::with_given_up(0)
    }

    /// The same, and room for so many more of which operations were given up: their device may never let go of them, and
    /// those that come must not want for room then.
    pub fn with_given_up(most: usize) -> Self {
        let mut entries = Vec::with_capacity(REGISTRATIONS_MAX + most);
        entries.resize_with(REGISTRATIONS_MAX, || Entry::of(0, 0, false, None));
        Self { entries }
    }

    /// A place for one more, if there may be one.
    fn free_place(&mut self) -> Option<usize> {
        let free = self.entries.iter().position(|entry| entry.users == 0);
        let in_use = self.entries.iter().filter(|entry| entry.is_in_use()).count();
        if free.is_some() || in_use >= REGISTRATIONS_MAX || self.entries.len() == self.entries.capacity() {
            return free.filter(|_| in_use < REGISTRATIONS_MAX);
        }
        self.entries.push(Entry::of(0, 0, false, None));
        Some(self.entries.len() - 1)
    }

    /// Finds the buffer registered, or has `register` do it, which is told the number of its place. The caller must
    /// [`Self::give_back`] it, and keeps the buffer valid until then.
    ///
    /// # Errors
    /// [`PostError::Again`] when there is no room, or what `register` says; nothing has changed then.
    pub fn take(
        &mut self,
        base: usize,
        len: usize,
        is_written: bool,
        register: impl FnOnce(u32) -> Result<R, PostError>,
    ) -> Result<(Taken, &R), PostError> {
        let index = match self.entries.iter().position(|entry| entry.covers(base, len, is_written)) {
            Some(index) => index,
            None => {
                let Some(index) = self.free_place() else { return Err(PostError::Again) };
                let registration = Some(register(index as u32)?);
                self.entries[index] = Entry::of(base, len, is_written, registration);
                index
            }
        };
        let entry = &mut self.entries[index];
        let is_whole = (entry.base, entry.len) == (base, len);
        let Some(registration) = &entry.registration else { return Err(PostError::Again) };
        entry.users += 1;
        entry.whole_users += u32::from(is_whole);
        Ok((Taken { index: index as u32, is_whole }, registration))
    }

    /// An operation that used the registration is over.
    pub fn give_back(&mut self, taken: Taken) {
        let Some(entry) = self.entries.get_mut(taken.index as usize) else { return };
        entry.users = entry.users.saturating_sub(1);
        entry.whole_users = entry.whole_users.saturating_sub(u32::from(taken.is_whole));
        if entry.users == 0 {
            entry.registration = None;
        }
    }

    /// An operation that uses the registration is said to be over while the device may not have let go of it: its
    /// memory may become something else, so nobody finds the registration from now on.
    pub fn forget(&mut self, taken: Taken) {
        if let Some(entry) = self.entries.get_mut(taken.index as usize) {
            (entry.len, entry.whole_users) = (0, 0);
        }
    }

    /// Whether other buffers than these are registered, and will be given back: `own` are those of the operation that asks.
    pub fn is_in_use_beside(&self, own: impl Iterator<Item = Taken> + Clone) -> bool {
        let is_own = |index: usize| own.clone().any(|taken| taken.index as usize == index);
        let mut used = self.entries.iter().enumerate().filter(|(_, entry)| entry.is_in_use());
        used.any(|(index, _)| !is_own(index))
    }

    /// How many buffers are registered.
    pub fn count(&self) -> usize {
        self.entries.iter().filter(|entry| entry.users > 0).count()
    }
}

#[cfg(test)]
mod tests {
    use alloc::rc::Rc;

    use super::*;

    type Counted = Registrations<Rc<()>>;

    /// Takes a buffer, and says whether it had to be registered.
    fn take(
        all: &mut Counted,
        live: &Rc<()>,
        base: usize,
        len: usize,
        is_written: bool,
    ) -> Option<(Taken, bool)> {
        let mut is_new = false;
        let taken = all.take(base, len, is_written, |_| {
            is_new = true;
            Ok(Rc::clone(live))
        });
        taken.ok().map(|(taken, _)| (taken, is_new))
    }

    #[test]
    fn operations_that_overlap_in_time_share_a_registration_that_ends_with_the_last() {
        let (mut all, live) = (Counted::new(), Rc::new(()));
        let mut taken = Vec::new();
        for (base, len) in [(1000, 500), (1000, 500), (1200, 300), (1499, 1)] {
            let (one, is_new) = take(&mut all, &live, base, len, true).unwrap();
            assert_eq!(is_new, taken.is_empty(), "{base} {len}");
            taken.push(one);
        }
        for (base, len) in [(999, 2), (1000, 501), (1499, 2), (1400, usize::MAX)] {
            let (other, is_new) = take(&mut all, &live, base, len, false).unwrap();
            assert!(is_new, "{base} {len}");
            all.give_back(other);
        }
        for one in taken {
            assert_eq!((Rc::strong_count(&live), all.count()), (2, 1));
            all.give_back(one);
        }
        assert_eq!((Rc::strong_count(&live), all.count()), (1, 0));
    }

    /// The buffer was freed when its operation was over, and another one may be where it was.
    #[test]
    fn nothing_is_found_again_after_its_operations() {
        let (mut all, live) = (Counted::new(), Rc::new(()));
        for _ in 0..3 {
            let (taken, is_new) = take(&mut all, &live, 8192, 8192, false).unwrap();
            assert!(is_new);
            all.give_back(taken);
            assert_eq!(Rc::strong_count(&live), 1);
        }
    }

    /// What it does not use of the registration may be something else by now.
    #[test]
    fn an_operation_on_a_part_keeps_a_registration_that_nobody_else_finds() {
        let (mut all, live) = (Counted::new(), Rc::new(()));
        let (whole, _) = take(&mut all, &live, 8192, 65_536, false).unwrap();
        let (part, is_new) = take(&mut all, &live, 8192, 8192, false).unwrap();
        assert!(!is_new);
        all.give_back(whole);
        assert_eq!(all.count(), 1);
        assert!(take(&mut all, &live, 32_768, 8192, false).unwrap().1);
        all.give_back(part);
        assert_eq!(Rc::strong_count(&live), 2);
    }

    #[test]
    fn what_an_operation_was_given_up_with_is_kept_and_not_found() {
        let (mut all, live) = (Counted::new(), Rc::new(()));
        let (given_up, _) = take(&mut all, &live, 8192, 8192, false).unwrap();
        assert!(all.is_in_use_beside(core::iter::empty()));
        assert!(!all.is_in_use_beside([given_up].into_iter()), "beside this one");
        all.forget(given_up);
        assert!(!all.is_in_use_beside(core::iter::empty()));
        let (_, is_new) = take(&mut all, &live, 8192, 8192, false).unwrap();
        assert!(is_new);
        assert_eq!(Rc::strong_count(&live), 3);
        all.give_back(given_up);
        assert_eq!(Rc::strong_count(&live), 2);
    }

    /// Operations to ranks that have died, which their device keeps for ever.
    #[test]
    fn what_operations_were_given_up_with_takes_no_room_from_others() {
        const GIVEN_UP: usize = 2 * REGISTRATIONS_MAX;
        let (mut all, live) = (Counted::with_given_up(GIVEN_UP), Rc::new(()));
        let mut numbers = alloc::collections::BTreeSet::new();
        let mut lost = Vec::new();
        for index in 0..GIVEN_UP {
            let taken = take(&mut all, &live, index << 20, 8192, false).unwrap().0;
            assert!(numbers.insert(taken.index), "its place is its own");
            all.forget(taken);
            lost.push(taken);
        }
        let taken: Vec<_> = (0..REGISTRATIONS_MAX)
            .map(|index| take(&mut all, &live, index << 20, 8192, false).unwrap().0)
            .collect();
        assert!(taken.iter().all(|taken| numbers.insert(taken.index)));
        assert_eq!(take(&mut all, &live, REGISTRATIONS_MAX << 20, 8192, false), None, "no more at one time");
        // What comes back after all leaves no room for more than so many.
        lost.drain(..).for_each(|taken| all.give_back(taken));
        assert_eq!(take(&mut all, &live, REGISTRATIONS_MAX << 20, 8192, false), None);
        all.give_back(taken[3]);
        assert!(take(&mut all, &live, REGISTRATIONS_MAX << 20, 8192, false).is_some());
    }

    #[test]
    fn what_is_read_only_is_not_written() {
        let (mut all, live) = (Counted::new(), Rc::new(()));
        take(&mut all, &live, 8192, 8192, false).unwrap();
        assert!(take(&mut all, &live, 8192, 8192, true).unwrap().1);
        assert!(!take(&mut all, &live, 8192, 8192, true).unwrap().1);
    }

    #[test]
    fn there_is_room_for_so_many_and_a_refusal_takes_none() {
        let (mut all, live) = (Counted::new(), Rc::new(()));
        for refused in 0..2 * REGISTRATIONS_MAX {
            let result = all.take(refused, 1, false, |_| Err(PostError::Again));
            assert!(matches!(result, Err(PostError::Again)));
        }
        let taken: Vec<_> = (0..REGISTRATIONS_MAX)
            .map(|index| take(&mut all, &live, index << 20, 8192, false).unwrap().0)
            .collect();
        assert_eq!(take(&mut all, &live, REGISTRATIONS_MAX << 20, 8192, false), None);
        assert_eq!(Rc::strong_count(&live), 1 + REGISTRATIONS_MAX);
        // What is registered is shared all the same.
        assert_eq!(take(&mut all, &live, 5 << 20, 8192, false), Some((taken[5], false)));
        all.give_back(taken[7]);
        assert_eq!(take(&mut all, &live, REGISTRATIONS_MAX << 20, 8192, false), Some((taken[7], true)));
    }
}
