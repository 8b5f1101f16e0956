//! The windows of this process, by id. Ids are given out lowest first, at creation, which is
//! collective, so that all ranks give a window the same one: the lowest that no rank had in use in the last reduction, in
//! which all ranks say which they have. So it does not matter which threads free windows meanwhile, and when each rank has
//! done so. Where one frees a window without the others, because a rank is lost, no window is made any more.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::ids::WindowId;
use crate::mutation::Mutation;
use crate::pool::NONE;
use crate::state::WindowState;
use crate::table::{PacketShortcut, RepeatedLock};
use crate::window::{Boards, Pages, Window};

/// Ids of which ranks tell each other whether they have them in use.
const IDS_AGREED: usize = u64::BITS as usize;

/// All windows, with memory in the endpoint's regions `R`; `P` are its passages.
#[derive(Debug)]
pub(crate) struct Windows<R, P> {
    entries: Vec<Option<Box<Window<R>>>>,
    pub(crate) boards: Boards<R>,
    /// Where the words of their locks are.
    pub(crate) pages: Pages,
    /// The lock epoch that the program repeats. Its window does not know of it; it is written down there before anybody looks.
    pub(crate) repeated: RepeatedLock<P>,
    /// Such an epoch was open when its window was asked.
    pub(crate) is_disturbed: bool,
    /// The way of the operation by packet that the program repeats. It is forgotten before its window is lent to anybody who may
    /// do anything to its targets.
    pub(crate) packet_shortcut: PacketShortcut,
}

impl<R, P> Windows<R, P> {
    pub(crate) const fn new() -> Self {
        Self {
            entries: Vec::new(),
            boards: Boards::new(),
            pages: Pages::new(),
            repeated: RepeatedLock::NONE,
            is_disturbed: false,
            packet_shortcut: PacketShortcut::NONE,
        }
    }

    /// The id that the next window gets, where some rank had those in use whose bits are set. Beyond what bits can say the ranks'
    /// windows have to be the same.
    pub(crate) fn next_id(&self, in_use: u64) -> WindowId {
        let is_free = |index: usize| self.entries.get(index).is_none_or(Option::is_none);
        let agreed = (!in_use).trailing_zeros() as usize;
        let mut index = agreed;
        while !is_free(index) {
            index += 1;
        }
        WindowId(index as u32)
    }

    /// A bit for each id that is in use here, of those that ranks agree on.
    pub(crate) fn in_use(&self) -> u64 {
        let entries = self.entries.iter().take(IDS_AGREED).enumerate();
        entries.filter(|(_, entry)| entry.is_some()).fold(0, |bits, (index, _)| bits | 1 << index)
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
        if self.repeated.window == id {
            self.repeated = RepeatedLock::NONE;
        }
        if self.packet_shortcut.window == id {
            self.packet_shortcut = PacketShortcut::NONE;
        }
        let mut window = self.entries.get_mut(id.0 as usize)?.take()?;
        window.line = None;
        Some(window)
    }

    /// Drops the boards on which no window has its line any more.
    pub(crate) fn drop_boards(&mut self) {
        self.boards.keep_of(self.entries.iter().flatten().map(|window| window.id));
    }

    /// A window, for what does not depend on its epochs.
    #[inline]
    pub(crate) fn peek(&self, id: WindowId) -> Option<&Window<R>> {
        self.entries.get(id.0 as usize)?.as_deref()
    }

    /// A window as it is.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: WindowId) -> Option<&mut Window<R>> {
        if self.repeated.window == id {
            self.disturb();
        }
        if self.packet_shortcut.window == id {
            self.forget_packet_shortcut();
        }
        self.entries.get_mut(id.0 as usize)?.as_deref_mut()
    }

    /// The window to which the way leads that is kept for operations by packet, for those who go that way.
    #[inline(always)]
    pub(crate) fn by_packet_shortcut(&mut self) -> Option<(&mut PacketShortcut, &mut Window<R>)> {
        let window = self.entries.get_mut(self.packet_shortcut.window.0 as usize)?.as_deref_mut()?;
        Some((&mut self.packet_shortcut, window))
    }

    fn forget_packet_shortcut(&mut self) {
        if !Mutation::PacketShortcutKept.is_on() {
            self.packet_shortcut.window = WindowId(NONE);
        }
    }

    /// The state of a window's epoch.
    pub(crate) fn state(&self, id: WindowId) -> Option<WindowState> {
        let window = self.peek(id)?;
        let repeated = self.repeated.open_in().filter(|(open, _)| *open == id);
        Some(repeated.map_or_else(|| window.state(), |(_, state)| state))
    }

    /// The window of that epoch is asked for something else.
    #[cold]
    #[inline(never)]
    fn disturb(&mut self) {
        self.is_disturbed |= self.repeated.open_in().is_some();
        self.write_down();
    }

    /// The epoch that the program repeats becomes one of its window.
    #[cold]
    #[inline(never)]
    pub(crate) fn write_down(&mut self) {
        let repeated = core::mem::replace(&mut self.repeated, RepeatedLock::NONE);
        let entry = self.entries.get_mut(repeated.window.0 as usize);
        if let Some(window) = entry.and_then(|entry| entry.as_deref_mut()) {
            if !Mutation::RepeatedForgotten.is_on() {
                window.write_down(&repeated);
            }
        }
    }

    /// Whether there is such a window, or may have been.
    pub(crate) fn has_had(&self, id: WindowId) -> bool {
        (id.0 as usize) < self.entries.len()
    }

    /// All of them, for what does not depend on their epochs.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Window<R>> {
        self.entries.iter().filter_map(|entry| entry.as_deref())
    }

    /// All of them, for what progress looks for in every window: none of that depends on the epoch that is repeated, but for what its
    /// window has to go on with; and none of it does anything to a target of a passive epoch to which nothing but the operation of
    /// the way by packet is under way.
    pub(crate) fn iter_to_advance(&mut self) -> impl Iterator<Item = &mut Window<R>> {
        if self.peek(self.repeated.window).is_some_and(|window| window.dirty) {
            self.write_down();
        }
        self.entries.iter_mut().filter_map(|entry| entry.as_deref_mut())
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Window<R>> {
        if self.repeated.window != WindowId(NONE) {
            self.write_down();
        }
        self.forget_packet_shortcut();
        self.entries.iter_mut().filter_map(|entry| entry.as_deref_mut())
    }
}
