//! A scenario under way: its ranks, its fabric, and what may happen next.

use core::cell::RefCell;
use core::hash::{Hash, Hasher};
use core::task::Poll;
use std::fmt;
use std::hash::DefaultHasher;
use std::rc::Rc;
use std::sync::Arc;

use rma_core::engine::Engine;
use rma_core::error::RmaError;

use super::act::{Act, Memory, Monitor, Program};
use super::fingerprint::Fingerprinter;
use super::parts::Parts;
use super::scenario::{AfterDeath, Scenario};
use crate::fabric::{Delivery, SimFabric};
use crate::world::Fault;

/// Rounds in which a window is made or freed; far more than any job of three ranks needs.
const ROUNDS_MAX: usize = 1000;

/// Something that may happen next.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Choice {
    /// A rank takes a step of its program.
    Step(u32),
    /// One or two things reach a rank, and it makes progress.
    Arrive(u32, Delivery, Option<Delivery>),
    /// The fabric reads or writes a rank's memory; no process takes part in it.
    Execute(Delivery),
    /// A rank dies.
    Kill(u32),
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step(rank) => write!(f, "{rank}"),
            Self::Arrive(_, first, None) => write!(f, "{first}"),
            Self::Arrive(_, first, Some(second)) => write!(f, "{first}+{second}"),
            Self::Execute(delivery) => write!(f, "{delivery}"),
            Self::Kill(rank) => write!(f, "kill{rank}"),
        }
    }
}

/// Which choices a scenario has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rules {
    ranks: u32,
    arrivals_max: usize,
    /// Who may die.
    mortal: Option<u32>,
}

impl Rules {
    pub(super) fn of(scenario: &Scenario) -> Self {
        let Scenario { arrivals_max, mortal, .. } = *scenario;
        Self { ranks: scenario.ranks(), arrivals_max, mortal }
    }

    /// Everything that may happen while these may be delivered.
    pub(super) fn choices(&self, deliveries: &[Delivery], dead: Option<u32>) -> Vec<Choice> {
        let mut choices = Vec::with_capacity(self.ranks as usize + deliveries.len() + 1);
        for delivery in deliveries {
            let Some(rank) = delivery.polled_by() else {
                choices.push(Choice::Execute(*delivery));
                continue;
            };
            choices.push(Choice::Arrive(rank, *delivery, None));
            let others = deliveries.iter().filter(|other| {
                self.arrivals_max > 1 && *other != delivery && other.polled_by() == Some(rank)
            });
            choices.extend(others.map(|other| Choice::Arrive(rank, *delivery, Some(*other))));
        }
        choices.extend((0..self.ranks).filter(|&rank| dead != Some(rank)).map(Choice::Step));
        choices.extend(self.mortal.filter(|_| dead.is_none()).map(Choice::Kill));
        choices
    }
}

/// The memory of all ranks, which outlives every run of a scenario.
#[derive(Debug)]
pub struct Grounds {
    memory: Vec<Rc<Memory>>,
}

impl Grounds {
    /// Memory for a scenario.
    pub fn new(scenario: &Scenario) -> Self {
        let memory = |acts: &Arc<[Act]>| Rc::new(Memory::new(scenario.words, acts.len()));
        Self { memory: scenario.acts.iter().map(memory).collect() }
    }
}

/// One run of a scenario.
#[derive(Debug)]
pub struct World {
    fabric: SimFabric,
    programs: Vec<Program>,
    memory: Vec<Rc<Memory>>,
    rules: Rules,
    dead: Option<u32>,
    after_death: AfterDeath,
    /// Target elements may stay in use until the window is freed.
    may_keep_targets: bool,
    end: Vec<(u32, u64, u64)>,
    monitor: Rc<RefCell<Monitor>>,
    printer: Fingerprinter,
    /// Of each rank's program, while it has not moved since.
    known: Vec<Option<u64>>,
}

