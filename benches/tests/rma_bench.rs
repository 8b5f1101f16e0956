//! `rma-bench` as users run it: two ranks under `rmarun`, over libfabric.

mod common;

use serde_json::Value;

use common::{alone, bench, text};

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
