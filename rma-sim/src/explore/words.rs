//! Programs whose locks are words of the target's memory, changed by the fabric's atomics.

use rma_core::dtype::Dtype;
use rma_core::info::LockProtocol;
use rma_core::op::ReduceOp;
use rma_core::provider::NativeOps;

use super::act::Act;
use super::scenario::{add, each, increment, lock, AfterDeath, Protocol, Scenario, EXCLUSIVE, SHARED};

fn new(name: &'static str, pool: u32, acts: Vec<Vec<Act>>) -> Scenario {
    Scenario::new(Protocol::Words, name, pool, acts).with(by_words)
}

/// The fabric has the two atomics that the locks need, and no other.
fn by_words(scenario: &mut Scenario) {
    let mut native = NativeOps::default();
    native.fetch_atomic[Dtype::U64 as usize] = 1 << ReduceOp::Sum as u16;
    native.compare_atomic = 1 << Dtype::U64 as u32;
    scenario.fabric.native = native;
    scenario.config.lock_protocol = LockProtocol::Nic;
}

/// Locks a rank, and shows that the lock is held.
fn hold(target: u32, is_exclusive: bool) -> Vec<Act> {
    let mut acts = vec![lock(target, is_exclusive), add(target, 0), Act::Flush { target }];
    acts.extend([Act::Enter { target, is_exclusive }, Act::Leave { target }, Act::Unlock { target }]);
    acts
}

pub(super) fn words(ranks: u32, pool: u32, all: &mut Vec<Scenario>) {
    let total = u64::from(ranks);
    if ranks == 3 {
        of_two_targets(pool, all);
    }
    if pool > 1 {
        // With one target another element changes nothing.
        return;
    }
    if ranks == 2 {
        all.push(new("exclusive", pool, each(ranks, |_| hold(0, EXCLUSIVE))).ending(0, 0, total));
        all.push(new("increment by words", pool, each(ranks, |_| increment(0))).ending(0, 0, total));
        let twice = |rank| if rank == 0 { vec![] } else { [hold(0, EXCLUSIVE), hold(0, SHARED)].concat() };
        all.push(new("one after the other", pool, each(ranks, twice)).ending(0, 0, 2));
        let crossed = |rank: u32| one(1 - rank);
        all.push(new("each locks the other", pool, each(ranks, crossed)).ending(0, 0, 1).ending(1, 0, 1));
    }
    let mixed = |rank| hold(0, rank == ranks - 1);
    all.push(new("shared and exclusive", pool, each(ranks, mixed)).ending(0, 0, total));
    let (target, is_exclusive) = (0, false);
    let mut to_first = vec![Act::LockAll { no_check: false }, add(0, 0), Act::Flush { target }];
    to_first.extend([Act::Enter { target, is_exclusive }, Act::Leave { target }, Act::UnlockAll]);
    let alone = |rank: u32| if rank == 0 { hold(0, EXCLUSIVE) } else { one(0) };
    let against = |rank: u32| if rank == 1 { to_first.clone() } else { alone(rank) };
    all.push(new("lock_all against exclusive locks", pool, each(ranks, against)).ending(0, 0, total));
    deaths(ranks, pool, all);
    proxies(ranks, all);
    in_one_go(ranks, all);
    repeated(ranks, all);
}

/// What a rank with the choice takes: packets for what fits one, and words for what does not. All reach the words.
fn by_choice(scenario: &mut Scenario) {
    by_words(scenario);
    (scenario.fabric.native.put, scenario.fabric.native.get) = (true, true);
    scenario.config.lock_protocol = LockProtocol::Auto;
}

/// Ranks 0 and 1 are neighbours, who change each other's words, and ask others by packets.
fn by_neighbours(scenario: &mut Scenario) {
    scenario.fabric.native = NativeOps::default();
    (scenario.fabric.near_ranks, scenario.fabric.near_locks) = (2, true);
    scenario.config.lock_protocol = LockProtocol::Auto;
}

/// All are neighbours, and do puts on each other themselves.
fn among_neighbours(scenario: &mut Scenario) {
    by_neighbours(scenario);
    let native = &mut scenario.fabric.native;
    (native.put, native.get) = (true, true);
    scenario.fabric.near_ranks = scenario.fabric.ranks;
}

/// A put to rank 0 in a lock epoch, and a look that the lock is held.
fn put(is_exclusive: bool) -> Vec<Act> {
    let (target, word, number) = (0, 1, 7);
    let mut acts = vec![lock(target, is_exclusive), Act::Put { target, word, number }, Act::Flush { target }];
    acts.extend([Act::Enter { target, is_exclusive }, Act::Leave { target }, Act::Unlock { target }]);
    acts
}

