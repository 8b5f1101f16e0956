//! Conformance over shared memory and a network together: real endpoints, all in this process, driven by one thread.
//! Ranks are by turns on two hosts, so that each window is reached by both ways; and all on one.

use std::time::Duration;

use rma_composite::CompositeEndpoint;
use rma_conformance::in_process::{self, InProcess};
use rma_conformance::{suite, Spec, World};
use rma_core::bootstrap::ADDRESS_BYTES_MAX;
use rma_ofi::{Ofi, OfiEndpoint};
use rma_shm::ShmEndpoint;

type Both = World<CompositeEndpoint<OfiEndpoint>, InProcess>;

/// A test that takes longer than this hangs; under a sanitizer beside other programs the longest ones take minutes.
const LIMIT: Duration = Duration::from_secs(600);

/// `host` says on which host the rank with this number is.
fn world(spec: Spec, provider: &str, host: fn(u64) -> u64) -> Both {
    let provider = Some(provider.into());
    let options = rma_ofi::Options { provider, single_host: true, ..rma_ofi::Options::default() };
    let choice = Ofi::discover(&options).expect("the provider is there");
    let mut ranks = 0..;
    in_process::world(&spec, LIMIT, || {
        let network = OfiEndpoint::open(&choice, &options).expect("the network's endpoint opens");
        let shm = ShmEndpoint::open(&rma_shm::Options::default());
        assert!(shm.is_ok(), "{shm:?}");
        let host = ranks.next().map(host).expect("ranks do not end");
        CompositeEndpoint::new(network, shm, host, ADDRESS_BYTES_MAX).expect("both fit together")
    })
}

fn by_turns(rank: u64) -> u64 {
    rank % 2
}

/// Ranks 0 and 1, which most bodies are about, are on one host; the others are not.
fn in_pairs(rank: u64) -> u64 {
    rank / 2
}

fn forced(spec: Spec) -> Spec {
    spec.with(|config| config.force_message_path = true)
}

suite!(pairs, Both, |spec| world(spec, "net", in_pairs));
suite!(turns, Both, |spec| world(spec, "tcp;ofi_rxm", by_turns));
// A ring holds a few packets, so that large puts as packets wait for room.
suite!(pairs_messages, Both, |spec| world(forced(spec), "net", in_pairs), differ: large_puts);
