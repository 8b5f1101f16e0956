//! The provider contract of `rma_core::provider`, one test per line, on every libfabric provider that
//! a machine without special hardware has.

mod allocations;
mod at_once;
mod bodies;
mod data;
mod helper;
mod one_process;
mod second;
mod strays;
mod two_processes;
mod vectors;
mod world;

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;

use allocations::allocations;
use bodies::every_body;
use rma_core::provider::Limits;
use rma_ofi::profile::RemoteCompletion;
use rma_ofi::{exceptions, Ofi, OfiEndpoint, Options};
use world::{World, LIMIT};

/// Longest time that anything bounded takes, seconds.
const LIMIT_S: u64 = 120;

/// How a provider is opened here.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) provider: &'static str,
    pub(crate) library: Option<PathBuf>,
    pub(crate) remote_completion: Option<RemoteCompletion>,
    pub(crate) packet_bytes: Option<usize>,
    /// All that libfabric is given is registered, and looked up by the endpoint where this is built for debugging.
    pub(crate) registers: bool,
}

const PROVIDER: &str = "RMA_TEST_HELPER_PROVIDER";
const LIBRARY: &str = "RMA_TEST_HELPER_LIBRARY";
const READ_BACK: &str = "RMA_TEST_HELPER_READ_BACK";
const REGISTERS: &str = "RMA_TEST_HELPER_REGISTERS";

impl Setup {
    /// Tells a helper's process how to open its provider.
    pub(crate) fn tell(&self, helper: &mut Command) {
        helper.env(PROVIDER, self.provider);
        if let Some(library) = &self.library {
            helper.env(LIBRARY, library);
        }
        if self.remote_completion == Some(RemoteCompletion::ReadBack) {
            helper.env(READ_BACK, "1");
        }
        if self.registers {
            helper.env(REGISTERS, "1");
        }
        if self.provider == "shm" {
            // Inside of a call it may hold a lock in memory that both share, and no call of ours would come back.
            helper.env(helper::BETWEEN_POLLS, "1");
        }
    }

    /// What a helper's process was told; `None` in any other.
    pub(crate) fn of_helper() -> Option<Self> {
        let provider = std::env::var(PROVIDER).ok()?;
        Some(Self {
            provider: Box::leak(provider.into_boxed_str()),
            library: std::env::var_os(LIBRARY).map(Into::into),
            remote_completion: std::env::var_os(READ_BACK).map(|_| RemoteCompletion::ReadBack),
            packet_bytes: None,
            registers: std::env::var_os(REGISTERS).is_some(),
        })
    }

    fn options(&self) -> Options {
        let common = if self.needs_device() { Options::from_env() } else { Options::default() };
        Options {
            packet_bytes: self.packet_bytes.unwrap_or_else(|| Options::default().packet_bytes),
            library: self.library.clone(),
            provider: Some(self.provider.to_owned()),
            single_host: !self.needs_device(),
            remote_completion: self.remote_completion,
            register_buffers: self.registers,
            ..common
        }
    }

    /// A device has addresses of its own, and not the loopback's.
    fn needs_device(&self) -> bool {
        self.provider.starts_with("verbs")
    }

    pub(crate) fn endpoint(&self) -> OfiEndpoint {
        let options = self.options();
        let choice = Ofi::discover(&options).unwrap();
        assert_eq!(choice.candidate().provider, self.provider);
        let endpoint = OfiEndpoint::open(&choice, &options).unwrap();
        assert_eq!(endpoint.description().registers_buffers, self.registers);
        // Offered it, the layer over a device leaves it to us.
        let is_left = endpoint.description().registration_mode.contains("FI_MR_LOCAL");
        assert_eq!(is_left, self.registers && self.needs_device());
        endpoint
    }

    fn world(&self, nodes: usize) -> World<OfiEndpoint> {
        World::new((0..nodes).map(|_| self.endpoint()).collect())
    }
}

/// Packets of a class from one peer that may be kept: all.
fn from_one_peer(limits: &Limits) -> usize {
    limits.receive_buffers
}

/// Not a test: what the tests with several processes start.
#[test]
#[ignore = "a helper that other tests start"]
fn helper_process() {
    helper::serve();
}