impl World {
    /// The scenario at its beginning: the window is made, and nothing is on the way.
    ///
    /// # Errors
    /// What the engine says against it.
    pub fn new(scenario: &Scenario, grounds: &Grounds) -> Result<Self, Fault> {
        let fabric = SimFabric::new(scenario.fabric.clone());
        fabric.set_manual();
        let monitor = Rc::new(RefCell::new(Monitor::default()));
        let mut programs = Vec::new();
        for (rank, acts) in (0..).zip(&scenario.acts) {
            let memory = Rc::clone(&grounds.memory[rank as usize]);
            memory.clear();
            let endpoint = fabric.open(rank).map_err(|error| Fault::Engine(error.to_string()))?;
            let engine = Engine::open(endpoint, fabric.bootstrap(rank), scenario.config.clone());
            let program = engine
                .and_then(|engine| Program::new(rank, engine, Arc::clone(acts), memory, Rc::clone(&monitor)));
            programs.push(program.map_err(say)?);
        }
        let mut world = Self {
            fabric,
            known: vec![None; programs.len()],
            programs,
            memory: grounds.memory.clone(),
            rules: Rules::of(scenario),
            dead: None,
            after_death: scenario.after_death,
            may_keep_targets: scenario.acts.iter().any(|acts| acts.contains(&Act::Complete)),
            end: scenario.end.clone(),
            monitor,
            printer: Fingerprinter::default(),
        };
        world.settle()?;
        Ok(world)
    }

    /// Polls the calls of all ranks, and delivers, until they are over and nothing is on the way.
    fn settle(&mut self) -> Result<(), Fault> {
        for _ in 0..ROUNDS_MAX {
            let mut is_quiet = true;
            for program in &mut self.programs {
                if let Some(call) = &mut program.call {
                    is_quiet = false;
                    if let Poll::Ready(result) = program.engine.poll(call) {
                        result.map_err(say)?;
                        program.call = None;
                    }
                }
                program.progress();
            }
            while let Some(delivery) = self.fabric.deliveries().first() {
                self.fabric.deliver(&[*delivery]);
                is_quiet = false;
                self.programs.iter_mut().for_each(Program::progress);
            }
            if is_quiet {
                return Ok(());
            }
        }
        Err(Fault::Engine("the window could not be made, or not be freed".into()))
    }

    /// Everything that may happen now, in an order that depends on nothing but the state.
    pub fn choices(&self) -> Vec<Choice> {
        self.rules.choices(&self.fabric.deliveries(), self.dead)
    }

    /// Everything that may be delivered now.
    pub(super) fn deliveries(&self) -> Vec<Delivery> {
        self.fabric.deliveries()
    }

    /// Lets it happen.
    ///
    /// # Errors
    /// What is wrong with what came of it.
    pub fn apply(&mut self, choice: Choice) -> Result<(), Fault> {
        match choice {
            Choice::Step(rank) => {
                self.known[rank as usize] = None;
                self.step(rank)?;
            }
            Choice::Arrive(rank, first, second) => {
                self.known[rank as usize] = None;
                let both = [Some(first), second].into_iter().flatten();
                self.fabric.deliver(&both.collect::<Vec<_>>());
                if self.dead != Some(rank) {
                    self.programs[rank as usize].progress();
                }
            }
            Choice::Kill(rank) => {
                self.known[rank as usize] = None;
                self.fabric.kill(rank);
                self.monitor.borrow_mut().forget(rank);
                self.programs[rank as usize].give_up();
                self.dead = Some(rank);
            }
            Choice::Execute(delivery) => {
                self.fabric.deliver(&[delivery]);
            }
        }
        if self.fabric.is_violated() {
            let broken = self.fabric.violations().iter().map(ToString::to_string).collect::<Vec<_>>();
            return Err(Fault::Engine(format!("contract broken: {}", broken.join("; "))));
        }
        Ok(())
    }

    /// A step of a program, which gives up or goes on at an error when somebody is dead.
    fn step(&mut self, rank: u32) -> Result<(), Fault> {
        let program = &mut self.programs[rank as usize];
        match program.step() {
            Err(Fault::Engine(_)) if self.dead.is_some() && self.after_death == AfterDeath::GivesUp => {
                program.give_up();
                Ok(())
            }
            Err(Fault::Engine(_)) if self.dead.is_some() && self.after_death == AfterDeath::GoesOn => {
                program.go_on();
                Ok(())
            }
            result => result,
        }
    }

    /// A number that is the same for two worlds of one scenario exactly when they have the same future.
    pub fn fingerprint(&mut self) -> u64 {
        self.parts().fingerprint()
    }

    /// The state, part by part.
    pub fn parts(&mut self) -> Parts {
        let mut parts = Parts::EMPTY;
        for (rank, (program, known)) in self.programs.iter().zip(&mut self.known).enumerate() {
            let printer = &mut self.printer;
            parts.set_program(rank, *known.get_or_insert_with(|| printer.of(&program.state())));
        }
        self.add_surroundings(&mut parts);
        parts
    }

