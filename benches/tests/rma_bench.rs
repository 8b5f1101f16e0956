//! `rma-bench` as users run it: two ranks under `rmarun`, over libfabric.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

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

fn bench(ranks: u32, arguments: &[&str]) -> Output {
    let mut command = Command::new(rmarun());
    command.args(["-n", &ranks.to_string(), "--timeout", "120", env!("CARGO_BIN_EXE_rma-bench")]);
    command.args(arguments).output().unwrap()
}

fn alone(arguments: &[&str], library: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rma-bench"));
    if let Some(library) = library {
        command.env("RMA_LIBFABRIC", library);
    }
    command.args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const SHORT: [&str; 6] = ["--rounds", "5", "--iterations", "9", "--warm-up", "2"];

fn rows(ranks: u32, arguments: &[&str]) -> Vec<Value> {
    let output = bench(ranks, &[&["optimizations", "--json"], &SHORT[..], arguments].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    // Nobody watches: nothing draws.
    assert_eq!(text(&output.stderr), "");
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn row<'a>(rows: &'a [Value], epoch: &str, switches: &str) -> &'a Value {
    rows.iter().find(|row| row["epoch"] == epoch && row["switches"] == switches).unwrap()
}

/// The commands about threads and the agent print a row for each kind.
#[test]
fn threads_and_the_agent_are_measured() {
    let output = bench(2, &["threads", "--threads", "1,2", "--iterations", "64"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    // A title, the names of the columns, and a row for each number of threads.
    assert_eq!(text(&output.stdout).lines().count(), 1 + 1 + 2, "{}", text(&output.stdout));
    let output = bench(2, &["agent", "--iterations", "5"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for target in ["polls", "computes", "sleeps"] {
        assert!(text(&output.stdout).contains(target), "{}", text(&output.stdout));
    }
}

#[test]
fn one_packet_each_way_with_the_optimizations_and_more_without() {
    let rows = rows(2, &[]);
    let counts =
        |row: &Value| ["packets_out", "packets_back", "round_trips"].map(|name| row[name].as_u64().unwrap());
    for epoch in ["lock-put-unlock", "lock-puts-unlock", "lock-puts-get-unlock"] {
        assert_eq!(counts(row(&rows, epoch, "all-on")), [1, 1, 1], "{epoch}");
        assert!(counts(row(&rows, epoch, "all-off"))[2] >= 2, "{epoch}");
    }
    assert_eq!(row(&rows, "lock-put-unlock", "all-on")["bytes"], 56);
    assert_eq!(row(&rows, "lock-puts-unlock", "all-on")["operations"], 8);
    for row in &rows {
        for name in ["median_us", "p99_us", "raw_round_trip_us", "ratio_raw", "ratio_all_off"] {
            assert!(row[name].as_f64().is_some_and(|value| value > 0.0), "{name} of {row}");
        }
        assert!(row["provider"].is_string() && row["size"] == 8, "{row}");
    }
    let switches =
        ["all-on", "single-op-lock", "piggyback", "coalesce", "get-to-tail", "lazy-targets", "all-off"];
    for switches in switches {
        row(&rows, "fence-put-fence", switches);
    }
}

#[test]
fn more_ranks_than_two_and_large_operations() {
    let epochs = ["--epoch", "fence-put-fence", "--epoch", "lock-puts-get-unlock"];
    let rows = rows(3, &[&epochs[..], &["--size", "20000", "--operations", "3"]].concat());
    assert!(rows.iter().all(|row| row["ranks"] == 3 && row["size"] == 20_000));
    assert!(rows.iter().all(|row| row["epoch"] != "lock-put-unlock"));
}

#[test]
fn the_table_is_for_people() {
    let output = bench(2, &[&["optimizations", "--epoch", "lock-put-unlock"], &SHORT[..]].concat());
    let table = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for part in ["raw round trip: 40 bytes out, 16 bytes back", "no single-op-lock", "all-off", "/ raw"] {
        assert!(table.contains(part), "{part} is not in\n{table}");
    }
}

#[test]
fn one_rank_is_told_how_to_start_two() {
    let output = alone(&["optimizations"], None);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("rmarun -n 2 rma-bench optimizations"));
}

#[test]
fn info_says_what_was_chosen_and_what_is_set() {
    let output = alone(&["info"], None);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for part in ["libfabric", "chosen:", "put ", "accumulates on", "limits", "RMA_SLOTS", "a window, beside"]
    {
        assert!(said.contains(part), "{part} is not in\n{said}");
    }
}

#[test]
fn info_without_a_provider_says_what_helps() {
    let output = alone(&["info"], Some("/nonexistent/libfabric.so.1"));
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("apt-get install libfabric1"), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("/nonexistent/libfabric.so.1"), "{}", text(&output.stdout));
    let output = alone(&["info", "--provider", "nosuch"], None);
    assert_eq!(output.status.code(), Some(1));
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(said.contains("chosen:") && said.contains("command line"), "{said}");
    assert!(errors.contains("nosuch"), "{errors}");
}
