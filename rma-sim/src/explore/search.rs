//! Depth first through everything that can happen.
//!
//! Engines cannot be copied, so going back means to begin anew and to repeat the way: programs are short. Nearly
//! always that is not needed, because it is known what the choice does ([`Memo`]). What is kept of a state is
//! its fingerprint and where its choices led.

use std::collections::VecDeque;
use std::panic::{catch_unwind, AssertUnwindSafe};

use super::memo::{Memo, Plain};
use super::parts::Parts;
use super::scenario::Scenario;
use super::world::{Choice, Grounds, Rules, World};
use crate::world::Fault;

/// How far a search goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Most states.
    pub states_max: usize,
    /// Engines make every choice, also where it is known what it does, and that must be what it does.
    pub is_checked: bool,
}

/// What a search found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Every state was visited, and all is well.
    Holds,
    /// All is well as far as the limit allowed to look.
    Cut,
    /// Something is wrong.
    Violated {
        /// What.
        what: String,
        /// What has to happen, from the beginning, to see it.
        schedule: Vec<String>,
    },
}

/// A search that is over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// Different states.
    pub states: usize,
    /// Choices tried.
    pub transitions: usize,
    /// Those of them that engines made, because it was not known what they do.
    pub executed: usize,
    /// Most choices from the beginning to a state.
    pub longest: usize,
    /// Different ends.
    pub ends: usize,
    /// The verdict.
    pub outcome: Outcome,
}

impl Outcome {
    /// The verdict in a word or two.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Cut => "cut at the limit",
            Self::Violated { .. } => "VIOLATED",
        }
    }
}

impl Report {
    /// The line of docs/model-checking.md about it.
    pub fn row(&self, scenario: &Scenario) -> String {
        let Self { states, transitions, longest, ends, outcome, .. } = self;
        let (protocol, name, verdict) = (scenario.protocol.name(), scenario.name, outcome.name());
        let (ranks, pool) = (scenario.ranks(), scenario.pool);
        format!(
            "| {protocol} | {name} | {ranks} | {pool} | {states} | {transitions} | {longest} | {ends} | {verdict} |\n"
        )
    }
}

/// A state on the way from the beginning to where the search is.
#[derive(Debug)]
struct Frame {
    node: u32,
    parts: Parts,
    dead: Option<u32>,
    choices: Vec<Choice>,
    next: usize,
}

impl Frame {
    /// The choice that is tried.
    fn taken(&self) -> Option<Choice> {
        self.choices.get(self.next.checked_sub(1)?).copied()
    }
}

/// Engines that are somewhere on the path.
#[derive(Debug)]
struct Real {
    world: World,
    /// How many choices of the path they have made.
    depth: usize,
}

#[derive(Debug)]
struct Search<'a> {
    scenario: &'a Scenario,
    rules: Rules,
    is_checked: bool,
    grounds: Grounds,
    real: Option<Real>,
    memo: Memo,
    nodes: Plain<u32>,
    /// Of each state, where its edges begin: one for each of its choices, in order.
    first_edges: Vec<usize>,
    /// Where choices led.
    edges: Vec<u32>,
    ends: Vec<u32>,
    path: Vec<Frame>,
    longest: usize,
    transitions: usize,
    executed: usize,
}

/// Searches everything that can happen in a scenario.
pub fn explore(scenario: &Scenario, limits: Limits) -> Report {
    let mut search = Search {
        scenario,
        rules: Rules::of(scenario),
        is_checked: limits.is_checked,
        grounds: Grounds::new(scenario),
        real: None,
        memo: Memo::new(scenario.fabric.near_ranks),
        nodes: Plain::default(),
        first_edges: Vec::new(),
        edges: Vec::new(),
        ends: Vec::new(),
        path: Vec::new(),
        longest: 0,
        transitions: 0,
        executed: 0,
    };
    let outcome = match search.run(limits) {
        Ok(true) => search.judge(),
        Ok(false) => Outcome::Cut,
        Err(what) => {
            let taken = |frame: &Frame| frame.taken().map(|choice| choice.to_string());
            let schedule = search.path.iter().filter_map(taken).collect();
            Outcome::Violated { what, schedule }
        }
    };
    Report {
        states: search.nodes.len(),
        transitions: search.transitions,
        executed: search.executed,
        longest: search.longest,
        ends: search.ends.len(),
        outcome,
    }
}

