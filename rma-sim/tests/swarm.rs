//! The swarm on the engine: correct, it passes; with its world broken on purpose, the oracle finds it.

use rma_core::provider::CompletionScope;
use rma_core::wire::{BatchFlags, Header, PacketKind, Reader, ReplyFlags};
use rma_sim::swarm::{
    plan, run, run_survival, run_with_death, Action, Bounds, Census, Plan, Report, Verdict,
};
use rma_sim::{Failure, Fault, Sabotage, SimFabric, Verdict as Fate};

const FEW: Bounds = Bounds::of(2, 6);

/// Seeds of each test that breaks something.
const SEEDS: u64 = 400;

/// Seeds at most of those whose mistake shows only where a program waits at the wrong moment; they stop when it
/// was found often enough, so that it does not matter how rare such programs are.
const MANY_SEEDS: u64 = 10_000;

/// Often enough to be no accident.
const FOUND: usize = 8;

#[test]
fn random_programs_see_what_mpi_allows() {
    // Few ranks meet more often.
    for bounds in [Bounds::default(), Bounds::of(2, 4)] {
        let Bounds { ranks_min, ranks_max, .. } = bounds;
        for seed in 0..200 {
            let report = run(&plan(seed, bounds), |_| {});
            let again = format!("again: rma-sim --seed {seed} --ranks {ranks_min}..{ranks_max} --verbose");
            assert_eq!(report.verdict, Verdict::Passed, "{again}");
        }
    }
}

#[test]
fn random_programs_carry_data() {
    let mut puts_with_data = 0;
    for plan in (0..SEEDS * 3).map(|seed| plan(seed, FEW)).filter(|plan| plan.config.put_data == Some(true)) {
        let report = run(&plan, |_| {});
        assert_eq!(report.verdict, Verdict::Passed, "seed {}", plan.seed);
        puts_with_data += report.traffic.puts_with_data;
    }
    assert!(puts_with_data > 10, "puts carry data {puts_with_data} times");
}

#[test]
fn a_seed_replays_exactly() {
    for seed in 0..10 {
        let once = || run(&plan(seed, FEW), |_| {});
        let Report { turns, virtual_ns, traffic, .. } = once();
        let again = once();
        assert_eq!((turns, virtual_ns, traffic), (again.turns, again.virtual_ns, again.traffic));
    }
}

/// The names of the epochs in which ranks of a plan fork, and whether a thread flushes.
fn forks(plan: &Plan) -> (Vec<&'static str>, bool) {
    let (mut phases, mut has_flush) = (Vec::new(), false);
    for phase in &plan.phases {
        for script in &phase.scripts {
            for (at, action) in script.iter().enumerate() {
                let Action::Fork { lengths } = action else { continue };
                phases.push(phase.name);
                let threads = &script[at + 1..=at + lengths.iter().sum::<usize>()];
                assert!(lengths.iter().filter(|length| **length > 0).count() > 1, "one thread is none");
                assert!(!threads.iter().any(|action| matches!(action, Action::Fork { .. })));
                has_flush |= threads.iter().any(|action| matches!(action, Action::Flush { .. }));
            }
        }
    }
    (phases, has_flush)
}

#[test]
fn programs_fork_in_every_kind_of_epoch() {
    let (mut census, mut phases, mut flushes) = (Census::default(), Vec::new(), 0);
    for seed in 0..SEEDS {
        let plan = plan(seed, FEW);
        census.add(&plan);
        let (found, has_flush) = forks(&plan);
        phases.extend(found);
        flushes += usize::from(has_flush);
    }
    assert_eq!(census.count("fork"), phases.len() as u64);
    assert!(flushes > 30, "threads flush in {flushes} programs");
    for kind in ["locks", "shared locks", "fence", "post and start"] {
        let count = phases.iter().filter(|phase| **phase == kind).count();
        assert!(count > 20, "{kind}: {count} forks");
    }
}

/// Whether threads of a rank have exclusive locks at one time.
fn has_exclusive_sections(plan: &Plan) -> bool {
    let scripts = plan.phases.iter().flat_map(|phase| &phase.scripts);
    scripts.into_iter().any(|script| {
        script.iter().enumerate().any(|(at, action)| {
            let Action::Fork { lengths } = action else { return false };
            let threads = &script[at + 1..=at + lengths.iter().sum::<usize>()];
            threads.iter().any(|action| matches!(action, Action::Lock { is_exclusive: true, .. }))
        })
    })
}

