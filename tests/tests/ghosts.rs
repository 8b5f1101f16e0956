//! Conformance on the simulated fabric with a ghost beside every rank.

use rma_conformance::behaviour::deaths_calls;
use rma_conformance::ghosts::{haunted_world, haunted_world_and_launcher, BookBootstrap, Launcher};
use rma_conformance::simulated::SimDriver;
use rma_conformance::{suite, Spec, World};
use rma_core::config::Config;
use rma_core::ids::Rank;
use rma_core::lock::LockType::{Exclusive, Shared};
use rma_core::provider::{CompletionScope, NativeOps, Order};
use rma_sim::{FabricConfig, SimEndpoint, SimFabric};

fn world(spec: Spec, change: impl Fn(&mut FabricConfig)) -> World<SimEndpoint, BookBootstrap> {
    let ranks = spec.size();
    let mut config = FabricConfig::unit(2 * ranks);
    change(&mut config);
    let fabric = SimFabric::new(config);
    let endpoints = (0..2 * ranks).map(|rank| fabric.open(rank).expect("the simulated endpoint opens"));
    haunted_world(endpoints.collect(), &spec.config, SimDriver(fabric.clone()))
}

/// A suite of bodies, but for those that count what differs with ghosts:
/// lock_all holds the own lock, which costs a round trip (flushes_of_nothing, lock_all_touches_only_its_targets,
/// locks_are_asked_for_late); a rank does not know who holds its lock when it posts (locked_or_exposed); operations
/// on oneself are done no sooner than others (oneself_before_its_post). Where there are messages only, this shows in a
/// get without a flush behind it, too (operations_on_oneself), and COMPLETE waits for an acknowledgement that it would
/// be spared (costs_of_an_epoch, costs_with_results).
macro_rules! haunted {
    ($name:ident, $change:expr $(, $more:ident)*) => {
        suite!($name, World<SimEndpoint, BookBootstrap>, |spec| world(spec, $change), differ: flushes_of_nothing, lock_all_touches_only_its_targets,
            locks_are_asked_for_late, locked_or_exposed, oneself_before_its_post $(, $more)*);
    };
}

haunted!(
    messages,
    |config| config.native = NativeOps::default(),
    costs_of_an_epoch,
    costs_with_results,
    operations_on_oneself
);

haunted!(ordered, |config| {
    config.native = NativeOps { put: true, get: true, ..NativeOps::default() };
    config.limits.order = Order { put_before_send: true, put_before_get: true };
});

haunted!(local_completion, |config| {
    config.native = NativeOps { put: true, get: true, ..NativeOps::default() };
    config.limits.put_completes = CompletionScope::Local;
    config.limits.needs_target_progress = true;
    config.offset_addresses = false;
    config.grants_key_wishes = false;
});

haunted!(native_atomics, |_| ());

/// Shows: notes: agent as a process, MPI_ERR_OTHER.
#[test]
fn a_death_gives_errors_and_no_hang() {
    // The rank with its ghost, and the ghost alone: without it the rank's target role is dead.
    for dead in [&[2, 5][..], &[5]] {
        for native in [NativeOps::default(), rma_sim::native_all()] {
            let mut config = FabricConfig { native, ..FabricConfig::unit(6) };
            config.limits.put_completes = CompletionScope::Local;
            let fabric = SimFabric::new(config);
            let endpoints = (0..6).map(|rank| fabric.open(rank).expect("the simulated endpoint opens"));
            let config = Config::default();
            let mut world = haunted_world(endpoints.collect(), &config, SimDriver(fabric.clone()));
            let kill = || dead.iter().for_each(|&rank| fabric.kill(rank));
            rma_conformance::behaviour::deaths::errors_not_hangs(&mut world, kill);
        }
    }
}

/// The world of three ranks of a test, and of rank 2 and its ghost, which die in it.
struct Doomed {
    world: World<SimEndpoint, BookBootstrap>,
    fabric: SimFabric,
    launcher: Launcher,
}

impl Doomed {
    fn new(native: NativeOps, config: &Config) -> Self {
        let fabric = SimFabric::new(FabricConfig { native, ..FabricConfig::unit(6) });
        let endpoints = (0..6).map(|rank| fabric.open(rank).expect("the simulated endpoint opens"));
        let (world, launcher) =
            haunted_world_and_launcher(endpoints.collect(), config, SimDriver(fabric.clone()));
        Self { world, fabric, launcher }
    }

