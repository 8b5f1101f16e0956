//! Conformance on an RDMA device: real endpoints, all in this process, driven by one thread. Built with feature
//! `verbs`, and then a device there must be; ci/softroce.sh makes one in software.

use std::time::Duration;

use rma_conformance::in_process::{self, InProcess};
use rma_conformance::{suite, Spec, World};
use rma_verbs::{Options, VerbsEndpoint};

type VerbsWorld = World<VerbsEndpoint, InProcess>;

/// A test that takes longer than this hangs. Emulated machines are slow.
const LIMIT: Duration = Duration::from_secs(240);

fn world(spec: Spec, options: &Options) -> VerbsWorld {
    in_process::world(&spec, LIMIT, || {
        VerbsEndpoint::open(options).expect("feature `verbs` promises an RDMA device")
    })
}

fn forced(spec: Spec) -> Spec {
    spec.with(|config| config.force_message_path = true)
}

suite!(verbs, VerbsWorld, |spec| world(spec, &Options::default()));
suite!(verbs_messages, VerbsWorld, |spec| world(forced(spec), &Options::default()));
suite!(verbs_atomics, VerbsWorld, |spec| {
    world(spec, &Options { native_atomics: true, ..Options::default() })
});
