//! What is said of a million ranks: it is what as many real engines do, it grows no faster than it must, and
//! the page in docs/ shows it.

use core::task::Poll;
use std::path::PathBuf;

use rma_core::config::Config;
use rma_core::engine::{Engine, FenceAssert, PostAssert, StartAssert, SyncCall};
use rma_core::group::Group;
use rma_core::ids::{Rank, WindowId};
use rma_sim::scale::{measure, neighbours, svg, table, Cost, Epoch, Figures, LogGp};
use rma_sim::swarm::SimEngine;
use rma_sim::{FabricConfig, SimFabric};

/// What the figures in docs/ were made with: `rma-sim scale` without options.
const MODEL: LogGp = LogGp { latency_ps: 1_000_000, overhead_ps: 200_000, gap_ps: 50_000, byte_gap_ps: 100 };

/// As many engines as there are ranks, on the simulated fabric, where only latency takes time.
struct Everybody {
    fabric: SimFabric,
    engines: Vec<SimEngine>,
    window: WindowId,
}

impl Everybody {
    fn new(ranks: u32) -> Self {
        let fabric = SimFabric::new(FabricConfig::messages_only(ranks));
        let open = |rank| {
            Engine::open(fabric.open(rank).unwrap(), fabric.bootstrap(rank), Config::default()).unwrap()
        };
        let engines = (0..ranks).map(open).collect();
        let mut world = Self { fabric, engines, window: WindowId(0) };
        world.all(|engine| engine.start_allocate(64, 1).unwrap().1);
        world
    }

    /// Every rank makes a call, at the same time.
    fn all(&mut self, start: impl Fn(&mut SimEngine) -> SyncCall) {
        let calls = self.engines.iter_mut().map(|engine| Some(start(engine))).collect();
        self.finish(calls);
    }

    /// Rank 0 makes a call.
    fn first(&mut self, start: impl Fn(&mut SimEngine) -> SyncCall) {
        let mut calls: Vec<_> = self.engines.iter().map(|_| None).collect();
        calls[0] = Some(start(&mut self.engines[0]));
        self.finish(calls);
    }

    fn finish(&mut self, mut calls: Vec<Option<SyncCall>>) {
        loop {
            let mut moved = 0;
            for (engine, call) in self.engines.iter_mut().zip(&mut calls) {
                if let Some(Poll::Ready(result)) = call.as_mut().map(|call| engine.poll(call)) {
                    result.unwrap();
                    *call = None;
                    moved += 1;
                }
                moved += engine.progress();
            }
            if calls.iter().all(Option::is_none) {
                return;
            }
            assert!(moved > 0 || self.advance(), "nothing is on the way");
        }
    }

    /// Delivers everything that is due next.
    fn advance(&mut self) -> bool {
        let Some(due) = self.fabric.next_event_ns() else { return false };
        while self.fabric.next_event_ns() == Some(due) {
            self.fabric.advance();
        }
        true
    }

    fn put(&mut self, rank: usize, target: u32) {
        let source = [7_u8; 8];
        // SAFETY: the source is readable for 8 bytes, few enough for the operation element to keep.
        let posted = unsafe { self.engines[rank].put(self.window, Rank(target), 0, source.as_ptr(), 8) };
        assert_eq!(posted, Poll::Ready(Ok(())));
    }

    /// Packets that rank 0 has sent, and the time in latencies.
    fn figures(&self) -> (u64, u64) {
        let packets = self.engines[0].counters().packets_sent.iter().sum();
        (packets, self.fabric.now_ns() / 1000)
    }
}

