//! The program of this package under `rmarun`: every provider that jobs of one host can use, 2, 4 and 7 ranks,
//! natively and with forced messages. What a provider cannot do is listed in `rma-ofi/src/exceptions.rs`; nothing of
//! that is asked for here.

#[path = "../../../rma-ofi/tests/contract/second.rs"]
mod libfabric_2;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Longest time of a job, seconds; far above what any takes on a busy machine.
const LIMIT: &str = "240";

/// The launcher of this build.
fn rmarun() -> &'static Path {
    static RMARUN: OnceLock<PathBuf> = OnceLock::new();
    RMARUN.get_or_init(|| {
        // A build with a sanitizer in it names its own, which is there already.
        if let Some(path) = std::env::var_os("RMA_TEST_RMARUN") {
            return path.into();
        }
        let program = Path::new(env!("CARGO_BIN_EXE_rma-processes"));
        let directory = program.parent().expect("a program is in a folder");
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--workspace", "--bin", "rmarun", "--target-dir"]);
        build.arg(directory.parent().expect("a profile's folder is in a target folder"));
        build.current_dir(env!("CARGO_MANIFEST_DIR"));
        if directory.ends_with("release") {
            build.arg("--release");
        }
        let built = build.status().is_ok_and(|status| status.success());
        let rmarun = directory.join("rmarun");
        assert!(built || rmarun.exists(), "rmarun is not there and cannot be built");
        rmarun
    })
}

/// A job whose provider is not named.
fn command(ranks: u32, arguments: &[&str]) -> Command {
    let mut command = Command::new(rmarun());
    command.args(["-n", &ranks.to_string(), "--timeout", LIMIT]);
    command.arg(env!("CARGO_BIN_EXE_rma-processes")).args(arguments);
    for (name, _) in std::env::vars() {
        if name.starts_with("RMA_") || name == "FI_PROVIDER" {
            command.env_remove(name);
        }
    }
    command.env("XDG_CONFIG_HOME", "/nonexistent");
    command
}

fn job(ranks: u32, provider: &str, variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    let mut command = command(ranks, arguments);
    command.env("RMA_PROVIDER", provider).envs(variables.iter().copied());
    command.output().expect("the launcher starts")
}

fn text(output: &Output) -> String {
    let parts = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    format!("{}\n{}\n{}", output.status, parts[0], parts[1])
}

fn passes(ranks: u32, provider: &str, variables: &[(&str, &str)]) {
    let output = job(ranks, provider, variables, &["--limit", "100"]);
    let text = text(&output);
    assert!(output.status.success(), "{ranks} ranks over {provider}, {variables:?}: {text}");
    assert!(text.contains("behaviours passed on"), "{text}");
    println!("{}", String::from_utf8_lossy(&output.stdout).trim_end());
}

const FORCED: (&str, &str) = ("RMA_FORCE_MESSAGE_PATH", "1");

macro_rules! providers {
    ($($name:ident: $provider:literal;)*) => {$(
        mod $name {
            #[test]
            fn ranks_2() {
                super::passes(2, $provider, &[]);
            }

            #[test]
            fn ranks_4() {
                super::passes(4, $provider, &[]);
            }

            #[test]
            fn ranks_7() {
                super::passes(7, $provider, &[]);
            }

            #[test]
            fn messages_2() {
                super::passes(2, $provider, &[super::FORCED]);
            }

            #[test]
            fn messages_4() {
                super::passes(4, $provider, &[super::FORCED]);
            }

            #[test]
            fn messages_7() {
                super::passes(7, $provider, &[super::FORCED]);
            }
        }
    )*};
}

providers! {
    net: "net";
    tcp_rxm: "tcp;ofi_rxm";
    sockets: "sockets";
    udp_rxd: "udp;ofi_rxd";
    shm: "shm";
    ofi_shm: "ofi:shm";
    shm_and_net: "shm+net";
}

/// Where ranks share memory locks are words by default; here they are messages beside operations that need none.
#[test]
fn locks_by_message() {
    for provider in ["shm", "shm+net"] {
        passes(4, provider, &[("RMA_LOCK_PROTOCOL", "message")]);
    }
}

#[test]
fn version_2_tcp() {
    let Some(library) = libfabric_2::library("not run") else { return };
    let library = library.to_str().expect("the library's path is text");
    for ranks in [2, 4, 7] {
        passes(ranks, "tcp", &[("RMA_LIBFABRIC", library)]);
        passes(ranks, "tcp", &[("RMA_LIBFABRIC", library), FORCED]);
    }
}

/// Nobody chose a provider, and there is no libfabric: ranks of one host need none.
#[test]
fn without_libfabric() {
    let mut command = command(3, &["--limit", "100"]);
    let output = command.env("RMA_LIBFABRIC", "/nonexistent").output().expect("the launcher starts");
    let text = text(&output);
    assert!(output.status.success() && text.contains("on 3 ranks over shm"), "{text}");
}

/// The agent does not help: every rank serves the others in its own calls only.
#[test]
fn without_an_agent() {
    let listed = job(1, "net", &[], &["--list"]);
    let names = String::from_utf8(listed.stdout).expect("names are text");
    // Bodies whose target computes, or only loads, need an agent.
    let needs_agent = ["a_computing_target_is_served", "a_flag_is_seen_by_loads"];
    let names: Vec<&str> = names.lines().filter(|name| !needs_agent.contains(name)).collect();
    let mut arguments = vec!["--limit", "100"];
    arguments.extend(names.iter().flat_map(|name| ["--only", name]));
    let output = job(3, "net", &[("RMA_PROGRESS", "none")], &arguments);
    assert!(output.status.success(), "{}", text(&output));
}

/// A ghost beside every rank serves what the ranks have allocated.
#[test]
fn with_ghosts() {
    let ghost = ("RMA_PROGRESS", "ghost");
    for provider in ["shm", "net", "tcp;ofi_rxm", "shm+net"] {
        passes(3, provider, &[ghost]);
        passes(2, provider, &[ghost, FORCED]);
    }
}

/// A timer interrupts every rank, whose handler serves the others.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[test]
fn with_signals() {
    let signal = ("RMA_PROGRESS", "signal");
    for provider in ["shm", "net", "tcp;ofi_rxm"] {
        passes(3, provider, &[signal]);
        passes(2, provider, &[signal, FORCED]);
    }
}

#[test]
fn a_failure_names_the_behaviour_and_the_rank() {
    let output = job(3, "net", &[], &["--only", "fails_on_purpose", "--limit", "60"]);
    let text = text(&output);
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("FAILED fails_on_purpose on rank 2"), "{text}");
    assert!(text.contains("window.own(0) is 0 and not 17"), "{text}");
}

#[test]
fn a_hang_says_where_every_rank_was() {
    let output = job(3, "net", &[], &["--only", "hangs_on_purpose", "--limit", "10"]);
    let text = text(&output);
    assert!(!output.status.success(), "{text}");
    for part in ["rank 0 is in barrier at", "rank 1 is in fence at", "rank 2 is in fence at"] {
        assert!(text.contains(part), "{part} missing in: {text}");
    }
}

#[test]
fn unknown_behaviours_and_options_are_refused() {
    for (arguments, what) in [(["--only", "nope"], "no behaviour nope"), (["--limit", "soon"], "--limit")] {
        let output = job(1, "net", &[], &arguments);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        assert!(text(&output).contains(what), "{}", text(&output));
    }
}
