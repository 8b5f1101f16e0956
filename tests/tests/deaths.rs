//! What each call does about a dead rank, on every kind of simulated fabric: those that notice a death, and
//! those that say nothing, so that only the launcher tells.

use rma_conformance::behaviour::{deaths_calls, deaths_gone, deaths_late};
use rma_conformance::{simulated, World};
use rma_core::config::Config;
use rma_core::provider::{CompletionScope, NativeOps};
use rma_sim::{FabricConfig, SimBootstrap, SimEndpoint, SimFabric};

/// A body that kills rank 2 by its argument.
type Body = fn(&mut World<SimEndpoint, SimBootstrap>, Box<dyn FnOnce()>);

/// How a rank dies.
type Kill = fn(&SimFabric, u32);

/// Runs a body with so many ranks on each kind of fabric.
fn everywhere(ranks: u32, change: fn(&mut Config), body: Body) {
    dying(&[SimFabric::kill, SimFabric::kill_silently], ranks, change, body);
}

fn dying(kills: &[Kill], ranks: u32, change: fn(&mut Config), body: Body) {
    let puts_and_gets = NativeOps { put: true, get: true, ..NativeOps::default() };
    for native in [NativeOps::default(), puts_and_gets, rma_sim::native_all()] {
        for put_completes in [CompletionScope::Remote, CompletionScope::Local] {
            for &kill in kills {
                let mut fabric_config = FabricConfig { native, ..FabricConfig::unit(ranks) };
                fabric_config.limits.put_completes = put_completes;
                let fabric = SimFabric::new(fabric_config);
                let mut config = Config::default();
                change(&mut config);
                let mut world = simulated::world(&fabric, ranks, &config, |endpoint, _| endpoint);
                body(&mut world, Box::new(move || kill(&fabric, 2)));
            }
        }
    }
}

macro_rules! each {
    ($($ranks:literal $group:ident: $($body:ident),+;)+) => {
        $($(
            #[test]
            fn $body() {
                everywhere($ranks, |_| (), |world, kill| $group::$body(world, kill));
            }
        )+)+
    };
}

each! {
    3 deaths_calls: lock_and_unlock, exclusive_locks_of_the_dead, shared_locks_of_the_dead, lock_all_and_unlock_all,
        every_flush, requests, accumulates, fences, start_and_complete, post_and_wait, new_windows,
        who_frees_early, who_frees_and_goes_on, a_repeated_atomic_that_was_posted, a_repeated_atomic_that_was_sent;
    3 deaths_late: late_requests, epochs_without_notices, dynamic_windows, shared_windows, other_new_windows,
        own_operations_behind_an_order, memory_of_a_window_that_is_freed_alone;
    4 deaths_gone: who_waits_for_a_lock, who_waits_for_a_post, who_has_left_a_put, who_waits_for_a_complete,
        who_posts_late, who_waits_for_one_that_leaves, what_was_left_behind_comes, who_is_late_is_waited_for;
}

#[test]
fn window_protocol() {
    everywhere(3, deaths_calls::one_element, deaths_calls::window_protocol);
}

#[test]
fn calls_behind_a_fence_that_failed() {
    let announced: Kill = |fabric, rank| {
        fabric.kill(rank);
        fabric.announce_death(rank);
    };
    let kills = [announced, SimFabric::kill_silently];
    dying(&kills, 8, |_| (), deaths_late::a_free_behind_a_fence_that_failed);
    dying(&kills, 8, |_| (), deaths_late::calls_behind_a_fence_that_failed);
}

#[test]
fn one_of_many_sharers() {
    everywhere(24, |_| (), deaths_late::one_of_many_sharers);
}
