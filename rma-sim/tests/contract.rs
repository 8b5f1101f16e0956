//! The provider contract, one test per numbered line of `rma_core::provider`, on the simulated fabric.

mod pair;

use pair::{drain, Memory, Pair, Seen};
use rma_core::dtype::Dtype;
use rma_core::ids::{RemoteKey, Tag};
use rma_core::op::ReduceOp;
use rma_core::provider::{
    Accepted, Atomic, Completion, CompletionBatch, CompletionScope, Endpoint, FabricCode, Order, Post,
    PostError, RemoteAddr, SendClass, Swapped, WordSwap,
};
use rma_sim::{FabricConfig, Faults, Random, Sabotage, Traffic, Verdict};

/// A fabric that reorders whatever it may.
fn wild(seed: u64) -> FabricConfig {
    let mut config = FabricConfig::unit(2);
    config.seed = seed;
    config.model.jitter_ns = 50_000;
    config.faults = Faults { late_per_mille: 100, late_ns: 100_000, torn_bytes: 8, ..Faults::default() };
    config
}

#[test]
fn line_2_again_has_no_side_effect() {
    let mut config = wild(2);
    config.faults.again_per_mille = 500;
    config.limits.outstanding_max = 4;
    let mut pair = Pair::new(config);
    let (mut refused, mut accepted, mut done) = (0, 0, 0);
    while accepted < 200 {
        let value = [accepted as u8; 8];
        match pair.put_from(&value, accepted * 8, accepted as u64) {
            Ok(_) => accepted += 1,
            Err(PostError::Again) => refused += 1,
            Err(PostError::Failed(code)) => panic!("{code}"),
        }
        pair.fabric.advance();
        done += pair.poll(0).done.len();
    }
    done += pair.settle().done.len();
    assert!(refused > 100, "half of the posts and a depth of 4 must refuse often, not {refused} times");
    assert_eq!(done, 200);
    let expected = Traffic { puts: 200, put_bytes: 1600, ..Traffic::default() };
    assert_eq!(pair.fabric.traffic(0, 1), expected);
    let bytes = pair.target.bytes();
    assert!((0..200).all(|index| bytes[index * 8..index * 8 + 8] == [index as u8; 8]));
}

#[test]
fn line_3_every_tag_comes_back_once() {
    for seed in 0..20 {
        let mut config = wild(seed);
        config.limits.put_completes =
            if seed % 2 == 0 { CompletionScope::Local } else { CompletionScope::Remote };
        let mut pair = Pair::new(config);
        post_mixture(&mut pair);
        let mut seen = pair.settle();
        seen.done.sort_unstable();
        assert_eq!(seen.done, (0..40).collect::<Vec<_>>(), "seed {seed}");
        assert_eq!(seen.failed, []);
        assert_eq!(pair.fabric.in_flight(), 0);
    }
}

#[test]
fn line_3_also_when_the_peer_died() {
    for seed in 0..20 {
        let mut pair = Pair::new(wild(seed));
        post_mixture(&mut pair);
        let mut seen = Seen::default();
        for _ in 0..seed * 4 {
            pair.fabric.advance();
            seen.add(pair.poll(0));
        }
        pair.fabric.kill(1);
        seen.add(pair.settle());
        let mut all = [seen.done, seen.failed].concat();
        all.sort_unstable();
        assert_eq!(all, (0..40).collect::<Vec<_>>(), "seed {seed}");
        assert_eq!(seen.downs, 1);
        assert!(matches!(pair.put_from(&[0; 8], 0, 99), Err(PostError::Failed(FabricCode { .. }))));
        assert_eq!(pair.fabric.in_flight(), 0);
        assert_eq!(pair.fabric.violations(), []);
    }
}

/// Forty tracked operations of every kind.
fn post_mixture(pair: &mut Pair) {
    for index in 0..10 {
        let tag = index as u64 * 4;
        pair.put_from(&[index as u8; 100], index * 100, tag).unwrap();
        pair.get_into(index * 100, 100, tag + 1).unwrap();
        pair.fetch_add(4000, 1, tag + 2).unwrap();
        pair.endpoints[0].flush(pair.peers[0], Tag(tag + 3)).unwrap();
    }
}

