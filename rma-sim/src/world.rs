//! The scheduler: many ranks and one fabric on one thread, one small step at a time, by seed.
//!
//! Each turn either makes a delivery or steps a rank. A rank that has nothing to do is left alone until
//! something reaches it. When no rank has anything to do and nothing is on the way while some rank has not
//! finished, the run has stalled: deterministically, without a time limit. A limit on the number of turns
//! catches what runs in circles.

use crate::fabric::{Faults, SimFabric};
use crate::random::Random;

/// What a step of a rank led to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Something moved; step again soon.
    Busy,
    /// The same, and every other rank may go on because of it.
    WakesAll,
    /// Nothing moved; it waits for others.
    Waiting,
    /// The rank's program is over. It is stepped further, because others may need it as a target.
    Finished,
}

/// What a rank's program found to be wrong, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The engine reported an error, or did what an engine must not.
    Engine(String),
    /// The outcome is none that MPI allows.
    Oracle(String),
}

/// What one rank runs: a step function over the non-blocking engine.
pub trait RankProgram {
    /// Does a little, and polls.
    ///
    /// # Errors
    /// What was found to be wrong; the run ends.
    fn step(&mut self) -> Result<Step, Fault>;

    /// How far the program is: a number that grows whenever it gets nearer to its end.
    fn milestones(&self) -> u64;

    /// Where the program is, for the report of a stall.
    fn describe(&self) -> String;
}

/// How a world is scheduled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Schedule {
    /// Turns in a thousand that make a delivery although some rank could be stepped; 0: virtual time moves
    /// only when no rank has anything to do (with [`crate::NetworkModel::UNIT`] it then counts latencies).
    pub deliver_per_mille: u32,
    /// Steps in a thousand after which a rank is paused.
    pub pause_per_mille: u32,
    /// Longest pause, in turns.
    pub pause_turns_max: u64,
    /// Every n-th rank takes only one step in sixteen; 0: none.
    pub slow_every: u32,
    /// Turns with faults; after them the fabric behaves, nobody is paused, and everything must finish.
    pub turns_with_faults: u64,
    /// Turns without faults in which no program gets any further, after which a run counts as stalled.
    pub turns_max: u64,
}

impl Schedule {
    /// Nobody is slow, and time moves only when nobody has anything to do.
    pub const UNIT: Self = Self {
        deliver_per_mille: 0,
        pause_per_mille: 0,
        pause_turns_max: 0,
        slow_every: 0,
        turns_with_faults: 0,
        turns_max: 1_000_000,
    };

    /// Any schedule, for `ranks` ranks.
    pub fn draw(ranks: u32, random: &mut Random) -> Self {
        let ranks = u64::from(ranks);
        Self {
            deliver_per_mille: random.pick(&[0, 50, 300, 700]),
            pause_per_mille: random.pick(&[0, 0, 1, 20]),
            pause_turns_max: ranks * random.pick(&[10, 100]),
            slow_every: random.pick(&[0, 0, 1, 3]),
            turns_with_faults: ranks * random.pick(&[200, 1000, 5000]),
            turns_max: 200_000 + ranks * 50_000,
        }
    }
}

/// Why a run ended badly.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// A rank's program found something wrong.
    Program {
        /// The rank.
        rank: u32,
        /// What it found.
        fault: Fault,
    },
    /// The engine broke the provider contract.
    Contract(String),
    /// Nothing moves any more, or not towards the end.
    Stall(String),
}

/// Ranks, their fabric, and the order in which things happen.
#[derive(Debug)]
pub struct SimWorld<P> {
    fabric: SimFabric,
    ranks: Vec<Slot<P>>,
    schedule: Schedule,
    random: Random,
    /// Ranks that may have something to do.
    hot: Vec<u32>,
    unfinished: usize,
    turn: u64,
    /// When a program got further last, or the fabric executed something for it, and what it had executed.
    milestone_turn: u64,
    executed: u64,
    has_faults: bool,
}

#[derive(Debug)]
struct Slot<P> {
    program: P,
    /// Where in `hot`, if there.
    hot_index: Option<usize>,
    /// Steps in a row that moved nothing.
    idle_steps: u32,
    paused_until: u64,
    is_finished: bool,
}

/// Steps without effect after which a rank is left alone.
const IDLE_STEPS_MAX: u32 = 3;

/// So many times `turns_max` is too long even for programs that get further all the time.
const TURNS_FACTOR: u64 = 100;

