//! Choosing a library and a provider, and what is said when that is not possible.

use std::path::PathBuf;

use rma_core::provider::Endpoint;
use rma_ofi::{Ofi, OfiEndpoint, Options, Verdict};

fn message(options: &Options) -> String {
    Ofi::discover(options).unwrap_err().message
}

#[test]
fn the_choice_can_be_printed_with_reasons() {
    let choice = Ofi::discover(&Options { single_host: true, ..Options::default() }).unwrap();
    let text = choice.to_string();
    assert_eq!(text.lines().filter(|line| line.contains(": chosen: ")).count(), 1, "{text}");
    assert!(matches!(choice.candidate().verdict, Verdict::Chosen(_)));
    assert!(text.contains("shm") && text.contains("signal handlers"), "{text}");
    assert!(choice.candidates.iter().all(|candidate| !candidate.provider.is_empty()));
}

#[test]
fn the_default_is_native_tcp_and_on_one_host_loopback() {
    let choice = Ofi::discover(&Options { single_host: true, ..Options::default() }).unwrap();
    let chosen = choice.candidate();
    assert!(["tcp", "net"].contains(&chosen.provider.as_str()), "{choice}");
    assert_eq!(chosen.address, "127.0.0.1");
    let choice = Ofi::discover(&Options::default()).unwrap();
    assert!(choice.candidate().provider != "shm", "{choice}");
}

#[test]
fn software_providers_bind_to_the_address_that_the_launcher_has_proved() {
    let options = |provider: &str, address: &str| {
        let (provider, host_address) = (Some(provider.to_owned()), Some(address.to_owned()));
        Options { provider, host_address, ..Options::default() }
    };
    for provider in ["tcp;ofi_rxm", "sockets"] {
        for address in ["127.0.0.1", "::1"] {
            let choice = Ofi::discover(&options(provider, address)).unwrap();
            assert_eq!(choice.candidate().address, address, "{choice}");
        }
        // One that is not there, as after a change of the network: the provider's choice stays.
        let choice = Ofi::discover(&options(provider, "203.0.113.77")).unwrap();
        assert_eq!(choice.candidate().provider, provider, "{choice}");
    }
    let shm = Ofi::discover(&options("shm", "127.0.0.1")).unwrap();
    assert_eq!(shm.candidate().provider, "shm");
}

#[test]
fn an_unknown_provider_is_an_error_that_lists_those_there_are() {
    let message = message(&Options { provider: Some("carrier-pigeon".to_owned()), ..Options::default() });
    for part in ["carrier-pigeon", "tcp;ofi_rxm", "sockets", "RMA_PROVIDER"] {
        assert!(message.contains(part), "{part} missing in: {message}");
    }
}

#[test]
fn the_first_part_of_a_name_is_enough() {
    let options = Options { provider: Some("udp".to_owned()), single_host: true, ..Options::default() };
    assert_eq!(Ofi::discover(&options).unwrap().candidate().provider, "udp;ofi_rxd");
}

#[test]
fn an_unknown_domain_or_interface_is_an_error() {
    let provider = Some("tcp".to_owned());
    let no_domain =
        Options { domain: Some("nope".to_owned()), provider: provider.clone(), ..Options::default() };
    let text = message(&no_domain);
    for part in ["RMA_DOMAIN=nope was asked for, and there is ", "not used: RMA_DOMAIN=nope was asked for"] {
        assert!(text.contains(part), "{part} missing in: {text}");
    }
    let without_provider = message(&Options { provider: None, ..no_domain });
    assert!(without_provider.contains("RMA_DOMAIN=nope was asked for"), "{without_provider}");
    let no_interface = Options { interface: Some("nope0".to_owned()), provider, ..Options::default() };
    assert!(message(&no_interface).contains("no network interface nope0"));
}

#[test]
fn a_nic_that_is_not_there_is_an_error_that_lists_those_there_are() {
    let options = Options { nic: Some("mlx5_77".to_owned()), ..Options::default() };
    let message = message(&options);
    assert!(message.contains("RMA_NIC=mlx5_77 was asked for, and there is "), "{message}");
}

#[test]
fn every_setting_that_narrows_the_choice_is_named_when_nothing_is_left() {
    let (domain, interface) = (Some("nope".to_owned()), Some("lo".to_owned()));
    let message = message(&Options { domain, interface, ..Options::default() });
    for part in ["RMA_DOMAIN=nope was asked", "RMA_INTERFACE=lo was asked for, and there is 127.0.0.1"] {
        assert!(message.contains(part), "{part} missing in: {message}");
    }
}

#[test]
fn an_interface_decides_the_address() {
    let options = Options { interface: Some("lo".to_owned()), ..Options::default() };
    assert_eq!(Ofi::discover(&options).unwrap().candidate().address, "127.0.0.1");
}

#[test]
fn a_missing_library_is_an_error_with_the_remedy() {
    let library = Some(PathBuf::from("/nonexistent/libfabric.so.1"));
    let message = message(&Options { library, ..Options::default() });
    for part in ["/nonexistent/libfabric.so.1", "apt install libfabric1", "RMA_LIBFABRIC"] {
        assert!(message.contains(part), "{part} missing in: {message}");
    }
}

#[test]
fn a_library_given_by_path_is_the_one_that_is_used() {
    let options = Options { single_host: true, ..Options::default() };
    let system = OfiEndpoint::open(&Ofi::discover(&options).unwrap(), &options).unwrap();
    let path = system.description().library_path.clone();
    for library in [path.clone(), path.parent().unwrap().to_owned()] {
        let options = Options { library: Some(library), ..options.clone() };
        let endpoint = OfiEndpoint::open(&Ofi::discover(&options).unwrap(), &options).unwrap();
        assert_eq!(endpoint.description().library_path.file_name(), path.file_name());
    }
}

#[test]
fn the_description_says_what_was_opened() {
    let options =
        Options { provider: Some("tcp;ofi_rxm".to_owned()), single_host: true, ..Options::default() };
    let endpoint = OfiEndpoint::open(&Ofi::discover(&options).unwrap(), &options).unwrap();
    let text = endpoint.description().to_string();
    for part in
        ["tcp;ofi_rxm", "libfabric", "no RDMA device", "FI_ORDER_SAS", "127.0.0.1", "packets", "16368 B"]
    {
        assert!(text.contains(part), "{part} missing in:\n{text}");
    }
    let limits = endpoint.limits();
    let buffers = 2 * (options.send_buffers + options.receive_buffers);
    assert!(endpoint.description().memory_bytes >= buffers * limits.send_bytes_max);
}

#[test]
fn sizes_are_checked_before_anything_is_opened() {
    assert!(message(&Options { packet_bytes: 100, ..Options::default() }).contains("RMA_EAGER_BYTES) is 100"));
}
