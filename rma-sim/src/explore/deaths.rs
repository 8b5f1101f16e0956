//! Programs of whose ranks one may die at any moment.

use rma_core::engine::FenceAssert;

use super::act::Act;
use super::neighbours::among;
use super::scenario::{add, each, lock, AfterDeath, Protocol, Scenario, EXCLUSIVE};

/// The last rank may die at any moment.
pub(super) fn deaths(ranks: u32, pool: u32, all: &mut Vec<Scenario>) {
    let last = ranks - 1;
    let mut push = |name, acts| {
        let scenario = Scenario::new(Protocol::Death, name, pool, acts);
        all.push(scenario.with(|scenario| scenario.mortal = Some(last)));
    };
    let of_next = |rank: u32| {
        let target = (rank + 1) % ranks;
        vec![lock(target, EXCLUSIVE), add(target, 0), Act::Flush { target }, Act::Unlock { target }]
    };
    push("locks of the next rank", each(ranks, |rank| if rank == last { Vec::new() } else { of_next(rank) }));
    let to_all = |rank: u32| {
        let mut acts = vec![Act::LockAll { no_check: false }];
        acts.extend((0..ranks).filter(|&other| other != rank).map(|target| add(target, 0)));
        acts.push(Act::UnlockAll);
        acts
    };
    push("lock_all", each(ranks, |rank| if rank == last { Vec::new() } else { to_all(rank) }));
    let open = FenceAssert { no_precede: true, ..FenceAssert::default() };
    let close = FenceAssert { no_succeed: true, ..FenceAssert::default() };
    let fence = |rank: u32| vec![Act::Fence(open), add((rank + 1) % ranks, 0), Act::Fence(close)];
    push("fences", each(ranks, fence));
    deaths_of_holders(ranks, pool, all);
    deaths_in_groups(ranks, pool, all);
}

/// The rank that may die has, wants, or waits for the lock that the others want, of a rank that lives. They get it.
fn deaths_of_holders(ranks: u32, pool: u32, all: &mut Vec<Scenario>) {
    let last = ranks - 1;
    let mut push = |name, is_exclusive: &dyn Fn(u32) -> bool| {
        let acts = |rank| {
            let (target, is_exclusive) = (0, is_exclusive(rank));
            let mut acts = vec![lock(target, is_exclusive), add(target, 0), Act::Flush { target }];
            acts.extend([Act::Enter { target, is_exclusive }, Act::Leave { target }, Act::Unlock { target }]);
            acts
        };
        let scenario = Scenario::new(Protocol::Death, name, pool, each(ranks, acts));
        all.push(
            scenario.with(|scenario| {
                (scenario.mortal, scenario.after_death) = (Some(last), AfterDeath::Succeeds)
            }),
        );
    };
    push("an exclusive lock", &|_| true);
    push("a shared lock", &|rank| rank == 0);
}

/// The rank that may die is a target among others, an origin among others, or both.
fn deaths_in_groups(ranks: u32, pool: u32, all: &mut Vec<Scenario>) {
    let (last, others) = (ranks - 1, (1 << ranks) - 2);
    let mut push = |name, of_neighbours, acts| {
        let scenario = Scenario::new(Protocol::Death, name, pool, acts).with(|scenario| {
            (scenario.mortal, scenario.after_death) = (Some(last), AfterDeath::GoesOn);
            scenario.config.notices = 1;
        });
        if pool == 1 {
            all.push(among(&scenario, ranks, of_neighbours));
        }
        all.push(scenario);
    };
    let one_to_all = |rank: u32| {
        if rank > 0 {
            return vec![Act::Post(1), Act::Wait];
        }
        let puts = (1..ranks).map(|target| add(target, 0));
        [Act::Start(others)].into_iter().chain(puts).chain([Act::Complete]).collect()
    };
    push("post and start, one to all", "neighbours, one to all", each(ranks, one_to_all));
    let all_to_one = |rank: u32| {
        if rank > 0 {
            return vec![Act::Start(1), add(0, 0), Act::Complete];
        }
        vec![Act::Post(others), Act::Wait]
    };
    push("post and start, all to one", "neighbours, all to one", each(ranks, all_to_one));
    let around = |rank: u32| {
        let (next, before) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
        vec![Act::Post(1 << before), Act::Start(1 << next), add(next, 0), Act::Complete, Act::Wait]
    };
    push("post and start, each to the next", "neighbours, each to the next", each(ranks, around));
}
