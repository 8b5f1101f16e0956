//! The model runs plans: right ones pass, and each mistake is found.

use core::cell::RefCell;
use std::rc::Rc;

use super::super::memory::Exposed;
use super::super::plan::{Members, Plan};
use super::super::run::{judge, Verdict};
use super::super::script::RankScript;
use super::super::shared::Shared;
use super::super::{plan, Bounds};
use super::{Mistake, Model, World};
use crate::fabric::{FabricConfig, SimFabric};
use crate::random::Random;
use crate::world::{Failure, Fault, SimWorld};

fn small_plan(seed: u64) -> Plan {
    let mut plan = plan(seed, Bounds::of(2, 6));
    plan.windows.iter_mut().for_each(|window| window.is_allocated = false);
    plan
}

fn run(seed: u64, mistake: Mistake) -> Verdict {
    let plan = small_plan(seed);
    let ranks = plan.fabric.ranks;
    let table = |count: usize| vec![vec![0; ranks as usize]; count];
    let windows = plan.windows.len();
    let world = Rc::new(RefCell::new(World {
        mistake,
        memory: vec![vec![Exposed::NONE; ranks as usize]; windows],
        collective: table(windows),
        fences: table(windows),
        locks: vec![vec![Vec::new(); ranks as usize]; windows],
        exposed: vec![vec![None; ranks as usize]; windows],
        regions: vec![None; windows],
        is_shared: vec![false; windows],
        random: Random::new(seed),
    }));
    let shared = Shared::new(&plan);
    let scripts = (0..ranks).map(|rank| {
        let world = Rc::clone(&world);
        let library = Model {
            rank,
            world,
            calling: vec![None],
            wanted: Vec::new(),
            posted: Vec::new(),
            sections: 0,
            requests: vec![Vec::new()],
            finished: vec![Vec::new()],
            disp_units: Vec::new(),
            targets: Members::default(),
            late: Vec::new(),
            has_strayed: false,
        };
        RankScript::new(rank, library, Rc::clone(&shared))
    });
    let fabric = SimFabric::new(FabricConfig::unit(ranks));
    judge(SimWorld::new(fabric, scripts.collect(), plan.schedule, seed).run())
}

#[test]
fn a_correct_library_passes() {
    for seed in 0..400 {
        assert_eq!(run(seed, Mistake::None), Verdict::Passed, "seed {seed}");
    }
}

#[test]
fn every_mistake_is_found() {
    let found = |mistake| (0..600).filter(|&seed| run(seed, mistake).is_oracle()).count();
    let mistakes = [
        Mistake::TwoExclusive,
        Mistake::SkipFlush,
        Mistake::LoneFence,
        Mistake::TornAtomic,
        Mistake::LatePut,
        Mistake::Unordered,
        Mistake::EarlyWait,
        Mistake::EarlyNote,
        Mistake::OrderIgnored,
        Mistake::EarlyRequest,
        Mistake::DetachedServed,
        Mistake::OwnThreadOnly,
        Mistake::SharedUnawaited,
    ];
    for mistake in mistakes {
        let count = found(mistake);
        assert!(count >= 10, "{mistake:?} was found by {count} seeds of 600");
    }
}

#[test]
fn a_lost_unlock_is_a_stall() {
    let stalls = |verdict: &Verdict| matches!(verdict, Verdict::Failed(Failure::Stall(_)));
    let count = (0..200).map(|seed| run(seed, Mistake::LostUnlock)).filter(stalls).count();
    assert!(count >= 10, "found by {count} seeds of 200");
    let text =
        format!("{:?}", Verdict::Failed(Failure::Program { rank: 1, fault: Fault::Oracle("x".into()) }));
    assert!(text.contains("Oracle"));
}
