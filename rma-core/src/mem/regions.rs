//! The memory of a dynamic window: regions that come and go.

use alloc::vec::Vec;

use super::WindowMemory;

/// Why a region could not be attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttachError {
    /// A byte of it belongs to a region that is attached already, or the same base is.
    Overlap,
    /// There is no memory for one more entry.
    NoMemory,
}

/// Attached regions, in the order of their addresses. No two overlap, and no two have the same base, which names
/// them. As many as memory allows; the tables grow in [`Regions::attach`] only.
#[derive(Default, Debug)]
pub struct Regions {
    entries: Vec<WindowMemory>,
    /// Bases of regions without a byte, which may lie within others and are never accessed.
    empty: Vec<u64>,
}

impl Regions {
    /// No region.
    pub const fn new() -> Self {
        Self { entries: Vec::new(), empty: Vec::new() }
    }

    /// Adds a region.
    ///
    /// # Errors
    /// When it overlaps another one, or the table cannot grow.
    pub fn attach(&mut self, memory: WindowMemory) -> Result<(), AttachError> {
        let (base, len) = (address(&memory), memory.len() as u64);
        if len == 0 {
            return self.attach_empty(base);
        }
        let at = self.entries.partition_point(|entry| address(entry) < base);
        let overlaps_next = self.entries.get(at).is_some_and(|next| address(next) < base + len);
        let overlaps_previous = at.checked_sub(1).is_some_and(|previous| {
            let previous = &self.entries[previous];
            address(previous) + previous.len() as u64 > base
        });
        if overlaps_next || overlaps_previous || self.empty.binary_search(&base).is_ok() {
            return Err(AttachError::Overlap);
        }
        self.entries.try_reserve(1).map_err(|_| AttachError::NoMemory)?;
        self.entries.insert(at, memory);
        Ok(())
    }

    fn attach_empty(&mut self, base: u64) -> Result<(), AttachError> {
        let Err(at) = self.empty.binary_search(&base) else { return Err(AttachError::Overlap) };
        if self.entries.binary_search_by_key(&base, address).is_ok() {
            return Err(AttachError::Overlap);
        }
        self.empty.try_reserve(1).map_err(|_| AttachError::NoMemory)?;
        self.empty.insert(at, base);
        Ok(())
    }

    /// Takes away the region that begins at `base`, and says how many bytes it had; `None` when there is none.
    pub fn detach(&mut self, base: u64) -> Option<usize> {
        if let Ok(at) = self.empty.binary_search(&base) {
            self.empty.remove(at);
            return Some(0);
        }
        let at = self.entries.binary_search_by_key(&base, address).ok()?;
        Some(self.entries.remove(at).len())
    }

    /// The region that holds all of `len` bytes at `address`, and where in it they begin.
    #[inline]
    pub fn find(&self, first: u64, len: u64) -> Option<(&WindowMemory, u64)> {
        let at = self.entries.partition_point(|entry| address(entry) <= first).checked_sub(1)?;
        let region = &self.entries[at];
        let offset = first - address(region);
        region.check(offset, len).ok().map(|()| (region, offset))
    }

    /// Attached regions.
    pub fn count(&self) -> usize {
        self.entries.len() + self.empty.len()
    }

    /// Bytes held beyond the structure itself.
    pub fn heap_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<WindowMemory>() + self.empty.capacity() * size_of::<u64>()
    }
}

fn address(memory: &WindowMemory) -> u64 {
    memory.base_ptr().addr() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory that nothing touches.
    fn span(base: usize, len: usize) -> WindowMemory {
        // SAFETY: the tests only compare addresses.
        unsafe { WindowMemory::new(core::ptr::without_provenance_mut(base), len) }
    }

    #[test]
    fn regions_are_found_by_every_byte_and_no_other() {
        let mut regions = Regions::new();
        for base in [0x3000, 0x1000, 0x2000, 0x1800] {
            regions.attach(span(base, 0x800)).unwrap();
        }
        for (first, len, base) in [
            (0x1000, 0x800, Some(0x1000)),
            (0x17ff, 1, Some(0x1000)),
            (0x1800, 1, Some(0x1800)),
            (0x17ff, 2, None),
            (0x2800, 1, None),
            (0xfff, 1, None),
            (0x3000, 0x801, None),
            (0x3800, 0, Some(0x3000)),
            (u64::MAX, 1, None),
            (0x3000, u64::MAX, None),
        ] {
            let found = regions.find(first, len).map(|(region, _)| region.base_ptr().addr());
            assert_eq!(found, base, "{len} bytes at {first:#x}");
        }
    }

    #[test]
    fn overlaps_are_refused_and_what_went_may_come_again() {
        let mut regions = Regions::new();
        regions.attach(span(0x1000, 0x100)).unwrap();
        regions.attach(span(0x1200, 0x100)).unwrap();
        for (base, len) in
            [(0x1000, 0x100), (0xfff, 2), (0x10ff, 1), (0x1100, 0x101), (0x10ff, 0x200), (0x1000, 0)]
        {
            assert_eq!(regions.attach(span(base, len)), Err(AttachError::Overlap), "{len:#x} at {base:#x}");
        }
        regions.attach(span(0x1100, 0x100)).unwrap();
        assert!(regions.detach(0x1001).is_none());
        assert_eq!(regions.detach(0x1000), Some(0x100));
        assert!(regions.find(0x1000, 1).is_none() && regions.detach(0x1000).is_none());
        regions.attach(span(0x1000, 0x80)).unwrap();
        assert_eq!((regions.count(), regions.find(0x1000, 0x80).is_some()), (3, true));
    }

    #[test]
    fn regions_without_a_byte_are_in_nobodys_way() {
        let mut regions = Regions::new();
        regions.attach(span(0x1000, 0x100)).unwrap();
        for base in [0x1080, 0x1001, 0x10ff, 0x1100, 0x3000] {
            regions.attach(span(base, 0)).unwrap();
            assert_eq!(regions.attach(span(base, 0)), Err(AttachError::Overlap), "a base names one region");
        }
        assert_eq!(regions.attach(span(0x3000, 8)), Err(AttachError::Overlap), "a base names one region");
        assert!(regions.find(0x1000, 0x100).is_some() && regions.find(0x1081, 8).is_some());
        assert!(regions.find(0x3000, 1).is_none());
        assert_eq!((regions.detach(0x1080), regions.detach(0x1080), regions.count()), (Some(0), None, 5));
        assert_eq!((regions.detach(0x1000), regions.count()), (Some(0x100), 4));
    }

    #[test]
    fn there_is_no_cap() {
        let mut regions = Regions::new();
        for index in (0..10_000).rev() {
            regions.attach(span(0x1000 + index * 16, 8)).unwrap();
        }
        assert!((0..10_000).all(|index| regions.find(0x1000 + index * 16, 8).is_some()));
    }
}