#[test]
fn line_4_sources_are_free_on_return() {
    let mut pair = Pair::new(wild(4));
    let mut source = [7_u8; 32];
    let at = pair.at(64);
    pair.endpoints[0].put_inject(pair.peers[0], &source, at).unwrap();
    pair.endpoints[0].send(pair.peers[0], &source[..16], &source[16..], SendClass::Request).unwrap();
    source.fill(9);
    let seen = pair.settle();
    assert_eq!(pair.target.bytes()[64..96], [7; 32]);
    assert_eq!(seen.packets, [vec![7; 32]]);
    assert_eq!(seen.done, [], "an injected put reports nothing");
}

#[test]
fn line_5_packets_arrive_in_the_order_sent() {
    for seed in 0..20 {
        let mut pair = Pair::new(wild(seed));
        let mut received = Vec::new();
        for number in 0..100_u32 {
            let packet = number.to_le_bytes();
            while pair.endpoints[0].send(pair.peers[0], &packet, &[], SendClass::Request).is_err() {
                pair.fabric.advance();
                received.extend(pair.poll(1).packets);
            }
        }
        received.extend(pair.settle().packets);
        let numbers: Vec<_> = received.iter().map(|packet| packet[0]).collect();
        assert_eq!(numbers, (0..100).collect::<Vec<u8>>(), "seed {seed}");
    }
}

#[test]
fn line_6_a_remote_completion_means_visible() {
    for seed in 0..50 {
        let mut pair = Pair::new(wild(seed));
        pair.put_from(&[5; 64], 0, 1).unwrap();
        while pair.poll(0).done.is_empty() {
            assert!(pair.fabric.advance().is_some(), "the put must complete");
        }
        assert_eq!(pair.target.bytes()[..64], [5; 64], "seed {seed}");
    }
}

#[test]
fn line_6_a_local_completion_means_visible_after_flush() {
    let mut early = 0;
    for seed in 0..50 {
        let mut config = wild(seed);
        config.limits.put_completes = CompletionScope::Local;
        config.limits.needs_target_progress = seed % 2 == 0;
        let mut pair = Pair::new(config);
        let mut source = [5_u8; 64];
        pair.put_from(&source, 0, 1).unwrap();
        let at = pair.at(64);
        pair.endpoints[0].put_inject(pair.peers[0], &[6; 8], at).unwrap();
        pair.endpoints[0].flush(pair.peers[0], Tag(2)).unwrap();
        let mut done = Vec::new();
        while !done.contains(&2) {
            assert!(pair.step(&mut done), "the flush must complete");
            if done == [1] && pair.target.bytes()[..64] != [5; 64] {
                early += 1;
            }
            if done.contains(&1) {
                source.fill(0xee);
            }
        }
        assert_eq!(pair.target.bytes()[..64], [5; 64], "seed {seed}");
        assert_eq!(pair.target.bytes()[64..72], [6; 8], "seed {seed}");
    }
    assert!(early > 10, "a local completion that always means visible tests nothing");
}

#[test]
fn line_7_only_the_stated_orders_hold() {
    let overtakes = |order: Order| (0..100).filter(|&seed| send_overtakes_put(order, seed)).count();
    assert!(overtakes(Order::default()) > 10);
    assert_eq!(overtakes(Order { put_before_send: true, put_before_get: false }), 0);
    let misses = |order: Order| (0..100).filter(|&seed| get_misses_put(order, seed)).count();
    assert!(misses(Order::default()) > 10);
    assert_eq!(misses(Order { put_before_send: false, put_before_get: true }), 0);
}

fn send_overtakes_put(order: Order, seed: u64) -> bool {
    let mut config = wild(seed);
    config.limits.order = order;
    config.limits.needs_target_progress = seed % 2 == 0;
    let mut pair = Pair::new(config);
    pair.put_from(&[5; 64], 0, 1).unwrap();
    pair.endpoints[0].send(pair.peers[0], &[1], &[], SendClass::Request).unwrap();
    loop {
        if !pair.poll(1).packets.is_empty() {
            return pair.target.bytes()[..64] != [5; 64];
        }
        assert!(pair.fabric.advance().is_some(), "the packet must arrive");
    }
}

