//! The restrictions of fabrics that no development machine has, imposed on one that is there: the simulated fabric
//! or a real software provider. What an endpoint offers is cut down to what the named fabric offers, and what that
//! fabric leaves open is done in the worst way ([`Imposed`]). docs/providers.md says what that shows and what not.

mod endpoint;
mod held;

pub use endpoint::{Imposed, ImposedRegion};
use rma_core::op::ReduceOp;
use rma_core::provider::{CompletionScope, Limits, NativeOps, Order};
use rma_sim::FabricConfig;

/// What `addr` of a remote address counts from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Addresses {
    /// Each region begins at 0.
    Offsets,
    /// Each region begins at its address at the owner (`FI_MR_VIRT_ADDR`).
    Virtual,
}

/// Which accumulates the fabric executes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Atomics {
    /// All that the endpoint does.
    All,
    /// None, or only by software at the target, which the engine's packets do as well.
    None,
    /// All but products.
    WithoutProducts,
}

/// One fabric: what it offers at most. Sizes are bytes.
#[derive(Clone, Copy, Debug)]
pub struct Fabric {
    /// libfabric's name of the provider.
    pub provider: &'static str,
    /// Largest put whose source is free on return.
    pub inject_bytes_max: usize,
    /// Largest put or get in one piece: smaller than the fabric's own where that is larger than what the
    /// behaviours transfer, so that splitting is tried.
    pub message_bytes_max: usize,
    /// Pieces of memory that a put or get may name, here and at the peer.
    pub pieces_max: (usize, usize),
    /// The orders that it keeps. Where there are none, puts, gets and atomics are posted in random order, and behind
    /// packets that were sent after them.
    pub order: Order,
    /// What the completion of a put says.
    pub put_completes: CompletionScope,
    /// Whether puts and gets wait for the target's process.
    pub needs_target_progress: bool,
    /// What it executes of the accumulates.
    pub atomics: Atomics,
    /// The owner's library chooses the keys, and no two ranks have the same (`FI_MR_PROV_KEY`).
    pub chooses_keys: bool,
    /// Bytes of data that puts carry; 0: none, or nobody has said how they are ordered.
    pub data_bytes: usize,
    /// What remote addresses are.
    pub addresses: Addresses,
    /// Of several words that are swapped together, now and then the first is alone, as if somebody had been in the way of the
    /// next: processors that cannot swap both in one step leave that open.
    pub halves_swaps: bool,
}

/// Amazon's EFA: reliable datagrams without any order of puts and gets, which may be emulated by packets.
pub const EFA: Fabric = Fabric {
    provider: "efa",
    inject_bytes_max: 64,
    message_bytes_max: 1 << 16,
    pieces_max: (4, 1),
    order: NO_ORDER,
    put_completes: CompletionScope::Remote,
    needs_target_progress: true,
    atomics: Atomics::None,
    chooses_keys: true,
    data_bytes: 4,
    addresses: Addresses::Virtual,
    halves_swaps: false,
};

/// HPE Slingshot: atomics by the NIC, one element each and no products, and addresses that count from 0.
pub const CXI: Fabric = Fabric {
    provider: "cxi",
    inject_bytes_max: 64,
    message_bytes_max: 1 << 20,
    pieces_max: (1, 1),
    order: NO_ORDER,
    put_completes: CompletionScope::Remote,
    needs_target_progress: false,
    atomics: Atomics::WithoutProducts,
    chooses_keys: true,
    data_bytes: 8,
    addresses: Addresses::Offsets,
    halves_swaps: false,
};

/// PSM3: puts are active messages, ordered up to 4096 bytes only, which is no order at all for who may send more.
pub const PSM3: Fabric = Fabric {
    provider: "psm3",
    inject_bytes_max: 64,
    message_bytes_max: 1 << 16,
    pieces_max: (1, 1),
    order: NO_ORDER,
    put_completes: CompletionScope::Remote,
    needs_target_progress: true,
    atomics: Atomics::None,
    chooses_keys: false,
    data_bytes: 0,
    addresses: Addresses::Offsets,
    halves_swaps: false,
};

/// Omni-Path by OPX: hardly anything is injected, nothing is ordered. What it does not promise either, packets in
/// order, is not imposed: `rma-ofi` refuses a provider that does not promise that.
pub const OPX: Fabric = Fabric { provider: "opx", inject_bytes_max: 16, message_bytes_max: 1 << 20, ..PSM3 };

/// InfiniBand and RoCE by `verbs;ofi_rxm`: puts complete at the origin, and a get does not overtake them.
pub const VERBS: Fabric = Fabric {
    provider: "verbs;ofi_rxm",
    inject_bytes_max: 64,
    message_bytes_max: 1 << 20,
    pieces_max: (4, 1),
    order: Order { put_before_send: false, put_before_get: true },
    put_completes: CompletionScope::Local,
    needs_target_progress: false,
    atomics: Atomics::None,
    chooses_keys: true,
    data_bytes: 4,
    addresses: Addresses::Virtual,
    halves_swaps: false,
};

/// Shared memory of ranks of one host, with all that it can, and a processor that swaps one word at a time.
pub const WORD_BY_WORD: Fabric = Fabric {
    provider: "shm",
    inject_bytes_max: usize::MAX,
    message_bytes_max: usize::MAX,
    pieces_max: (usize::MAX, usize::MAX),
    order: Order { put_before_send: true, put_before_get: true },
    put_completes: CompletionScope::Remote,
    needs_target_progress: false,
    atomics: Atomics::All,
    chooses_keys: false,
    data_bytes: 0,
    addresses: Addresses::Offsets,
    halves_swaps: true,
};

const NO_ORDER: Order = Order { put_before_send: false, put_before_get: false };

impl Fabric {
    /// A simulated fabric of this kind: what the simulator can do itself it does, the rest is [`Imposed`].
    pub fn simulate(&self, config: &mut FabricConfig) {
        config.limits.needs_target_progress = self.needs_target_progress;
        config.limits.put_completes = self.put_completes;
        config.limits.order = self.order;
        (config.limits.vector_local_max, config.limits.vector_remote_max) = self.pieces_max;
        config.data_bytes = self.data_bytes;
        config.offset_addresses = self.addresses == Addresses::Offsets;
    }

    /// What is left of an endpoint's limits.
    fn limits(&self, own: &Limits) -> Limits {
        Limits {
            inject_bytes_max: own.inject_bytes_max.min(self.inject_bytes_max),
            message_bytes_max: own.message_bytes_max.min(self.message_bytes_max),
            vector_local_max: own.vector_local_max.min(self.pieces_max.0),
            vector_remote_max: own.vector_remote_max.min(self.pieces_max.1),
            order: Order {
                put_before_send: own.order.put_before_send && self.order.put_before_send,
                put_before_get: own.order.put_before_get && self.order.put_before_get,
            },
            needs_target_progress: own.needs_target_progress || self.needs_target_progress,
            ..*own
        }
    }

    /// What is left of what an endpoint executes.
    fn native(&self, own: &NativeOps) -> NativeOps {
        let mut left = *own;
        match self.atomics {
            Atomics::All => {}
            Atomics::None => left = NativeOps { put: own.put, get: own.get, ..NativeOps::default() },
            Atomics::WithoutProducts => {
                let kept = !(1 << ReduceOp::Prod as u16);
                let tables = left.atomic.iter_mut().chain(&mut left.fetch_atomic);
                tables.for_each(|operations| *operations &= kept);
            }
        }
        left
    }

    /// Whether operations are held back to be posted in another order.
    fn disorders(&self) -> bool {
        self.order == NO_ORDER
    }
}
