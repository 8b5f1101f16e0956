//! Learning addresses before they are needed, for an agent that must not allocate when they are.

use std::task::Poll;

use rma_core::error::{Call, RmaError};
use rma_core::ids::{Rank, WindowId};

use super::wait::Awaited;
use super::Core;
use crate::error::Result;
use crate::platform::{Engine, Ordering};

/// A rank's address, wanted on behalf of a call.
struct Contact {
    call: Call,
    rank: Rank,
}

impl Awaited for Contact {
    fn poll(&mut self, engine: &mut Engine) -> Poll<std::result::Result<(), RmaError>> {
        engine.contact(self.call, self.rank)
    }

    fn call(&self) -> Call {
        self.call
    }

    fn window(&self) -> Option<WindowId> {
        None
    }

    fn waiting_for(&self, _: &Engine) -> &'static str {
        "the address of another rank"
    }
}

impl Core {
    /// Says that the agent cannot contact anybody for the first time.
    pub(crate) fn set_agent_defers(&self) {
        self.agent_defers.store(true, Ordering::SeqCst);
    }

    /// Where it cannot, contacts everybody at the end of a collective call, up to the size of the peer table.
    pub(crate) fn contact_all(&self, call: Call) -> Result<()> {
        if !self.agent_defers.load(Ordering::SeqCst) {
            return Ok(());
        }
        let peers = u32::try_from(self.enter_anyway().engine.config().peers).unwrap_or(u32::MAX);
        for rank in (0..self.size.min(peers)).map(Rank) {
            self.wait(self.enter_anyway(), &mut Contact { call, rank }, self.timeout)?;
        }
        Ok(())
    }
}