/// Once in so many turns some rank is stepped although nothing has reached it.
const CARE_TURNS: u64 = 32;

/// Rounds over all ranks before a silent world counts as stalled.
const LAST_ROUNDS: usize = 100;

impl<P: RankProgram> SimWorld<P> {
    /// A world in which rank `n` runs `programs[n]`.
    pub fn new(fabric: SimFabric, programs: Vec<P>, schedule: Schedule, seed: u64) -> Self {
        let fresh =
            |program| Slot { program, hot_index: None, idle_steps: 0, paused_until: 0, is_finished: false };
        let ranks: Vec<_> = programs.into_iter().map(fresh).collect();
        let mut world = Self {
            fabric,
            unfinished: ranks.len(),
            hot: Vec::with_capacity(ranks.len()),
            ranks,
            schedule,
            random: Random::new(seed),
            turn: 0,
            milestone_turn: 0,
            executed: 0,
            has_faults: true,
        };
        (0..world.ranks.len()).for_each(|rank| world.warm(rank));
        world
    }

    /// The program of a rank.
    pub fn program(&self, rank: u32) -> &P {
        &self.ranks[rank as usize].program
    }

    /// The program of a rank, to be changed between runs.
    pub fn program_mut(&mut self, rank: u32) -> &mut P {
        let rank = rank as usize;
        if self.ranks[rank].is_finished {
            self.ranks[rank].is_finished = false;
            self.unfinished += 1;
        }
        self.warm(rank);
        &mut self.ranks[rank].program
    }

    /// The programs, when the world is no longer needed.
    pub fn into_programs(self) -> Vec<P> {
        self.ranks.into_iter().map(|slot| slot.program).collect()
    }

    /// Turns taken so far.
    pub fn turns(&self) -> u64 {
        self.turn
    }

    /// What stalled may go on: something was changed from outside.
    pub fn resume(&mut self) {
        self.milestone_turn = self.turn;
    }

    /// Runs until every program has finished.
    ///
    /// # Errors
    /// The first thing that went wrong.
    pub fn run(&mut self) -> Result<(), Failure> {
        while self.unfinished > 0 {
            self.turn += 1;
            if self.has_faults && self.turn > self.schedule.turns_with_faults {
                self.end_faults();
            }
            let is_over = self.turn > self.schedule.turns_max.saturating_mul(TURNS_FACTOR);
            if !self.has_faults && (is_over || self.turn > self.milestone_turn + self.schedule.turns_max) {
                return Err(self.stall("no program has got any further for long"));
            }
            self.take_turn()?;
        }
        Ok(())
    }

    /// From here on the fabric behaves and nobody is paused: now everything must finish.
    fn end_faults(&mut self) {
        self.has_faults = false;
        self.milestone_turn = self.turn;
        self.schedule.pause_per_mille = 0;
        self.schedule.slow_every = 0;
        self.ranks.iter_mut().for_each(|slot| slot.paused_until = 0);
        self.fabric.set_faults(Faults::default());
    }

    fn take_turn(&mut self) -> Result<(), Failure> {
        if self.turn % CARE_TURNS == 0 {
            // What a rank waits for need not come over the fabric (an address, say).
            let rank = self.random.index(self.ranks.len());
            self.warm(rank);
        }
        let wants_delivery = self.random.chance(self.schedule.deliver_per_mille);
        if wants_delivery && self.deliver() {
            return Ok(());
        }
        if let Some(rank) = self.choose() {
            return self.step(rank);
        }
        if self.deliver() {
            return Ok(());
        }
        if self.hot.is_empty() {
            return self.last_rounds();
        }
        // Only paused and slow ranks are left: turns pass until one of them wakes.
        Ok(())
    }

    fn deliver(&mut self) -> bool {
        let Some(rank) = self.fabric.advance() else { return false };
        self.warm(rank as usize);
        true
    }

    /// A rank that may have something to do and is neither paused nor, this time, slow.
    fn choose(&mut self) -> Option<usize> {
        if self.hot.is_empty() {
            return None;
        }
        let rank = self.hot[self.random.index(self.hot.len())];
        let slow_every = self.schedule.slow_every;
        let is_slow = slow_every != 0 && rank % slow_every == 0 && !self.random.chance(60);
        let is_paused = self.ranks[rank as usize].paused_until > self.turn;
        (!is_slow && !is_paused).then_some(rank as usize)
    }

