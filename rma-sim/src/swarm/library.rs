//! What a script needs of a one-sided library: non-blocking calls, one at a time and thread.
//!
//! The engine's adapter implements it, and in tests a simple model of MPI, which shows that the plans are
//! correct programs and that the oracle finds a library that breaks the rules.

use core::ptr::NonNull;

use rma_core::info::WindowOptions;

use super::memory::Exposed;
use super::plan::{FenceAssertions, Members, OperationPlan, Which};

/// A call that may take time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // as in `Action`
pub enum Call {
    /// Collective. `memory` is the rank's part, `len` bytes, or `None` if the library allocates it. Of a
    /// dynamic window it is the memory of which regions will be attached, of a shared one the rank's part, unless
    /// the library has memory that processes share.
    Create {
        window: usize,
        memory: Option<NonNull<u8>>,
        len: usize,
        disp_unit: u32,
        is_dynamic: bool,
        is_shared: bool,
        options: WindowOptions,
    },
    /// Collective.
    Free {
        window: usize,
    },
    Fence {
        window: usize,
        assertions: FenceAssertions,
    },
    Lock {
        window: usize,
        target: u32,
        is_exclusive: bool,
        no_check: bool,
    },
    Unlock {
        window: usize,
        target: u32,
    },
    LockAll {
        window: usize,
        no_check: bool,
    },
    UnlockAll {
        window: usize,
    },
    Post {
        window: usize,
        group: Members,
        no_check: bool,
    },
    Start {
        window: usize,
        group: Members,
        no_check: bool,
    },
    Complete {
        window: usize,
    },
    /// Or test, as often as it is polled.
    Wait {
        window: usize,
        by_test: bool,
    },
    /// `target` is `None` for all.
    Flush {
        window: usize,
        target: Option<u32>,
        is_local: bool,
    },
    FlushTargets {
        window: usize,
        targets: Members,
    },
    /// Makes a request of the name `id`, and returns at once.
    RequestFlush {
        window: usize,
        target: Option<u32>,
        is_local: bool,
        id: u64,
    },
    /// [`Library::finished`] says which requests were found done.
    Await {
        which: Which,
        by_test: bool,
    },
    /// Returns at once.
    Order {
        window: usize,
        target: Option<u32>,
    },
    /// Returns at once.
    Attach {
        window: usize,
        base: NonNull<u8>,
        len: usize,
    },
    Detach {
        window: usize,
        base: NonNull<u8>,
    },
    /// Returns at once.
    Sync {
        window: usize,
    },
    /// `disp` in units of the rank's own window.
    AwaitNotice {
        window: usize,
        disp: u64,
        until: u64,
    },
}

/// What came of polling.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// The call has returned.
    Returned,
    /// Something moved.
    Moved,
    /// Nothing did.
    Waiting,
}

/// What came of posting an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Posted {
    /// It is posted.
    Done,
    /// Not now, try again.
    NotNow,
    /// A thread of the process posts it: [`Library::poll`] says when it has.
    UnderWay,
}

/// The memory of one operation at its origin. What an operation does not use is dangling.
#[derive(Clone, Copy, Debug)]
pub struct OriginBuffers {
    /// What is written: `len` bytes of the plan.
    pub origin: NonNull<u8>,
    /// What a compare-and-swap compares with: one element.
    pub compare: NonNull<u8>,
    /// Where the old or read elements go: `len` bytes of the plan.
    pub result: NonNull<u8>,
    /// The name of the operation's request, if it has one.
    pub id: u64,
}

/// Where a rank's part of a window begins, and how displacements count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The displacement of the first byte: of a dynamic window its address, else 0.
    pub base: u64,
    /// Bytes of a unit.
    pub disp_unit: u32,
}

impl Place {
    /// The displacement of a byte of the rank's part.
    #[must_use]
    pub fn disp(self, offset: usize) -> u64 {
        self.base + offset as u64 / u64::from(self.disp_unit)
    }
}

/// One rank of a library.
pub trait Library {
    /// From now on there are so many threads, of which the first has the rank's requests. Otherwise there is
    /// thread 0.
    fn fork(&mut self, threads: usize);

    /// The threads are done, and what requests they have left are the rank's.
    fn join(&mut self);

    /// Whether a thread that was begun goes on by itself, so that it is a pity to let one be idle.
    fn has_real_threads(&self) -> bool {
        false
    }

    /// Begins a call. No other may be under way in this thread.
    ///
    /// # Errors
    /// The library's own error, for people.
    fn start(&mut self, thread: usize, call: &Call) -> Result<(), String>;

    /// Goes on with the thread's call begun last, and makes progress.
    ///
    /// # Errors
    /// The library's own error, for people.
    fn poll(&mut self, thread: usize) -> Result<Progress, String>;

    /// Takes the names of the thread's requests that were found done.
    fn finished(&mut self, thread: usize) -> Vec<u64>;

    /// Posts an operation. `place` is that of the target's part of the window.
    ///
    /// # Safety
    /// The buffers stay as they are until the operation is complete.
    ///
    /// # Errors
    /// The library's own error, for people.
    unsafe fn post(
        &mut self,
        thread: usize,
        operation: &OperationPlan,
        place: Place,
        buffers: &OriginBuffers,
    ) -> Result<Posted, String>;

    /// Whether operations are posted with the layouts that [`super::layouts_of`] gives them; else without.
    fn takes_layouts(&self) -> bool {
        false
    }

    /// Makes progress outside a call.
    ///
    /// # Errors
    /// The library's own error, for people.
    fn progress(&mut self) -> Result<Progress, String>;

    /// The memory of a window at this rank, after its creation.
    fn exposed(&self, window: usize) -> Exposed;

    /// The memory of a rank's part of a shared window in this process; `None`: the ranks are one process.
    fn shared_part(&self, _window: usize, _rank: u32) -> Option<Exposed> {
        None
    }

    /// Checks that nothing is left over, after all windows are freed.
    ///
    /// # Errors
    /// What is left.
    fn check_idle(&self) -> Result<(), String>;

    /// Where the library is, for the report of a stall.
    fn describe(&self) -> String;
}
