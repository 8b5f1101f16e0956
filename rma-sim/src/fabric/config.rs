//! What a simulated fabric is like: sizes, orders, timing, faults.

use rma_core::dtype::Dtype;
use rma_core::op::ReduceOp;
use rma_core::provider::{CompletionScope, Limits, NativeOps, OpTable, Order};

use crate::random::Random;

/// Time that messages take. All times are virtual nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NetworkModel {
    /// One way, for every message, also for the answer that completes an operation.
    pub latency_ns: u64,
    /// Up to this much more, drawn per message: what reorders messages.
    pub jitter_ns: u64,
    /// Bytes that pass per microsecond; 0: size does not matter.
    pub bytes_per_us: u64,
}

impl NetworkModel {
    /// Exactly 1 us each way and no time for anything else: virtual time divided by 2 us counts the
    /// blocking round trips of a call.
    pub const UNIT: Self = Self { latency_ns: 1000, jitter_ns: 0, bytes_per_us: 0 };
}

/// What goes wrong, or rather: what a reliable fabric may do, and on a good day does not.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Faults {
    /// Posts in a thousand that are refused with `Again` for no reason.
    pub again_per_mille: u32,
    /// Messages in a thousand that take up to `late_ns` longer.
    pub late_per_mille: u32,
    /// See `late_per_mille`.
    pub late_ns: u64,
    /// Polls in a thousand that report nothing although something is there.
    pub empty_poll_per_mille: u32,
    /// Puts and gets become visible in pieces of this many bytes, each with a delay of its own;
    /// 0: in one piece.
    pub torn_bytes: usize,
    /// Atomics of the fabric read and write in two steps, between which the target's CPU may write: what
    /// punishes mixing fabric and CPU atomics on one location. Not where the target's process executes.
    pub split_atomics: bool,
    /// Up to this many answers to a look-up are `Pending` before the address is found.
    pub pending_lookups_max: u32,
    /// The first message between a pair takes up to this much longer.
    pub connect_ns: u64,
}

/// A simulated fabric: everything that is constant while it runs, and the faults to begin with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FabricConfig {
    /// Ranks of the job. Endpoints need not be opened for all of them.
    pub ranks: u32,
    /// Names the random choices.
    pub seed: u64,
    /// What every endpoint says about itself.
    pub limits: Limits,
    /// What every endpoint executes without the engine.
    pub native: NativeOps,
    /// Bytes of data that puts carry: 0, 4 or 8. Not to ranks that are near.
    pub data_bytes: usize,
    /// Ranks whose numbers, divided by this, are the same do the operations on each other themselves, within the post, as
    /// those of a host do that share memory; 0: nobody. Not with [`Faults::split_atomics`]: what a processor does comes
    /// between the steps of such an atomic.
    pub near_ranks: u32,
    /// Such ranks have, whatever `native` says, the atomics by which they lock each other's windows ([`native_locks`]). Not
    /// where `near_ranks` is 0: each is a neighbour of its own at least.
    pub near_locks: bool,
    /// Of a thousand times that such a rank is asked to do an atomic by itself, how many it does it. 0: nobody is asked, and with
    /// `near_locks` such ranks have mapped each other's memory, and do what an instruction of the processor does.
    pub assist_per_mille: u32,
    /// How long messages take.
    pub model: NetworkModel,
    /// What goes wrong at the start; see [`super::SimFabric::set_faults`].
    pub faults: Faults,
    /// Packets that an endpoint may have on the way, not yet handed out by the target's `poll`.
    pub send_depth: usize,
    /// Of those, how many only replies may use.
    pub reply_reserve: usize,
    /// Regions get the key that was wished for; otherwise the fabric chooses.
    pub grants_key_wishes: bool,
    /// Remote addresses count from 0 in each region; otherwise they are (invented) virtual addresses.
    pub offset_addresses: bool,
    /// A poll that finds nothing makes the next delivery itself. For tests that have no world which
    /// does it.
    pub auto_advance: bool,
    /// How many of the latest events the trace keeps.
    pub trace_len: usize,
}

impl FabricConfig {
    /// A fabric that does everything natively, keeps no order, completes remotely, takes 1 us each
    /// way ([`NetworkModel::UNIT`]) and never fails.
    pub fn unit(ranks: u32) -> Self {
        Self {
            ranks,
            seed: 0,
            limits: Limits {
                inject_bytes_max: 64,
                send_bytes_max: 4096,
                message_bytes_max: 1 << 20,
                outstanding_max: 256,
                receive_buffers: 64,
                order: Order::default(),
                put_completes: CompletionScope::Remote,
                needs_target_progress: false,
                vector_local_max: 1,
                vector_remote_max: 1,
            },
            native: native_all(),
            data_bytes: 0,
            near_ranks: 0,
            near_locks: false,
            assist_per_mille: 0,
            model: NetworkModel::UNIT,
            faults: Faults::default(),
            send_depth: 256,
            reply_reserve: 64,
            grants_key_wishes: true,
            offset_addresses: true,
            auto_advance: false,
            trace_len: 256,
        }
    }

    /// A fabric that does nothing natively: only packets.
    pub fn messages_only(ranks: u32) -> Self {
        Self { native: NativeOps::default(), ..Self::unit(ranks) }
    }

