//! Programs of fences, and of post and start, whose ranks do the operations on each other themselves, all or some: these
//! tell each other by words how far they are, and the others by packets.

use rma_core::dtype::Dtype;
use rma_core::op::ReduceOp;

use super::scenario::Scenario;

/// Which programs, how many ranks are neighbours of each other (0: all), and what they are called then.
const PROGRAMS: [(&str, u32, &str); 8] = [
    ("two epochs", 0, "two epochs of neighbours"),
    ("two epochs", 2, "two epochs, two of the ranks are neighbours"),
    ("four barriers without operations", 0, "four barriers of neighbours"),
    ("four barriers without operations", 2, "four barriers, two of the ranks are neighbours"),
    ("each to the next", 0, "each to the next, of neighbours"),
    ("each to the next", 2, "each to the next, two of the ranks are neighbours"),
    ("one to all, twice", 0, "one to all, twice, of neighbours"),
    ("all to one", 0, "all to one, of neighbours"),
];

/// Adds them to those of which they are variants.
pub(super) fn neighbours(ranks: u32, pool: u32, all: &mut Vec<Scenario>) {
    for (of, near, name) in PROGRAMS {
        let is_new = pool == 1 && near < ranks;
        let Some(scenario) = all.iter().find(|scenario| scenario.name == of).filter(|_| is_new) else {
            continue;
        };
        all.push(among(scenario, if near == 0 { ranks } else { near }, name));
    }
}

/// The same program where so many ranks are neighbours of each other.
pub(super) fn among(scenario: &Scenario, near_ranks: u32, name: &'static str) -> Scenario {
    scenario.clone().with(|scenario| {
        scenario.name = name;
        scenario.fabric.near_ranks = near_ranks;
        let native = &mut scenario.fabric.native;
        (native.put, native.get) = (true, true);
        native.atomic[Dtype::U64 as usize] = 1 << ReduceOp::Sum as u16;
    })
}
