//! Tests that are jobs: a test starts itself again under `rmarun`, and each rank runs its body.
#![allow(dead_code)] // each test binary uses its part

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use rma::{Error, Job};

/// Providers that every test runs over.
pub(crate) const PROVIDERS: [&str; 4] = ["shm", "tcp;ofi_rxm", "net", "shm+net"];

/// Longest time of one job, seconds; far above what any takes on a busy machine.
const LIMIT: &str = "300";

/// Set for the ranks of a test's job.
const IS_RANK: &str = "RMA_TEST_IS_RANK";

/// Runs `body` in `count` ranks over every provider. `name` is the test's own, with its modules.
pub(crate) fn ranks(name: &str, count: u32, body: impl FnOnce(&Job) -> Result<(), Error>) {
    ranks_with(name, count, &[], body);
}

/// The same with variables set.
pub(crate) fn ranks_with(
    name: &str,
    count: u32,
    variables: &[(&str, &str)],
    body: impl FnOnce(&Job) -> Result<(), Error>,
) {
    if is_rank() {
        return run_body(body);
    }
    PROVIDERS.into_iter().for_each(|provider| succeeds_over(provider, name, count, variables));
}

/// The same over all providers at once, for bodies that wait most of the time.
pub(crate) fn ranks_at_once(
    name: &str,
    count: u32,
    variables: &[(&str, &str)],
    body: impl FnOnce(&Job) -> Result<(), Error>,
) {
    if is_rank() {
        return run_body(body);
    }
    std::thread::scope(|scope| {
        for provider in PROVIDERS {
            scope.spawn(move || succeeds_over(provider, name, count, variables));
        }
    });
}

fn succeeds_over(provider: &str, name: &str, count: u32, variables: &[(&str, &str)]) {
    let output = launch(name, count, provider, variables);
    assert!(output.status.success(), "over {provider}: {}", text(&output));
    // For `--nocapture`: what a run has measured.
    println!("over {provider}: {}", String::from_utf8_lossy(&output.stdout));
}

/// Whether this process is a rank of a test's job.
pub(crate) fn is_rank() -> bool {
    std::env::var_os(IS_RANK).is_some()
}

/// The part of a rank.
pub(crate) fn run_body(body: impl FnOnce(&Job) -> Result<(), Error>) {
    let job = Job::init().unwrap();
    body(&job).unwrap();
    job.finalize().unwrap();
}

/// Starts the test `name` of this binary as a job.
pub(crate) fn launch(name: &str, count: u32, provider: &str, variables: &[(&str, &str)]) -> Output {
    launch_with(name, count, provider, variables, &[])
}

/// The same with more options of the launcher.
pub(crate) fn launch_with(
    name: &str,
    count: u32,
    provider: &str,
    variables: &[(&str, &str)],
    options: &[&str],
) -> Output {
    let mut command = Command::new(rmarun());
    command.args(options);
    let limit = std::env::var("RMA_TEST_LIMIT").unwrap_or_else(|_| LIMIT.to_owned());
    command.args(["-n", &count.to_string(), "--timeout", &limit, "--tag-output", "--provider", provider]);
    command.arg(std::env::current_exe().unwrap());
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]);
    without_settings(&mut command);
    command.env(IS_RANK, "1").envs(variables.iter().copied());
    command.output().unwrap()
}

/// What starts the agents of hosts that are this machine's: each is a PID namespace.
pub(crate) const APART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../ci/apart.sh");

/// Whether this machine can be several hosts; says so where it cannot.
pub(crate) fn can_be_apart() -> bool {
    let tried = Command::new(APART).args(["first", "true"]).output();
    let can_be = tried.is_ok_and(|output| output.status.success());
    if !can_be {
        println!(
            "not run: this machine lets us make no PID namespaces, as in a container without CAP_SYS_ADMIN"
        );
    }
    can_be
}

/// Takes the developer's own settings from a command.
pub(crate) fn without_settings(command: &mut Command) {
    for (name, _) in std::env::vars() {
        let is_setting = name.starts_with("RMA_") && !name.starts_with("RMA_TEST_");
        if is_setting || name == "FI_PROVIDER" {
            command.env_remove(name);
        }
    }
    command.env("XDG_CONFIG_HOME", "/nonexistent");
}

/// Everything that a job wrote.
pub(crate) fn text(output: &Output) -> String {
    format!(
        "{}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// The launcher that belongs to this build.
pub(crate) fn rmarun() -> &'static Path {
    static RMARUN: OnceLock<PathBuf> = OnceLock::new();
    RMARUN.get_or_init(|| match named_rmarun() {
        Some(rmarun) => rmarun,
        None => {
            let built = build(&["--bin", "rmarun"]);
            let rmarun = folder().join("rmarun");
            assert!(built || rmarun.exists(), "rmarun is not there and cannot be built");
            rmarun
        }
    })
}

/// The folder of this build's examples. With `--test NAME` alone cargo does not build them.
pub(crate) fn examples() -> &'static Path {
    static EXAMPLES: OnceLock<PathBuf> = OnceLock::new();
    EXAMPLES.get_or_init(|| {
        assert!(named_rmarun().is_some() || build(&["--examples"]), "the examples cannot be built");
        folder().join("examples")
    })
}

/// The launcher to use, named by somebody who has built the whole workspace, perhaps in a way that cargo would not
/// find out here: then nothing is built.
fn named_rmarun() -> Option<PathBuf> {
    std::env::var_os("RMA_TEST_RMARUN").map(PathBuf::from)
}

/// Where this build's programs are.
fn folder() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().and_then(Path::parent).unwrap().to_owned()
}

/// Builds these targets of the workspace beside the test, as `cargo test --workspace` builds them, after which this
/// is a cheap call: of a single package cargo would build the dependencies again, with fewer features.
fn build(targets: &[&str]) -> bool {
    let directory = folder();
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--workspace"]).args(targets).arg("--target-dir");
    build.arg(directory.parent().unwrap()).current_dir(env!("CARGO_MANIFEST_DIR"));
    if directory.ends_with("release") {
        build.arg("--release");
    }
    build.status().is_ok_and(|status| status.success())
}
