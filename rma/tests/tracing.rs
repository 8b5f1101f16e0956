//! What a job writes for people: the timeline of its ranks (`RMA_TRACE`) and their counters (`RMA_METRICS`).

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use common::*;
use rma::{Error, Job, LockType, Rank};
use serde_json::Value;

/// Ranks of the jobs here.
const RANKS: u32 = 3;

/// A folder of this test's own, empty, and gone when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("rma-tracing-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    fn names(&self) -> BTreeSet<String> {
        let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        fs::read_dir(&self.0).unwrap().map(name).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An event with a begin and an end.
#[derive(Debug)]
struct Span {
    pid: u64,
    tid: u64,
    category: String,
    name: String,
    /// Nanoseconds.
    begun: u64,
    ended: u64,
    arguments: Value,
}

/// A timeline as a reader has it.
struct Timeline {
    events: Vec<Value>,
}

impl Timeline {
    fn read(path: &str) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let Value::Array(events) = serde_json::from_str(&text).expect("a JSON array") else {
            panic!("no array: {text}")
        };
        Self { events }
    }

    fn spans(&self) -> Vec<Span> {
        let nanos = |event: &Value, field: &str| (event[field].as_f64().unwrap() * 1000.0).round() as u64;
        let text = |event: &Value, field: &str| event[field].as_str().unwrap().to_owned();
        let span = |event: &Value| Span {
            pid: event["pid"].as_u64().unwrap(),
            tid: event["tid"].as_u64().unwrap(),
            category: text(event, "cat"),
            name: text(event, "name"),
            begun: nanos(event, "ts"),
            ended: nanos(event, "ts") + nanos(event, "dur"),
            arguments: event["args"].clone(),
        };
        self.events.iter().filter(|event| event["ph"] == "X").map(span).collect()
    }

    /// How a rank says that it has left, and what it has kept and dropped; `None`: it has left nothing.
    fn rank(&self, rank: u32) -> Option<(String, u64, u64)> {
        let is_its = |event: &&Value| event["ph"] == "i" && event["pid"] == rank && event["name"] == "trace";
        let arguments = &self.events.iter().find(is_its)?["args"];
        let count = |field: &str| arguments[field].as_u64().unwrap();
        Some((arguments["end"].as_str().unwrap().to_owned(), count("kept"), count("dropped")))
    }
}

/// Spans of a track lie one after the other or one in the other.
fn assert_nested(spans: &[Span]) {
    let mut tracks: BTreeMap<(u64, u64), Vec<&Span>> = BTreeMap::new();
    for span in spans {
        tracks.entry((span.pid, span.tid)).or_default().push(span);
    }
    for spans in tracks.values() {
        let mut around: Vec<&Span> = Vec::new();
        for span in spans {
            while around.last().is_some_and(|outer| outer.ended <= span.begun) {
                around.pop();
            }
            if let Some(outer) = around.last() {
                assert!(outer.begun <= span.begun && span.ended <= outer.ended, "{span:?} in {outer:?}");
            }
            around.push(span);
        }
    }
}

/// Every kind of epoch, with as many locks as there are ranks.
fn program(job: &Job) -> Result<(), Error> {
    let window = job.allocate::<u64>(8)?;
    let next = Rank((job.rank().0 + 1) % job.size());
    window.fence(|epoch| epoch.put(next, 0, &[1]))?;
    for target in (0..job.size()).map(Rank) {
        window.lock(target, LockType::Shared, |epoch| {
            epoch.put(1, &[2])?;
            epoch.flush()?;
            epoch.get_value(1).map(drop)
        })?;
    }
    window.lock_all(|epoch| epoch.put(next, 2, &[3]))?;
    job.barrier()?;
    let all = window.group();
    let exposure = window.post(&all)?;
    window.start(&all, |epoch| epoch.put(next, 3, &[4]))?;
    exposure.wait()?;
    job.barrier()?;
    window.free().map(drop)
}

/// Runs `body` as a job over each provider, and looks at the files that its ranks have left in a folder of their own.
fn observed(
    name: &str,
    settings: &[(&str, &str)],
    body: impl FnOnce(&Job) -> Result<(), Error>,
    check: impl Fn(&Folder),
) {
    if is_rank() {
        return run_body(body);
    }
    for provider in PROVIDERS {
        let folder = Folder::new(name);
        let (trace, metrics) = (folder.file("trace.json"), folder.file("metrics.prom"));
        let files = [("RMA_TRACE", trace.as_str()), ("RMA_METRICS", metrics.as_str())];
        let variables: Vec<(&str, &str)> = settings.iter().copied().chain(files).collect();
        let output = launch(name, RANKS, provider, &variables);
        assert!(output.status.success(), "over {provider}: {}", text(&output));
        check(&folder);
    }
}

