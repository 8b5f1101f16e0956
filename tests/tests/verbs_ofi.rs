//! Conformance on libfabric's verbs provider: real endpoints, all in this process, driven by one thread. Built with
//! feature `verbs`, and then a device there must be; ci/softroce.sh makes one in software.

use std::time::Duration;

use rma_conformance::in_process::{self, InProcess};
use rma_conformance::{suite, Spec, World};
use rma_ofi::{Ofi, OfiEndpoint, Options};

/// A test that takes longer than this hangs. Emulated machines are slow.
const LIMIT: Duration = Duration::from_secs(600);

type OfiWorld = World<OfiEndpoint, InProcess>;

fn world(spec: Spec) -> OfiWorld {
    let options = Options { provider: Some("verbs;ofi_rxm".into()), ..Options::from_env() };
    let choice = Ofi::discover(&options).expect("feature `verbs` promises an RDMA device");
    in_process::world(&spec, LIMIT, || OfiEndpoint::open(&choice, &options).expect("the endpoint opens"))
}

fn forced(spec: Spec) -> Spec {
    spec.with(|config| config.force_message_path = true)
}

// As for rma-verbs: the device chooses keys, and addresses are each process's own, so what an origin must know of a
// target's window comes with the lock or is asked for: one more packet, once, where there is no lock, and ranges are
// known late.
suite!(verbs_rxm, OfiWorld, world,
    differ: no_check_needs_no_lock);
suite!(verbs_rxm_messages, OfiWorld, |spec| world(forced(spec)));
