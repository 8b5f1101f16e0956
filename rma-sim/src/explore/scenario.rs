//! The programs that are explored.

use std::sync::Arc;

use rma_core::config::Config;
use rma_core::engine::FenceAssert;
use rma_core::provider::{CompletionScope, NativeOps, Order};

use super::act::Act;
use super::deaths::deaths;
use super::{neighbours, words};
use crate::fabric::FabricConfig;

/// What a scenario is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// lock and unlock of one rank: queue, retry, operations that ride with the request.
    Lock,
    /// lock_all: per target, and the window protocol when elements run out.
    LockAll,
    /// fence and its barrier.
    Fence,
    /// post, start, complete and wait.
    Pscw,
    /// Elements won back.
    Restore,
    /// Locks that are words of the target's memory.
    Words,
    /// A rank dies, at any moment: the others get errors, and do not wait for ever.
    Death,
}

impl Protocol {
    /// Every protocol.
    pub const ALL: [Self; 7] =
        [Self::Lock, Self::LockAll, Self::Fence, Self::Pscw, Self::Restore, Self::Words, Self::Death];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::LockAll => "lock_all",
            Self::Fence => "fence",
            Self::Pscw => "pscw",
            Self::Restore => "restore",
            Self::Words => "words",
            Self::Death => "death",
        }
    }
}

/// What becomes of the programs of the living.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AfterDeath {
    /// Calls may fail, and the first that does is the last of its program.
    GivesUp,
    /// Calls may fail, and the next one follows.
    GoesOn,
    /// No call fails: what they do concerns the living.
    Succeeds,
}

/// One program to be explored, complete.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What it is about.
    pub protocol: Protocol,
    /// Its name.
    pub name: &'static str,
    /// Elements in each pool.
    pub pool: u32,
    /// The fabric.
    pub fabric: FabricConfig,
    /// The engines' settings.
    pub config: Config,
    /// Most things that reach a rank between two looks.
    pub arrivals_max: usize,
    /// Who may die.
    pub mortal: Option<u32>,
    /// What a call may do after a death.
    pub after_death: AfterDeath,
    /// Words of each rank's window.
    pub words: usize,
    /// What each rank does.
    pub acts: Vec<Arc<[Act]>>,
    /// What must hold in the end: rank, word, number.
    pub end: Vec<(u32, u64, u64)>,
}

impl Scenario {
    /// Ranks.
    pub fn ranks(&self) -> u32 {
        self.acts.len() as u32
    }

    pub(super) fn new(protocol: Protocol, name: &'static str, pool: u32, acts: Vec<Vec<Act>>) -> Self {
        let ranks = acts.len() as u32;
        let mut fabric = FabricConfig::messages_only(ranks);
        fabric.limits.send_bytes_max = 160;
        fabric.limits.receive_buffers = 2;
        fabric.limits.outstanding_max = 2;
        (fabric.send_depth, fabric.reply_reserve, fabric.trace_len) = (8, 4, 0);
        fabric.model.latency_ns = 0;
        let config = Config {
            slots: 2,
            operation_pool: pool,
            operation_pool_global: 0,
            target_pool: pool,
            target_pool_global: 0,
            lock_waiters: 1,
            deferred_bytes: 64,
            peers: 8,
            reply_buffers: pool as usize,
            ..Config::default()
        };
        let acts = acts.into_iter().map(Arc::from).collect();
        Self {
            protocol,
            name,
            pool,
            fabric,
            config,
            arrivals_max: 1,
            mortal: None,
            after_death: AfterDeath::GivesUp,
            words: 4,
            acts,
            end: Vec::new(),
        }
    }

    pub(super) fn ending(mut self, rank: u32, word: u64, number: u64) -> Self {
        self.end.push((rank, word, number));
        self
    }

    pub(super) fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Puts with data, narrow and wide.
    fn with_data(self) -> Self {
        self.with(|scenario| {
            scenario.config.put_data = Some(true);
            scenario.fabric.data_bytes = if scenario.pool == 1 { 4 } else { 8 };
        })
    }

    /// Puts and gets by the fabric.
    fn native(self, completes: CompletionScope, order: Order) -> Self {
        self.with(|scenario| {
            scenario.fabric.native = NativeOps { put: true, get: true, ..NativeOps::default() };
            scenario.fabric.limits.put_completes = completes;
            scenario.fabric.limits.order = order;
        })
    }
}