#[test]
fn the_timeline_has_every_epoch_of_every_rank() {
    observed("the_timeline_has_every_epoch_of_every_rank", &[], program, |folder| {
        let timeline = Timeline::read(&folder.file("trace.json"));
        let spans = timeline.spans();
        assert_nested(&spans);
        for rank in 0..RANKS {
            let (end, kept, dropped) = timeline.rank(rank).expect("its part");
            assert_eq!((end.as_str(), dropped), ("finalized", 0));
            let of_rank: Vec<&Span> = spans.iter().filter(|span| span.pid == u64::from(rank)).collect();
            let named = |category: &str, name: &str| {
                of_rank.iter().filter(|span| span.category == category && span.name == name).count()
            };
            assert_eq!(of_rank.iter().filter(|span| span.category != "epoch").count() as u64, kept);
            for target in 0..RANKS {
                assert_eq!(named("epoch", &format!("lock of rank {target}")), 1);
            }
            for epoch in ["fence epoch", "lock_all", "access epoch", "exposure epoch"] {
                assert_eq!(named("epoch", epoch), 1, "{epoch}: {of_rank:?}");
            }
            let ended = of_rank.iter().filter(|span| span.category == "epoch");
            assert!(ended.clone().all(|span| span.arguments.get("ended").is_none()), "{of_rank:?}");
            assert_eq!((named("call", "lock"), named("call", "unlock"), named("call", "barrier")), (3, 3, 2));
            assert_eq!((named("call", "allocate"), named("call", "free")), (1, 1));
            assert!(named("wait", "barrier waits") <= 2 && named("wait", "finalize waits") >= 1);
            let counts = |event: &&Value| event["ph"] == "C" && event["pid"] == rank;
            let operations = timeline
                .events
                .iter()
                .filter(counts)
                .filter_map(|event| event["args"].get("operations").and_then(Value::as_u64));
            // A put in each of the epochs, and a get in each of the locks.
            assert_eq!(operations.max(), Some(9));
        }
    });
}

/// Hosts by other names: a shell starts their agents here.
#[test]
fn ranks_of_several_hosts_write_one_timeline() {
    let name = "ranks_of_several_hosts_write_one_timeline";
    if is_rank() {
        return run_body(program);
    }
    // Memory is shared on one host.
    for provider in PROVIDERS.into_iter().filter(|&provider| provider != "shm") {
        let folder = Folder::new(name);
        let (agent, trace) = (folder.file("agent"), folder.file("trace.json"));
        fs::write(&agent, "#!/bin/sh\nshift\nexec sh -c \"exec $*\"\n").unwrap();
        fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).unwrap();
        let options = ["--launch-agent", &agent, "--host", "first:2,second:1"];
        let output = launch_with(name, RANKS, provider, &[("RMA_TRACE", &trace)], &options);
        assert!(output.status.success(), "over {provider}: {}", text(&output));
        let timeline = Timeline::read(&trace);
        assert_nested(&timeline.spans());
        for rank in 0..RANKS {
            assert_eq!(timeline.rank(rank).expect("its part").0, "finalized");
        }
        // They are one host in truth, and have one clock.
        let part = |event: &&Value| event["ph"] == "i" && event["name"] == "trace";
        let offsets = timeline.events.iter().filter(part).map(|event| &event["args"]["clock_offset_us"]);
        assert!(
            offsets.clone().all(|offset| offset.as_f64() == Some(0.0)),
            "{:?}",
            offsets.collect::<Vec<_>>()
        );
    }
}

#[test]
fn the_oldest_events_are_dropped_and_counted() {
    let settings = [("RMA_TRACE_EVENTS", "16")];
    observed("the_oldest_events_are_dropped_and_counted", &settings, program, |folder| {
        let timeline = Timeline::read(&folder.file("trace.json"));
        let spans = timeline.spans();
        assert_nested(&spans);
        for rank in 0..RANKS {
            let (_, kept, dropped) = timeline.rank(rank).expect("its part");
            assert!(kept == 16 && dropped > 0, "{kept} kept, {dropped} dropped");
            let left = spans.iter().filter(|span| span.pid == u64::from(rank) && span.category != "epoch");
            assert_eq!(left.count(), 16);
        }
    });
}

