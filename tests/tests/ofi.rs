//! Conformance on libfabric's software providers: real endpoints, all in this process, driven by one
//! thread. `RMA_TEST_LIBFABRIC2` names another libfabric to run the same on.

#[path = "../../rma-ofi/tests/contract/second.rs"]
mod libfabric_2;

use std::time::Duration;

use rma_conformance::in_process::{self, InProcess};
use rma_conformance::{suite, Spec, World};
use rma_core::info::LockProtocol;
use rma_ofi::{Ofi, OfiEndpoint, Options};

/// A test that takes longer than this hangs; under a sanitizer beside other programs the longest ones take minutes.
const LIMIT: Duration = Duration::from_secs(600);

type OfiWorld = World<OfiEndpoint, InProcess>;

fn world(spec: Spec, provider: &str, change: impl Fn(&mut Options)) -> OfiWorld {
    let mut options = Options { provider: Some(provider.into()), single_host: true, ..Options::default() };
    change(&mut options);
    let choice = Ofi::discover(&options).expect("the provider is there");
    in_process::world(&spec, LIMIT, || {
        let endpoint = OfiEndpoint::open(&choice, &options).expect("the endpoint opens");
        let version = endpoint.description().library_version;
        assert!(
            options.library.is_none() || version.0 >= 2,
            "RMA_TEST_LIBFABRIC2 names a libfabric {version:?}"
        );
        endpoint
    })
}

fn forced(spec: Spec) -> Spec {
    spec.with(|config| config.force_message_path = true)
}

fn without_data(spec: Spec) -> Spec {
    spec.with(|config| config.put_data = Some(false))
}

/// The suite on one provider, natively and with forced messages, and on another libfabric beside the
/// system's where `RMA_TEST_LIBFABRIC2` names one.
fn second(spec: Spec, provider: &str) -> OfiWorld {
    let library = libfabric_2::library("run on tcp;ofi_rxm of the default libfabric");
    let provider = if library.is_some() { provider } else { "tcp;ofi_rxm" };
    world(spec, provider, |options| options.library.clone_from(&library))
}

suite!(tcp_rxm, OfiWorld, |spec| world(spec, "tcp;ofi_rxm", |_| ()));
suite!(tcp_rxm_messages, OfiWorld, |spec| world(forced(spec), "tcp;ofi_rxm", |_| ()));
suite!(net, OfiWorld, |spec| world(spec, "net", |_| ()));
suite!(net_messages, OfiWorld, |spec| world(forced(spec), "net", |_| ()));
// What ends an epoch is a packet of its own behind native puts, as it is on other fabrics.
suite!(net_without_data, OfiWorld, |spec| world(without_data(spec), "net", |_| ()), differ:
    large_puts_carry_unlock, a_large_put_carries_complete);
// Every buffer is registered, and looked up before it is posted.
suite!(tcp_rxm_registered, OfiWorld, |spec| world(spec, "tcp;ofi_rxm", |options| options.register_buffers =
    true));
suite!(net_registered, OfiWorld, |spec| world(spec, "net", |options| options.register_buffers = true));
suite!(sockets, OfiWorld, |spec| world(spec, "sockets", |_| ()));
suite!(sockets_messages, OfiWorld, |spec| world(forced(spec), "sockets", |_| ()));
suite!(sockets_atomics, OfiWorld, |spec| world(spec, "sockets", |options| options.native_atomics = true));
// What is different about these locks is beside the suites on the simulated fabric.
suite!(sockets_word_locks, OfiWorld, |spec: Spec| {
    let spec = spec.with(|config| config.lock_protocol = LockProtocol::Nic);
    world(spec, "sockets", |options| options.native_atomics = true)
}, differ:
    single_operation_lock, coalesced_lock, puts_and_get_in_one_packet, large_puts, every_switch_has_a_price,
    lock_all_touches_only_its_targets, one_call_issues_for_its_target_or_its_window, the_threshold_ends_the_waiting,
    locked_or_exposed, ranges_known_late);
suite!(udp_rxd, OfiWorld, |spec| world(spec, "udp;ofi_rxd", |_| ()));
suite!(udp_rxd_messages, OfiWorld, |spec| world(forced(spec), "udp;ofi_rxd", |_| ()));
suite!(shm, OfiWorld, |spec| world(spec, "shm", |_| ()));
suite!(shm_messages, OfiWorld, |spec| world(forced(spec), "shm", |_| ()));
suite!(version_2_tcp, OfiWorld, |spec| second(spec, "tcp"));
suite!(version_2_tcp_messages, OfiWorld, |spec| second(forced(spec), "tcp"));
suite!(version_2_tcp_rxm, OfiWorld, |spec| second(spec, "tcp;ofi_rxm"));
suite!(version_2_tcp_rxm_messages, OfiWorld, |spec| second(forced(spec), "tcp;ofi_rxm"));