    /// The fabric says nothing of the death.
    fn death(fabric: &SimFabric) {
        fabric.kill_silently(2);
        fabric.kill_silently(5);
    }
}

/// Nothing but the launcher tells of the death, and each rank tells its ghost.
///
/// Shows: notes: agent as a process, MPI_Win_lock, MPI_Win_unlock.
#[test]
fn ranks_tell_their_ghosts_of_deaths() {
    let bodies = [
        deaths_calls::exclusive_locks_of_the_dead,
        deaths_calls::shared_locks_of_the_dead,
        deaths_calls::lock_all_and_unlock_all,
        deaths_calls::lock_and_unlock,
        deaths_calls::every_flush,
        deaths_calls::requests,
        deaths_calls::accumulates,
        deaths_calls::fences,
        deaths_calls::who_frees_and_goes_on,
    ];
    for native in [NativeOps::default(), rma_sim::native_all()] {
        for body in bodies {
            let Doomed { mut world, fabric, launcher } = Doomed::new(native, &Config::default());
            let kill: Box<dyn FnOnce()> = Box::new(move || {
                Doomed::death(&fabric);
                (0..2).for_each(|rank| launcher.tell(rank, 2));
            });
            body(&mut world, kill);
        }
    }
}

/// The rank whose lock is held by the dead is away and tells its ghost nothing: who waits for the lock does.
///
/// Shows: notes: agent as a process, MPI_Win_lock, MPI-4.1 13.7.3.
#[test]
fn who_waits_tells_the_ghost_of_deaths() {
    for lock_type in [Exclusive, Shared] {
        let Doomed { mut world, fabric, launcher } = Doomed::new(NativeOps::default(), &Config::default());
        let window = world.allocate(64);
        world.lock(2, window, 1, lock_type).unwrap();
        world.put(2, window, 1, 0, &[1; 8]).unwrap();
        world.flush(2, window, 1).unwrap();
        world.lock(0, window, 1, Exclusive).unwrap();
        world.put(0, window, 1, 8, &[2; 8]).unwrap();
        let unlock = world.engines[0].start_unlock(window, Rank(1)).unwrap();
        world.settle();
        Doomed::death(&fabric);
        launcher.tell(0, 2);
        world.settle();
        assert_eq!(world.memory(1, window)[8..16], [0; 8], "the ghost knows of nothing yet");
        assert!(!world.engines[0].probe_ghosts(false));
        world.wait(0, Ok(unlock)).unwrap();
        assert_eq!(world.memory(1, window)[..16], [[1; 8], [2; 8]].concat());
        // Nothing else that the dead has sent counts, and the lock is free.
        world.lock(0, window, 1, Exclusive).unwrap();
        world.unlock(0, window, 1).unwrap();
        assert_eq!(world.engines[0].elements_in_use(), (0, 0));
    }
}

/// The walk over all ranks has no element for the rank whose lock is held by the dead.
///
/// Shows: seed: LOCK_ALL window protocol, notes: agent as a process.
#[test]
fn who_walks_tells_the_ghosts_of_deaths() {
    let few = Config { target_pool: 1, target_pool_global: 1, ..Config::default() };
    let Doomed { mut world, fabric, launcher } = Doomed::new(NativeOps::default(), &few);
    let window = world.allocate(64);
    world.lock(2, window, 1, Exclusive).unwrap();
    world.flush(2, window, 1).unwrap();
    let lock_all = world.engines[0].start_lock_all(window, false);
    world.wait(0, lock_all).unwrap();
    world.put(0, window, 0, 0, &[1; 8]).unwrap();
    let data = [3; 8];
    let post = |world: &mut World<SimEndpoint, BookBootstrap>| {
        // SAFETY: the data outlive the epoch.
        unsafe { world.engines[0].put(window, Rank(1), 0, data.as_ptr(), data.len()) }.is_ready()
    };
    let mut is_posted = post(&mut world);
    world.settle();
    Doomed::death(&fabric);
    launcher.tell(0, 2);
    world.settle();
    world.engines[0].probe_ghosts(false);
    for _ in 0..10_000 {
        if is_posted {
            break;
        }
        world.step();
        is_posted = post(&mut world);
    }
    assert!(is_posted, "the walk does not end");
    // Nothing was asked of the dead rank but its lock, so that there is nothing to report.
    let unlock_all = world.engines[0].start_unlock_all(window);
    world.wait(0, unlock_all).unwrap();
    assert_eq!(world.memory(1, window)[..8], data);
}
