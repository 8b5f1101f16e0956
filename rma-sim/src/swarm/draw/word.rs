//! Which windows are locked by words of their memory, and fabrics that can do that.

use rma_core::config::Config;
use rma_core::dtype::Dtype;
use rma_core::info::LockProtocol;
use rma_core::op::ReduceOp;

use super::super::plan::WindowPlan;
use crate::fabric::FabricConfig;
use crate::random::Random;

/// Mixed into the seed for what is drawn here.
pub(super) const SOURCE: u64 = 0x0010_c5ed;

/// Draws the protocol, and mostly gives the fabric what it takes.
pub(super) fn settle(config: &mut Config, fabric: &mut FabricConfig, random: &mut Random) {
    use LockProtocol::{Auto, Message, Nic};
    config.lock_protocol = random.pick(&[Message, Message, Message, Nic, Nic, Auto]);
    if config.lock_protocol != Message && random.chance(800) {
        let dtype = Dtype::U64 as usize;
        fabric.native.fetch_atomic[dtype] |= 1 << ReduceOp::Sum as u16;
        fabric.native.compare_atomic |= 1 << dtype;
    }
    // Neighbours have the words to themselves, and the others ask by packets.
    if config.lock_protocol != Message && fabric.near_ranks > 0 && random.chance(600) {
        fabric.near_locks = true;
        fabric.native.compare_atomic &= !(1 << Dtype::U64 as usize);
    }
}

/// Whether neighbours may lock each other's windows by words.
pub(super) fn has_near(config: &Config, fabric: &FabricConfig) -> bool {
    config.lock_protocol != LockProtocol::Message && fabric.near_ranks > 0
}

/// Some windows have a protocol of their own.
pub(super) fn hint(windows: &mut [WindowPlan], random: &mut Random) {
    for window in windows {
        if random.chance(150) {
            window.options.lock_protocol = Some(random.pick(&LockProtocol::ALL));
        }
    }
}