fn get_misses_put(order: Order, seed: u64) -> bool {
    let mut config = wild(seed);
    config.limits.order = order;
    let mut pair = Pair::new(config);
    pair.put_from(&[5; 8], 0, 1).unwrap();
    pair.get_into(0, 8, 2).unwrap();
    pair.settle();
    pair.result.bytes()[..8] != [5; 8]
}

#[test]
fn line_8_poll_progresses_the_target_role_and_is_bounded() {
    let mut config = FabricConfig::unit(2);
    config.limits.needs_target_progress = true;
    let mut pair = Pair::new(config);
    for index in 0..100 {
        pair.put_from(&[1], index, index as u64).unwrap();
    }
    while pair.fabric.advance().is_some() {
        assert!(pair.poll(0).done.is_empty(), "nothing completes while the target does not poll");
    }
    let mut batch = CompletionBatch::new();
    pair.endpoints[1].poll(&mut batch);
    let executed = pair.target.bytes().iter().filter(|&&byte| byte == 1).count();
    assert!((1..100).contains(&executed), "{executed} of 100 in one poll");
    assert_eq!(pair.settle().done.len(), 100);
}

#[test]
fn line_9_replies_find_room_when_requests_do_not() {
    let mut pair = Pair::new(FabricConfig::unit(2));
    let mut send = |class| pair.endpoints[0].send(pair.peers[0], &[0], &[], class);
    let requests = (0..1000).take_while(|_| send(SendClass::Request).is_ok()).count();
    assert_eq!(send(SendClass::Request), Err(PostError::Again));
    let replies = (0..1000).take_while(|_| send(SendClass::Reply).is_ok()).count();
    assert_eq!((requests, replies), (192, 64));
    assert_eq!(pair.settle().packets.len(), 256);
}

#[test]
fn line_9_a_reply_is_handed_out_while_requests_are_kept() {
    let mut config = FabricConfig::unit(2);
    config.limits.receive_buffers = 2;
    let mut pair = Pair::new(config);
    for number in 0..4 {
        pair.endpoints[0].send(pair.peers[0], &[number], &[], SendClass::Request).unwrap();
    }
    pair.endpoints[0].send(pair.peers[0], &[9], &[], SendClass::Reply).unwrap();
    while pair.fabric.advance().is_some() {}
    let mut batch = CompletionBatch::new();
    let mut kept = Vec::new();
    pair.endpoints[1].poll(&mut batch);
    while let Some(Completion::Packet(packet)) = batch.pop() {
        // SAFETY: just handed out.
        kept.push((unsafe { packet.bytes() }[0], packet));
    }
    let mut numbers: Vec<_> = kept.iter().map(|(number, _)| *number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1, 9], "two requests fill the buffers of requests");
    kept.into_iter().for_each(|(_, packet)| pair.endpoints[1].release(packet));
    assert_eq!(pair.settle().packets, [[2], [3]]);
}

#[test]
fn full_receive_buffers_hold_packets_back() {
    let mut config = FabricConfig::unit(2);
    config.limits.receive_buffers = 2;
    let mut pair = Pair::new(config);
    for number in 0..5 {
        pair.endpoints[0].send(pair.peers[0], &[number], &[], SendClass::Request).unwrap();
    }
    while pair.fabric.advance().is_some() {}
    let mut batch = CompletionBatch::new();
    assert_eq!(pair.endpoints[1].poll(&mut batch), 2);
    assert_eq!(pair.endpoints[1].poll(&mut batch), 0);
    assert_eq!(pair.fabric.lent_packets(1), 2);
    let mut numbers = Vec::new();
    while !batch.is_empty() {
        numbers.extend(drain(&mut pair.endpoints[1], &mut batch).packets);
        pair.endpoints[1].poll(&mut batch);
    }
    assert_eq!(numbers, [[0], [1], [2], [3], [4]]);
    assert_eq!(pair.fabric.lent_packets(1), 0);
}