pub(super) const EXCLUSIVE: bool = true;
pub(super) const SHARED: bool = false;

pub(super) fn lock(target: u32, is_exclusive: bool) -> Act {
    Act::Lock { target, is_exclusive, no_check: false }
}

pub(super) fn add(target: u32, word: u64) -> Act {
    Act::Add { target, word, number: 1 }
}

/// lock, get, flush, put one more, unlock: an increment that only the lock makes atomic.
pub(super) fn increment(target: u32) -> Vec<Act> {
    vec![
        lock(target, EXCLUSIVE),
        Act::Get { target, word: 0 },
        Act::Flush { target },
        Act::Enter { target, is_exclusive: true },
        Act::PutNext { target, word: 0 },
        Act::Leave { target },
        Act::Unlock { target },
    ]
}

/// Every scenario for so many ranks, two to four, and pools of this size.
pub fn scenarios(ranks: u32, pool: u32) -> Vec<Scenario> {
    if ranks == 4 {
        let mut all = vec![two_pairs(pool), out_of_order(pool)];
        // With fewer elements three ranks show as much.
        if pool == 2 {
            all.push(out_of_elements(pool));
        } else {
            all.extend([words::two_askers(), fence_out_of_elements(pool)]);
        }
        return all;
    }
    let mut all = Vec::new();
    locks(ranks, pool, &mut all);
    lock_alls(ranks, pool, &mut all);
    fences(ranks, pool, &mut all);
    exposures(ranks, pool, &mut all);
    neighbours::neighbours(ranks, pool, &mut all);
    if ranks > 2 {
        restores(pool, &mut all);
    }
    restores_with_oneself(ranks, pool, &mut all);
    words::words(ranks, pool, &mut all);
    deaths(ranks, pool, &mut all);
    all
}

pub(super) fn each(ranks: u32, acts: impl Fn(u32) -> Vec<Act>) -> Vec<Vec<Act>> {
    (0..ranks).map(acts).collect()
}

fn locks(ranks: u32, pool: u32, all: &mut Vec<Scenario>) {
    let new = |name, acts| Scenario::new(Protocol::Lock, name, pool, acts);
    let total = u64::from(ranks);
    all.push(new("increment", each(ranks, |_| increment(0))).ending(0, 0, total));
    let one_packet = |_| vec![lock(0, EXCLUSIVE), add(0, 0), Act::Unlock { target: 0 }];
    all.push(new("one packet", each(ranks, one_packet)).ending(0, 0, total));
    let last = ranks - 1;
    let mixed = |rank| {
        let is_exclusive = rank == last;
        let mut acts = vec![lock(0, is_exclusive), add(0, 0), Act::Flush { target: 0 }];
        acts.push(Act::Enter { target: 0, is_exclusive });
        acts.extend([add(0, 1), Act::Leave { target: 0 }, Act::Unlock { target: 0 }]);
        acts
    };
    all.push(new("shared and exclusive", each(ranks, mixed)).ending(0, 0, total).ending(0, 1, total));
    let nothing_kept = new("nothing kept with the request", each(ranks, one_packet));
    all.push(nothing_kept.with(|scenario| scenario.config.deferred_bytes = 0).ending(0, 0, total));
    let ordered = |rank: u32| {
        let word = u64::from(rank);
        let replace = |number| Act::Replace { target: 0, word, number };
        vec![lock(0, EXCLUSIVE), replace(1), replace(2), Act::Unlock { target: 0 }]
    };
    let in_order = new("operations in order, nothing kept", each(ranks, ordered));
    let in_order = in_order.with(|scenario| scenario.config.deferred_bytes = 0);
    all.push(in_order.ending(0, 0, 2).ending(0, u64::from(last), 2));
    let fetch = |_| {
        let (target, word) = (0, 0);
        vec![lock(0, SHARED), Act::FetchAdd { target, word, number: 1 }, add(0, 1), Act::Unlock { target }]
    };
    all.push(new("operations with results", each(ranks, fetch)).ending(0, 0, total).ending(0, 1, total));
    let crossed = |rank: u32| {
        let target = (rank + 1) % ranks;
        vec![lock(target, EXCLUSIVE), add(target, 0), Act::Unlock { target }]
    };
    all.push(new("everybody locks the next", each(ranks, crossed)).ending(0, 0, 1).ending(last, 0, 1));
    locks_otherwise(ranks, pool, all);
    locks_with_data(ranks, pool, all);
}

