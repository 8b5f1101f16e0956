//! Line 13 of the provider contract: data of puts, on the simulated fabric.
#![allow(unsafe_code)] // posts puts

mod pair;

use pair::Pair;
use rma_core::ids::Tag;
use rma_core::provider::{Completion, CompletionBatch, CompletionScope, Endpoint, Post, PostError};
use rma_sim::{FabricConfig, Faults, Sabotage};

/// Bytes of a put.
const LEN: usize = 40;

/// A fabric that reorders whatever it may, on which puts carry data.
fn wild(seed: u64) -> FabricConfig {
    let mut config = FabricConfig::unit(2);
    config.seed = seed;
    config.model.jitter_ns = 50_000;
    config.faults = Faults { late_per_mille: 100, late_ns: 100_000, torn_bytes: 8, ..Faults::default() };
    config.data_bytes = if seed % 2 == 0 { 4 } else { 8 };
    config.limits.put_completes =
        if seed % 3 == 0 { CompletionScope::Local } else { CompletionScope::Remote };
    config.limits.needs_target_progress = seed % 5 == 0;
    config.limits.order.put_before_send = seed % 7 < 3;
    (config.limits.receive_buffers, config.send_depth, config.reply_reserve) = (2, 6, 2);
    config
}

/// Puts the number's bytes to its place, with the number as data.
fn put_with_data(pair: &mut Pair, number: u64) -> Post {
    let start = number as usize * LEN;
    pair.source.write(start, &[number as u8 | 0x80; LEN]);
    let (src, at) = (pair.source.as_ptr(start), pair.at(start));
    // SAFETY: memory that outlives the endpoint, readable.
    unsafe { pair.endpoints[0].put_with_data(pair.peers[0], src, LEN, at, Tag(number), number | 0xaa << 56) }
}

/// Whether all bytes of the put with this number are there.
fn has_arrived(pair: &Pair, number: u64) -> bool {
    let start = number as usize * LEN;
    pair.target.bytes()[start..start + LEN] == [number as u8 | 0x80; LEN]
}

/// Polls the target; what came must be the next numbers, and the data behind their bytes.
fn receive(pair: &mut Pair, next: &mut u64) {
    let (data_bytes, is_ordered) =
        (pair.endpoints[0].data_bytes(pair.peers[0]), pair.endpoints[0].limits().order.put_before_send);
    for packet in pair.poll(1).packets {
        let mut number = [0; 8];
        number[..packet.len().min(8)].copy_from_slice(&packet[..packet.len().min(8)]);
        assert_eq!(number[0], *next as u8, "in the order posted, each once");
        let is_data = *next % 3 != 0;
        assert_eq!(packet.len(), if is_data { data_bytes } else { 20 });
        if is_data {
            assert_eq!(u64::from_le_bytes(number), *next | if data_bytes == 8 { 0xaa << 56 } else { 0 });
            assert!(has_arrived(pair, *next), "data of {next} before their bytes");
        }
        let mut earlier = (0..*next).filter(|number| number % 3 != 0);
        assert!(!is_ordered || earlier.all(|number| has_arrived(pair, number)), "{next} passed puts");
        *next += 1;
    }
}

fn run(seed: u64, sabotage: Sabotage) -> u64 {
    let mut config = wild(seed);
    config.faults.again_per_mille = 50;
    let mut pair = Pair::new(config);
    pair.fabric.sabotage(sabotage);
    let (mut next, mut refused) = (0, 0);
    for number in 0..90 {
        loop {
            let posted = match number % 3 {
                0 => pair.send(&[number as u8; 20]),
                _ => put_with_data(&mut pair, number).map(|_| ()),
            };
            match posted {
                Ok(()) => break,
                Err(PostError::Again) => refused += 1,
                Err(PostError::Failed(code)) => panic!("{code}"),
            }
            pair.fabric.advance();
            receive(&mut pair, &mut next);
            pair.poll(0);
        }
    }
    while pair.fabric.advance().is_some() || pair.fabric.is_ready(1) {
        receive(&mut pair, &mut next);
        pair.poll(0);
        (0..2).for_each(|rank| pair.fabric.clear_retry(rank));
    }
    assert_eq!(next, 90, "seed {seed}: all have come");
    assert_eq!((pair.fabric.in_flight(), pair.fabric.violations()), (0, vec![]));
    refused
}

#[test]
fn line_13_data_come_once_behind_their_bytes_in_the_order_of_packets() {
    let refused: u64 = (0..40).map(|seed| run(seed, Sabotage::default())).sum();
    assert!(refused > 1000, "little room must refuse often, not {refused} times");
}

#[test]
fn data_that_do_not_wait_for_their_bytes_are_found() {
    let lies = Sabotage { data_early: true, ..Sabotage::default() };
    // The seeds whose fabric does not keep requests behind puts anyway.
    for seed in 3..7 {
        assert!(std::panic::catch_unwind(|| run(seed, lies)).is_err(), "seed {seed}");
    }
}

#[test]
fn data_are_refused_where_they_are_not_carried() {
    for (data_bytes, near_ranks) in [(0, 0), (4, 2)] {
        let mut pair = Pair::new(FabricConfig { data_bytes, near_ranks, ..FabricConfig::unit(2) });
        assert_eq!(pair.endpoints[0].data_bytes(pair.peers[0]), 0);
        assert!(matches!(put_with_data(&mut pair, 1), Err(PostError::Failed(_))));
        assert_eq!(pair.fabric.violations().len(), 1);
    }
}

#[test]
fn data_that_are_kept_over_a_poll_are_found() {
    let mut pair = Pair::new(FabricConfig { data_bytes: 8, ..FabricConfig::unit(2) });
    put_with_data(&mut pair, 1).unwrap();
    while pair.fabric.advance().is_some() {}
    let mut batch = CompletionBatch::new();
    pair.endpoints[1].poll(&mut batch);
    let Some(Completion::Packet(packet)) = batch.pop() else { panic!("the data have come") };
    assert_eq!(pair.fabric.violations(), []);
    pair.endpoints[1].poll(&mut batch);
    assert_eq!(pair.fabric.violations().len(), 1);
    pair.endpoints[1].release(packet);
}
