//! The engine's counters in Prometheus' text format.

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use rma_core::counters::Counters;
use rma_core::wire::PacketKind;

/// The counters of a rank: for each a line of help, one of its type, and the samples, all with the rank's number.
pub(crate) fn text(counters: &Counters, rank: u32) -> String {
    let mut text = Text { text: String::new(), rank };
    for (name, help, packets) in [
        ("packets_sent_total", "Packets sent, by kind.", &counters.packets_sent),
        ("packets_received_total", "Packets received, by kind.", &counters.packets_received),
    ] {
        text.head(name, help, "counter");
        for (kind, count) in PacketKind::ALL.iter().zip(packets) {
            text.sample(name, &format!(",kind=\"{}\"", kind.name()), *count);
        }
    }
    text.head("operations_total", "Operations issued, by the way they travel.", "counter");
    for (path, count) in [
        ("native put", counters.native_puts),
        ("native get", counters.native_gets),
        ("native atomic", counters.native_atomics),
        ("assisted atomic", counters.assists),
        ("message", counters.message_operations),
        ("self", counters.self_operations),
    ] {
        text.sample("operations_total", &format!(",path=\"{path}\""), count);
    }
    for (name, help, count) in totals(counters) {
        text.head(name, help, "counter");
        text.sample(name, "", count);
    }
    for (name, help, count) in [
        (
            "operation_elements_max",
            "Most operation elements in use at one time.",
            counters.operations_in_use_max,
        ),
        ("target_elements_max", "Most target elements in use at one time.", counters.targets_in_use_max),
    ] {
        text.head(name, help, "gauge");
        text.sample(name, "", count);
    }
    text.text
}

/// Writes the text in place of what a reader may look at in this moment.
pub(crate) fn write(path: &Path, rank: u32, text: &str) -> io::Result<()> {
    let path = of_rank(path, rank);
    let mut unfinished = path.clone().into_os_string();
    unfinished.push(".new");
    std::fs::write(&unfinished, text)?;
    std::fs::rename(&unfinished, &path)
}

/// A rank's file: its number stands before the extension, because collectors go by that.
fn of_rank(path: &Path, rank: u32) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!(".{rank}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// What is one number.
fn totals(counters: &Counters) -> [(&'static str, &'static str, u64); 15] {
    [
        ("packet_bytes_sent_total", "Bytes of packets sent.", counters.packet_bytes_sent),
        ("packet_bytes_received_total", "Bytes of packets received.", counters.packet_bytes_received),
        ("native_bytes_total", "Bytes of native operations.", counters.native_bytes),
        (
            "payload_bytes_copied_total",
            "Bytes of payloads and results that the engine copied.",
            counters.payload_bytes_copied,
        ),
        ("native_flushes_total", "Flushes that the fabric was asked for.", counters.native_flushes),
        ("post_queries_total", "Questions for posts whose notices found no room.", counters.post_queries),
        (
            "round_trips_total",
            "Round trips that calls waited for, one after the other.",
            counters.round_trips,
        ),
        (
            "words_told_total",
            "Rounds of fences, posts and COMPLETEs that neighbours were told by a word.",
            counters.words_told,
        ),
        ("barriers_waited_total", "Barriers that a fence waited for.", counters.barriers_waited),
        ("restored_targets_total", "Target elements won back under pressure.", counters.restored_targets),
        (
            "restored_operations_total",
            "Operation elements won back under pressure.",
            counters.restored_operations,
        ),
        ("lock_retries_total", "Lock requests that found a full queue.", counters.lock_retries),
        ("again_total", "Posts that the fabric put off.", counters.again),
        ("malformed_packets_total", "Packets that made no sense.", counters.malformed_packets),
        ("out_total", "Packets and native operations sent towards targets.", counters.out()),
    ]
}

struct Text {
    text: String,
    rank: u32,
}

// Writing to a string does not fail.
impl Text {
    fn head(&mut self, name: &str, help: &str, kind: &str) {
        let _ = write!(self.text, "# HELP rma_{name} {help}\n# TYPE rma_{name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &str, value: u64) {
        let _ = writeln!(self.text, "rma_{name}{{rank=\"{}\"{labels}}} {value}", self.rank);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_stands_before_the_extension() {
        assert_eq!(of_rank(Path::new("/var/rma.prom"), 12), Path::new("/var/rma.12.prom"));
        assert_eq!(of_rank(Path::new("metrics"), 0), Path::new("metrics.0"));
    }

    #[test]
    fn every_count_is_there() {
        let mut counters = Counters::default();
        counters.packets_sent[PacketKind::Reply as usize] = 101;
        counters.native_puts = 102;
        counters.round_trips = 103;
        counters.targets_in_use_max = 104;
        let text = text(&counters, 7);
        for line in [
            "rma_packets_sent_total{rank=\"7\",kind=\"reply\"} 101",
            "rma_operations_total{rank=\"7\",path=\"native put\"} 102",
            "rma_round_trips_total{rank=\"7\"} 103",
            "# TYPE rma_target_elements_max gauge",
            "rma_target_elements_max{rank=\"7\"} 104",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} is not in {text}");
        }
    }
}
