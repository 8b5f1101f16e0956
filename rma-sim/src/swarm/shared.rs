//! What the ranks of a run share outside the library: the plan, the oracle, and where they meet.

use core::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use super::oracle::{Oracle, Snapshot};
use super::plan::Plan;

/// What the ranks of a run share outside the simulated library.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) plan: Plan,
    pub(super) oracle: Oracle,
    /// Meetings that are over. Phase `n` lies between meetings `n` and `n + 1`.
    pub(super) meetings: usize,
    arrived: u32,
    /// The others are elsewhere.
    alone: Option<Alone>,
}

/// What a rank needs whose fellows are other processes.
pub(super) struct Alone {
    /// What the windows hold at the end of each phase.
    pub(super) ends: Vec<Snapshot>,
    /// Waits until all ranks have come.
    pub(super) barrier: Box<dyn FnMut() -> Result<(), String>>,
    /// Tells all ranks a number, and returns theirs.
    pub(super) exchange: Box<dyn FnMut(u64) -> Result<Vec<u64>, String>>,
}

impl fmt::Debug for Alone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alone").field("ends", &self.ends.len()).finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn new(plan: &Plan) -> Rc<RefCell<Self>> {
        let oracle = Oracle::new(&plan.windows);
        Rc::new(RefCell::new(Self { plan: plan.clone(), oracle, meetings: 0, arrived: 0, alone: None }))
    }

    /// For one rank of a job whose others are elsewhere.
    pub(super) fn of_rank(plan: &Plan, rank: u32, alone: Alone) -> Rc<RefCell<Self>> {
        let oracle = Oracle::of_rank(&plan.windows, rank);
        let (plan, alone) = (plan.clone(), Some(alone));
        Rc::new(RefCell::new(Self { plan, oracle, meetings: 0, arrived: 0, alone }))
    }

    /// A dynamic window was made: where the others' parts are must be told if they are elsewhere.
    pub(super) fn tell_addresses(&mut self, window: usize, rank: u32) -> Result<(), String> {
        if let Some(alone) = &mut self.alone {
            let addresses = (alone.exchange)(self.oracle.address(window, rank))?;
            self.oracle.on_told(window, addresses);
        }
        Ok(())
    }

    /// A rank arrives; true when it was the last, and all go on.
    pub(super) fn arrive(&mut self) -> Result<bool, String> {
        if let Some(alone) = &mut self.alone {
            (alone.barrier)()?;
            if let Some(end) = self.meetings.checked_sub(1).and_then(|phase| alone.ends.get(phase)) {
                self.oracle.end_phase_alone(end)?;
            }
            if let Some(phase) = self.plan.phases.get(self.meetings) {
                self.oracle.begin_phase(phase);
            }
            (alone.barrier)()?;
            self.meetings += 1;
            return Ok(true);
        }
        self.arrived += 1;
        if self.arrived < self.plan.fabric.ranks {
            return Ok(false);
        }
        if self.meetings > 0 {
            self.oracle.end_phase()?;
        }
        if let Some(phase) = self.plan.phases.get(self.meetings) {
            self.oracle.begin_phase(phase);
        }
        self.meetings += 1;
        self.arrived = 0;
        Ok(true)
    }
}
