//! Loads and stores of a script in the memory of windows that the ranks share.

use std::rc::Rc;

use super::super::library::Library;
use super::super::memory::Exposed;
use super::super::plan::{DirectPlan, Payload};
use super::{RankScript, Section};
use crate::random::Random;
use crate::world::{Fault, Step};

impl<L: Library> RankScript<L> {
    pub(super) fn load(&mut self, at: &DirectPlan, stored: Option<u64>) -> Result<Step, Fault> {
        self.direct(at, |script| {
            let bytes = script.reach(at).load(at.offset, at.len);
            let stored = stored.map(|seed| bytes_of(seed, at.len));
            script.shared.borrow_mut().oracle.on_load(at, stored.as_deref(), &bytes)?;
            if let Ok(number) = bytes.try_into().map(u64::from_ne_bytes) {
                script.last_result = number;
            }
            Ok(())
        })
    }

    pub(super) fn store(&mut self, at: &DirectPlan, payload: Payload) -> Result<Step, Fault> {
        self.direct(at, |script| {
            let bytes = match payload {
                Payload::Seed(seed) => bytes_of(seed, at.len),
                Payload::Number(number) => number.to_ne_bytes().to_vec(),
                Payload::LastResultPlusOne => (script.last_result + 1).to_ne_bytes().to_vec(),
            };
            script.reach(at).store(at.offset, &bytes);
            script.shared.borrow_mut().oracle.on_store(at, &bytes);
            Ok(())
        })
    }

    /// An access that does not come to the library: what allows it must hold by now.
    fn direct(
        &mut self,
        at: &DirectPlan,
        access: impl FnOnce(&mut Self) -> Result<(), String>,
    ) -> Result<Step, Fault> {
        let done = self.expect_held(at).and_then(|()| access(self));
        done.map_err(|text| Fault::Oracle(format!("{at:?} in {}: {text}", self.whereabouts())))?;
        self.advance();
        Ok(Step::Busy)
    }

    /// Of shared memory a lock is held as soon as the call has returned.
    fn expect_held(&self, at: &DirectPlan) -> Result<(), String> {
        let is_meant = |section: &&Section| {
            section.window == at.window && section.target.is_none_or(|locked| locked == at.target)
        };
        match self.sections.iter().find(is_meant).filter(|section| !section.no_check) {
            Some(section) => {
                let mut shared = self.shared.borrow_mut();
                shared.oracle.on_held(at.window, at.target, self.rank, section.is_exclusive)
            }
            None => Ok(()),
        }
    }

    /// The target's part, where this rank finds it.
    fn reach(&self, at: &DirectPlan) -> Exposed {
        let shared = Rc::clone(&self.shared);
        let found = self.library.shared_part(at.window, at.target);
        found.unwrap_or_else(|| shared.borrow().oracle.part(at.window, at.target))
    }
}

fn bytes_of(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Random::new(seed).fill(&mut bytes);
    bytes
}