/// The increment with one more put, which the fabric has no room for at once: it is the last thing that is left when
/// unlock is called, and its data end the epoch.
fn locks_with_data(ranks: u32, pool: u32, all: &mut Vec<Scenario>) {
    let one_more = |_| {
        let mut acts = increment(0);
        let put = acts.iter().position(|act| matches!(act, Act::PutNext { .. })).unwrap_or(0);
        acts.insert(put + 1, Act::Put { target: 0, word: 1, number: 1 });
        acts
    };
    let orders = [
        ("put with data, remote completion", CompletionScope::Remote, false),
        ("put with data, local completion", CompletionScope::Local, false),
        ("put with data, puts before packets", CompletionScope::Local, true),
    ];
    for (name, completes, put_before_send) in orders {
        let scenario = Scenario::new(Protocol::Lock, name, pool, each(ranks, one_more));
        let scenario = scenario.native(completes, Order { put_before_send, put_before_get: false });
        let scenario = scenario.with_data().with(|scenario| scenario.fabric.limits.outstanding_max = 1);
        all.push(scenario.ending(0, 0, u64::from(ranks)).ending(0, 1, 1));
    }
}

/// The increment under other conditions: natively, with optimizations off, with little room.
fn locks_otherwise(ranks: u32, pool: u32, all: &mut Vec<Scenario>) {
    let new = |name, acts| Scenario::new(Protocol::Lock, name, pool, acts);
    let total = u64::from(ranks);
    let orders = [
        ("native, remote completion", CompletionScope::Remote, Order::default()),
        ("native, local completion", CompletionScope::Local, Order::default()),
        (
            "native, puts before packets",
            CompletionScope::Local,
            Order { put_before_send: true, put_before_get: false },
        ),
    ];
    for (name, completes, order) in orders {
        let scenario = new(name, each(ranks, |_| increment(0))).native(completes, order);
        all.push(scenario.ending(0, 0, total));
    }
    let plain = each(ranks, |_| increment(0));
    let all_off = |scenario: &mut Scenario| {
        let Config { slots, operation_pool, target_pool, .. } = scenario.config;
        let Config { lock_waiters, deferred_bytes, peers, reply_buffers, .. } = scenario.config;
        scenario.config = Config {
            slots,
            operation_pool,
            operation_pool_global: 0,
            target_pool,
            target_pool_global: 0,
            lock_waiters,
            deferred_bytes,
            peers,
            reply_buffers,
            ..Config::all_off()
        };
    };
    all.push(new("increment, every optimization off", plain).with(all_off).ending(0, 0, total));
    let narrow = new("increment, one packet on the way", each(ranks, |_| increment(0)));
    let narrow = narrow.with(|scenario| {
        (scenario.fabric.send_depth, scenario.fabric.reply_reserve) = (2, 1);
        scenario.fabric.limits.receive_buffers = 1;
    });
    all.push(narrow.ending(0, 0, total));
    let pairs = new("increment, two arrivals at a time", each(ranks, |_| increment(0)));
    all.push(pairs.with(|scenario| scenario.arrivals_max = 2).ending(0, 0, total));
}

fn lock_alls(ranks: u32, pool: u32, all: &mut Vec<Scenario>) {
    let new = |name, acts| Scenario::new(Protocol::LockAll, name, pool, acts);
    let others = move |rank: u32| (0..ranks).filter(move |&other| other != rank);
    let everybody = |rank| {
        let mut acts = vec![Act::LockAll { no_check: false }];
        acts.extend(others(rank).map(|target| add(target, 0)));
        acts.push(Act::UnlockAll);
        acts
    };
    let one_each = u64::from(ranks - 1);
    all.push(new("everybody to everybody", each(ranks, everybody)).ending(0, 0, one_each));
    let with_flush = |rank: u32| {
        if rank > 0 {
            return vec![lock(0, EXCLUSIVE), add(0, 0), Act::Unlock { target: 0 }];
        }
        let mut acts = vec![Act::LockAll { no_check: false }];
        acts.extend(others(rank).map(|target| add(target, 0)));
        acts.extend([Act::FlushAll, add(1, 0), Act::UnlockAll]);
        acts
    };
    all.push(
        new("one, against exclusive locks", each(ranks, with_flush)).ending(0, 0, one_each).ending(1, 0, 2),
    );
    let no_check = |rank| {
        let mut acts = vec![Act::LockAll { no_check: true }];
        acts.extend(others(rank).map(|target| add(target, 0)));
        acts.extend([Act::FlushAll, Act::UnlockAll]);
        acts
    };
    all.push(new("without locks", each(ranks, no_check)).ending(0, 0, one_each));
}