#[test]
fn the_metrics_are_lines_that_prometheus_reads() {
    observed("the_metrics_are_lines_that_prometheus_reads", &[], program, |folder| {
        for rank in 0..RANKS {
            let text = fs::read_to_string(folder.file(&format!("metrics.{rank}.prom"))).unwrap();
            let mut types: BTreeMap<&str, &str> = BTreeMap::new();
            let mut samples = BTreeMap::new();
            for line in text.lines() {
                if let Some(rest) = line.strip_prefix("# TYPE ") {
                    let (name, kind) = rest.split_once(' ').unwrap();
                    assert!(types.insert(name, kind).is_none(), "twice: {line}");
                    continue;
                }
                if line.starts_with("# HELP ") {
                    continue;
                }
                let (series, value) = line.rsplit_once(' ').unwrap();
                let (name, labels) = series.split_once('{').unwrap();
                let is_plain = |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
                assert!(is_plain(name) && types.contains_key(name), "{line}");
                assert_eq!(name.ends_with("_total"), types[name] == "counter", "{line}");
                let labels = labels.strip_suffix('}').unwrap();
                for label in labels.split(',') {
                    let (label, quoted) = label.split_once('=').unwrap();
                    assert!(is_plain(label), "{line}");
                    let inner = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap();
                    assert!(!inner.contains(['"', '\\']), "{line}");
                }
                assert!(labels.contains(&format!("rank=\"{rank}\"")), "{line}");
                assert!(samples.insert(series, value.parse::<u64>().unwrap()).is_none(), "twice: {line}");
            }
            let operations = samples.iter().filter(|(series, _)| series.starts_with("rma_operations_total{"));
            assert_eq!(operations.map(|(_, value)| value).sum::<u64>(), 9);
        }
    });
}

#[test]
fn nothing_is_written_unless_it_is_wanted() {
    let name = "nothing_is_written_unless_it_is_wanted";
    if is_rank() {
        std::env::set_current_dir(std::env::var("RMA_TEST_FOLDER").unwrap()).unwrap();
        return run_body(program);
    }
    let folder = Folder::new(name);
    let at = folder.0.to_str().unwrap();
    let output = launch(name, RANKS, PROVIDERS[0], &[("RMA_TEST_FOLDER", at), ("RMA_TRACE_EVENTS", "16")]);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(folder.names(), BTreeSet::new());
}

/// A rank whose call fails leaves the job, which ends it for the others.
#[test]
fn a_job_that_fails_leaves_a_timeline() {
    let name = "a_job_that_fails_leaves_a_timeline";
    if is_rank() {
        let job = Job::init().unwrap();
        let window = job.allocate::<u64>(1).unwrap();
        if job.rank() == Rank(1) {
            let refused = window.lock(Rank(9), LockType::Shared, |_| Ok(()));
            drop((window, job));
            panic!("{}", refused.unwrap_err());
        }
        // Rank 1 never comes.
        let _ = job.barrier();
        return;
    }
    for provider in PROVIDERS {
        let folder = Folder::new(name);
        // Who is ended has the time to write, however busy the machine is.
        let (trace, options) = (folder.file("trace.json"), ["--grace", "60"]);
        let output = launch_with(name, RANKS, provider, &[("RMA_TRACE", &trace)], &options);
        assert!(!output.status.success(), "over {provider}: {}", text(&output));
        let timeline = Timeline::read(&folder.file("trace.json"));
        let (end, ..) = timeline.rank(1).expect("the part of who has failed");
        assert_eq!(end, "dropped after a call has failed");
        for other in [0, 2] {
            let (end, ..) = timeline.rank(other).expect("the part of who was ended");
            assert!(end == "ended by SIGTERM" || end.starts_with("dropped"), "{end}");
        }
        let spans = timeline.spans();
        assert_nested(&spans);
        let failed = |span: &&Span| span.pid == 1 && span.name == "lock" && span.category == "call";
        let failed = spans.iter().find(failed).expect("the call that failed");
        assert_eq!(failed.arguments["error"], "MPI_ERR_RANK");
        assert_eq!(failed.arguments["target"], 9);
    }
}

/// Who asks for a timeline where none can be written learns it at once.
#[test]
fn a_file_that_cannot_be_written_is_an_error_of_init() {
    let name = "a_file_that_cannot_be_written_is_an_error_of_init";
    if is_rank() {
        let error = Job::init().unwrap_err().to_string();
        assert!(error.starts_with("RMA_TRACE: /nonexistent/trace.json cannot be written: "), "{error}");
        return;
    }
    let at = Path::new("/nonexistent").join("trace.json");
    let output = launch(name, 1, PROVIDERS[0], &[("RMA_TRACE", at.to_str().unwrap())]);
    assert!(output.status.success(), "{}", text(&output));
}