    /// A fabric drawn by `random`: any mask, order, depth and set of faults that the contract allows.
    /// Fabrics without native operations and without order are drawn often.
    pub fn draw(ranks: u32, random: &mut Random) -> Self {
        let inject_bytes_max = random.pick(&[0, 8, 64, 192]);
        let send_depth = random.pick(&[4, 8, 32, 256]);
        let seed = random.bits();
        let drawn = Self {
            ranks,
            seed,
            limits: Limits {
                inject_bytes_max,
                send_bytes_max: random.pick(&[512, 1024, 4096, 16384]),
                message_bytes_max: random.pick(&[256, 4096, 1 << 20]),
                outstanding_max: random.pick(&[1, 2, 8, 64, 256]),
                receive_buffers: random.pick(&[2, 4, 16, 64]),
                order: draw_order(random),
                put_completes: random.pick(&[CompletionScope::Local, CompletionScope::Remote]),
                needs_target_progress: random.chance(300),
                vector_local_max: [1, 4, 8][(seed % 3) as usize],
                vector_remote_max: [1, 2, 8][(seed / 3 % 3) as usize],
            },
            native: draw_native(random),
            data_bytes: 0,
            near_ranks: 0,
            near_locks: false,
            assist_per_mille: [0, 300, 900, 1000][(seed / 36 % 4) as usize],
            model: NetworkModel {
                latency_ns: 1000,
                jitter_ns: random.pick(&[0, 500, 5_000, 50_000]),
                bytes_per_us: random.pick(&[0, 100, 10_000]),
            },
            faults: Faults::draw(random),
            send_depth,
            reply_reserve: send_depth / 2,
            grants_key_wishes: random.chance(500),
            offset_addresses: random.chance(500),
            auto_advance: false,
            trace_len: 256,
        };
        let near_ranks = [0, 0, 2, ranks][(seed / 9 % 4) as usize];
        let is_mixed = drawn.faults.split_atomics && near_ranks < ranks;
        Self { near_ranks: if is_mixed { 0 } else { near_ranks }, ..drawn }
    }
}

impl Faults {
    /// Faults of every kind, each present or not, each rare or frequent.
    pub fn draw(random: &mut Random) -> Self {
        Self {
            again_per_mille: random.pick(&[0, 0, 10, 100, 500]),
            late_per_mille: random.pick(&[0, 0, 10, 100]),
            late_ns: random.pick(&[10_000, 1_000_000]),
            empty_poll_per_mille: random.pick(&[0, 0, 50, 300]),
            torn_bytes: random.pick(&[0, 1, 8, 64, 1000]),
            split_atomics: random.chance(500),
            pending_lookups_max: random.pick(&[0, 0, 3, 20]),
            connect_ns: random.pick(&[0, 0, 5_000, 500_000]),
        }
    }
}

/// The atomics that lock a window, and those by which who waits is written down and woken.
pub fn native_locks() -> NativeOps {
    let (word, mut native) = (Dtype::U64 as usize, NativeOps::default());
    native.fetch_atomic[word] = 1 << ReduceOp::Sum as u16 | 1 << ReduceOp::Replace as u16;
    native.atomic[word] = 1 << ReduceOp::Sum as u16;
    native.compare_atomic = 1 << word;
    native
}

/// Every operation on every type for which MPI defines it.
pub fn native_all() -> NativeOps {
    let mut table = OpTable::default();
    for dtype in Dtype::ALL {
        for op in ReduceOp::ALL.into_iter().filter(|op| op.is_defined_for(dtype)) {
            table[dtype as usize] |= 1 << op as u16;
        }
    }
    NativeOps {
        put: true,
        get: true,
        atomic: table,
        fetch_atomic: table,
        compare_atomic: (1 << Dtype::COUNT) - 1,
    }
}

fn draw_order(random: &mut Random) -> Order {
    if random.chance(500) {
        return Order::default();
    }
    Order { put_before_send: random.chance(500), put_before_get: random.chance(500) }
}

/// Nothing, everything, puts and gets alone, or any subset.
fn draw_native(random: &mut Random) -> NativeOps {
    let all = native_all();
    match random.below(5) {
        0 => NativeOps::default(),
        1 => all,
        2 => NativeOps { put: true, get: true, ..NativeOps::default() },
        3 => {
            // Whole types: the condition under which a window may use them (one atomicity domain).
            let types = random.bits() as u32;
            let keep = |table: OpTable| {
                core::array::from_fn(|index| if types & (1 << index) != 0 { table[index] } else { 0 })
            };
            NativeOps {
                put: true,
                get: true,
                atomic: keep(all.atomic),
                fetch_atomic: keep(all.fetch_atomic),
                compare_atomic: all.compare_atomic & types,
            }
        }
        _ => NativeOps {
            put: random.chance(500),
            get: random.chance(500),
            atomic: all.atomic.map(|bits| bits & random.bits() as u16),
            fetch_atomic: all.fetch_atomic.map(|bits| bits & random.bits() as u16),
            compare_atomic: all.compare_atomic & random.bits() as u32,
        },
    }
}
