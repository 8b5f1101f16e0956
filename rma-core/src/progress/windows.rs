//! The windows of this process, by id. Ids are given out lowest first, at creation, which is
//! collective, so that all ranks give a window the same one. An id is free again when all ranks have come to
//! free the window; where one frees it without the others, because a rank is lost, no window is made any more.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::ids::WindowId;
use crate::window::{Boards, Pages, Window};

/// All windows.
#[derive(Debug)]
pub(crate) struct Windows<R> {
    entries: Vec<Option<Box<Window<R>>>>,
    pub(crate) boards: Boards<R>,
    /// Where the words of their locks are.
    pub(crate) pages: Pages,
}

impl<R> Windows<R> {
    pub(crate) const fn new() -> Self {
        Self { entries: Vec::new(), boards: Boards::new(), pages: Pages::new() }
    }

    /// The id that the next window gets.
    pub(crate) fn next_id(&self) -> WindowId {
        let index = self.entries.iter().position(Option::is_none).unwrap_or(self.entries.len());
        WindowId(index as u32)
    }

    pub(crate) fn insert(&mut self, window: Window<R>) {
        let index = window.id.0 as usize;
        // A ghost has some of its rank's windows only.
        while index >= self.entries.len() {
            self.entries.push(None);
        }
        self.entries[index] = Some(Box::new(window));
    }

    pub(crate) fn remove(&mut self, id: WindowId) -> Option<Box<Window<R>>> {
        let mut window = self.entries.get_mut(id.0 as usize)?.take()?;
        window.line = None;
        Some(window)
    }

    /// Drops the boards on which no window has its line any more.
    pub(crate) fn drop_boards(&mut self) {
        self.boards.keep_of(self.entries.iter().flatten().map(|window| window.id));
    }

    #[inline]
    pub(crate) fn get(&self, id: WindowId) -> Option<&Window<R>> {
        self.entries.get(id.0 as usize)?.as_deref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: WindowId) -> Option<&mut Window<R>> {
        self.entries.get_mut(id.0 as usize)?.as_deref_mut()
    }

    /// Whether there is such a window, or may have been.
    pub(crate) fn has_had(&self, id: WindowId) -> bool {
        (id.0 as usize) < self.entries.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Window<R>> {
        self.entries.iter().filter_map(|entry| entry.as_deref())
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Window<R>> {
        self.entries.iter_mut().filter_map(|entry| entry.as_deref_mut())
    }
}
