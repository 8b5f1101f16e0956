//! The owner's part: what it changes itself, for its program or for those who sent packets.

use std::sync::{Arc, Mutex, PoisonError};

use rma_core::mem::{Begun, Changes};

use super::head::Patience;
use super::{leave, take_part, Appetite, Part, Party, Size, TurnWord};
use crate::guard;
use crate::head::Head;
use crate::own::Own;

/// The elements of a region of which peers change some, too. It is used no longer than the region.
#[derive(Debug)]
pub(crate) struct OwnElements {
    own: Arc<Own>,
    slot: usize,
    appetite: Mutex<Appetite>,
}

impl OwnElements {
    pub(crate) fn of(own: &Arc<Own>, slot: usize) -> Arc<dyn Changes> {
        Arc::new(Self { own: Arc::clone(own), slot, appetite: Mutex::new(Appetite::FIRST) })
    }

    /// Does something with the appetite of a large change.
    #[cold]
    fn of_large<T>(&self, what: impl FnOnce(&mut Appetite) -> T) -> T {
        what(&mut self.appetite.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Changes for OwnElements {
    fn begin(&self, bytes: usize) -> Begun {
        let size = match Appetite::FIRST.size_of(bytes) {
            Size::Small => Size::Small,
            _ => self.of_large(|appetite| appetite.size_of(bytes)),
        };
        let begun = self.own.begin_change(self.slot, size);
        if size != Size::Small {
            self.of_large(|appetite| appetite.note(bytes, size, begun));
        }
        begun
    }

    fn end(&self, bytes: usize, begun: Begun) {
        self.own.end_change(self.slot, Appetite::FIRST.size_of(bytes), begun);
    }
}

impl Own {
    /// Begins a change of elements of an own region, as they are changed now. It waits for the turn of a peer: who is stopped
    /// (SIGSTOP) during one is waited for, as in [`Own::remove`].
    pub(crate) fn begin_change(&self, slot: usize, size: Size) -> Begun {
        let mut owner = Owner { head: &self.head, slot, patience: Patience::for_turn() };
        loop {
            match take_part(&mut owner, self.identity.turn(), size) {
                Part::Begun(begun) => return begun,
                // It waits as long as it has to, and to its owner a region is there.
                Part::NotNow | Part::Gone => {}
            }
        }
    }

    /// It is done.
    pub(crate) fn end_change(&self, slot: usize, size: Size, begun: Begun) {
        leave(&mut Owner { head: &self.head, slot, patience: Patience::for_turn() }, size, begun);
    }
}

struct Owner<'a> {
    head: &'a Head,
    slot: usize,
    patience: Patience,
}

impl Party for Owner<'_> {
    fn begin(&mut self) {
        guard::begin(&self.head.owner_busy());
    }

    fn end(&mut self) {
        guard::end(&self.head.owner_busy());
    }

    fn is_there(&self) -> bool {
        true
    }

    fn word(&self) -> impl TurnWord {
        self.head.turn_word(self.slot)
    }

    fn settle(&self) -> bool {
        self.head.settle(None)
    }

    fn wait(&mut self, seen: u64, size: Size) -> bool {
        if !self.patience.pause_for(size) {
            self.patience = Patience::for_turn();
            self.head.take_turn_from_dead(self.slot, seen);
        }
        true
    }
}