/// Each of two under lock_all holds its own window and wants the other's, and for each of those somebody
/// waits exclusively: they would wait for each other through those who wait.
fn two_pairs(pool: u32) -> Scenario {
    let all = |target| vec![Act::LockAll { no_check: false }, add(target, 0), Act::UnlockAll];
    let alone = |target| vec![lock(target, EXCLUSIVE), add(target, 1), Act::Unlock { target }];
    let acts = vec![all(1), all(0), alone(0), alone(1)];
    let scenario = Scenario::new(Protocol::LockAll, "two, past two who wait", pool, acts);
    let roomy = scenario.with(|scenario| scenario.config.lock_waiters = 2);
    roomy.ending(0, 0, 1).ending(1, 0, 1).ending(0, 1, 1).ending(1, 1, 1)
}

/// Operations that wait with their requests at rank 0, and leave in another order than they came: one under
/// lock_all passes one that wants to be alone.
fn out_of_order(pool: u32) -> Scenario {
    let alone = |word| [lock(0, EXCLUSIVE), add(0, word), Act::Unlock { target: 0 }];
    let shared = [lock(0, SHARED), add(0, 0), Act::Unlock { target: 0 }];
    let own = vec![lock(0, EXCLUSIVE), Act::Unlock { target: 0 }];
    let all = vec![Act::LockAll { no_check: false }, add(0, 3), Act::UnlockAll];
    let acts = vec![own, [shared, alone(1)].concat(), alone(2).to_vec(), all];
    let scenario = Scenario::new(Protocol::LockAll, "requests leave in another order", pool, acts);
    let roomy = scenario.with(|scenario| scenario.config.lock_waiters = 3);
    (0..4).fold(roomy, |scenario, word| scenario.ending(0, word, 1))
}

/// Two with one more target than elements: lock_all asks all ranks for their locks, of which a third one wants one alone.
fn out_of_elements(pool: u32) -> Scenario {
    let to_all = |rank| {
        let others = (0..4).filter(|&target| target != rank).map(|target| add(target, 0));
        [Act::LockAll { no_check: false }].into_iter().chain(others).chain([Act::UnlockAll]).collect()
    };
    let alone = vec![lock(3, EXCLUSIVE), add(3, 0), Act::Unlock { target: 3 }];
    let acts = vec![to_all(0), to_all(1), alone, Vec::new()];
    let scenario = Scenario::new(Protocol::LockAll, "more targets than elements", pool, acts);
    scenario.ending(0, 0, 1).ending(1, 0, 1).ending(2, 0, 2).ending(3, 0, 3)
}

/// The same of a fence, which waits for the acknowledgement of a rank whose element was given up.
fn fence_out_of_elements(pool: u32) -> Scenario {
    let close = FenceAssert { no_succeed: true, ..FenceAssert::default() };
    let acts = each(4, |rank| {
        let targets = (1..4).filter(|_| rank == 0).map(|target| add(target, 0));
        let mut acts = vec![Act::Fence(FenceAssert { no_precede: true, ..FenceAssert::default() })];
        acts.extend(targets.chain([Act::Fence(close), Act::Holds { word: 0, number: u64::from(rank > 0) }]));
        acts
    });
    Scenario::new(Protocol::Fence, "more targets than elements, in a fence", pool, acts)
}

