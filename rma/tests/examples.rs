//! Every example, with 2 and 4 ranks; each checks its own result.

mod common;

use std::path::Path;
use std::process::Command;

use common::{can_be_apart, examples, rmarun, text, without_settings, APART};

/// Longest time of an example, seconds.
const LIMIT: &str = "120";

/// Names of the examples' sources.
fn sources() -> Vec<String> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut names: Vec<String> = std::fs::read_dir(sources)
        .unwrap()
        .filter_map(|entry| entry.unwrap().path().file_stem()?.to_str().map(str::to_owned))
        .collect();
    names.sort();
    names
}

fn run(ranks: &str) {
    let names = sources();
    assert!(names.len() >= 5, "{names:?}");
    for (name, provider) in names.iter().flat_map(|name| ["shm", "net"].map(|provider| (name, provider))) {
        let mut command = Command::new(rmarun());
        command.args(["-n", ranks, "--timeout", LIMIT, "--provider", provider]).arg(examples().join(name));
        without_settings(&mut command);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{name} with {ranks} ranks over {provider}: {}", text(&output));
        println!("{name} with {ranks} ranks over {provider}: passed");
    }
}

/// Shows: lecture: lock program.
#[test]
fn with_2_ranks() {
    run("2");
}

#[test]
fn with_4_ranks() {
    run("4");
}

/// Users look for their own mistakes with it. It knows no `pidfd_open`, so that no memory is shared, which is said.
#[test]
fn under_valgrind() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("not run: there is no valgrind");
        return;
    }
    for provider in ["net", "shm"] {
        let mut command = Command::new(rmarun());
        command.args(["-n", "2", "--timeout", LIMIT, "--provider", provider, "valgrind", "--quiet"]);
        command.arg(examples().join("hello_put"));
        without_settings(&mut command);
        let output = command.output().unwrap();
        let text = text(&output);
        let is_refused = provider == "shm" && text.contains("valgrind, or the program may not be inspected");
        assert!(output.status.success() || is_refused, "over {provider}: {text}");
    }
}

/// The one that does something else for ranks of other hosts.
#[test]
fn node_shared_on_two_hosts() {
    if !can_be_apart() {
        return;
    }
    for map_by in ["slot", "node"] {
        let mut command = Command::new(rmarun());
        command.args(["--launch-agent", APART, "--host", "first:3,second:2", "--map-by", map_by]);
        command.args(["--timeout", LIMIT]).arg(examples().join("node_shared"));
        without_settings(&mut command);
        let output = command.output().unwrap();
        let text = text(&output);
        assert!(output.status.success(), "ranks by {map_by}: {text}");
        let second = if map_by == "slot" { "[Rank(3), Rank(4)]" } else { "[Rank(1), Rank(3)]" };
        assert_eq!(text.matches(second).count(), 2, "ranks by {map_by}: {text}");
    }
}
