//! Starting `rma-bench` as users do.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The launcher that belongs to this build.
fn rmarun() -> PathBuf {
    // A build with a sanitizer in it names its own, which is there already.
    if let Some(path) = std::env::var_os("RMA_TEST_RMARUN") {
        return path.into();
    }
    let bench = Path::new(env!("CARGO_BIN_EXE_rma-bench"));
    let directory = bench.parent().unwrap();
    // A cheap call when it is there and fresh, as it is after `cargo test --workspace`.
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--workspace", "--bin", "rmarun"]);
    build.arg("--target-dir").arg(directory.parent().unwrap());
    if directory.ends_with("release") {
        build.arg("--release");
    }
    let built = build.status().is_ok_and(|status| status.success());
    let rmarun = directory.join("rmarun");
    assert!(built || rmarun.exists(), "rmarun is not there and cannot be built");
    rmarun
}

/// `rma-bench` in a job of this many ranks, which ends by itself if it hangs.
pub(crate) fn bench(ranks: u32, arguments: &[&str]) -> Output {
    let mut command = Command::new(rmarun());
    command.args(["-n", &ranks.to_string(), "--timeout", "120", env!("CARGO_BIN_EXE_rma-bench")]);
    command.args(arguments).output().unwrap()
}

/// `rma-bench` without a launcher.
pub(crate) fn alone(arguments: &[&str], library: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rma-bench"));
    if let Some(library) = library {
        command.env("RMA_LIBFABRIC", library);
    }
    command.args(arguments).output().unwrap()
}

/// What a program has printed.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
