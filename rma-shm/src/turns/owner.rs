//! The owner's part: what it changes itself, for its program or for those who sent packets.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use rma_core::mem::{Begun, Changes};

use super::head::pause;
use super::{leave, take_part, Part, Party, Size, TurnWord};
use crate::guard;
use crate::head::Head;
use crate::own::Own;

/// The elements of a region of which peers change some, too. It is used no longer than the region.
#[derive(Debug)]
pub(crate) struct OwnElements {
    own: Arc<Own>,
    slot: usize,
}

impl OwnElements {
    pub(crate) fn of(own: &Arc<Own>, slot: usize) -> Arc<dyn Changes> {
        Arc::new(Self { own: Arc::clone(own), slot })
    }
}

impl Changes for OwnElements {
    fn begin(&self, bytes: usize) -> Begun {
        self.own.begin_change(self.slot, bytes)
    }

    fn end(&self, bytes: usize, begun: Begun) {
        self.own.end_change(self.slot, bytes, begun);
    }
}

impl Own {
    /// Begins a change of elements of an own region, as they are changed now. It waits for the turn of a peer: who is stopped
    /// (SIGSTOP) during one is waited for, as in [`Own::remove`].
    pub(crate) fn begin_change(&self, slot: usize, bytes: usize) -> Begun {
        // One thread at a time.
        let mut by_atomics = self.by_atomics.load(Ordering::Relaxed);
        let size = Size::of(bytes, &mut by_atomics);
        self.by_atomics.store(by_atomics, Ordering::Relaxed);
        let mut owner = Owner { head: &self.head, slot, waited: 0 };
        loop {
            match take_part(&mut owner, self.identity.turn(), size) {
                Part::Begun(begun) => return begun,
                // It waits as long as it has to, and to its owner a region is there.
                Part::NotNow | Part::Gone => {}
            }
        }
    }

    /// It is done.
    pub(crate) fn end_change(&self, slot: usize, bytes: usize, begun: Begun) {
        leave(&mut Owner { head: &self.head, slot, waited: 0 }, Size::of(bytes, &mut 0), begun);
    }
}

struct Owner<'a> {
    head: &'a Head,
    slot: usize,
    waited: u32,
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

    fn wait(&mut self, seen: u64) -> bool {
        if !pause(&mut self.waited) {
            self.waited = 0;
            self.head.take_turn_from_dead(self.slot, seen);
        }
        true
    }
}
