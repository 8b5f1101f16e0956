//! What the ranks of a scenario do: calls of the engine, one a step.

use core::cell::RefCell;
use core::task::Poll;
use std::rc::Rc;
use std::sync::Arc;

use rma_core::dtype::Dtype;
use rma_core::engine::{FenceAssert, Operation, PostAssert, StartAssert, SyncCall};
use rma_core::error::{Call, RmaError};
use rma_core::group::Group;
use rma_core::ids::{Rank, WindowId};
use rma_core::lock::LockType;
use rma_core::op::ReduceOp;
use rma_core::wire::OpKind;

use crate::swarm::{Buffer, SimEngine};
use crate::world::Fault;

/// One call, or a look at what has come of the calls before. Places are words of eight bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // MPI's names
pub enum Act {
    Lock {
        target: u32,
        is_exclusive: bool,
        no_check: bool,
    },
    Unlock {
        target: u32,
    },
    LockAll {
        no_check: bool,
    },
    UnlockAll,
    Flush {
        target: u32,
    },
    FlushAll,
    /// What follows comes behind what was posted to the target.
    Order {
        target: u32,
    },
    Fence(FenceAssert),
    /// To or from the ranks whose bits are set.
    Post(u32),
    Start(u32),
    Complete,
    Wait,
    /// Accumulates a number.
    Add {
        target: u32,
        word: u64,
        number: u64,
    },
    /// Accumulates a number that replaces what is there: two to one place keep their order.
    Replace {
        target: u32,
        word: u64,
        number: u64,
    },
    /// Puts a number.
    Put {
        target: u32,
        word: u64,
        number: u64,
    },
    /// Gets a number, to be looked at later.
    Get {
        target: u32,
        word: u64,
    },
    /// Gets a number and adds to it, atomically.
    FetchAdd {
        target: u32,
        word: u64,
        number: u64,
    },
    /// Puts one more than the number got last.
    PutNext {
        target: u32,
        word: u64,
    },
    /// The lock of the target is certainly held from here on, up to `Leave`.
    Enter {
        target: u32,
        is_exclusive: bool,
    },
    Leave {
        target: u32,
    },
    /// What was got last must be this.
    Got(u64),
    /// This word of the rank's own window must hold this.
    Holds {
        word: u64,
        number: u64,
    },
}

/// Locks that are certainly held: by whom, of whom, how.
#[derive(Default, Debug)]
pub(super) struct Monitor {
    held: Vec<(u32, u32, bool)>,
}

impl Monitor {
    fn enter(&mut self, rank: u32, target: u32, is_exclusive: bool) -> Result<(), Fault> {
        let conflict =
            self.held.iter().find(|(_, of, exclusive)| *of == target && (*exclusive || is_exclusive));
        if let Some((holder, ..)) = conflict {
            let text = format!("rank {rank} got the lock of rank {target} that rank {holder} holds");
            return Err(Fault::Oracle(text));
        }
        self.held.push((rank, target, is_exclusive));
        Ok(())
    }

    /// The rank is dead, and holds nothing.
    pub(super) fn forget(&mut self, rank: u32) {
        self.held.retain(|(holder, ..)| *holder != rank);
    }

    /// All of them, in an order that does not depend on who came first.
    pub(super) fn held(&self) -> Vec<(u32, u32, bool)> {
        let mut held = self.held.clone();
        held.sort_unstable();
        held
    }

    fn leave(&mut self, rank: u32, target: u32) {
        self.held.retain(|(holder, of, _)| (*holder, *of) != (rank, target));
    }
}

/// The memory of one rank, at addresses that stay the same in every run of a scenario.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) window: Buffer,
    /// For each act, what it writes and what it got.
    sources: Buffer,
    results: Buffer,
}

impl Memory {
    pub(super) fn new(words: usize, acts: usize) -> Self {
        Self {
            window: Buffer::new(8 * words),
            sources: Buffer::new(8 * acts.max(1)),
            results: Buffer::new(8 * acts.max(1)),
        }
    }

    pub(super) fn clear(&self) {
        for buffer in [&self.window, &self.sources, &self.results] {
            buffer.exposed().write(0, &vec![0; buffer.len()]);
        }
    }

    pub(super) fn word(&self, word: u64) -> u64 {
        load(&self.window, word)
    }

    /// All that can be told of it from outside.
    pub(super) fn bytes(&self) -> [Vec<u8>; 2] {
        [&self.window, &self.results].map(|buffer| buffer.exposed().read(0, buffer.len()))
    }
}

fn load(buffer: &Buffer, word: u64) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&buffer.exposed().read(8 * word as usize, 8));
    u64::from_ne_bytes(raw)
}

