//! The program that measures MPI libraries says of each row exactly what `rma-bench` says, so that they can be put side by
//! side. That needs an MPI library: `RMA_TEST_MPICC` and `RMA_TEST_MPIEXEC` name its compiler and launcher.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use rma_bench::record::Record;

use common::{alone, bench, text};

const FEW: [&str; 4] = ["--rounds", "1", "--time", "0.001"];

fn tool(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set"))
}

fn build() -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("peer");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
    let sources = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let sources = sources.filter(|path| path.extension().is_some_and(|extension| extension == "c"));
    let mut command = Command::new(tool("RMA_TEST_MPICC"));
    command.args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).args(sources).arg("-lm");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    program
}

/// What was measured, and in which unit, in order.
fn titles(output: &std::process::Output) -> Vec<(String, &'static str)> {
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows = text(&output.stdout);
    let mut titles: Vec<_> = rows
        .lines()
        .map(|line| Record::from_json(&serde_json::from_str(line).unwrap()).unwrap())
        .map(|record| (record.title(&[]), record.unit.name()))
        .collect();
    titles.sort();
    titles
}

#[test]
#[ignore = "needs an MPI library: RMA_TEST_MPICC and RMA_TEST_MPIEXEC"]
fn rows_are_those_of_the_crate() {
    let program = build();
    let operations = "put,get,accumulate,get_accumulate,fetch_and_op,compare_and_swap";
    let commands: [&[&str]; 12] = [
        &["latency", "-o", operations, "-m", "4:64"],
        &["latency", "-w", "create", "-s", "lock", "--exclusive", "-m", "8:8"],
        &["latency", "-w", "dynamic", "-s", "lock_all", "-m", "8:8"],
        &["latency", "-s", "flush_local", "-m", "8:8"],
        &["latency", "-s", "fence", "-m", "8:8"],
        &["latency", "-s", "pscw", "-m", "8:8"],
        &["bandwidth", "-o", "put,get", "-m", "1K:2K", "-W", "4"],
        &["bandwidth", "--bidirectional", "-s", "pscw", "-m", "1K:1K", "-W", "4"],
        &["rate", "-o", "put,fetch_and_op", "-W", "8"],
        &["overlap", "-o", "put,accumulate", "-m", "4K:8K", "--slices", "2"],
        &["windows", "-w", "create", "-m", "4K:8K"],
        &["locks"],
    ];
    for command in commands {
        let effort = if command[0] == "windows" { &FEW[..2] } else { &FEW[..] };
        let arguments = [command, effort, &["--json"]].concat();
        let mut peer = Command::new(tool("RMA_TEST_MPIEXEC"));
        let peer = peer.args(["-n", "2"]).arg(&program).args(&arguments).output().unwrap();
        let own = titles(&bench(2, &arguments));
        assert!(!own.is_empty(), "{command:?}");
        assert_eq!(titles(&peer), own, "{command:?}");
    }
    for ranks in [2, 3] {
        let arguments = ["stale", "-m", "8:16", "-i", "20", "--json"];
        let mut peer = Command::new(tool("RMA_TEST_MPIEXEC"));
        let peer = peer.args(["-n", &ranks.to_string()]).arg(&program).args(arguments).output().unwrap();
        assert_eq!(titles(&peer), titles(&bench(ranks, &arguments)));
    }
}

/// A file of one row, measured in three rounds of these many microseconds.
fn stored(name: &str, size: u64, rounds: [f64; 3]) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name).display().to_string();
    let rows = rounds.map(|round| {
        let row = serde_json::json!({
            "benchmark": "latency", "operation": "put", "size": size, "unit": "us", "rounds": [round],
        });
        row.to_string() + "\n"
    });
    std::fs::write(&path, rows.concat()).unwrap();
    path
}

#[test]
fn peers_stand_side_by_side() {
    let own = stored("own.jsonl", 8, [1.0, 2.0, 4.0]);
    let peer = stored("other.jsonl", 8, [3.0, 6.0, 12.0]);
    let output = alone(&["peers", &own, &peer], None);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(said.contains("# latency, put (us)"), "{said}");
    let row = |line: usize| said.lines().nth(line).unwrap().split_whitespace().collect::<Vec<_>>();
    assert_eq!(row(2), ["8", "own", "2.00", "1.00", "-", "-", "-"], "{said}");
    assert_eq!(row(3), ["8", "other", "6.00", "3.00", "3.00", "3.00", "3.00"], "{said}");
    let elsewhere = stored("elsewhere.jsonl", 16, [1.0; 3]);
    let refused = alone(&["peers", &own, &elsewhere], None);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("no measurement in common"), "{}", text(&refused.stderr));
}
