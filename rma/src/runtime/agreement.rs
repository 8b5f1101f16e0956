//! Numbers that all ranks of the job bring together, for what they set up outside of the engine.

use std::task::Poll;

use rma_core::engine::{SyncCall, AGREE_VALUES};
use rma_core::error::{Call, ErrorClass, RmaError};
use rma_core::ids::{Rank, WindowId};

use super::wait::Awaited;
use super::Core;
use crate::error::Result;
use crate::platform::Engine;

/// How many numbers go with the word that a rank has come to none.
pub(crate) const NUMBERS: usize = AGREE_VALUES - 1;

/// An agreement, with its outcome as soon as it is there.
#[derive(Debug)]
struct Agreement {
    sync: SyncCall,
    agreed: [u64; AGREE_VALUES],
}

impl Awaited for Agreement {
    fn poll(&mut self, engine: &mut Engine) -> Poll<std::result::Result<(), RmaError>> {
        let result = engine.poll(&mut self.sync);
        if let Poll::Ready(Ok(())) = result {
            self.agreed = engine.agreed();
        }
        result
    }

    fn call(&self) -> Call {
        self.sync.call()
    }

    fn window(&self) -> Option<WindowId> {
        None
    }

    fn waiting_for(&self, _: &Engine) -> &'static str {
        SyncCall::waiting_for(&self.sync)
    }
}

impl Core {
    /// The largest of each number that the ranks have come to, if all of them have; collective. Who could not says
    /// why; the others learn which rank it was.
    pub(crate) fn agree(
        &self,
        call: Call,
        outcome: std::result::Result<[u64; NUMBERS], RmaError>,
    ) -> Result<[u64; NUMBERS]> {
        let ([first, second, third], error) = match outcome {
            Ok(own) => (own, None),
            Err(error) => ([0; NUMBERS], Some(error)),
        };
        let class = error.as_ref().map_or(0, |error| error.class() as u64);
        let failed = error.as_ref().map_or(0, |_| 1 << 40 | class << 32 | u64::from(self.rank));
        let [first, second, third, failed] = self.agree_values(call, [first, second, third, failed])?;
        if failed == 0 {
            return Ok([first, second, third]);
        }
        let class = ErrorClass::from_code((failed >> 32) as u8).unwrap_or(ErrorClass::Other);
        let elsewhere = RmaError::Elsewhere { call, class, target: Rank(failed as u32) };
        Err(self.fail(error.unwrap_or(elsewhere)))
    }

    /// The end of a step that every rank takes for itself; collective.
    pub(crate) fn agree_on(&self, call: Call, outcome: std::result::Result<(), RmaError>) -> Result<()> {
        self.agree(call, outcome.map(|()| [0; NUMBERS])).map(drop)
    }

    /// The largest of each number that the ranks have come to; collective.
    pub(super) fn agree_values(
        &self,
        call: Call,
        values: [u64; AGREE_VALUES],
    ) -> Result<[u64; AGREE_VALUES]> {
        self.collectively(|| {
            let mut guarded = self.enter(call)?;
            let started = guarded.engine.start_agree(call, values);
            let sync = started.map_err(|error| self.fail(error))?;
            let mut agreement = Agreement { sync, agreed: [0; AGREE_VALUES] };
            self.wait(guarded, &mut agreement, self.timeout())?;
            Ok(agreement.agreed)
        })
    }
}