fn fences(ranks: u32, pool: u32, all: &mut Vec<Scenario>) {
    let new = |name, acts| Scenario::new(Protocol::Fence, name, pool, acts);
    let open = FenceAssert { no_precede: true, ..FenceAssert::default() };
    let close = FenceAssert { no_succeed: true, ..FenceAssert::default() };
    let plain = FenceAssert::default();
    let next = move |rank: u32| (rank + 1) % ranks;
    let before = move |rank: u32| (rank + ranks - 1) % ranks;
    let two_epochs = |rank| {
        vec![
            Act::Fence(open),
            Act::Put { target: next(rank), word: 0, number: 10 + u64::from(rank) },
            Act::Fence(plain),
            Act::Holds { word: 0, number: 10 + u64::from(before(rank)) },
            Act::Put { target: next(rank), word: 1, number: 20 + u64::from(rank) },
            Act::Fence(close),
            Act::Holds { word: 1, number: 20 + u64::from(before(rank)) },
        ]
    };
    all.push(new("two epochs", each(ranks, two_epochs)));
    let empty = |_| {
        let both = FenceAssert { no_precede: true, no_succeed: true, ..FenceAssert::default() };
        vec![Act::Fence(both); 4]
    };
    all.push(new("four barriers without operations", each(ranks, empty)));
    let to_all = |rank: u32| {
        // Before it comes nobody may touch its window.
        let mut acts = vec![Act::Holds { word: 0, number: 0 }, Act::Fence(open)];
        acts.extend((0..ranks).filter(|&other| other != rank).map(|target| add(target, 0)));
        acts.extend([Act::Fence(close), Act::Holds { word: 0, number: u64::from(ranks - 1) }]);
        acts
    };
    all.push(new("everybody to everybody", each(ranks, to_all)));
    for (name, completes) in [
        ("two epochs, native, remote completion", CompletionScope::Remote),
        ("two epochs, native, local completion", CompletionScope::Local),
    ] {
        all.push(new(name, each(ranks, two_epochs)).native(completes, Order::default()));
    }
    let fence_then_lock = |rank| {
        let target = next(rank);
        let mut acts = vec![Act::Fence(open), add(target, 0), Act::Fence(close)];
        acts.extend([lock(target, EXCLUSIVE), add(target, 0), Act::Unlock { target }]);
        acts
    };
    all.push(new("a lock epoch behind a fence", each(ranks, fence_then_lock)).ending(0, 0, 2));
}

/// post, start, complete, wait; one early notice fits the table.
fn exposures(ranks: u32, pool: u32, all: &mut Vec<Scenario>) {
    let new = |name, acts| {
        let scenario = Scenario::new(Protocol::Pscw, name, pool, acts);
        scenario.with(|scenario| scenario.config.notices = 1)
    };
    let others = (1 << ranks) - 2;
    let one_to_all = |rank: u32| {
        if rank > 0 {
            return vec![Act::Post(1), Act::Wait, Act::Holds { word: 0, number: 1 }];
        }
        let puts = (1..ranks).map(|target| Act::Put { target, word: 0, number: 1 });
        [Act::Start(others)].into_iter().chain(puts).chain([Act::Complete]).collect()
    };
    all.push(new("one to all", each(ranks, one_to_all)));
    let (next, before) = (move |rank| (rank + 1) % ranks, move |rank| (rank + ranks - 1) % ranks);
    let around = |rank: u32| {
        let number = 10 + u64::from(rank);
        vec![
            Act::Post(1 << before(rank)),
            Act::Start(1 << next(rank)),
            Act::Put { target: next(rank), word: 0, number },
            Act::Complete,
            Act::Wait,
            Act::Holds { word: 0, number: 10 + u64::from(before(rank)) },
        ]
    };
    all.push(new("each to the next", each(ranks, around)));
    let native = new("each to the next, native, local completion", each(ranks, around));
    all.push(native.native(CompletionScope::Local, Order::default()));
    if ranks == 2 {
        let data = new("each to the next, put with data", each(ranks, around));
        all.push(data.native(CompletionScope::Local, Order::default()).with_data());
    }
    let twice = |rank: u32| {
        let round: &[Act] = if rank > 0 {
            &[Act::Post(1), Act::Wait]
        } else {
            &[Act::Start(others), add(1, 0), Act::Complete]
        };
        [round, round].concat()
    };
    all.push(new("one to all, twice", each(ranks, twice)).ending(1, 0, 2));
    let all_to_one = |rank: u32| {
        if rank > 0 {
            return vec![Act::Start(1), add(0, 0), Act::Complete];
        }
        vec![Act::Post(others), Act::Wait, Act::Holds { word: 0, number: u64::from(ranks - 1) }]
    };
    all.push(new("all to one", each(ranks, all_to_one)));
}