/// Locks of neighbours, of which the second is taken in one go where nobody is in the way, and given back so.
fn in_one_go(ranks: u32, all: &mut Vec<Scenario>) {
    let twice = |is_exclusive| [put(is_exclusive), put(is_exclusive)].concat();
    let mut everywhere = vec![Act::LockAll { no_check: false }, Act::Put { target: 0, word: 1, number: 7 }];
    let (target, is_exclusive) = (0, SHARED);
    everywhere.extend([
        Act::Flush { target },
        Act::Enter { target, is_exclusive },
        Act::Leave { target },
        Act::UnlockAll,
    ]);
    let mut programs = vec![
        ("in one go, alone, against the owner", hold(0, EXCLUSIVE), vec![]),
        ("in one go, alone, against another", vec![], put(EXCLUSIVE)),
        ("in one go, alone, against a share", vec![], put(SHARED)),
        ("in one go, alone, against lock_all", vec![], [everywhere.clone(), everywhere].concat()),
    ];
    if ranks == 2 {
        programs.truncate(1);
    }
    for (name, first, last) in programs {
        let acts = |kind| {
            move |rank| match rank {
                0 => first.clone(),
                1 => twice(kind),
                _ => last.clone(),
            }
        };
        all.push(new(name, 1, each(ranks, acts(EXCLUSIVE))).ending(0, 1, 7).with(among_neighbours));
    }
    if ranks > 2 {
        // The last of them has a ticket that can be drawn so, also behind the one alone.
        let acts = |rank| match rank {
            0 => vec![],
            1 => [twice(SHARED), twice(SHARED)].concat(),
            _ => put(EXCLUSIVE),
        };
        let shared = new("in one go, a share, against one alone", 1, each(ranks, acts));
        all.push(shared.ending(0, 1, 7).with(among_neighbours));
    }
}

/// Epochs of rank 1 with its neighbour rank 0. From the third time on such an epoch is remembered apart from its window, as far as
/// nothing comes between.
fn repeated(ranks: u32, all: &mut Vec<Scenario>) {
    let (target, word, number) = (0, 1, 7);
    let act = Act::Put { target, word, number };
    let of = |kind| [lock(target, kind), act, Act::Unlock { target }];
    let everywhere = [Act::LockAll { no_check: false }, act, Act::UnlockAll];
    for (name, epoch) in [
        ("repeated, alone, against one alone", of(EXCLUSIVE)),
        ("repeated, a share, against one alone", of(SHARED)),
        ("repeated, lock_all, against one alone", everywhere),
    ] {
        let acts = |rank| match (rank, ranks) {
            (1, _) => epoch.repeat(4),
            (2, _) => put(EXCLUSIVE),
            (_, 2) => hold(0, EXCLUSIVE),
            _ => vec![],
        };
        all.push(new(name, 1, each(ranks, acts)).ending(0, 1, 7).with(among_neighbours));
    }
    if ranks == 2 {
        // Who wants to be alone at the one that has locked all, whose last epoch is written down while it is open.
        let other =
            [Act::LockAll { no_check: false }, act, Act::Put { target: 1, word, number }, Act::UnlockAll];
        let acts =
            |rank| if rank == 1 { [&everywhere.repeat(3)[..], &other].concat() } else { hold(1, EXCLUSIVE) };
        let own = new("repeated, lock_all, against one alone there", 1, each(ranks, acts));
        all.push(own.ending(0, 1, 7).ending(1, 0, 1).ending(1, 1, 7).with(among_neighbours));
        // Shares come and go beside each other, at both.
        let acts = |rank: u32| {
            let put = Act::Put { target: 1 - rank, word, number };
            [Act::LockAll { no_check: false }, put, Act::UnlockAll].repeat(4)
        };
        let both = new("repeated, lock_all, by both", 1, each(ranks, acts));
        all.push(both.ending(0, 1, 7).ending(1, 1, 7).with(among_neighbours));
    }
}

/// Two neighbours, and two who ask by packets, of which one waits at a time and one is to ask again.
pub(super) fn two_askers() -> Scenario {
    let acts = each(4, |rank| if rank == 0 { Vec::new() } else { hold(0, rank != 3) });
    new("a neighbour against two who ask", 1, acts).ending(0, 0, 3).with(by_neighbours)
}