#[test]
fn long_puts_become_visible_in_pieces_and_out_of_order() {
    let torn = (0..50).filter(|&seed| {
        let mut pair = Pair::new(wild(seed));
        pair.put_from(&[5; 64], 0, 1).unwrap();
        let mut seen_late_first = false;
        while pair.fabric.advance().is_some() {
            let bytes = pair.target.bytes();
            seen_late_first |= bytes[63] == 5 && bytes[0] == 0;
        }
        seen_late_first
    });
    assert!(torn.count() > 10);
}

#[test]
fn atomics_work_on_every_type_and_return_the_old() {
    let mut pair = Pair::new(wild(1));
    for index in 0..10 {
        pair.fetch_add(8, 5, index).unwrap();
    }
    let seen = pair.settle();
    assert_eq!(seen.done.len(), 10);
    assert_eq!(pair.target.u64_at(8), 50);
    let mut old: Vec<_> = (0..10).map(|index| pair.result.u64_at(index * 8)).collect();
    old.sort_unstable();
    assert_eq!(old, (0..10).map(|index| index * 5).collect::<Vec<_>>());

    pair.compare_and_swap(8, 49, 1, 20).unwrap();
    pair.settle();
    assert_eq!((pair.target.u64_at(8), pair.result.u64_at(160)), (50, 50));
    pair.compare_and_swap(8, 50, 1, 21).unwrap();
    pair.settle();
    assert_eq!((pair.target.u64_at(8), pair.result.u64_at(168)), (1, 50));
}

#[test]
fn fabric_and_cpu_atomics_do_not_mix() {
    let mut config = FabricConfig::unit(2);
    config.faults.split_atomics = true;
    let mut pair = Pair::new(config);
    pair.fetch_add(0, 1, 0).unwrap();
    pair.fabric.advance();
    // The CPU adds one between the two steps of the fabric's addition.
    pair.target.write_u64(0, pair.target.u64_at(0) + 1);
    pair.settle();
    assert_eq!(pair.target.u64_at(0), 1, "one addition is lost, as on a NIC");
}

#[test]
fn wrong_accesses_are_reported_and_touch_nothing() {
    let rules = |bad: fn(&mut Pair) -> RemoteAddr| {
        let mut pair = Pair::new(FabricConfig::unit(2));
        let at = bad(&mut pair);
        pair.put_at(&[1; 8], at, 1).unwrap();
        let seen = pair.settle();
        assert_eq!((seen.done, seen.failed), (vec![], vec![1]));
        pair.fabric.violations().iter().map(|violation| violation.rule).collect::<Vec<_>>()
    };
    assert_eq!(
        rules(|pair| RemoteAddr { key: RemoteKey(12345), ..pair.at(0) }),
        ["a remote key must be one that the target registered"]
    );
    assert_eq!(
        rules(|pair| pair.at(Memory::BYTES - 7)),
        ["an access must stay inside the registered region"]
    );
    assert_eq!(rules(|pair| pair.at(usize::MAX - 3)), ["an access must stay inside the registered region"]);
    assert_eq!(
        rules(|pair| {
            let at = pair.at(0);
            pair.region = None;
            at
        }),
        ["memory must not be accessed after its region was dropped"]
    );
}

#[test]
fn misused_calls_are_reported() {
    let mut config = FabricConfig::messages_only(2);
    config.limits.inject_bytes_max = 8;
    let mut pair = Pair::new(config);
    assert!(matches!(pair.put_from(&[0; 8], 0, 1), Err(PostError::Failed(_))));
    let peer = pair.peers[0];
    let long = [0; 5000];
    assert!(matches!(
        pair.endpoints[0].send(peer, &long, &[], SendClass::Request),
        Err(PostError::Failed(_))
    ));
    pair.endpoints[0].disconnect(peer);
    assert!(matches!(pair.endpoints[0].send(peer, &[0], &[], SendClass::Request), Err(PostError::Failed(_))));
    assert_eq!(pair.fabric.violations().len(), 3);
}

