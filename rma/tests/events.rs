//! What a subscriber of the `tracing` crate hears of a job of one rank.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use rma::{Job, LockType, Rank};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Writes down every event of the library.
struct Listener(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "rma"
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        panic!("the library makes no spans")
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn a_job_is_heard_of_from_its_beginning_to_its_end() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    tracing::subscriber::set_global_default(Listener(Arc::clone(&heard))).unwrap();
    let job = Job::init().unwrap();
    let window = job.allocate::<u64>(2).unwrap();
    window.lock(Rank(0), LockType::Shared, |epoch| epoch.put(0, &[1])).unwrap();
    window.lock(Rank(4), LockType::Shared, |_| Ok(())).unwrap_err();
    window.fence(|epoch| epoch.put(Rank(0), 0, &[1])).unwrap();
    job.barrier().unwrap();
    window.free().unwrap();
    job.finalize().unwrap();
    let heard = heard.lock().unwrap();
    let expected = [
        ["INFO", "message=joined a job rank=0 size=1"],
        ["DEBUG", "message=chose a provider rank=0"],
        ["DEBUG", "message=made a window rank=0 window=0 bytes=16 call=\"allocate\""],
        ["TRACE", "message=synchronized rank=0 window=0 target_rank=0 call=\"lock\""],
        ["TRACE", "message=synchronized rank=0 window=0 target_rank=0 call=\"unlock\""],
        ["WARN", "message=a call has failed rank=0 class=\"MPI_ERR_RANK\""],
        ["TRACE", "message=synchronized rank=0 window=0 call=\"fence\""],
        ["TRACE", "message=synchronized rank=0 window=0 call=\"fence\""],
        ["TRACE", "message=synchronized rank=0 call=\"barrier\""],
        ["DEBUG", "message=freed a window rank=0 window=0 call=\"free\""],
    ];
    assert_eq!(heard.len(), expected.len(), "{heard:#?}");
    for (line, [level, text]) in heard.iter().zip(expected) {
        assert!(line.starts_with(&format!("{level} {text}")), "{line} is not {level} {text}: {heard:#?}");
    }
}