fn with_everybody(ranks: u32, epoch: Epoch) -> (u64, u64) {
    let mut world = Everybody::new(ranks);
    let (window, before) = (world.window, world.figures());
    match epoch {
        Epoch::Fence => {
            let open = FenceAssert { no_precede: true, ..FenceAssert::default() };
            let close = FenceAssert { no_succeed: true, ..FenceAssert::default() };
            world.all(|engine| engine.start_fence(window, open).unwrap());
            (0..ranks).for_each(|rank| world.put(rank as usize, (rank + 1) % ranks));
            world.all(|engine| engine.start_fence(window, close).unwrap());
        }
        Epoch::Neighbours => {
            let group = |engine: &SimEngine| {
                let ranks: Vec<_> = neighbours(engine.rank().0, ranks).map(Rank).collect();
                Group::new(&ranks, engine.size()).unwrap()
            };
            world.all(|engine| engine.start_post(window, &group(engine), PostAssert::default()).unwrap());
            world.all(|engine| engine.start_start(window, &group(engine), StartAssert::default()).unwrap());
            for rank in 0..ranks {
                neighbours(rank, ranks).for_each(|target| world.put(rank as usize, target));
            }
            world.all(|engine| engine.start_complete(window).unwrap());
            world.all(|engine| engine.start_wait(window).unwrap());
        }
        Epoch::LockAll(targets) => {
            world.first(|engine| engine.start_lock_all(window, false).unwrap());
            (1..=targets).for_each(|target| world.put(0, target));
            world.first(|engine| engine.start_unlock_all(window).unwrap());
        }
    }
    let after = world.figures();
    (after.0 - before.0, after.1 - before.1)
}

#[test]
fn what_is_implied_is_what_everybody_does() {
    for ranks in [2, 3, 4, 7, 16, 33, 64] {
        for (epoch, cost) in measure(ranks, LogGp::LATENCY_ONLY).unwrap().costs {
            let Some(Cost { packets, latencies, .. }) = cost else { continue };
            assert_eq!((packets, latencies), with_everybody(ranks, epoch), "{} at {ranks}", epoch.name());
        }
    }
}

fn figures(doublings: u32) -> Vec<Figures> {
    (1..=doublings).map(|doubling| measure(1 << doubling, MODEL).unwrap()).collect()
}

#[test]
fn nothing_grows_faster_than_it_must() {
    let all = figures(16);
    let window_bytes = all[0].window_bytes;
    assert!(all.iter().all(|figures| figures.window_bytes == window_bytes && window_bytes <= 64 << 10));
    let (small, large) = (&all[9], &all[15]);
    assert_eq!(small.shared_bytes, large.shared_bytes, "at 1,024 ranks and at 65,536");
    for (index, epoch) in Epoch::all().into_iter().enumerate() {
        let costs = all.iter().filter_map(|figures| Some((figures.ranks, figures.costs[index].1?)));
        let mut costs = costs.collect::<Vec<_>>().into_iter();
        let (first_ranks, first) = costs.next().unwrap();
        for (ranks, cost) in costs {
            let factor = u64::from(ranks / first_ranks);
            // Who asks everybody sends so many packets; all else may grow with the logarithm.
            let most = if epoch.asks_everybody() { 2 * factor } else { 1 + u64::from(factor.ilog2()) };
            let name = epoch.name();
            assert!(cost.packets <= most * first.packets, "packets of {name} at {ranks}");
            assert!(cost.time_ps <= most * first.time_ps, "time of {name} at {ranks}");
            if !epoch.asks_everybody() {
                assert!(cost.latencies <= most * first.latencies, "latencies of {name} at {ranks}");
            }
        }
    }
}

/// What a row of the table says of costs, and the two numbers of bytes before it.
fn cells(row: &str) -> (Vec<&str>, [u64; 2]) {
    let mut cells: Vec<&str> = row.split('|').map(str::trim).collect();
    let bytes: Vec<u64> = cells.drain(2..4).map(|cell| cell.parse().unwrap()).collect();
    (cells, [bytes[0], bytes[1]])
}

#[test]
fn the_page_shows_these_figures() {
    let docs = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let all = figures(20);
    let page = std::fs::read_to_string(docs.join("scale.md")).unwrap();
    let again = "make it anew: cargo run --release -p rma-sim -- scale --write docs";
    for row in table(&all).lines().skip(2) {
        let (costs, bytes) = cells(row);
        let beginning = format!("| {} |", costs[1]);
        let shown = page.lines().find(|line| line.starts_with(&beginning)).unwrap();
        let (shown_costs, shown_bytes) = cells(shown);
        assert_eq!(costs, shown_costs, "docs/scale.md is old; {again}");
        // A field more or less in a window is no reason to make the page anew.
        let is_near = |(now, then): (u64, u64)| now.abs_diff(then) * 10 <= now;
        assert!(bytes.into_iter().zip(shown_bytes).all(is_near), "{bytes:?} and {shown_bytes:?}; {again}");
    }
    assert_eq!(
        std::fs::read_to_string(docs.join("scale.svg")).unwrap(),
        svg(&all),
        "docs/scale.svg; {again}"
    );
}