    fn step(&mut self, rank: usize) -> Result<(), Failure> {
        let number = rank as u32;
        self.fabric.clear_retry(number);
        let slot = &mut self.ranks[rank];
        let milestones = slot.program.milestones();
        let step = slot.program.step().map_err(|fault| Failure::Program { rank: number, fault })?;
        let executed = self.fabric.executed();
        if slot.program.milestones() != milestones || self.executed != executed {
            self.milestone_turn = self.turn;
            self.executed = executed;
        }
        if self.fabric.is_violated() {
            let broken = self.fabric.violations().iter().map(ToString::to_string).collect::<Vec<_>>();
            return Err(Failure::Contract(broken.join("; ")));
        }
        if step == Step::Finished && !slot.is_finished {
            slot.is_finished = true;
            self.unfinished -= 1;
        }
        if step == Step::WakesAll {
            (0..self.ranks.len()).for_each(|rank| self.warm(rank));
        }
        let is_active = matches!(step, Step::Busy | Step::WakesAll) || self.fabric.is_ready(number);
        let slot = &mut self.ranks[rank];
        slot.idle_steps = if is_active { 0 } else { slot.idle_steps + 1 };
        if slot.idle_steps > IDLE_STEPS_MAX {
            self.cool(rank);
        } else if self.random.chance(self.schedule.pause_per_mille) {
            let turns = self.random.below(self.schedule.pause_turns_max + 1);
            self.ranks[rank].paused_until = self.turn + turns;
        }
        Ok(())
    }

    /// Nothing is on the way and nobody has anything to do: everybody is asked again, to be sure.
    fn last_rounds(&mut self) -> Result<(), Failure> {
        for _ in 0..LAST_ROUNDS {
            for rank in 0..self.ranks.len() {
                self.warm(rank);
                self.step(rank)?;
                let has_moved = self.ranks[rank].idle_steps == 0 || self.unfinished == 0;
                if has_moved || self.fabric.next_event_ns().is_some() {
                    return Ok(());
                }
            }
        }
        Err(self.stall("nothing is on the way and no rank has anything to do"))
    }

    fn warm(&mut self, rank: usize) {
        let slot = &mut self.ranks[rank];
        slot.idle_steps = 0;
        if slot.hot_index.is_none() {
            slot.hot_index = Some(self.hot.len());
            self.hot.push(rank as u32);
        }
    }

    fn cool(&mut self, rank: usize) {
        let Some(index) = self.ranks[rank].hot_index.take() else { return };
        self.hot.swap_remove(index);
        if let Some(&moved) = self.hot.get(index) {
            self.ranks[moved as usize].hot_index = Some(index);
        }
    }

    #[cold]
    fn stall(&self, why: &str) -> Failure {
        let mut report = format!("{why} after {} turns; {} ranks unfinished:", self.turn, self.unfinished);
        let unfinished = self.ranks.iter().enumerate().filter(|(_, slot)| !slot.is_finished);
        for (rank, slot) in unfinished.take(64) {
            report.push_str(&format!("\n  rank {rank}: {}", slot.program.describe()));
        }
        Failure::Stall(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::FabricConfig;

    /// Counts its steps down; the one with a limit waits for ever.
    struct Countdown {
        left: u32,
        waits: bool,
    }

    impl RankProgram for Countdown {
        fn step(&mut self) -> Result<Step, Fault> {
            if self.left == 0 {
                return Ok(if self.waits { Step::Waiting } else { Step::Finished });
            }
            self.left -= 1;
            Ok(Step::Busy)
        }

        fn milestones(&self) -> u64 {
            u64::MAX - u64::from(self.left)
        }

        fn describe(&self) -> String {
            format!("{} steps left", self.left)
        }
    }

    fn world(waits: bool, schedule: Schedule) -> SimWorld<Countdown> {
        let programs = (0..5).map(|rank| Countdown { left: rank * 10, waits: waits && rank == 3 });
        SimWorld::new(SimFabric::new(FabricConfig::unit(5)), programs.collect(), schedule, 1)
    }

    #[test]
    fn a_world_ends_when_all_programs_have() {
        for seed in 0..20 {
            let schedule = Schedule::draw(5, &mut Random::new(seed));
            assert_eq!(world(false, schedule).run(), Ok(()), "seed {seed}");
        }
    }

    #[test]
    fn who_waits_for_ever_is_named() {
        let Err(Failure::Stall(report)) = world(true, Schedule::UNIT).run() else { panic!("must stall") };
        assert!(report.contains("1 ranks unfinished:\n  rank 3: 0 steps left"), "{report}");
    }
}
