//! Plans whose puts carry data: some of all, and of those most have epochs that end with one. The others are what they
//! were before there were any.

use rma_core::config::Config;
use rma_core::info::LockProtocol;

use crate::fabric::FabricConfig;
use crate::random::Random;

/// One plan of so many.
pub(super) const EVERY: u64 = 16;

/// What tells this source of chance apart.
const SOURCE: u64 = 0x0da7_a000;

/// Makes them likely: on a fabric that carries data and writes natively, mostly with locks that go ahead of what is put.
pub(super) fn settle(config: &mut Config, fabric: &mut FabricConfig, seed: u64) {
    let mut random = Random::new(seed ^ SOURCE);
    fabric.data_bytes = random.pick(&[4, 8]);
    fabric.native.put = true;
    (fabric.near_ranks, fabric.near_locks) = (0, false);
    (config.put_data, config.piggyback, config.force_message_path) = (Some(true), true, false);
    (config.check, config.lock_protocol) = (false, LockProtocol::Message);
    // What fits a packet goes with the lock, otherwise.
    config.single_op_lock = random.chance(200);
}
