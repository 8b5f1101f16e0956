//! The bodies, by subject. Each takes the function that makes its world.

pub mod checker;
pub mod chosen_locks;
pub mod counts;
pub mod deaths;
pub mod deaths_calls;
pub mod deaths_gone;
pub mod deaths_late;
pub mod dynamic;
pub mod fences;
pub mod few_targets;
pub mod flushes;
pub mod hints;
pub mod info;
pub mod late_errors;
pub mod layouts;
pub mod locks;
pub mod misuse;
pub mod notify;
pub mod operations;
pub mod ordering;
pub mod overlapping;
pub mod pscw;
pub mod pscw_notices;
pub mod pscw_rules;
pub mod regions;
pub mod regions_epochs;
pub mod repeated_locks;
pub mod repeated_packets;
pub mod requests;
pub mod resources;
pub mod resumed;
pub mod routines;
pub mod rules;
pub mod semantics;
pub mod shared;
pub mod threads;
pub mod types;
pub mod word_locks;
pub mod words;

use rma_core::bootstrap::Bootstrap;
use rma_core::config::Config;
use rma_core::provider::Endpoint;

use crate::{Spec, World};

/// Makes a world.
pub trait Make<E: Endpoint, B: Bootstrap>: Fn(Spec) -> World<E, B> {}

impl<E: Endpoint, B: Bootstrap, F: Fn(Spec) -> World<E, B>> Make<E, B> for F {}

/// The settings with some of the optimizations: a bit for each.
pub(crate) fn switched(bits: u32) -> Config {
    let on = |bit: u32| bits & 1 << bit != 0;
    Config {
        single_op_lock: on(0),
        piggyback: on(1),
        coalesce: on(2),
        get_to_tail: on(3),
        lazy_targets: on(4),
        ..Config::default()
    }
}

/// Whether the switches that are on in `bits`, of so many, are tried. On a simulated fabric all combinations are; on a real one,
/// where worlds take long to open, all, none, one alone, and all but one. Which it is shows the first world, of none.
pub(crate) fn is_tried(bits: u32, switches: u32, is_real: bool) -> bool {
    let on = bits.count_ones();
    !is_real || on <= 1 || on + 1 >= switches
}

/// Bytes that differ from place to place and from seed to seed.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect()
}