/// Processes whose threads lock exclusively, and wait for each other in circles unless each thread goes on that holds its
/// lock: with as few elements as there can be, which those could have that wait.
#[test]
fn threads_that_wait_for_locks_keep_nobody_from_going_on() {
    let mut programs = 0;
    for plan in (0..SEEDS).map(|seed| plan(seed, FEW)).filter(has_exclusive_sections) {
        programs += 1;
        for pool in [1, 2, 3] {
            let mut plan = plan.clone();
            (plan.config.operation_pool, plan.config.operation_pool_global) = (pool, 0);
            (plan.config.target_pool, plan.config.target_pool_global) = (pool, 0);
            assert_eq!(run(&plan, |_| {}).verdict, Verdict::Passed, "seed {}, pools of {pool}", plan.seed);
        }
    }
    assert!(programs > 20, "threads lock exclusively in {programs} programs");
}

/// Whether a rank of a plan loads or stores what is another's, and whether it must find there what that one has left.
fn direct_accesses(plan: &Plan) -> (Vec<&'static str>, bool) {
    let (mut phases, mut has_handed) = (Vec::new(), false);
    for phase in &plan.phases {
        for (rank, script) in (0..).zip(&phase.scripts) {
            for action in script {
                let (at, stored) = match action {
                    Action::Load { at, stored } => (at, stored),
                    Action::Store { at, .. } => (at, &None),
                    _ => continue,
                };
                assert!(plan.windows[at.window].is_shared, "seed {}", plan.seed);
                if at.target != rank {
                    phases.push(phase.name);
                    has_handed |= stored.is_some();
                }
            }
        }
    }
    (phases, has_handed)
}

#[test]
fn programs_load_and_store_shared_memory_in_every_kind_of_epoch() {
    let (mut census, mut phases, mut handed) = (Census::default(), Vec::new(), 0);
    for seed in 0..SEEDS {
        let plan = plan(seed, FEW);
        census.add(&plan);
        let (found, has_handed) = direct_accesses(&plan);
        phases.extend(found);
        handed += usize::from(has_handed);
    }
    let windows = census.count("window shared");
    assert!((70..130).contains(&windows), "{windows} shared windows in {SEEDS} plans");
    assert!(census.count("sync") > 0);
    assert!(handed > 20, "memory is handed over in {handed} programs");
    for kind in ["locks", "shared locks", "fence", "post and start"] {
        let count = phases.iter().filter(|phase| **phase == kind).count();
        assert!(count > 100, "{kind}: {count} accesses to others' memory");
    }
}

#[test]
fn a_death_is_survived_with_clean_hands() {
    for seed in 0..200 {
        let (victim, steps) = ((seed % 2) as u32, 1 + seed * 7);
        let report = run_with_death(&plan(seed, FEW), victim, steps);
        assert_eq!(report.verdict, Verdict::Passed, "seed {seed}: rank {victim} dies after {steps} steps");
    }
}

#[test]
fn who_survives_a_death_goes_through_all_of_his_program() {
    for seed in 0..300 {
        let report = run_survival(seed, FEW);
        assert_eq!(report.verdict, Verdict::Passed, "seed {seed}: {:#?}", report.trace);
    }
}

/// An element was given to another target while a flush to the dead one, which named it, was still out.
#[test]
fn survivors_that_once_blamed_the_living() {
    for seed in [69, 155] {
        let report = run_survival(seed, Bounds::of(2, 64));
        assert_eq!(report.verdict, Verdict::Passed, "seed {seed}");
    }
}

/// More operations than elements in a fence epoch whose barrier never ends: nothing leaves, so that no element came back.
#[test]
fn operations_that_once_waited_for_room_in_a_fence_that_a_death_had_stopped() {
    for seed in [48, 246, 290] {
        let report = run_survival(seed, FEW);
        assert_eq!(report.verdict, Verdict::Passed, "seed {seed}");
    }
}

/// The barrier's last packets came after the call had failed for a death: then what was posted left, for windows that
/// others had freed, and nobody could free this one.
#[test]
fn operations_that_once_left_behind_a_fence_that_had_failed() {
    for seed in [102, 169, 1971] {
        let report = run_survival(seed, FEW);
        assert_eq!(report.verdict, Verdict::Passed, "seed {seed}");
    }
}

/// The verdicts on seeds whose plans satisfy `wanted`.
fn verdicts(wanted: impl Fn(&Plan) -> bool, sabotage: impl Fn(&SimFabric)) -> Vec<Verdict> {
    let plans = (0..SEEDS).map(|seed| plan(seed, FEW)).filter(wanted);
    plans.map(|plan| run(&plan, &sabotage).verdict).collect()
}

/// How often the oracle finds it, up to [`FOUND`] times.
fn found_by_oracle(wanted: impl Fn(&Plan) -> bool, sabotage: impl Fn(&SimFabric)) -> usize {
    let plans = (0..MANY_SEEDS).map(|seed| plan(seed, FEW)).filter(wanted);
    plans.filter(|plan| run(plan, &sabotage).verdict.is_oracle()).take(FOUND).count()
}

fn count(verdicts: &[Verdict], is_meant: impl Fn(&Verdict) -> bool) -> usize {
    verdicts.iter().filter(|verdict| is_meant(verdict)).count()
}

