//! The commands that measure, as users run them, with a handful of iterations: what they print has its shape, and
//! what they check holds. No time is asserted.

mod common;

use std::collections::BTreeSet;

use serde_json::Value;

use common::{alone, bench, text};

const FEW: [&str; 6] = ["--iterations", "12", "--warmup", "2", "--rounds", "6"];

fn rows(ranks: u32, arguments: &[&str]) -> Vec<Value> {
    let output = bench(ranks, &[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "{arguments:?}");
    let rows: Vec<Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for row in &rows {
        let [low, median, high] = ["low", "median", "high"]
            .map(|name| row[name].as_f64().unwrap_or_else(|| panic!("{name} is no number: {row}")));
        assert!(low <= median && median <= high && low >= 0.0, "{row}");
        assert!(
            row["environment"]["provider"].is_string() && row["environment"]["host"].is_string(),
            "{row}"
        );
        assert_eq!(row["environment"]["ranks"], ranks);
        assert_eq!(row["environment"]["places"].as_array().unwrap().len(), ranks as usize);
    }
    rows
}

fn refused(arguments: &[&str], reason: &str) {
    let output = alone(arguments, None);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    assert!(text(&output.stderr).contains(reason), "{arguments:?}: {}", text(&output.stderr));
}

fn values(rows: &[Value], name: &str) -> BTreeSet<String> {
    rows.iter().map(|row| row[name].to_string()).collect()
}

#[test]
fn latency_of_every_operation_by_every_synchronization() {
    let operations = "put,get,accumulate,get_accumulate,fetch_and_op,compare_and_swap";
    for sync in ["lock", "lock_all", "flush", "flush_local", "fence", "pscw"] {
        let arguments = ["latency", "-o", operations, "-s", sync, "-m", "4:64"];
        let rows = rows(2, &[&arguments[..], &FEW[..]].concat());
        // 4 to 64 bytes; whole words; one word.
        assert_eq!(rows.len(), 2 * 5 + 2 * 4 + 2, "{sync}");
        assert_eq!(values(&rows, "operation").len(), 6);
        assert!(rows.iter().all(|row| row["sync"] == sync && row["unit"] == "us"));
        assert!(rows.iter().all(|row| row["rounds"].as_array().unwrap().len() == 6));
        assert!(rows.iter().all(|row| row["epochs"].as_u64().unwrap() >= 12 && row["p99"].is_number()));
    }
}

#[test]
fn latency_in_every_kind_of_window() {
    for window in ["create", "allocate", "dynamic", "shared"] {
        let arguments = ["latency", "-w", window, "-o", "put,get,accumulate", "-m", "8:32K"];
        let rows = rows(2, &[&arguments[..], &FEW[..]].concat());
        assert_eq!(rows.len(), 3 * 13, "{window}");
        assert!(rows.iter().all(|row| row["window"] == window));
    }
}

#[test]
fn latency_with_targets_that_are_away() {
    for target in ["idle", "busy"] {
        let arguments = ["latency", "--target", target, "-m", "8:8", "-s", "lock", "--exclusive"];
        let rows = rows(2, &[&arguments[..], &FEW[..]].concat());
        assert_eq!(rows.len(), 1);
        assert!(rows[0]["target"] == target && rows[0]["sync"] == "lock exclusive");
    }
    refused(&["latency", "--target", "idle", "-s", "fence"], "take part");
}

#[test]
fn latency_of_patterns() {
    for pattern in ["pairs", "one-to-all", "all-to-one", "neighbours"] {
        for sync in ["flush", "fence", "pscw", "lock"] {
            let arguments =
                ["latency", "--pattern", pattern, "-s", sync, "-o", "put,fetch_and_op", "-m", "8:16"];
            let rows = rows(3, &[&arguments[..], &FEW[..]].concat());
            assert_eq!(rows.len(), 3, "{pattern} {sync}");
            assert!(rows.iter().all(|row| row["pattern"] == pattern));
        }
    }
}

#[test]
fn iterations_and_warm_up_are_found_when_they_are_open() {
    let rows = rows(2, &["latency", "-m", "8:8", "--time", "0.05", "--rounds", "6"]);
    assert!(rows[0]["epochs"].as_u64().unwrap() >= 6);
    assert!(rows[0]["warm_up"].as_u64().unwrap() >= 1 && rows[0]["batch"].as_u64().unwrap() >= 1);
    assert!(rows[0]["confidence"].as_f64().unwrap() >= 0.95);
}

#[test]
fn the_table_and_the_csv_have_a_line_for_each_size() {
    let arguments = [&["latency", "-m", "8:32"][..], &FEW[..]].concat();
    let table = text(&bench(2, &arguments).stdout);
    let sizes: Vec<&str> = table
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(sizes, ["8", "16", "32"], "{table}");
    assert!(table.starts_with("# rma-bench latency, put, window allocate, sync flush"), "{table}");
    let csv = text(&bench(2, &[&arguments[..], &["--csv"]].concat()).stdout);
    assert_eq!(csv.lines().count(), 1 + 3, "{csv}");
    assert!(csv.starts_with("benchmark,operation,window,sync,target,pattern,size,unit,median"), "{csv}");
}

#[test]
fn bandwidth_one_way_and_both_ways() {
    for direction in [&[][..], &["--bidirectional"][..]] {
        for sync in ["flush", "fence", "pscw"] {
            let arguments = ["bandwidth", "-o", "put,get", "-m", "1K:64K", "-W", "4", "-s", sync];
            let rows = rows(2, &[&arguments[..], &FEW[..], direction].concat());
            assert_eq!(rows.len(), 2 * 7, "{sync}");
            assert!(rows.iter().all(|row| row["unit"] == "MB/s" && row["outstanding"] == 4));
        }
    }
    refused(&["bandwidth", "-o", "accumulate"], "put and get");
}

#[test]
fn rate_of_pairs_threads_and_patterns() {
    let rows_of =
        |ranks, arguments: &[&str]| rows(ranks, &[&["rate", "-W", "8"], arguments, &FEW[..]].concat());
    let pairs = rows_of(4, &["-o", "put,fetch_and_op", "--threads", "1,2"]);
    assert_eq!(pairs.len(), 2 * 2 * 2);
    assert_eq!(values(&pairs, "pairs").len(), 2);
    assert!(pairs.iter().all(|row| row["unit"] == "op/s" && row["size"] == 8));
    for pattern in ["one-to-all", "all-to-one", "neighbours"] {
        assert_eq!(rows_of(3, &["--pattern", pattern]).len(), 1, "{pattern}");
    }
    refused(&["rate", "--threads", "2", "-s", "fence"], "target takes no part");
}

#[test]
fn overlap_is_a_share_of_the_communication() {
    for sync in ["flush", "lock", "lock_all"] {
        let arguments = ["overlap", "-o", "put,get,accumulate", "-m", "4K:8K", "--slices", "2", "-s", sync];
        let rows = rows(2, &[&arguments[..], &FEW[..]].concat());
        // Three operations of two sizes: three times, and the share.
        assert_eq!(rows.len(), 3 * 2 * 4, "{sync}");
        assert_eq!(values(&rows, "measure").len(), 4);
        for row in rows.iter().filter(|row| row["measure"] == "overlap") {
            assert!(
                row["unit"] == "share" && row["median"].as_f64().is_some_and(|share| share <= 1.0),
                "{row}"
            );
        }
    }
    refused(&["overlap", "-s", "pscw"], "take part");
}

#[test]
fn locks_are_counted_and_shared_out() {
    let rows = rows(3, &["locks", "--time", "0.06", "--rounds", "6"]);
    // Two types, one and two origins, three measures.
    assert_eq!(rows.len(), 2 * 2 * 3);
    let fair = rows.iter().filter(|row| row["measure"] == "fairness");
    for row in fair {
        assert!(row["median"].as_f64().is_some_and(|share| share > 0.0 && share <= 1.0 + 1e-9), "{row}");
    }
}

#[test]
fn windows_are_made_touched_and_freed() {
    let kinds = "create,allocate,dynamic,shared";
    let rows = rows(2, &["windows", "-w", kinds, "-m", "4K:16K", "--rounds", "6"]);
    // A dynamic window's memory is the program's own: nothing is touched first.
    assert_eq!(rows.len(), 3 * (3 * 6 + 4));
    assert_eq!(values(&rows, "step").len(), 6);
}

#[test]
fn notified_puts_go_back_and_forth() {
    let rows = rows(2, &[&["notified", "-m", "1:4K"][..], &FEW[..]].concat());
    assert_eq!(rows.len(), 13);
    assert!(rows.iter().all(|row| row["benchmark"] == "notified" && row["unit"] == "us"));
}

#[test]
fn what_flush_completes_others_read() {
    for (ranks, reader) in [(2, "target"), (3, "third rank")] {
        let rows = rows(ranks, &["stale", "-m", "8:64", "-i", "40"]);
        assert_eq!(rows.len(), 4);
        assert!(rows.iter().all(|row| row["reader"] == reader && row["stale"] == 0 && row["median"] == 1.0));
    }
}

#[test]
fn threads_of_one_window() {
    let rows = rows(2, &["threads", "--threads", "1,2", "--iterations", "64", "--rounds", "6"]);
    assert_eq!(rows.len(), 2 * 2);
    assert!(rows.iter().all(|row| row["benchmark"] == "threads" && row["unit"] == "op/s"));
}

#[test]
fn what_an_origin_sees_of_each_kind_of_target() {
    let rows = rows(3, &["agent", "--iterations", "3", "--rounds", "6"]);
    // Three targets, and what it costs the one that computes.
    assert_eq!(rows.len(), 3 + 1);
    assert_eq!(values(&rows, "target").len(), 3);
    assert!(rows.iter().all(|row| row["unit"] == "us" && row["progress"].is_string()));
}

#[test]
fn limits_below_the_engine() {
    let every = "tcp,packet,write,read,rate,bandwidth";
    let rows = rows(3, &[&["limits", "-l", every, "-m", "1:64"][..], &FEW[..]].concat());
    // A packet has two bytes at least.
    assert_eq!(rows.len(), 6 * 7 - 1);
    assert_eq!(values(&rows, "operation").len(), 6);
    assert!(rows.iter().all(|row| row["benchmark"] == "limits"));
    let of = |unit: &str| rows.iter().filter(|row| row["unit"] == unit).count();
    assert_eq!([of("us"), of("op/s"), of("MB/s")], [4 * 7 - 1, 7, 7]);
    assert!(rows.iter().all(|row| row["unit"] == "us" || row["outstanding"] == 64));
}

#[test]
fn results_are_compared_and_reported() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let [before, after, page] =
        ["before.jsonl", "after.jsonl", "report.html"].map(|name| folder.join(name).display().to_string());
    let output = bench(2, &[&["latency", "-m", "8:64", "--json"][..], &FEW[..]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    std::fs::write(&before, &output.stdout).unwrap();
    // The same machine, a million times as slow.
    let slow = text(&output.stdout).lines().fold(String::new(), |slow, line| {
        let mut row: Value = serde_json::from_str(line).unwrap();
        let rounds = row["rounds"].as_array().unwrap().iter();
        row["rounds"] = rounds.map(|value| Value::from(value.as_f64().unwrap() * 1e6)).collect();
        slow + &row.to_string() + "\n"
    });
    std::fs::write(&after, slow).unwrap();

    let same = alone(&["compare", "--fail", &before, &before], None);
    assert!(same.status.success() && text(&same.stdout).contains("0 better, 0 worse, 4 the same"));
    let worse = alone(&["compare", &before, &after], None);
    assert!(
        worse.status.success() && text(&worse.stdout).contains("0 better, 4 worse"),
        "{}",
        text(&worse.stdout)
    );
    assert_eq!(alone(&["compare", "--fail", &before, &after], None).status.code(), Some(1));
    refused(&["compare", &before, "/nonexistent.jsonl"], "nonexistent");

    let reported = alone(&["report", &before, &after, "--output", &page], None);
    assert!(reported.status.success(), "{}", text(&reported.stderr));
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(html.contains("<svg") && html.contains("before.jsonl") && html.contains("after.jsonl"));
    refused(&["report", "/dev/null"], "no row of results");
}

#[test]
fn one_rank_is_told_how_to_start_more() {
    for command in [
        "latency",
        "bandwidth",
        "rate",
        "overlap",
        "stale",
        "limits",
        "threads",
        "agent",
        "locks",
        "windows",
        "notified",
    ] {
        refused(&[command], &format!("rmarun -n 2 rma-bench {command}"));
    }
}
