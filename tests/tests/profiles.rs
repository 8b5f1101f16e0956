//! Conformance under the restrictions of fabrics that are not here: each named fabric's profile, imposed on the
//! simulated fabric and on real software providers.

use std::time::Duration;

use rma_conformance::imposed::{Fabric, Imposed, CXI, EFA, OPX, PSM3, VERBS};
use rma_conformance::in_process::{self, InProcess};
use rma_conformance::{simulated, suite, Spec, World};
use rma_core::provider::CompletionScope;
use rma_ofi::profile::RemoteCompletion;
use rma_ofi::{Ofi, OfiEndpoint, Options};
use rma_sim::{FabricConfig, SimBootstrap, SimEndpoint, SimFabric};

/// A test that takes longer than this hangs; under a sanitizer beside other programs the longest ones take minutes.
const LIMIT: Duration = Duration::from_secs(600);

type Simulated = World<Imposed<SimEndpoint>, SimBootstrap>;
type Real = World<Imposed<OfiEndpoint>, InProcess>;

fn simulated(spec: Spec, kind: Fabric) -> Simulated {
    let mut config = FabricConfig::unit(spec.size());
    kind.simulate(&mut config);
    let fabric = SimFabric::new(config);
    simulated::world(&fabric, spec.size(), &spec.config, |endpoint, rank| Imposed::new(endpoint, kind, rank))
}

fn real(spec: Spec, kind: Fabric, provider: &str) -> Real {
    let remote_completion =
        (kind.put_completes == CompletionScope::Local).then_some(RemoteCompletion::ReadBack);
    let options = Options {
        provider: Some(provider.into()),
        single_host: true,
        native_atomics: provider == "sockets",
        remote_completion,
        ..Options::default()
    };
    let choice = Ofi::discover(&options).expect("the provider is there");
    let mut opened = 0;
    in_process::world(&spec, LIMIT, || {
        let endpoint = OfiEndpoint::open(&choice, &options).expect("the endpoint opens");
        opened += 1;
        Imposed::new(endpoint, kind, opened)
    })
}

// Where no two ranks have the same key, an epoch that takes no lock, whose grant would carry it, asks the target for its
// own before the first native operation: that is one packet more.
suite!(efa, Simulated, |spec| simulated(spec, EFA), differ: no_check_needs_no_lock);
suite!(cxi, Simulated, |spec| simulated(spec, CXI), differ: no_check_needs_no_lock);
suite!(psm3, Simulated, |spec| simulated(spec, PSM3));
suite!(opx, Simulated, |spec| simulated(spec, OPX));
suite!(verbs, Simulated, |spec| simulated(spec, VERBS), differ: no_check_needs_no_lock);

fn with_data(spec: Spec) -> Spec {
    spec.with(|config| config.put_data = Some(true))
}

suite!(efa_data, Simulated, |spec| simulated(with_data(spec), EFA), differ: no_check_needs_no_lock);
suite!(cxi_data, Simulated, |spec| simulated(with_data(spec), CXI), differ: no_check_needs_no_lock);
suite!(verbs_data_on_net, Real, |spec| real(with_data(spec), VERBS, "net"), differ: no_check_needs_no_lock);

suite!(efa_on_net, Real, |spec| real(spec, EFA, "net"), differ: no_check_needs_no_lock);
// The software provider with atomics of its own.
suite!(cxi_on_sockets, Real, |spec| real(spec, CXI, "sockets"), differ: no_check_needs_no_lock);
suite!(psm3_on_net, Real, |spec| real(spec, PSM3, "net"));
suite!(opx_on_net, Real, |spec| real(spec, OPX, "net"));
suite!(verbs_on_net, Real, |spec| real(spec, VERBS, "net"), differ: no_check_needs_no_lock);

/// What is imposed is seen by the engine, and bites.
#[test]
fn restrictions_are_imposed() {
    use rma_core::lock::LockType::Exclusive;
    use rma_core::provider::Endpoint;

    let fabric = SimFabric::new(FabricConfig::unit(1));
    let open = |kind| Imposed::new(fabric.open(0).expect("the simulated endpoint opens"), kind, 0);
    let opx = open(OPX);
    assert_eq!(opx.limits().inject_bytes_max, 16);
    assert!(opx.limits().needs_target_progress && opx.native().put);
    assert_eq!(opx.native().compare_atomic, 0);

    // Two puts to one place in one epoch, which MPI leaves undefined: without order each comes last sometimes. They
    // are too large to go with packets.
    let mut world = simulated(Spec::ranks(2), EFA);
    let window = world.allocate(LARGE);
    let (sources, mut last) = ([vec![1; LARGE], vec![2; LARGE]], [0; 2]);
    for _ in 0..32 {
        world.lock(0, window, 1, Exclusive).unwrap();
        for source in &sources {
            world.put(0, window, 1, 0, source).unwrap();
        }
        world.unlock(0, window, 1).unwrap();
        last[usize::from(world.word(1, window, 0).to_le_bytes()[0]) - 1] += 1;
    }
    world.free(window).unwrap();
    assert!(last[0] > 0 && last[1] > 0, "{last:?}");
}

/// Bytes of a put that no packet carries.
const LARGE: usize = 1 << 14;