/// A rank on its way through its acts.
#[derive(Debug)]
pub struct Program {
    rank: u32,
    pub(super) engine: SimEngine,
    pub(super) window: WindowId,
    acts: Arc<[Act]>,
    pub(super) at: usize,
    pub(super) call: Option<SyncCall>,
    memory: Rc<Memory>,
    monitor: Rc<RefCell<Monitor>>,
    /// The act that got a number last.
    got: usize,
    /// It died, or a call failed because somebody else did.
    has_given_up: bool,
}

impl Program {
    pub(super) fn new(
        rank: u32,
        mut engine: SimEngine,
        acts: Arc<[Act]>,
        memory: Rc<Memory>,
        monitor: Rc<RefCell<Monitor>>,
    ) -> Result<Self, RmaError> {
        let (base, len) = (memory.window.base().as_ptr(), memory.window.len());
        // SAFETY: the memory outlives the engine, which is dropped with the program, and everybody accesses
        // it through pointers only.
        #[allow(unsafe_code)]
        let (window, call) = unsafe { engine.start_create(base, len, 8) }?;
        Ok(Self {
            rank,
            engine,
            window,
            acts,
            at: 0,
            call: Some(call),
            memory,
            monitor,
            got: 0,
            has_given_up: false,
        })
    }

    /// Whether every act is done.
    pub fn is_finished(&self) -> bool {
        self.has_given_up || (self.call.is_none() && self.at == self.acts.len())
    }

    /// It takes no further step.
    pub(super) fn give_up(&mut self) {
        self.has_given_up = true;
    }

    /// The call failed; the next act is next.
    pub(super) fn go_on(&mut self) {
        self.call = None;
        self.at += 1;
    }

    /// Where it is, for people.
    pub fn describe(&self) -> String {
        let act = self.acts.get(self.at).map_or_else(|| "finished".into(), |act| format!("{act:?}"));
        let waits = self.call.as_ref().map_or("", |call| call.waiting_for());
        let state = self.engine.window_state(self.window);
        let (operations, targets) = self.engine.elements_in_use();
        format!(
            "rank {}: act {} {act} {waits}; window {state:?}, {operations} operation and {targets} target elements",
            self.rank, self.at
        )
    }