/// Lets something happen that may panic.
fn guarded<T>(act: impl FnOnce() -> Result<T, Fault>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(result) => result.map_err(|fault| format!("{fault:?}")),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(format!("panic: {}", text.unwrap_or("without a message")))
        }
    }
}

impl Search<'_> {
    /// `false`: the limit was reached.
    fn run(&mut self, limits: Limits) -> Result<bool, String> {
        let mut world = guarded(|| World::new(self.scenario, &self.grounds))?;
        let parts = world.parts();
        self.memo.learn_finished(&parts, world.finished());
        self.real = Some(Real { world, depth: 0 });
        self.nodes.insert(parts.fingerprint(), 0);
        self.enter(0, parts, None)?;
        while let Some(frame) = self.path.last_mut() {
            let Some(&choice) = frame.choices.get(frame.next) else {
                self.path.pop();
                continue;
            };
            let (from, parts, dead) = (frame.node, frame.parts, frame.dead);
            let edge = self.first_edges[from as usize] + frame.next;
            self.turn();
            let after = self.follow(&parts, choice)?;
            let fresh = self.nodes.len() as u32;
            let to = *self.nodes.entry(after.fingerprint()).or_insert(fresh);
            self.edges[edge] = to;
            self.transitions += 1;
            if to != fresh {
                continue;
            }
            if self.nodes.len() > limits.states_max {
                return Ok(false);
            }
            self.longest = self.longest.max(self.path.len());
            let dead = if let Choice::Kill(rank) = choice { Some(rank) } else { dead };
            self.enter(to, after, dead)?;
        }
        Ok(true)
    }

    /// The next choice of the last state of the path is tried: engines that have made one there are no
    /// longer on the path.
    fn turn(&mut self) {
        let last = self.path.len() - 1;
        self.path[last].next += 1;
        self.real.take_if(|real| real.depth > last);
    }

    /// A state that was not seen before; an end has no further choices.
    fn enter(&mut self, node: u32, parts: Parts, dead: Option<u32>) -> Result<(), String> {
        self.first_edges.push(self.edges.len());
        self.path.push(Frame { node, parts, dead, choices: Vec::new(), next: 0 });
        let ranks = self.scenario.acts.len();
        let deliveries = match self.memo.deliveries(&parts, ranks) {
            Some(deliveries) => deliveries,
            None => {
                let all = self.here()?.deliveries();
                self.memo.learn_deliveries(&parts, ranks, &all);
                all
            }
        };
        if deliveries.is_empty() && self.memo.is_finished(&parts, ranks) {
            self.ends.push(node);
            self.here()?;
            let real = self.real.take();
            let checked = real.map_or(Ok(()), |real| guarded(|| real.world.check_end()));
            // The schedule of what is wrong at an end leads there.
            checked?;
            self.path.pop();
            return Ok(());
        }
        let choices = self.rules.choices(&deliveries, dead);
        self.edges.resize(self.edges.len() + choices.len(), u32::MAX);
        if let Some(frame) = self.path.last_mut() {
            frame.choices = choices;
        }
        Ok(())
    }

    /// The state behind a choice at the end of the path.
    fn follow(&mut self, before: &Parts, choice: Choice) -> Result<Parts, String> {
        let known = self.memo.predict(before, choice);
        if let (Some(parts), false) = (known, self.is_checked) {
            return Ok(parts);
        }
        self.executed += 1;
        let depth = self.path.len();
        let is_checked = self.is_checked;
        let world = self.here()?;
        guarded(|| world.apply(choice))?;
        let after = if is_checked { world.parts() } else { world.parts_behind(before, choice) };
        let finished: Vec<bool> = world.finished().collect();
        self.memo.learn_finished(&after, finished.into_iter());
        if let Some(real) = &mut self.real {
            // Where nothing changed they are where they were.
            real.depth = if after == *before { depth - 1 } else { depth };
        }
        match known {
            None => self.memo.learn(before, choice, &after),
            Some(known) if known == after => {}
            Some(_) => {
                return Err("the search took it for known what this does, and it does something else".into())
            }
        }
        Ok(after)
    }

    /// Engines at the end of the path, before the choice that is tried there.
    fn here(&mut self) -> Result<&mut World, String> {
        let depth = self.path.len() - 1;
        let mut real = match self.real.take() {
            Some(real) => real,
            None => Real { world: guarded(|| World::new(self.scenario, &self.grounds))?, depth: 0 },
        };
        for frame in &self.path[real.depth..depth] {
            let taken = frame.taken().ok_or("a state of the path without a choice")?;
            guarded(|| real.world.apply(taken))?;
        }
        real.depth = depth;
        Ok(&mut self.real.insert(real).world)
    }

    /// Of each state, where its choices led.
    fn edges_of(&self, node: u32) -> &[u32] {
        let end = self.first_edges.get(node as usize + 1).copied().unwrap_or(self.edges.len());
        &self.edges[self.first_edges[node as usize]..end]
    }

    /// Whether an end can be reached from every state.
    fn judge(&self) -> Outcome {
        let nodes = self.nodes.len();
        // For each state those that lead to it, one behind the other; `starts` says where.
        let mut starts = vec![0_usize; nodes + 1];
        self.edges.iter().for_each(|&to| starts[to as usize + 1] += 1);
        (0..nodes).for_each(|node| starts[node + 1] += starts[node]);
        let mut filled = starts.clone();
        let mut before = vec![0_u32; self.edges.len()];
        for from in 0..nodes as u32 {
            for &to in self.edges_of(from) {
                before[filled[to as usize]] = from;
                filled[to as usize] += 1;
            }
        }
        let mut is_good = vec![false; nodes];
        let mut queue: VecDeque<u32> = self.ends.iter().copied().collect();
        queue.iter().for_each(|&node| is_good[node as usize] = true);
        while let Some(node) = queue.pop_front() {
            for &earlier in &before[starts[node as usize]..starts[node as usize + 1]] {
                if !core::mem::replace(&mut is_good[earlier as usize], true) {
                    queue.push_back(earlier);
                }
            }
        }
        match self.nearest(|node| !is_good[node as usize]) {
            None => Outcome::Holds,
            Some(schedule) => self.explain_stuck(&schedule),
        }
    }

    /// The shortest way to a state that is wanted, as the choices' numbers.
    fn nearest(&self, wanted: impl Fn(u32) -> bool) -> Option<Vec<u16>> {
        let mut came: Vec<Option<(u32, u16)>> = vec![None; self.nodes.len()];
        let mut queue = VecDeque::from([0]);
        while let Some(node) = queue.pop_front() {
            if wanted(node) {
                let mut way = Vec::new();
                let mut at = node;
                while let (true, Some((from, choice))) = (at != 0, came[at as usize]) {
                    way.push(choice);
                    at = from;
                }
                way.reverse();
                return Some(way);
            }
            for (choice, &next) in (0..).zip(self.edges_of(node)) {
                if next != 0 && came[next as usize].is_none() {
                    came[next as usize] = Some((node, choice));
                    queue.push_back(next);
                }
            }
        }
        None
    }

    fn explain_stuck(&self, numbers: &[u16]) -> Outcome {
        let mut schedule = Vec::new();
        let walk = || {
            let mut world = World::new(self.scenario, &self.grounds)?;
            for &number in numbers {
                let choice = world.choices()[number as usize];
                schedule.push(choice.to_string());
                world.apply(choice)?;
            }
            Ok(world.describe())
        };
        let place = guarded(walk).unwrap_or_else(|error| error);
        Outcome::Violated { what: format!("no end can be reached from here:\n{place}"), schedule }
    }
}
