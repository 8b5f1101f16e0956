//! Random plans, every one of them a correct MPI program.

mod direct;
mod fence;
mod operation;
mod passive;
mod pscw;
mod put_data;
mod region;
mod request;
mod span;
mod thread;
mod window;
mod word;

use rma_core::config::Config;
use rma_core::info::MemoryModel;

pub(super) use span::numbers;

use self::region::Attached;
use self::window::Wanted;
use super::plan::{Action, Members, Phase, Plan, WindowPlan};
use crate::fabric::FabricConfig;
use crate::random::Random;
use crate::world::Schedule;

/// Limits on what is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Fewest ranks.
    pub ranks_min: u32,
    /// Most ranks.
    pub ranks_max: u32,
    /// There may be dynamic windows: who runs the plan knows where each rank's memory is.
    pub has_dynamic: bool,
    /// There may be shared windows: the ranks are on one host.
    pub has_shared: bool,
}

impl Bounds {
    /// Everything, with so many ranks.
    #[must_use]
    pub const fn of(ranks_min: u32, ranks_max: u32) -> Self {
        Self { ranks_min, ranks_max, has_dynamic: true, has_shared: true }
    }
}

impl Default for Bounds {
    fn default() -> Self {
        Self::of(2, 256)
    }
}

/// Up to here numbers of ranks are usual; beyond, a few in a thousand plans have any number, because they take long.
const USUAL_RANKS_MAX: u32 = 64;
const MANY_RANKS: u32 = 15;

/// The plan that a seed names. Few ranks are drawn more often than many.
pub fn plan(seed: u64, bounds: Bounds) -> Plan {
    let mut random = Random::new(seed);
    let usual = random.pick(&[2, 2, 3, 4, 4, 5, 7, 8, 12, 16, 24, 33, 64]);
    let many = bounds.ranks_min.max(USUAL_RANKS_MAX + 1);
    let ranks = if bounds.ranks_max >= many && (bounds.ranks_min >= many || random.chance(MANY_RANKS)) {
        random.between(many.into(), bounds.ranks_max.into()) as u32
    } else {
        usual.clamp(bounds.ranks_min, bounds.ranks_max)
    };
    let mut fabric = FabricConfig::draw(ranks, &mut random);
    // From a source of its own: plans without dynamic windows are what they were before there were any.
    let mut regions = Random::new(seed ^ region::SOURCE);
    let mut config = region::config(config(&mut random), &mut regions);
    // Plans that are locked by messages are what they were.
    let mut words = Random::new(seed ^ word::SOURCE);
    word::settle(&mut config, &mut fabric, &mut words);
    if seed % put_data::EVERY == put_data::EVERY - 1 {
        put_data::settle(&mut config, &mut fabric, seed);
    }
    let schedule = Schedule::draw(ranks, &mut random);
    let has_dynamic = regions.chance(250) && bounds.has_dynamic;
    // Plans without shared windows too are what they were.
    let has_shared = Random::new(seed ^ direct::SOURCE).chance(250) && bounds.has_shared;
    let mut windows = window::windows(ranks, Wanted { has_dynamic, has_shared }, &mut random);
    word::hint(&mut windows, &mut words);
    let operations = random.pick(&[8, 40, 200, 600]) / u64::from(ranks) + 2;
    let count = random.between(1, 4);
    let attached = Attached::new(&windows);
    // Plans without threads are what they were before there were any.
    let has_threads = Random::new(seed ^ thread::SOURCE).chance(400);
    let moves = Vec::new();
    let has_near = word::has_near(&config, &fabric);
    // Nor are those other plans in which no threads lock exclusively.
    let sections = Some(Random::new(seed ^ thread::SECTIONS_SOURCE)).filter(|_| has_threads);
    let sections = sections.and_then(|mut random| random.chance(400).then_some(random));
    let mut draw = Draw {
        random,
        ranks,
        windows: &windows,
        operations,
        has_threads,
        has_near,
        sections,
        flushes_apart: false,
        attached,
        moves,
    };
    let mut phases = Vec::new();
    for _ in 0..count {
        phases.extend(draw.region_phase());
        phases.push(draw.phase());
    }
    Plan { seed, fabric, config, schedule, windows, phases }
}