    /// All that decides what it does next, beside its memory.
    pub(super) fn state(&self) -> impl core::fmt::Debug + '_ {
        (&self.engine, self.at, &self.call, self.got, self.has_given_up)
    }

    /// Takes part in what others do, as every call of the library does.
    pub(super) fn progress(&mut self) {
        // Any time may pass between two steps.
        self.engine.on_time(u8::MAX);
        self.engine.progress();
    }

    /// Takes the next step of the program: begins a call, looks after one, or posts.
    pub(super) fn step(&mut self) -> Result<(), Fault> {
        if self.has_given_up {
            self.progress();
            return Ok(());
        }
        if self.call.is_none() {
            let Some(&act) = self.acts.get(self.at) else {
                self.progress();
                return Ok(());
            };
            self.begin(act)?;
        }
        let Some(call) = &mut self.call else { return Ok(()) };
        match self.engine.poll(call) {
            Poll::Ready(Ok(())) => {
                self.call = None;
                self.at += 1;
            }
            Poll::Ready(Err(error)) => return Err(self.blame(&error)),
            Poll::Pending => self.progress(),
        }
        Ok(())
    }

    fn begin(&mut self, act: Act) -> Result<(), Fault> {
        let (engine, window) = (&mut self.engine, self.window);
        let started = match act {
            Act::Lock { target, is_exclusive, no_check } => {
                let lock_type = if is_exclusive { LockType::Exclusive } else { LockType::Shared };
                engine.start_lock(window, Rank(target), lock_type, no_check)
            }
            Act::Unlock { target } => engine.start_unlock(window, Rank(target)),
            Act::LockAll { no_check } => engine.start_lock_all(window, no_check),
            Act::UnlockAll => engine.start_unlock_all(window),
            Act::Flush { target } => engine.start_flush(window, Rank(target)),
            Act::FlushAll => engine.start_flush_all(window),
            Act::Fence(assert) => engine.start_fence(window, assert),
            Act::Post(members) => group(engine.size(), members)
                .and_then(|group| engine.start_post(window, &group, PostAssert::default())),
            Act::Start(members) => group(engine.size(), members)
                .and_then(|group| engine.start_start(window, &group, StartAssert::default())),
            Act::Complete => engine.start_complete(window),
            Act::Wait => engine.start_wait(window),
            Act::Add { target, word, number } => return self.post(OpKind::Accumulate, target, word, number),
            Act::Replace { target, word, number } => {
                return self.post_reduced(OpKind::Accumulate, ReduceOp::Replace, target, word, number)
            }
            Act::Put { target, word, number } => return self.post(OpKind::Put, target, word, number),
            Act::Get { target, word } => return self.post(OpKind::Get, target, word, 0),
            Act::FetchAdd { target, word, number } => {
                return self.post(OpKind::GetAccumulate, target, word, number)
            }
            Act::PutNext { target, word } => {
                return self.post(OpKind::Put, target, word, self.number_got() + 1)
            }
            Act::Order { target } => {
                let ordered = engine.order(window, Rank(target));
                self.at += 1;
                return ordered.map_err(|error| self.blame(&error));
            }
            Act::Enter { .. } | Act::Leave { .. } | Act::Got(_) | Act::Holds { .. } => {
                self.look(act)?;
                self.at += 1;
                return Ok(());
            }
        };
        self.call = Some(started.map_err(|error| self.blame(&error))?);
        Ok(())
    }

    fn look(&mut self, act: Act) -> Result<(), Fault> {
        let (found, wanted) = match act {
            Act::Enter { target, is_exclusive } => {
                return self.monitor.borrow_mut().enter(self.rank, target, is_exclusive);
            }
            Act::Leave { target } => {
                self.monitor.borrow_mut().leave(self.rank, target);
                return Ok(());
            }
            Act::Got(number) => (self.number_got(), number),
            Act::Holds { word, number } => (self.memory.word(word), number),
            _ => return Ok(()),
        };
        if found == wanted {
            return Ok(());
        }
        Err(Fault::Oracle(format!("rank {} act {} {act:?}: found {found}", self.rank, self.at)))
    }

    fn number_got(&self) -> u64 {
        load(&self.memory.results, self.got as u64)
    }

    /// Posts an operation on one number; where there are no resources the act stays the next one.
    fn post(&mut self, kind: OpKind, target: u32, word: u64, number: u64) -> Result<(), Fault> {
        let is_transfer = matches!(kind, OpKind::Put | OpKind::Get);
        let op = if is_transfer { ReduceOp::Replace } else { ReduceOp::Sum };
        self.post_reduced(kind, op, target, word, number)
    }

    fn post_reduced(
        &mut self,
        kind: OpKind,
        op: ReduceOp,
        target: u32,
        word: u64,
        number: u64,
    ) -> Result<(), Fault> {
        let Memory { sources, results, .. } = &*self.memory;
        sources.exposed().write(8 * self.at, &number.to_ne_bytes());
        let place = |buffer: &Buffer| buffer.base().as_ptr().wrapping_add(8 * self.at);
        let (dtype, call) = match kind {
            OpKind::Put => (Dtype::U8, Call::Put),
            OpKind::Get => (Dtype::U8, Call::Get),
            OpKind::Accumulate => (Dtype::U64, Call::Accumulate),
            _ => (Dtype::U64, Call::FetchAndOp),
        };
        let operation = Operation {
            call,
            kind,
            dtype,
            op,
            target: Rank(target),
            disp: word,
            len: 8,
            origin: place(sources),
            result: if kind.has_result() { place(results) } else { core::ptr::null_mut() },
            compare: core::ptr::null(),
        };
        match self.call(&operation) {
            Poll::Ready(Ok(())) => {
                if kind.has_result() {
                    self.got = self.at;
                }
                self.at += 1;
            }
            Poll::Ready(Err(error)) => return Err(self.blame(&error)),
            Poll::Pending => self.progress(),
        }
        Ok(())
    }

    /// The call that a program makes for the operation. Its places are an act's own, and stay until the scenario is over.
    #[allow(unsafe_code)]
    fn call(&mut self, operation: &Operation) -> Poll<Result<(), RmaError>> {
        let &Operation { target, disp, origin, result, len, .. } = operation;
        match operation.kind {
            // SAFETY: as said; so for all of these.
            OpKind::Put => unsafe { self.engine.put(self.window, target, disp, origin, len) },
            // SAFETY: as above.
            OpKind::Get => unsafe { self.engine.get(self.window, target, disp, result, len) },
            // SAFETY: as above.
            _ => unsafe { self.engine.post(self.window, operation) },
        }
    }

    fn blame(&self, error: &RmaError) -> Fault {
        let act = self.acts.get(self.at.min(self.acts.len().saturating_sub(1)));
        Fault::Engine(format!("rank {} act {} {act:?}: {error}", self.rank, self.at))
    }
}

fn group(size: u32, members: u32) -> Result<Group, RmaError> {
    let ranks: Vec<Rank> = (0..size).filter(|rank| members >> rank & 1 != 0).map(Rank).collect();
    Group::new(&ranks, size)
}
