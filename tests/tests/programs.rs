//! The simulator's random programs with real processes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use rma_sim::swarm::{plan, Bounds};

/// Programs of each job.
const PROGRAMS: u32 = 8;

/// Longest time of one job, seconds; far above what any takes on a busy machine.
const LIMIT: &str = "400";

/// What starts the agents of several hosts.
const APART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../ci/apart.sh");

/// The launcher of this build.
fn rmarun() -> &'static Path {
    static RMARUN: OnceLock<PathBuf> = OnceLock::new();
    RMARUN.get_or_init(find_rmarun)
}

fn find_rmarun() -> PathBuf {
    // A build with a sanitizer in it names its own, which is there already.
    if let Some(path) = std::env::var_os("RMA_TEST_RMARUN") {
        return path.into();
    }
    let programs = PathBuf::from(env!("CARGO_BIN_EXE_rma-programs"));
    let directory = programs.parent().unwrap().to_owned();
    // A cheap call when it is there and fresh, as it is after `cargo test --workspace`.
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--workspace", "--bin", "rmarun"]);
    build.arg("--target-dir").arg(directory.parent().unwrap());
    build.current_dir(env!("CARGO_MANIFEST_DIR"));
    if directory.ends_with("release") {
        build.arg("--release");
    }
    let is_built = build.status().is_ok_and(|status| status.success());
    let rmarun = directory.join("rmarun");
    assert!(is_built || rmarun.exists(), "rmarun is not there and cannot be built");
    rmarun
}

fn programs(ranks: u32, provider: &str) {
    programs_with(ranks, provider, &[]);
}

/// Ranks on two hosts, as many as are said for each: neighbours share memory, and the others are reached by the network.
/// rma/tests/mixed.rs holds that this is so.
fn programs_on_two_hosts(ranks: [u32; 2], provider: &str) {
    let can_be_apart = Command::new(APART).args(["first", "true"]).output();
    if !can_be_apart.is_ok_and(|output| output.status.success()) {
        println!(
            "not run: this machine lets us make no PID namespaces, as in a container without CAP_SYS_ADMIN"
        );
        return;
    }
    let hosts = format!("first:{},second:{}", ranks[0], ranks[1]);
    programs_with(ranks[0] + ranks[1], provider, &["--launch-agent", APART, "--host", &hosts]);
}

/// `options` are the launcher's.
fn programs_with(ranks: u32, provider: &str, options: &[&str]) {
    let mut command = Command::new(rmarun());
    command.args(options);
    command.args(["-n", &ranks.to_string(), "--timeout", LIMIT, "--provider", provider]);
    command.arg(env!("CARGO_BIN_EXE_rma-programs"));
    let from = 1000 * ranks;
    command.args(["--seeds", &PROGRAMS.to_string(), "--from", &from.to_string()]);
    // Settings of whoever runs the tests are not theirs.
    let own = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("RMA_"));
    for (name, _) in own {
        command.env_remove(name);
    }
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{ranks} ranks over {provider} {options:?}:\n{out}{err}");
    assert!(out.contains("all passed"), "{out}{err}");
}

/// Regions that come and go under others' accesses are among what these jobs run.
#[test]
fn programs_of_jobs_have_dynamic_windows() {
    let has_dynamic = |ranks: u32, seed: u32| {
        let drawn = plan(seed.into(), Bounds::of(ranks, ranks));
        drawn.windows.iter().any(|window| window.is_dynamic)
    };
    let jobs = (2..=7)
        .map(|ranks| (1000 * ranks..1000 * ranks + PROGRAMS).filter(move |&seed| has_dynamic(ranks, seed)));
    let counts: Vec<_> = jobs.map(Iterator::count).collect();
    assert!(counts.iter().sum::<usize>() >= 6, "of {PROGRAMS} programs each: {counts:?}");
}

#[test]
fn random_programs_of_three_ranks_over_shared_memory() {
    programs(3, "shm");
}

#[test]
fn random_programs_of_six_ranks_over_shared_memory() {
    programs(6, "shm");
}

#[test]
fn random_programs_of_two_ranks_over_rxm() {
    programs(2, "tcp;ofi_rxm");
}

#[test]
fn random_programs_of_three_ranks() {
    programs(3, "net");
}

#[test]
fn random_programs_of_four_ranks_over_rxm() {
    programs(4, "tcp;ofi_rxm");
}

#[test]
fn random_programs_of_five_ranks() {
    programs(5, "net");
}

#[test]
fn random_programs_of_four_ranks_on_two_hosts() {
    programs_on_two_hosts([2, 2], "shm+net");
}

#[test]
fn random_programs_of_six_ranks_on_two_hosts_over_rxm() {
    programs_on_two_hosts([4, 2], "shm+tcp;ofi_rxm");
}

#[test]
fn random_programs_of_seven_ranks_on_two_hosts() {
    programs_on_two_hosts([3, 4], "shm+net");
}