fn is_conflict(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Failed(Failure::Program { fault: Fault::Engine(text), .. }) => {
            text.contains("MPI_ERR_RMA_CONFLICT")
        }
        _ => false,
    }
}

fn header(bytes: &[u8]) -> Option<Header> {
    Header::decode(&mut Reader::new(bytes)).ok()
}

#[test]
fn a_lost_unlock_acknowledgement_is_a_stall() {
    let verdicts = verdicts(
        |_| true,
        |fabric| {
            fabric.intercept(|_, bytes| {
                let is_ack = header(bytes).is_some_and(|header| {
                    header.kind == PacketKind::Reply && ReplyFlags(header.flags).has(ReplyFlags::UNLOCK_ACK)
                });
                if is_ack {
                    Fate::Drop
                } else {
                    Fate::Deliver
                }
            });
        },
    );
    let is_stall = |verdict: &Verdict| matches!(verdict, Verdict::Failed(Failure::Stall(_)));
    let stalls = count(&verdicts, is_stall);
    assert!(stalls > 30, "{stalls} stalls");
    let passed = count(&verdicts, |verdict| *verdict == Verdict::Passed);
    assert_eq!(stalls + passed, verdicts.len(), "an answer that is missing is nothing else than missing");
}

#[test]
fn two_exclusive_locks_are_found() {
    let verdicts = verdicts(
        // Broken locks make some programs wait for hundreds of thousands of turns: the first hundred have none of those.
        |plan| plan.seed < 100,
        |fabric| {
            fabric.intercept(|_, bytes| {
                let lock = header(bytes).filter(|header| {
                    header.kind == PacketKind::Batch
                        && BatchFlags(header.flags).has(BatchFlags::LOCK_EXCLUSIVE)
                });
                if let Some(lock) = lock {
                    let flags = lock.flags & !BatchFlags::LOCK_EXCLUSIVE.0 | BatchFlags::LOCK_SHARED.0;
                    bytes[..Header::BYTES].copy_from_slice(&Header { flags, ..lock }.encode());
                }
                Fate::Deliver
            });
        },
    );
    // The engine's own checker may see the conflict of two holders before the oracle does.
    let found = count(&verdicts, |verdict| verdict.is_oracle() || is_conflict(verdict));
    assert!(found > 5, "found {found} times");
    assert_eq!(found + count(&verdicts, |verdict| *verdict == Verdict::Passed), verdicts.len());
}

#[test]
fn a_skipped_flush_is_found() {
    let sabotage = Sabotage { flush_early: true, ..Sabotage::default() };
    let is_native_and_local = |plan: &Plan| {
        let is_local = plan.fabric.limits.put_completes == CompletionScope::Local;
        is_local && plan.fabric.native.put && !plan.config.force_message_path
    };
    assert_eq!(found_by_oracle(is_native_and_local, |fabric| fabric.sabotage(sabotage)), FOUND);
}

#[test]
fn a_put_that_completes_too_early_is_found() {
    let sabotage = Sabotage { put_early: true, ..Sabotage::default() };
    let is_native_and_remote = |plan: &Plan| {
        let is_remote = plan.fabric.limits.put_completes == CompletionScope::Remote;
        is_remote && plan.fabric.native.put && !plan.config.force_message_path
    };
    assert_eq!(found_by_oracle(is_native_and_remote, |fabric| fabric.sabotage(sabotage)), FOUND);
}

#[test]
fn data_that_come_before_their_put_are_found() {
    let sabotage = Sabotage { data_early: true, ..Sabotage::default() };
    let carries_data =
        |plan: &Plan| plan.config.put_data == Some(true) && !plan.fabric.limits.order.put_before_send;
    assert_eq!(found_by_oracle(carries_data, |fabric| fabric.sabotage(sabotage)), FOUND);
}

#[test]
fn a_done_that_is_acknowledged_and_not_done_is_found() {
    // A put that the target never executes: its payload is replaced by what an empty batch says.
    let verdicts = verdicts(
        |plan| plan.config.force_message_path,
        |fabric| {
            let mut packets = 0;
            fabric.intercept(move |_, bytes| {
                let Some(mut header) = header(bytes) else { return Fate::Deliver };
                let is_done = header.kind == PacketKind::Batch && header.count > 0;
                let flags = BatchFlags(header.flags);
                if is_done && flags.has(BatchFlags::DONE) && !flags.has(BatchFlags::ACK_WITH_RESULT) {
                    packets += 1;
                    if packets % 5 == 0 {
                        header.count = 0;
                        *bytes = header.encode().to_vec();
                    }
                }
                Fate::Deliver
            });
        },
    );
    let found = count(&verdicts, |verdict| *verdict != Verdict::Passed);
    assert!(found > 5, "found {found} times in {}", verdicts.len());
}