#[test]
fn the_unit_model_counts_round_trips() {
    let elapsed_us = |post: fn(&mut Pair) -> Post| {
        let mut pair = Pair::new(FabricConfig::unit(2));
        assert_eq!(post(&mut pair), Ok(Accepted::Tracked));
        while pair.poll(0).done.is_empty() {
            assert!(pair.fabric.advance().is_some());
        }
        pair.fabric.now_ns() / 1000
    };
    assert_eq!(elapsed_us(|pair| pair.put_from(&[0; 100], 0, 1)), 2);
    assert_eq!(elapsed_us(|pair| pair.get_into(0, 100, 1)), 2);
    assert_eq!(elapsed_us(|pair| pair.fetch_add(0, 1, 1)), 2);
    assert_eq!(elapsed_us(|pair| pair.endpoints[0].flush(pair.peers[0], Tag(1))), 2);
}

#[test]
fn a_seed_replays_exactly() {
    let trace = |seed| {
        let mut config = FabricConfig::draw(2, &mut Random::new(seed));
        config.native = FabricConfig::unit(2).native;
        config.limits.message_bytes_max = 4096;
        config.limits.outstanding_max = 64;
        config.faults.again_per_mille = 0;
        // What is done within the post leaves nothing to chance, and is the same for every seed.
        config.near_ranks = 0;
        let mut pair = Pair::new(config);
        post_mixture(&mut pair);
        pair.settle();
        pair.fabric.trace()
    };
    for seed in 0..10 {
        assert_eq!(trace(seed), trace(seed));
    }
    assert_ne!(trace(1), trace(2));
}

#[test]
fn interceptors_and_sabotage_break_the_world_on_purpose() {
    let mut pair = Pair::new(FabricConfig::unit(2));
    pair.fabric.record_packets(true);
    pair.fabric.intercept(|_, bytes| match bytes[0] {
        0 => Verdict::Drop,
        _ => {
            bytes[0] = 42;
            Verdict::Deliver
        }
    });
    for number in 0..2 {
        pair.endpoints[0].send(pair.peers[0], &[number], &[], SendClass::Request).unwrap();
    }
    assert_eq!(pair.settle().packets, [[42]]);
    assert_eq!(pair.fabric.take_records().len(), 2);
    assert_eq!(pair.fabric.in_flight(), 0);

    let mut config = wild(1);
    config.limits.put_completes = CompletionScope::Local;
    let mut pair = Pair::new(config);
    pair.fabric.sabotage(Sabotage { flush_early: true, ..Sabotage::default() });
    pair.fabric.set_faults(Faults { late_per_mille: 1000, late_ns: 10_000_000, ..Faults::default() });
    pair.put_from(&[1; 8], 0, 1).unwrap();
    pair.fabric.set_faults(Faults::default());
    pair.endpoints[0].flush(pair.peers[0], Tag(2)).unwrap();
    let mut done = Vec::new();
    while !done.contains(&2) {
        assert!(pair.step(&mut done));
    }
    assert_eq!(pair.target.bytes()[..8], [0; 8], "the flush lied");
}

#[test]
fn closing_an_endpoint_fails_what_is_outstanding_to_it() {
    let mut pair = Pair::new(FabricConfig::unit(2));
    pair.put_from(&[1; 8], 0, 1).unwrap();
    pair.region = None;
    drop(pair.endpoints.pop());
    let seen = pair.settle();
    assert_eq!((seen.failed, seen.downs), (vec![1], 1));
    assert_eq!(pair.fabric.violations(), []);
}

#[test]
fn a_refused_post_is_announced_when_it_may_work() {
    let mut config = FabricConfig::unit(2);
    config.limits.outstanding_max = 1;
    let mut pair = Pair::new(config);
    pair.fetch_add(0, 1, 0).unwrap();
    assert_eq!(pair.fetch_add(0, 1, 1), Err(PostError::Again));
    assert!(!pair.fabric.is_ready(0));
    while pair.fabric.advance().is_some() {}
    pair.poll(0);
    assert!(pair.fabric.is_ready(0), "the first one is over");
    pair.fabric.clear_retry(0);
    assert!(!pair.fabric.is_ready(0));
    assert_eq!(pair.fetch_add(0, 1, 1), Ok(Accepted::Tracked));
    assert!(rma_sim::native_all().is_complete_for(Dtype::U64));
    assert!(!ReduceOp::BitAnd.is_defined_for(Dtype::F32));
}