    /// The state behind a choice, of whose beginning the parts are known: engines that took no part in it are
    /// what they were.
    pub(super) fn parts_behind(&mut self, before: &Parts, choice: Choice) -> Parts {
        let mut parts = *before;
        if let Choice::Step(rank) | Choice::Arrive(rank, ..) | Choice::Kill(rank) = choice {
            let rank = rank as usize;
            parts.set_program(rank, self.printer.of(&self.programs[rank].state()));
        }
        self.add_surroundings(&mut parts);
        parts
    }

    /// Adds everything but the programs.
    fn add_surroundings(&self, parts: &mut Parts) {
        let fabric = self.fabric.parts();
        let ranks = self.programs.len();
        for rank in 0..ranks {
            let mut hasher = DefaultHasher::new();
            let program = &self.programs[rank];
            (self.memory[rank].bytes(), program.engine.lock_words(program.window)).hash(&mut hasher);
            program.engine.neighbours_words(program.window).for_each(|word| word.hash(&mut hasher));
            parts.set_memory(rank, hasher.finish());
            parts.set_endpoint(rank, fabric.endpoints[rank]);
            parts.set_credits(rank, fabric.credits[rank]);
            for target in 0..ranks {
                parts.set_route(rank, target, fabric.routes[ranks * rank + target]);
            }
        }
        let mut hasher = DefaultHasher::new();
        (self.dead, self.monitor.borrow().held()).hash(&mut hasher);
        parts.set_global(hasher.finish());
    }

    /// Of each rank, whether its program is over.
    pub(super) fn finished(&self) -> impl Iterator<Item = bool> + '_ {
        self.programs.iter().map(Program::is_finished)
    }

    /// Whether every program is over and nothing is on the way.
    pub fn is_over(&self) -> bool {
        self.programs.iter().all(Program::is_finished) && self.fabric.deliveries().is_empty()
    }

    /// Checks the end: pools full again, memory as it must be, and windows that can be freed. Nothing of it
    /// after a death.
    ///
    /// # Errors
    /// What is not so.
    pub fn check_end(mut self) -> Result<(), Fault> {
        if self.dead.is_some() {
            // Epochs were left open, and nobody can free the window any more.
            return Ok(());
        }
        for (rank, program) in (0..).zip(&self.programs) {
            let (operations, targets) = program.engine.elements_in_use();
            let malformed = program.engine.counters().malformed_packets;
            let lent = self.fabric.lent_packets(rank);
            // What complete has left to the window's next call is the window's until it is freed.
            let targets = if self.may_keep_targets { 0 } else { targets };
            if (operations, targets, malformed, lent) != (0, 0, 0, 0) {
                return Err(Fault::Engine(format!(
                    "rank {rank} at its end has {operations} operation and {targets} target elements and \
                     {lent} packets in use, and met {malformed} packets that made no sense"
                )));
            }
        }
        for &(rank, word, number) in &self.end {
            let found = self.memory[rank as usize].word(word);
            if found != number {
                let text = format!("word {word} of rank {rank} is {found} at the end and not {number}");
                return Err(Fault::Oracle(text));
            }
        }
        for program in &mut self.programs {
            program.call = Some(program.engine.start_free(program.window).map_err(say)?);
        }
        self.settle()?;
        let left: usize = self.programs.iter().map(|program| program.engine.window_count()).sum();
        let kept: u32 = self.programs.iter().map(|program| program.engine.elements_in_use().1).sum();
        if kept > 0 {
            return Err(Fault::Engine(format!("{kept} target elements are left when no window is")));
        }
        let regions: usize = (0..self.programs.len() as u32).map(|rank| self.fabric.live_regions(rank)).sum();
        if left + regions > 0 {
            return Err(Fault::Engine(format!("{left} windows and {regions} regions are left")));
        }
        Ok(())
    }

    /// Where every rank is, and what is on the way.
    pub fn describe(&self) -> String {
        let mut text: Vec<String> = self.programs.iter().map(Program::describe).collect();
        let deliveries: Vec<String> = self.fabric.deliveries().iter().map(ToString::to_string).collect();
        text.push(format!("on the way: {}", deliveries.join(" ")));
        text.join("\n")
    }
}

#[allow(clippy::needless_pass_by_value)] // for map_err
fn say(error: RmaError) -> Fault {
    Fault::Engine(error.to_string())
}
