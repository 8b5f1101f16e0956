//! Events as Chrome's trace format has them: a line of JSON each.

use std::fmt::{self, Write};

use super::ring::{Record, Ring};
use super::spans::{spans, Span, Track};
use super::Origin;

/// The events of one rank, separated by commas and line ends. `now` is the end of what is still open, and `end` says
/// how the rank has left the job.
pub(super) fn events(ring: &Ring, origin: &Origin, end: &str, now: u64) -> String {
    let spans = spans(ring.records(), now);
    let mut events = Events { text: String::new(), origin, tracks: tracks(&spans) };
    events.head(ring, end, spans.iter().map(|span| span.begun).min().unwrap_or(now));
    for span in &spans {
        events.span(span);
    }
    events.counts(ring.records());
    events.text
}

/// The tracks in use, in the order in which they are shown.
fn tracks(spans: &[Span]) -> Vec<Track> {
    let mut tracks: Vec<Track> = spans.iter().map(|span| span.track).collect();
    tracks.sort_unstable();
    tracks.dedup();
    tracks
}

struct Events<'a> {
    text: String,
    origin: &'a Origin,
    tracks: Vec<Track>,
}

impl Events<'_> {
    /// What there is to know of the rank, and the names of its tracks.
    fn head(&mut self, ring: &Ring, end: &str, first: u64) {
        let Origin { rank, size, ref host, process, alignment } = *self.origin;
        let process_name = format!("rank {rank} of {size}, {host}");
        self.event(format_args!(
            r#""ph":"M","name":"process_name","args":{{"name":{}}}"#,
            Quoted(&process_name)
        ));
        self.event(format_args!(r#""ph":"M","name":"process_sort_index","args":{{"sort_index":{rank}}}"#));
        let at = self.at(first);
        self.event(format_args!(
            concat!(
                r#""ph":"i","s":"p","name":"trace","tid":0,"ts":{},"args":{{"rank":{},"host":{},"process":{},"#,
                r#""end":{},"kept":{},"dropped":{},"clock_offset_us":{},"clock_uncertainty_us":{}}}"#
            ),
            at,
            rank,
            Quoted(host),
            process,
            Quoted(end),
            ring.records().count(),
            ring.dropped(),
            Micros(alignment.offset),
            Micros(alignment.uncertainty),
        ));
        for index in 0..self.tracks.len() {
            let name = match self.tracks[index] {
                Track::Epochs { window, lane: 0 } => format!("window {window}: epochs"),
                Track::Epochs { window, lane } => format!("window {window}: epochs ({})", lane + 1),
                Track::Thread(thread) => format!("thread {thread}: calls"),
                Track::Agent => "progress outside of calls".to_owned(),
            };
            let number = index + 1;
            self.event(format_args!(
                r#""ph":"M","name":"thread_name","tid":{number},"args":{{"name":"{name}"}}"#
            ));
            self.event(format_args!(
                r#""ph":"M","name":"thread_sort_index","tid":{number},"args":{{"sort_index":{number}}}"#
            ));
        }
    }

    fn span(&mut self, span: &Span) {
        let track = self.tracks.binary_search(&span.track).map_or(0, |index| index + 1);
        let category = match span.track {
            Track::Epochs { .. } => "epoch",
            Track::Thread(_) if span.details.waiting_for.is_some() => "wait",
            Track::Thread(_) => "call",
            Track::Agent => "progress",
        };
        let (begun, length) = (self.at(span.begun), Micros((span.ended - span.begun) as i64));
        let details = Arguments(span);
        let name = &span.name;
        self.event(format_args!(
            r#""ph":"X","cat":"{category}","name":"{name}","tid":{track},"ts":{begun},"dur":{length},"args":{{{details}}}"#
        ));
    }

    /// How many operations and bytes there have been, wherever that has changed.
    fn counts<'r>(&mut self, records: impl Iterator<Item = &'r Record>) {
        let (mut operations, mut bytes) = (None, None);
        for record in records {
            let at = self.at(record.ended);
            for (name, last, now) in
                [("operations", &mut operations, record.operations), ("bytes sent", &mut bytes, record.bytes)]
            {
                if last.replace(now) != Some(now) {
                    self.event(format_args!(
                        r#""ph":"C","name":"{name}","ts":{at},"args":{{"{name}":{now}}}"#
                    ));
                }
            }
        }
    }

    /// A time of this rank's clock, as all ranks have it.
    fn at(&self, time: u64) -> Micros {
        Micros(time as i64 + self.origin.alignment.offset)
    }

    fn event(&mut self, fields: fmt::Arguments<'_>) {
        if !self.text.is_empty() {
            self.text.push_str(",\n");
        }
        // Writing to a string does not fail.
        let _ = write!(self.text, r#"{{"pid":{},{fields}}}"#, self.origin.rank);
    }
}

/// Nanoseconds, written as microseconds.
struct Micros(i64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let nanos = self.0.unsigned_abs();
        write!(f, "{sign}{}.{:03}", nanos / 1000, nanos % 1000)
    }
}

