//! Depth first through everything that can happen.
//!
//! Engines cannot be copied, so going back means to begin anew and to repeat the way: programs are short.
//! What is kept of a state is its fingerprint and where its choices led.

use std::collections::{HashMap, VecDeque};
use std::panic::{catch_unwind, AssertUnwindSafe};

use super::scenario::Scenario;
use super::world::{Choice, Grounds, World};
use crate::world::Fault;

/// How far a search goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Most states.
    pub states_max: usize,
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
        let Self { states, transitions, longest, ends, outcome } = self;
        let (protocol, name, verdict) = (scenario.protocol.name(), scenario.name, outcome.name());
        let (ranks, pool) = (scenario.ranks(), scenario.pool);
        format!(
            "| {protocol} | {name} | {ranks} | {pool} | {states} | {transitions} | {longest} | {ends} | {verdict} |\n"
        )
    }
}

/// A choice that led from one state to another.
#[derive(Clone, Copy, Debug)]
struct Edge {
    from: u32,
    to: u32,
    choice: u16,
}

/// A state on the way from the beginning to where the search is.
#[derive(Debug)]
struct Frame {
    node: u32,
    choices: Vec<Choice>,
    next: usize,
}

#[derive(Debug)]
struct Search<'a> {
    scenario: &'a Scenario,
    grounds: Grounds,
    nodes: HashMap<u64, u32>,
    edges: Vec<Edge>,
    ends: Vec<u32>,
    path: Vec<Frame>,
    longest: usize,
}

/// Searches everything that can happen in a scenario.
pub fn explore(scenario: &Scenario, limits: Limits) -> Report {
    let mut search = Search {
        scenario,
        grounds: Grounds::new(scenario),
        nodes: HashMap::new(),
        edges: Vec::new(),
        ends: Vec::new(),
        path: Vec::new(),
        longest: 0,
    };
    let outcome = match search.run(limits) {
        Ok(true) => search.judge(),
        Ok(false) => Outcome::Cut,
        Err(what) => {
            let taken =
                |frame: &Frame| frame.choices.get(frame.next.checked_sub(1)?).map(ToString::to_string);
            let schedule = search.path.iter().filter_map(taken).collect();
            Outcome::Violated { what, schedule }
        }
    };
    Report {
        states: search.nodes.len(),
        transitions: search.edges.len(),
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
        self.nodes.insert(world.fingerprint(), 0);
        self.path.push(Frame { node: 0, choices: world.choices(), next: 0 });
        let mut is_here = true;
        while let Some(frame) = self.path.last_mut() {
            let Some(&choice) = frame.choices.get(frame.next) else {
                self.path.pop();
                is_here = false;
                continue;
            };
            let (from, number) = (frame.node, frame.next as u16);
            if !is_here {
                world = self.again()?;
                is_here = true;
            }
            if let Some(frame) = self.path.last_mut() {
                frame.next += 1;
            }
            guarded(|| world.apply(choice))?;
            let fingerprint = world.fingerprint();
            let fresh = self.nodes.len() as u32;
            let to = *self.nodes.entry(fingerprint).or_insert(fresh);
            self.edges.push(Edge { from, to, choice: number });
            if to != fresh {
                is_here = to == from;
                continue;
            }
            if self.nodes.len() > limits.states_max {
                return Ok(false);
            }
            self.longest = self.longest.max(self.path.len());
            if world.is_over() {
                self.ends.push(to);
                guarded(|| world.check_end())?;
                world = self.again()?;
                is_here = false;
                continue;
            }
            self.path.push(Frame { node: to, choices: world.choices(), next: 0 });
        }
        Ok(true)
    }

    /// The world at the end of the present path.
    fn again(&self) -> Result<World, String> {
        let mut world = guarded(|| World::new(self.scenario, &self.grounds))?;
        let (_, way) = self.path.split_last().unwrap_or((&self.path[0], &[]));
        for frame in way {
            guarded(|| world.apply(frame.choices[frame.next - 1]))?;
        }
        Ok(world)
    }

    /// Whether an end can be reached from every state.
    fn judge(&self) -> Outcome {
        let mut before: Vec<Vec<u32>> = vec![Vec::new(); self.nodes.len()];
        for edge in &self.edges {
            before[edge.to as usize].push(edge.from);
        }
        let mut is_good = vec![false; self.nodes.len()];
        let mut queue: VecDeque<u32> = self.ends.iter().copied().collect();
        queue.iter().for_each(|&node| is_good[node as usize] = true);
        while let Some(node) = queue.pop_front() {
            for &earlier in &before[node as usize] {
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
        let mut after: Vec<Vec<(u32, u16)>> = vec![Vec::new(); self.nodes.len()];
        for edge in &self.edges {
            after[edge.from as usize].push((edge.to, edge.choice));
        }
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
            for &(next, choice) in &after[node as usize] {
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