/// More targets than elements where one of them is the rank itself, whose lock needs no packets.
fn restores_with_oneself(ranks: u32, pool: u32, all: &mut Vec<Scenario>) {
    let new = |name, acts| Scenario::new(Protocol::Restore, name, pool, acts);
    let both = |rank: u32| {
        let (own, next) = (rank, (rank + 1) % ranks);
        let mut acts = vec![lock(own, SHARED), lock(next, SHARED)];
        acts.extend([add(own, 0), add(next, 0), add(own, 0), add(next, 0)]);
        acts.extend([Act::Unlock { target: next }, Act::Unlock { target: own }]);
        acts
    };
    all.push(new("one's own lock and the next", each(ranks, both)).ending(0, 0, 4).ending(1, 0, 4));
    let open = FenceAssert { no_precede: true, ..FenceAssert::default() };
    let close = FenceAssert { no_succeed: true, ..FenceAssert::default() };
    let fence = |rank: u32| {
        let next = (rank + 1) % ranks;
        let operations = [add(rank, 0), add(next, 0), add(rank, 0)];
        [&[Act::Fence(open)], &operations[..], &[Act::Fence(close), Act::Holds { word: 0, number: 3 }]]
            .concat()
    };
    all.push(new("a fence to oneself and the next", each(ranks, fence)));
}

/// An element is given up while a packet of its target's is under way, and taken again: what follows by the fabric
/// comes behind the packet.
fn restores_behind_packets(pool: u32, all: &mut Vec<Scenario>) {
    let get = Act::Get { target: 1, word: 0 };
    for (name, between) in [
        ("a flush behind an element given up", Act::Flush { target: 1 }),
        ("an order call behind an element given up", Act::Order { target: 1 }),
    ] {
        let put = |target, word| Act::Put { target, word, number: 1 };
        let mut acts = vec![Act::LockAll { no_check: true }, add(1, 0), put(2, 0), put(1, 1)];
        acts.extend([between, get, Act::FlushAll, Act::Got(1), Act::UnlockAll]);
        let scenario = Scenario::new(Protocol::Restore, name, pool, vec![acts, Vec::new(), Vec::new()]);
        let native = scenario.native(CompletionScope::Remote, Order::default());
        all.push(native.ending(1, 0, 1).ending(1, 1, 1).ending(2, 0, 1));
    }
}

/// Three ranks, the first of which has more targets than elements.
fn restores(pool: u32, all: &mut Vec<Scenario>) {
    let new = |name, acts| Scenario::new(Protocol::Restore, name, pool, acts);
    let both = |no_check| {
        let mut acts = Vec::new();
        for target in [1, 2] {
            acts.push(Act::Lock { target, is_exclusive: false, no_check });
        }
        for target in [1, 2] {
            acts.extend([add(target, 0), add(target, 0)]);
        }
        acts.extend([Act::Unlock { target: 1 }, Act::Unlock { target: 2 }]);
        acts
    };
    let rival = |target| vec![lock(target, EXCLUSIVE), add(target, 0), Act::Unlock { target }];
    let shared = |target| vec![lock(target, SHARED), add(target, 0), Act::Unlock { target }];
    let scenario = new("two locks", vec![both(false), rival(2), Vec::new()]);
    all.push(scenario.ending(1, 0, 2).ending(2, 0, 3));
    let scenario = new("two locks without check", vec![both(true), shared(2), Vec::new()]);
    all.push(scenario.ending(1, 0, 2).ending(2, 0, 3));
    let with_flush = vec![
        Act::Lock { target: 1, is_exclusive: false, no_check: false },
        Act::Lock { target: 2, is_exclusive: false, no_check: false },
        Act::Put { target: 1, word: 0, number: 5 },
        Act::Put { target: 2, word: 0, number: 6 },
        Act::Flush { target: 1 },
        Act::FlushAll,
        Act::Unlock { target: 1 },
        Act::Unlock { target: 2 },
    ];
    let scenario = new("two locks and flushes", vec![with_flush.clone(), Vec::new(), Vec::new()]);
    all.push(scenario.clone().ending(1, 0, 5).ending(2, 0, 6));
    let native = scenario.native(CompletionScope::Local, Order::default());
    let native = native.with(|scenario| scenario.name = "two locks and flushes, native, local completion");
    all.push(native.ending(1, 0, 5).ending(2, 0, 6));
    let fence = |acts: &[Act]| {
        let open = FenceAssert { no_precede: true, ..FenceAssert::default() };
        let close = FenceAssert { no_succeed: true, ..FenceAssert::default() };
        [&[Act::Fence(open)], acts, &[Act::Fence(close)]].concat()
    };
    restores_behind_packets(pool, all);
    let many = fence(&[add(1, 0), add(2, 0), add(1, 0), add(2, 0)]);
    let scenario = new("a fence to two targets", vec![many, fence(&[]), fence(&[])]);
    all.push(scenario.ending(1, 0, 2).ending(2, 0, 2));
}
