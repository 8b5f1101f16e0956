//! Conformance over shared memory: real endpoints, all in this process, driven by one thread. Windows that are
//! allocated lie in memory that peers map; others are any memory, which the kernel copies to and from, or which is not
//! reached; `shm_mapped` has all in memory that peers map.

use std::time::Duration;

use rma_conformance::in_process::{self, InProcess};
use rma_conformance::{suite, Spec, World};
use rma_shm::{Options, Reach, ShmEndpoint};

type ShmWorld = World<ShmEndpoint, InProcess>;

/// A test that takes longer than this hangs; under a sanitizer beside other programs the longest ones take
/// minutes.
const LIMIT: Duration = Duration::from_secs(600);

fn world(spec: Spec, reach: Reach, change: fn(&mut Options)) -> ShmWorld {
    let mut options = Options { reach: Some(reach), ..Options::default() };
    change(&mut options);
    in_process::world(&spec, LIMIT, || ShmEndpoint::open(&options).expect("the endpoint opens"))
}

fn forced(spec: Spec) -> Spec {
    spec.with(|config| config.force_message_path = true)
}

/// As little of everything as there may be.
fn scarce(options: &mut Options) {
    (options.packet_bytes, options.ring_bytes, options.receive_buffers) = (4096, 16_384, 2);
    (options.outstanding, options.senders_max) = (2, 64);
}

suite!(attached, ShmWorld, |spec| world(spec, Reach::Attached, |_| ()));
// A ring holds a few packets, so that large puts as packets wait for room.
suite!(attached_messages, ShmWorld, |spec| world(forced(spec), Reach::Attached, |_| ()), differ: large_puts);
suite!(allocated, ShmWorld, |spec| world(spec, Reach::Allocated, |_| ()));
suite!(packets, ShmWorld, |spec| world(spec, Reach::Packets, |options| options.ring_bytes = 1 << 18));
suite!(scarce_packets, ShmWorld, |spec| world(spec, Reach::Packets, scarce), differ: large_puts);