/// Whether the test can pass on this provider; says why where it cannot.
fn applies(setup: &Setup, test: &str) -> bool {
    // What libfabric registers in a wrong way, it is not left to register.
    let is_ours = setup.registers && test.ends_with("source_may_be_a_constant");
    let exception = exceptions::of(setup.provider, test).filter(|_| !is_ours);
    if let Some(exception) = exception {
        println!("exception: {exception}");
    }
    exception.is_none()
}

/// Runs a test that looks at the clock by itself, and ends the whole program where it does not come to that: a call of
/// the library does not return.
fn within_limit(name: &str, test: impl FnOnce()) {
    let (done, over) = mpsc::channel::<()>();
    let name = name.to_owned();
    thread::spawn(move || {
        let most = 2 * LIMIT;
        if over.recv_timeout(most) == Err(RecvTimeoutError::Timeout) {
            // Past the harness, which would keep it until the test is over.
            let _ = writeln!(std::io::stderr(), "{name} is not over after {most:?}: a call does not return");
            std::process::abort();
        }
    });
    test();
    drop(done);
}

macro_rules! body {
    (processes $name:ident) => {
        #[test]
        fn $name() {
            if let Some(setup) = setup(stringify!($name)) {
                within_limit(stringify!($name), || two_processes::$name(&setup));
            }
        }
    };
    ($nodes:literal $module:ident $name:ident $(($argument:ident))?) => {
        #[test]
        fn $name() {
            if let Some(setup) = setup(stringify!($name)) {
                within_limit(stringify!($name), || $module::$name(setup.world($nodes) $(, $argument)?));
            }
        }
    };
}

macro_rules! contract {
    ($($module:ident: $setup:expr;)*) => {$(
        mod $module {
            use super::*;

            fn setup(test: &str) -> Option<Setup> {
                let setup: Option<Setup> = $setup;
                setup.filter(|setup| applies(setup, test))
            }

            every_body!(body);

            /// Packets that the provider sends in another way than small ones.
            #[test]
            fn line_13_data_come_behind_large_packets() {
                for packet_bytes in [15_000, 17_000, 65_536] {
                    let setup = setup("line_13_data_come_behind_their_bytes");
                    if let Some(setup) = setup.map(|setup| Setup { packet_bytes: Some(packet_bytes), ..setup }) {
                        data::line_13_data_come_behind_their_bytes(setup.world(2));
                    }
                }
            }

            body!(3 strays packets_for_another_endpoint_are_dropped);
            body!(3 strays keys_of_another_endpoint_open_nothing);
        }
    )*};
}

/// The system's library, which must have the provider.
fn system(provider: &'static str) -> Option<Setup> {
    Some(Setup { provider, library: None, remote_completion: None, packet_bytes: None, registers: false })
}

fn read_back(provider: &'static str) -> Option<Setup> {
    let remote_completion = Some(RemoteCompletion::ReadBack);
    system(provider).map(|setup| Setup { remote_completion, ..setup })
}

/// With all buffers registered.
fn registered(setup: Option<Setup>) -> Option<Setup> {
    setup.map(|setup| Setup { registers: true, ..setup })
}

/// A libfabric 2.x, where the machine has one: `RMA_TEST_LIBFABRIC2` names it.
fn second(provider: &'static str) -> Option<Setup> {
    let library = second::library("not run")?;
    system(provider).map(|setup| Setup { library: Some(library), ..setup })
}

contract! {
    tcp_rxm: system("tcp;ofi_rxm");
    net: system("net");
    sockets: system("sockets");
    udp_rxd: system("udp;ofi_rxd");
    shm: system("shm");
    net_reading_back: read_back("net");
    tcp_rxm_reading_back: read_back("tcp;ofi_rxm");
    net_registered: registered(system("net"));
    tcp_rxm_registered: registered(read_back("tcp;ofi_rxm"));
    version_2_tcp: second("tcp");
    version_2_tcp_rxm: second("tcp;ofi_rxm");
    version_2_tcp_rxm_registered: registered(second("tcp;ofi_rxm"));
}

// Built with feature `device`, and then there must be one; ci/softroce.sh makes one in software.
#[cfg(feature = "device")]
contract! {
    verbs_rxm: system("verbs;ofi_rxm");
    verbs_rxm_registered: registered(system("verbs;ofi_rxm"));
}