fn config(random: &mut Random) -> Config {
    let drawn = Config {
        single_op_lock: random.chance(500),
        piggyback: random.chance(500),
        piggyback_threshold: random.pick(&[1, 2, 8, 64]) as u32,
        coalesce: random.chance(500),
        get_to_tail: random.chance(500),
        lazy_targets: random.chance(500),
        force_message_path: random.chance(250),
        small_bytes_max: random.pick(&[0, 8, 64, 2048]),
        native_block_bytes_min: random.pick(&[0, 8, 64, 512]),
        slots: random.pick(&[1, 2, 7, 64]),
        operation_pool: random.pick(&[1, 2, 5, 128]),
        operation_pool_global: random.pick(&[0, 1, 64]),
        target_pool: random.pick(&[1, 2, 5, 64]),
        target_pool_global: random.pick(&[0, 1, 64]),
        lock_waiters: random.pick(&[1, 2, 64]),
        notices: random.pick(&[0, 1, 32]),
        group_members: random.pick(&[0, 1024]),
        deferred_bytes: random.pick(&[0, 64, 8192]),
        peers: random.pick(&[2, 3, 16, 1024]),
        reply_buffers: random.pick(&[1, 2, 16]),
        check: random.chance(100),
        memory_model: random.pick(&[MemoryModel::Unified, MemoryModel::Separate]),
        // What is of dynamic windows is drawn for itself.
        ..Config::default()
    };
    // A good part of the runs as users have it.
    if random.chance(150) {
        return Config { force_message_path: drawn.force_message_path, ..Config::default() };
    }
    drawn.normalized()
}

/// What drawing the phases needs.
struct Draw<'a> {
    random: Random,
    ranks: u32,
    windows: &'a [WindowPlan],
    /// About so many operations per rank and phase.
    operations: u64,
    /// Ranks fork.
    has_threads: bool,
    /// Ranks lock their neighbours' windows by words, for which a lock is another the second time.
    has_near: bool,
    /// Threads lock exclusively, by this.
    sections: Option<Random>,
    /// What is flushed is of the rank that is locked.
    flushes_apart: bool,
    attached: Attached,
    /// What ranks do with regions in the phase being drawn, and where in their scripts does not matter.
    moves: Vec<(u32, Vec<Action>)>,
}

impl Draw<'_> {
    /// How often an epoch comes, one behind the other.
    fn epochs(&mut self) -> u64 {
        if self.has_near {
            self.random.between(1, 4)
        } else {
            1
        }
    }

    fn phase(&mut self) -> Phase {
        let may_lock = !self.lockable().is_empty();
        let may_start = self.ranks <= Members::RANKS_MAX;
        let draws = self.random.below(100);
        let mut phase = if draws < 30 || (!may_lock && !may_start) {
            self.fence_phase()
        } else if may_start && (draws < 58 || !may_lock) {
            self.pscw_phase()
        } else {
            self.passive_phase()
        };
        self.move_regions(&mut phase.scripts);
        phase
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::swarm::plan::Span;

    #[test]
    fn a_seed_names_one_plan() {
        assert_eq!(plan(5, Bounds::default()), plan(5, Bounds::default()));
        assert_ne!(plan(5, Bounds::default()), plan(6, Bounds::default()));
    }

    #[test]
    fn spans_stay_in_their_windows_and_apart() {
        for seed in 0..300 {
            let plan = plan(seed, Bounds::default());
            for phase in &plan.phases {
                for (index, span) in phase.spans.iter().enumerate() {
                    let bytes = plan.windows[span.window].bytes[span.rank as usize];
                    assert!(span.len > 0 && span.offset + span.len <= bytes, "seed {seed}: {span:?}");
                    assert!(!phase.spans[..index].iter().any(|other| overlap(span, other)), "seed {seed}");
                }
            }
        }
    }

    fn overlap(one: &Span, other: &Span) -> bool {
        let is_near = one.window == other.window && one.rank == other.rank;
        is_near && one.offset < other.offset + other.len && other.offset < one.offset + one.len
    }
}
