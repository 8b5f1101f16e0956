//! The epochs that are counted.

use rma_core::bootstrap::Bootstrap;
use rma_core::engine::{Change, FenceAssert, Notification, PostAssert, StartAssert};
use rma_core::error::{Call, RmaError};
use rma_core::ids::Rank;
use rma_core::lock::LockType;
use rma_core::provider::Endpoint;
use rma_core::wire::OpKind;

use crate::ranks::{Ranks, NOTE_DISP};

/// One epoch, or a part of one that is repeated within it.
#[derive(Debug)]
pub(crate) struct Epoch {
    pub(crate) name: &'static str,
    pub(crate) ranks: u32,
    around: Around,
    body: Body,
}

/// What is open while the epoch is repeated, and is not counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Around {
    Nothing,
    LockAll,
    Fence,
}

#[derive(Clone, Copy, Debug)]
enum Body {
    PutFlush,
    Flush(Call, OpKind),
    Lock,
    /// lock_all, a put to each other rank, unlock_all.
    LockAll,
    Fence,
    Pscw,
    Notify,
}

/// All of them, in the order of the table.
pub(crate) const EPOCHS: [Epoch; 11] = [
    Epoch { name: "put-flush", ranks: 2, around: Around::LockAll, body: Body::PutFlush },
    flushed("get-flush", Call::Get, OpKind::Get),
    flushed("accumulate-flush", Call::Accumulate, OpKind::Accumulate),
    flushed("fetch-and-op-flush", Call::FetchAndOp, OpKind::GetAccumulate),
    flushed("compare-and-swap-flush", Call::CompareAndSwap, OpKind::CompareAndSwap),
    Epoch { name: "lock-put-unlock", ranks: 2, around: Around::Nothing, body: Body::Lock },
    Epoch { name: "lock-all-1-put-unlock-all", ranks: 2, around: Around::Nothing, body: Body::LockAll },
    Epoch { name: "lock-all-4-puts-unlock-all", ranks: 5, around: Around::Nothing, body: Body::LockAll },
    Epoch { name: "put-fence", ranks: 2, around: Around::Fence, body: Body::Fence },
    Epoch { name: "post-start-put-complete-wait", ranks: 2, around: Around::Nothing, body: Body::Pscw },
    Epoch { name: "put-notify-wait", ranks: 2, around: Around::LockAll, body: Body::Notify },
];

const fn flushed(name: &'static str, call: Call, kind: OpKind) -> Epoch {
    Epoch { name, ranks: 2, around: Around::LockAll, body: Body::Flush(call, kind) }
}

impl Epoch {
    /// Opens what is around the epoch.
    pub(crate) fn open<E: Endpoint, B: Bootstrap>(&self, ranks: &mut Ranks<E, B>) -> Result<(), RmaError> {
        match self.around {
            Around::Nothing => Ok(()),
            Around::LockAll => {
                let call = ranks.engines[0].start_lock_all(ranks.window, false)?;
                ranks.wait(0, call)
            }
            Around::Fence => fence(ranks, FenceAssert::default()),
        }
    }

    /// Closes what is around the epoch.
    pub(crate) fn close<E: Endpoint, B: Bootstrap>(&self, ranks: &mut Ranks<E, B>) -> Result<(), RmaError> {
        match self.around {
            Around::Nothing => Ok(()),
            Around::LockAll => {
                let call = ranks.engines[0].start_unlock_all(ranks.window)?;
                ranks.wait(0, call)
            }
            Around::Fence => fence(ranks, FenceAssert { no_succeed: true, ..FenceAssert::default() }),
        }
    }

    /// The epoch, once.
    pub(crate) fn run<E: Endpoint, B: Bootstrap>(&self, ranks: &mut Ranks<E, B>) -> Result<(), RmaError> {
        match self.body {
            Body::PutFlush => {
                ranks.put(1)?;
                ranks.flush()
            }
            Body::Flush(call, kind) => {
                ranks.post(call, kind)?;
                ranks.flush()
            }
            Body::Lock => {
                let window = ranks.window;
                let call = ranks.engines[0].start_lock(window, Rank(1), LockType::Exclusive, false)?;
                ranks.wait(0, call)?;
                ranks.put(1)?;
                let call = ranks.engines[0].start_unlock(window, Rank(1))?;
                ranks.wait(0, call)
            }
            Body::LockAll => {
                let call = ranks.engines[0].start_lock_all(ranks.window, false)?;
                ranks.wait(0, call)?;
                for target in 1..self.ranks {
                    ranks.put(target)?;
                }
                let call = ranks.engines[0].start_unlock_all(ranks.window)?;
                ranks.wait(0, call)
            }
            Body::Fence => {
                ranks.put(1)?;
                fence(ranks, FenceAssert::default())
            }
            Body::Pscw => pscw(ranks),
            Body::Notify => notify(ranks),
        }
    }
}

/// A fence of both ranks.
fn fence<E: Endpoint, B: Bootstrap>(ranks: &mut Ranks<E, B>, assert: FenceAssert) -> Result<(), RmaError> {
    let window = ranks.window;
    let mut calls = [
        (0, ranks.engines[0].start_fence(window, assert)?),
        (1, ranks.engines[1].start_fence(window, assert)?),
    ];
    ranks.wait_all(&mut calls)
}

/// Rank 1 exposes its window to a put of rank 0.
fn pscw<E: Endpoint, B: Bootstrap>(ranks: &mut Ranks<E, B>) -> Result<(), RmaError> {
    let window = ranks.window;
    let call = ranks.engines[1].start_post(window, &ranks.groups[0], PostAssert::default())?;
    ranks.wait(1, call)?;
    let call = ranks.engines[0].start_start(window, &ranks.groups[1], StartAssert::default())?;
    ranks.wait(0, call)?;
    ranks.put(1)?;
    let complete = ranks.engines[0].start_complete(window)?;
    let wait = ranks.engines[1].start_wait(window)?;
    ranks.wait_all(&mut [(0, complete), (1, wait)])
}

/// Rank 1 waits for the notification of a put.
fn notify<E: Endpoint, B: Bootstrap>(ranks: &mut Ranks<E, B>) -> Result<(), RmaError> {
    let window = ranks.window;
    let awaited = ranks.engines[1].notification(window, NOTE_DISP)? + 1;
    ranks.put_notify(&Notification { disp: NOTE_DISP, change: Change::Add(1) })?;
    let call = ranks.engines[1].start_wait_notification(window, NOTE_DISP, awaited)?;
    ranks.wait(1, call)
}