#[test]
fn line_12_what_is_complete_when_it_is_accepted_is_over() {
    for seed in 0..50 {
        let mut config = wild(seed);
        config.near_ranks = 2;
        config.faults.split_atomics = false;
        let mut pair = Pair::new(config);
        let (to, from) = (pair.peers[0], pair.at(0));
        assert!(pair.endpoints[0].completes_at_once(to));
        assert_eq!(pair.put_from(&[5; 64], 0, 1), Ok(Accepted::Complete));
        assert_eq!(pair.target.bytes()[..64], [5; 64], "seed {seed}");
        assert_eq!(pair.get_into(0, 64, 2), Ok(Accepted::Complete));
        assert_eq!(pair.result.bytes()[..64], [5; 64], "seed {seed}");
        let old = u64::from_ne_bytes([5; 8]);
        assert_eq!(pair.fetch_add(0, 3, 3), Ok(Accepted::Complete));
        assert_eq!(pair.compare_and_swap(0, old + 3, 9, 4), Ok(Accepted::Complete));
        assert_eq!(pair.result.bytes()[24..32], old.to_ne_bytes());
        assert_eq!(pair.result.bytes()[32..40], (old + 3).to_ne_bytes());
        assert_eq!(pair.target.bytes()[..8], 9_u64.to_ne_bytes());
        assert_eq!(pair.endpoints[0].flush(to, Tag(5)), Ok(Accepted::Complete));
        let nobodys = RemoteAddr { key: RemoteKey(from.key.0 ^ 1), ..from };
        assert_eq!(pair.put_at(&[1; 8], nobodys, 6), Ok(Accepted::Tracked));
        let seen = pair.settle();
        assert_eq!((seen.done, seen.failed), (vec![], vec![6]), "only what failed is said");
    }
}

#[test]
fn line_15_who_is_asked_does_an_atomic_at_once_or_not_at_all() {
    for seed in 0..50 {
        let mut config = wild(seed);
        config.near_ranks = if seed % 5 == 0 { 1 } else { 2 };
        config.assist_per_mille = [500, 0, 1000][seed as usize % 3];
        config.native = rma_core::provider::NativeOps { put: true, get: true, ..Default::default() };
        config.faults.split_atomics = false;
        let mut pair = Pair::new(config);
        let (to, at) = (pair.peers[0], pair.at(8));
        let odd = RemoteAddr { addr: at.addr + 13, ..at };
        let (mut done, mut old, mut swapped) = (0_u64, 0_u64, 0_u64);
        for _ in 0..100 {
            let (one, next, result) = (1_u64, swapped + 1, (&raw mut old).cast());
            let add = Atomic::Fetch { operand: (&raw const one).cast(), result };
            // SAFETY: the buffers are there during the call; so for all of these.
            let is_added = unsafe { pair.endpoints[0].assist(to, add, at, Dtype::U64, ReduceOp::Sum) };
            assert!(!is_added || old == done, "seed {seed}");
            done += u64::from(is_added);
            let (operand, compare) = ((&raw const next).cast(), (&raw const swapped).cast());
            let swap = Atomic::Swap { operand, compare, result };
            // SAFETY: as above.
            let is_swapped = unsafe { pair.endpoints[0].assist(to, swap, odd, Dtype::U64, ReduceOp::NoOp) };
            assert!(!is_swapped || old == swapped, "seed {seed}");
            swapped += u64::from(is_swapped);
            let nobodys = RemoteAddr { key: RemoteKey(at.key.0 ^ 1), ..at };
            // SAFETY: as above.
            assert!(!unsafe { pair.endpoints[0].assist(to, add, nobodys, Dtype::U64, ReduceOp::Sum) });
        }
        assert_eq!(pair.target.bytes()[8..16], done.to_ne_bytes(), "seed {seed}");
        assert_eq!(pair.target.bytes()[21..29], swapped.to_ne_bytes(), "seed {seed}");
        let is_expected = match (seed % 3, seed % 5) {
            (1, _) | (_, 0) => done == 0,
            (2, _) => done == 100,
            _ => (1..100).contains(&done),
        };
        assert!(is_expected, "seed {seed}: {done} of 100");
        let seen = pair.settle();
        assert_eq!((seen.done, seen.failed), (vec![], vec![]), "there is no tag to come back");
    }
}