/// Some ask the window's owner by packets, and some take its words.
fn proxies(ranks: u32, all: &mut Vec<Scenario>) {
    let total = u64::from(ranks);
    if ranks == 2 {
        let mixed = |rank| if rank == 0 { hold(0, EXCLUSIVE) } else { one(0) };
        let chosen = new("own words against a packet", 1, each(ranks, mixed)).ending(0, 0, total);
        all.push(chosen.with(by_choice));
        return;
    }
    let share = |rank| {
        if rank == 0 {
            hold(0, EXCLUSIVE)
        } else {
            vec![lock(0, false), add(0, 0), Act::Unlock { target: 0 }]
        }
    };
    for (name, acts) in [
        (
            "long epochs against a packet",
            each(ranks, |rank| if rank == 1 { one(0) } else { hold(0, EXCLUSIVE) }),
        ),
        (
            "own words against two packets",
            each(ranks, |rank| if rank == 0 { hold(0, EXCLUSIVE) } else { one(0) }),
        ),
        ("own words against two that share by packets", each(ranks, share)),
    ] {
        all.push(new(name, 1, acts).ending(0, 0, total).with(by_choice));
    }
    let all_of_them = each(ranks, |_| hold(0, EXCLUSIVE));
    all.push(
        new("neighbours, oneself, and a packet", 1, all_of_them).ending(0, 0, total).with(by_neighbours),
    );
    for (name, far) in
        [("neighbours against a packet", one(0)), ("neighbours against a long epoch", hold(0, EXCLUSIVE))]
    {
        let acts = vec![Vec::new(), hold(0, EXCLUSIVE), far];
        all.push(new(name, 1, acts).ending(0, 0, 2).with(by_neighbours));
    }
    let acts = vec![Vec::new(), hold(0, SHARED), hold(0, SHARED)];
    all.push(new("neighbours share with a packet", 1, acts).ending(0, 0, 2).with(by_neighbours));
    let (target, is_exclusive) = (0, false);
    let mut everywhere = vec![Act::LockAll { no_check: false }, add(0, 0), Act::Flush { target }];
    everywhere.extend([Act::Enter { target, is_exclusive }, Act::Leave { target }, Act::UnlockAll]);
    let acts = vec![Vec::new(), hold(0, EXCLUSIVE), everywhere];
    all.push(new("neighbours against lock_all by packets", 1, acts).ending(0, 0, 2).with(by_neighbours));
    for (name, mortal) in [("a packet's lock of the dead", 2), ("a neighbour's lock of the dead", 1)] {
        let acts = vec![Vec::new(), hold(0, EXCLUSIVE), hold(0, EXCLUSIVE)];
        all.push(new(name, 1, acts).with(by_neighbours).with(|scenario| {
            (scenario.mortal, scenario.after_death) = (Some(mortal), AfterDeath::GivesUp);
        }));
    }
}

fn one(target: u32) -> Vec<Act> {
    vec![lock(target, EXCLUSIVE), add(target, 0), Act::Unlock { target }]
}

fn of_two_targets(pool: u32, all: &mut Vec<Scenario>) {
    // With one element the walk locks those that have none.
    let everywhere = vec![Act::LockAll { no_check: false }, add(1, 0), add(2, 0), Act::UnlockAll];
    let acts = vec![everywhere, Vec::new(), one(1)];
    all.push(new("lock_all of two targets", pool, acts).ending(1, 0, 2).ending(2, 0, 1));
    // With one element a lock that is held has none.
    let mut two = vec![lock(1, EXCLUSIVE), lock(2, SHARED), add(1, 0), add(2, 0)];
    two.extend([Act::Unlock { target: 1 }, Act::Unlock { target: 2 }]);
    all.push(new("two locks at once", pool, vec![two, Vec::new(), one(1)]).ending(1, 0, 2).ending(2, 0, 1));
}

/// The rank that may die has or wants the lock that the others want: they get it, or learn that it is lost.
fn deaths(ranks: u32, pool: u32, all: &mut Vec<Scenario>) {
    for (name, is_exclusive) in
        [("an exclusive lock of the dead", true), ("a shared lock of the dead", false)]
    {
        let acts = |rank| if rank == 0 { Vec::new() } else { hold(0, is_exclusive || rank < ranks - 1) };
        let scenario = new(name, pool, each(ranks, acts));
        all.push(scenario.with(|scenario| {
            (scenario.mortal, scenario.after_death) = (Some(ranks - 1), AfterDeath::GivesUp);
        }));
    }
}