/// Text as JSON has it.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for character in self.0.chars() {
            match character {
                '"' | '\\' => write!(f, "\\{character}")?,
                control if control.is_control() => write!(f, "\\u{:04x}", u32::from(control))?,
                other => f.write_char(other)?,
            }
        }
        f.write_char('"')
    }
}

/// What else is known of a span, as the fields of an object.
struct Arguments<'a>(&'a Span);

impl fmt::Display for Arguments<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let details = &self.0.details;
        let mut separator = "";
        let mut field = |f: &mut fmt::Formatter<'_>, name: &str, value: &dyn fmt::Display| {
            let written = write!(f, r#"{separator}"{name}":{value}"#);
            separator = ",";
            written
        };
        if let Some(window) = details.window {
            field(f, "window", &window.0)?;
        }
        if let Some(target) = details.target {
            field(f, "target", &target.0)?;
        }
        if let Some(waiting_for) = details.waiting_for {
            field(f, "waiting_for", &Quoted(waiting_for))?;
        }
        if let Some(moved) = details.moved {
            field(f, "moved", &moved)?;
        }
        if let Some(error) = details.error {
            field(f, "error", &Quoted(error.name()))?;
        }
        if details.is_cut {
            field(f, "begun", &Quoted("before the first event that is left"))?;
        }
        if details.is_open {
            field(f, "ended", &Quoted("not before the end of the trace"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rma_core::error::Call;
    use rma_core::ids::{Rank, WindowId};

    use crate::trace::{Alignment, What};

    fn origin(host: &str, offset: i64) -> Origin {
        let alignment = Alignment { offset, uncertainty: 250 };
        Origin { rank: 2, size: 4, host: host.to_owned(), process: 77, alignment }
    }

    #[test]
    fn a_rank_is_these_lines() {
        let mut ring = Ring::new(8);
        let call = What::Call { call: Call::Barrier, is_fence: false };
        let record = Record {
            begun: 10_000,
            ended: 12_500,
            what: call,
            window: None,
            target: Rank::NULL,
            thread: 0,
            error: None,
            operations: 3,
            bytes: 24,
        };
        ring.push(record);
        let flush = What::Wait { call: Call::Flush, waiting_for: "remote completion" };
        let at = (Some(WindowId(5)), Rank(1));
        ring.push(Record { begun: 13_000, ended: 14_001, what: flush, window: at.0, target: at.1, ..record });
        let expected = [
            r#"{"pid":2,"ph":"M","name":"process_name","args":{"name":"rank 2 of 4, a\"b\\c\u000a"}},"#,
            r#"{"pid":2,"ph":"M","name":"process_sort_index","args":{"sort_index":2}},"#,
            concat!(
                r#"{"pid":2,"ph":"i","s":"p","name":"trace","tid":0,"ts":9.000,"args":{"rank":2,"host":"a\"b\\c\u000a","#,
                r#""process":77,"end":"finalized","kept":2,"dropped":0,"clock_offset_us":-1.000,"#,
                r#""clock_uncertainty_us":0.250}},"#
            ),
            r#"{"pid":2,"ph":"M","name":"thread_name","tid":1,"args":{"name":"thread 0: calls"}},"#,
            r#"{"pid":2,"ph":"M","name":"thread_sort_index","tid":1,"args":{"sort_index":1}},"#,
            r#"{"pid":2,"ph":"X","cat":"call","name":"barrier","tid":1,"ts":9.000,"dur":2.500,"args":{}},"#,
            concat!(
                r#"{"pid":2,"ph":"X","cat":"wait","name":"flush waits","tid":1,"ts":12.000,"dur":1.001,"#,
                r#""args":{"window":5,"target":1,"waiting_for":"remote completion"}},"#
            ),
            r#"{"pid":2,"ph":"C","name":"operations","ts":11.500,"args":{"operations":3}},"#,
            r#"{"pid":2,"ph":"C","name":"bytes sent","ts":11.500,"args":{"bytes sent":24}}"#,
        ];
        let text = events(&ring, &origin("a\"b\\c\n", -1000), "finalized", 20_000);
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }
}