#[test]
fn line_14_words_are_set_where_they_are_and_nowhere_else() {
    for seed in 0..50 {
        let mut config = wild(seed);
        config.near_ranks = if seed % 2 == 0 { 2 } else { 1 };
        config.faults.split_atomics = false;
        let mut pair = Pair::new(config);
        let (to, at) = (pair.peers[0], pair.at(0));
        let is_near = pair.endpoints[0].completes_at_once(to);
        assert_eq!(pair.endpoints[0].tell(to, at, 7), Ok(is_near), "seed {seed}");
        let said = if is_near { 7_u64 } else { 0 };
        assert_eq!(pair.target.bytes()[..8], said.to_ne_bytes(), "seed {seed}");
        let nobodys = RemoteAddr { key: RemoteKey(at.key.0 ^ 1), ..at };
        assert_eq!(pair.endpoints[0].tell(to, nobodys, 9), Ok(false), "seed {seed}");
        let seen = pair.settle();
        assert_eq!((seen.done, seen.failed), (vec![], vec![]), "there is no tag to come back");
    }
}

#[test]
fn line_16_what_is_done_now_is_done_and_else_nothing() {
    let (mut done, mut swapped) = (0, 0);
    for seed in 0..50 {
        let mut config = wild(seed);
        config.near_ranks = if seed % 4 == 3 { 1 } else { 2 };
        (config.near_locks, config.faults.split_atomics) = (true, false);
        let mut pair = Pair::new(config);
        let (to, at) = (pair.peers[0], pair.at(0));
        let is_near = pair.endpoints[0].completes_at_once(to);
        let bytes = [7_u8; 8];
        // SAFETY: the bytes are there during the call, when all is over.
        let is_put = unsafe { pair.endpoints[0].put_now(to, bytes.as_ptr(), 8, at) };
        assert_eq!(pair.target.bytes()[..8], [if is_put { 7 } else { 0 }; 8], "seed {seed}");
        assert!(is_near || !is_put, "seed {seed}");
        done += u32::from(is_put);
        let from = u64::from_ne_bytes(pair.target.bytes()[..8].try_into().unwrap());
        let second = RemoteAddr { addr: at.addr.wrapping_add(8), ..at };
        let swaps = [WordSwap { at, from, into: 1 }, WordSwap { at: second, from: 3, into: 9 }];
        let result = pair.endpoints[0].swap_now(to, swaps);
        let expected = Swapped { count: 1, other: 0 };
        assert!(result.is_none_or(|result| result == expected && is_near), "seed {seed}: {result:?}");
        let word = if result.is_some() { 1 } else { from };
        assert_eq!(pair.target.bytes()[..8], word.to_ne_bytes(), "seed {seed}");
        assert_eq!(pair.target.bytes()[8..16], [0; 8], "seed {seed}");
        swapped += u32::from(result.is_some());
        let nobodys = RemoteAddr { key: RemoteKey(at.key.0 ^ 1), ..at };
        // SAFETY: as above.
        assert!(!unsafe { pair.endpoints[0].put_now(to, bytes.as_ptr(), 8, nobodys) }, "seed {seed}");
        let seen = pair.settle();
        assert_eq!((seen.done, seen.failed), (vec![], vec![]), "there is no tag to come back");
    }
    assert!(done > 10 && swapped > 10, "{done} puts and {swapped} swaps were done at once");
}
