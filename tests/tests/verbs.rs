//! Conformance on an RDMA device: real endpoints, all in this process, driven by one thread. Built with feature
//! `verbs`, and then a device there must be; ci/softroce.sh makes one in software.

use std::cell::Cell;
use std::time::Duration;

use rma_conformance::in_process::{self, InProcess};
use rma_conformance::{suite, Spec, World};
use rma_verbs::{Options, VerbsEndpoint};

type VerbsWorld = World<VerbsEndpoint, InProcess>;

/// A test that takes longer than this hangs. Emulated machines are slow.
const LIMIT: Duration = Duration::from_secs(600);

/// The devices to take in turn, separated by commas: ranks on different ones are on different hosts, as far as the
/// network goes.
const DEVICES: &str = "RMA_TEST_VERBS_DEVICES";

fn world(spec: Spec, options: &Options) -> VerbsWorld {
    let named = std::env::var(DEVICES).unwrap_or_default();
    let devices: Vec<&str> = named.split(',').filter(|name| !name.is_empty()).collect();
    let turn = Cell::new(0);
    in_process::world(&spec, LIMIT, || {
        let mut options = options.clone();
        if !devices.is_empty() {
            options.device = Some(devices[turn.get() % devices.len()].to_owned());
            turn.set(turn.get() + 1);
        }
        VerbsEndpoint::open(&options).expect("feature `verbs` promises an RDMA device")
    })
}

fn forced(spec: Spec) -> Spec {
    spec.with(|config| config.force_message_path = true)
}

// The device chooses keys, and addresses are each process's own, so what an origin must know of a target's window
// comes with the lock or is asked for: one more packet, once, where there is no lock, and ranges are known late.
suite!(verbs, VerbsWorld, |spec| world(spec, &Options::default()),
    differ: no_check_needs_no_lock);
suite!(verbs_atomics, VerbsWorld, |spec| {
    world(spec, &Options { native_atomics: true, ..Options::default() })
}, differ: no_check_needs_no_lock);
suite!(verbs_messages, VerbsWorld, |spec| world(forced(spec), &Options::default()));
