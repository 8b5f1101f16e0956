//! Buffers that begin a page, as those of the OSU benchmarks and of the programs that this one is compared with (`peers/`): how
//! fast a copy is depends on where source and destination lie in the lines of the caches.

use std::ops::{Deref, DerefMut};

const PAGE_BYTES: usize = 4096;
const PAGE: usize = PAGE_BYTES / size_of::<u64>();

/// Words, all 0 at first and not touched.
pub(crate) struct Words {
    /// With room for what is in front of the first page that begins within.
    kept: Vec<u64>,
    first: usize,
}

impl Words {
    pub(crate) fn new(len: usize) -> Self {
        let slack = if len == 0 { 0 } else { PAGE - 1 };
        let kept = vec![0; len + slack];
        let first = kept.as_ptr().align_offset(PAGE_BYTES).min(slack);
        let mut words = Self { kept, first };
        // Nothing behind them counts as theirs; what is cut off stays where it is.
        words.kept.truncate(first + len);
        words
    }

    /// Where they are, for what is accessed by others meanwhile.
    #[inline]
    pub(crate) fn as_ptr(&self) -> *const u64 {
        self.kept.as_ptr().wrapping_add(self.first)
    }

    #[inline]
    pub(crate) fn as_mut_ptr(&mut self) -> *mut u64 {
        self.kept.as_mut_ptr().wrapping_add(self.first)
    }
}

impl Deref for Words {
    type Target = [u64];

    #[inline]
    fn deref(&self) -> &[u64] {
        &self.kept[self.first..]
    }
}

impl DerefMut for Words {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u64] {
        &mut self.kept[self.first..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_begin_a_page_and_are_zero() {
        for len in [0, 1, PAGE, 3 * PAGE + 5] {
            let mut words = Words::new(len);
            assert_eq!((words.len(), words.iter().max()), (len, words.first().map(|_| &0)));
            assert!(len == 0 || words.as_ptr().addr() % PAGE_BYTES == 0);
            words.fill(7);
            assert!(words.iter().all(|&word| word == 7));
        }
    }
}
