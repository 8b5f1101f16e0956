//! `rma-bench` as users run it: two ranks under `rmarun`, over libfabric.

mod common;

use std::collections::BTreeSet;
use std::path::Path;

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
        for name in ["median_us", "p99_us", "raw_round_trip_us", "ratio_all_off"] {
            assert!(row[name].as_f64().is_some_and(|value| value > 0.0), "{name} of {row}");
        }
        // Rounded: on a busy machine the raw loop, which never sleeps, may have waited for its turn very long.
        assert!(row["ratio_raw"].as_f64().is_some_and(|value| value >= 0.0), "{row}");
        assert!(row["provider"].is_string() && row["size"] == 8, "{row}");
    }
    let switches =
        ["all-on", "single-op-lock", "piggyback", "coalesce", "get-to-tail", "lazy-targets", "all-off"];
    for switches in switches {
        row(&rows, "fence-put-fence", switches);
    }
}

#[test]
fn each_epoch_has_its_messages_as_they_were_counted() {
    let rows = rows(2, &["--epoch", "lock-put-unlock", "--epoch", "lock-puts-get-unlock"]);
    // Where locks are words there are none.
    for row in rows.iter().filter(|row| row["path"] != "nic-lock") {
        let messages =
            row["messages"].as_array().unwrap_or_else(|| panic!("other messages than were counted: {row}"));
        let bytes: u64 = messages.iter().map(|message| message["bytes"].as_u64().unwrap()).sum();
        assert_eq!(row["bytes"], bytes, "{row}");
    }
    let on = row(&rows, "lock-put-unlock", "all-on")["messages"].as_array().unwrap();
    let said: Vec<&str> = on.iter().map(|message| message["what"].as_str().unwrap()).collect();
    assert_eq!(said, ["LOCK + put + UNLOCK", "UNLOCK_ACK"]);
}

#[test]
fn a_lock_that_is_words_is_beside_one_that_is_packets_and_sends_none() {
    let rows = rows(2, &["--provider", "shm", "--operations", "16"]);
    for (epoch, operations) in
        [("lock-put-unlock", 1), ("lock-puts-unlock", 16), ("lock-puts-get-unlock", 16)]
    {
        let words = rows.iter().find(|row| row["epoch"] == epoch && row["path"] == "nic-lock").unwrap();
        assert_eq!(
            (&words["operations"], &words["packets_back"]),
            (&operations.into(), &0.into()),
            "{words}"
        );
        assert!(words["ratio_all_off"].as_f64().is_some_and(|ratio| ratio > 0.0), "{words}");
        assert_eq!(row(&rows, epoch, "all-on")["packets_back"], 1, "{epoch}");
    }
    assert!(rows.iter().all(|row| row["path"] != "nic-lock" || row["epoch"] != "fence-put-fence"));
}

#[test]
fn a_grid_has_every_combination_of_switches_and_is_reported() {
    let epochs = ["--epoch", "lock-put-unlock", "--epoch", "lock-puts-unlock"];
    let rows = rows(2, &[&epochs[..], &["--grid", "-k", "2,4", "-s", "8"]].concat());
    let mut paths: BTreeSet<String> = rows.iter().map(|row| row["path"].to_string()).collect();
    // Locks that are words have no switches.
    let words = 3 * usize::from(paths.remove("\"nic-lock\""));
    // The epoch of a single operation is measured once, the other with both numbers.
    assert_eq!(rows.len(), 32 * 3 * paths.len() + words);
    for row in &rows {
        assert!(
            row["environment"]["host"].is_string() && row["rounds"].as_array().unwrap().len() == 5,
            "{row}"
        );
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let [results, page] = ["grid.jsonl", "grid.html"].map(|name| folder.join(name).display().to_string());
    std::fs::write(&results, rows.iter().map(|row| row.to_string() + "\n").collect::<String>()).unwrap();
    let reported = alone(&["report", &results, "--output", &page], None);
    assert!(reported.status.success(), "{}", text(&reported.stderr));
    let html = std::fs::read_to_string(&page).unwrap();
    for part in [
        "<th>2 x 8</th><th>4 x 8</th>",
        "no piggyback, coalesce",
        "LOCK + put + UNLOCK (40 bytes)",
        "Measured on ",
    ] {
        assert!(html.contains(part), "{part} is not in the page");
    }
    let compared = alone(&["compare", &results, &results], None);
    assert!(text(&compared.stdout).contains(&format!("{} the same within noise", rows.len())));
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
    let output = alone(&["info", "--provider", "ofi"], Some("/nonexistent/libfabric.so.1"));
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("/nonexistent/libfabric.so.1"), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("apt-get install libfabric1"), "{}", text(&output.stdout));
    assert!(text(&output.stdout).contains("/nonexistent/libfabric.so.1"), "{}", text(&output.stdout));
    let output = alone(&["info", "--provider", "nosuch"], None);
    assert_eq!(output.status.code(), Some(1));
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(said.contains("chosen:") && said.contains("command line"), "{said}");
    assert!(errors.contains("nosuch"), "{errors}");
}
