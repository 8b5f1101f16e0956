//! From records to what a timeline shows: spans on tracks, on which they nest.

use rma_core::error::{Call, ErrorClass};
use rma_core::ids::{Rank, WindowId};

use super::ring::{Record, What};

/// A row of the timeline.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Track {
    /// The epochs of a window. Epochs that overlap are in different lanes.
    Epochs { window: u32, lane: u32 },
    /// The calls of a thread.
    Thread(u32),
    /// Progress while the program was outside.
    Agent,
}

/// Something with a begin and an end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Span {
    pub(super) track: Track,
    pub(super) begun: u64,
    pub(super) ended: u64,
    pub(super) name: String,
    pub(super) details: Details,
}

/// What else is known of it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Details {
    pub(super) window: Option<WindowId>,
    pub(super) target: Option<Rank>,
    pub(super) error: Option<ErrorClass>,
    pub(super) waiting_for: Option<&'static str>,
    pub(super) moved: Option<u32>,
    /// Its begin was not seen: it was earlier than the first record.
    pub(super) is_cut: bool,
    /// It was not over when the timeline was written.
    pub(super) is_open: bool,
}

/// The spans of a rank's records, each before those that it contains. Ends what is open at `now`.
pub(super) fn spans<'a>(records: impl Iterator<Item = &'a Record> + Clone, now: u64) -> Vec<Span> {
    let mut spans: Vec<Span> = records.clone().map(of_record).collect();
    spans.extend(in_lanes(epochs(records, now)));
    spans.sort_by_key(|span| (span.track, span.begun, u64::MAX - span.ended));
    spans
}

fn of_record(record: &Record) -> Span {
    let target = Some(record.target).filter(|target| *target != Rank::NULL);
    let details = Details { window: record.window, target, error: record.error, ..Details::default() };
    let (track, name, details) = match record.what {
        What::Call { call, .. } => (Track::Thread(record.thread), call.name().to_owned(), details),
        What::Wait { call, waiting_for } => {
            let details = Details { waiting_for: Some(waiting_for), ..details };
            (Track::Thread(record.thread), format!("{call} waits"), details)
        }
        What::Served { moved } => {
            (Track::Agent, "progress".to_owned(), Details { moved: Some(moved), ..details })
        }
    };
    Span { track, begun: record.begun, ended: record.ended, name, details }
}

/// The kinds of epochs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Fence,
    Access,
    Exposure,
    Lock(Rank),
    LockAll,
}

impl Kind {
    fn name(self) -> String {
        match self {
            Self::Fence => "fence epoch".to_owned(),
            Self::Access => "access epoch".to_owned(),
            Self::Exposure => "exposure epoch".to_owned(),
            Self::Lock(target) => format!("lock of rank {target}"),
            Self::LockAll => "lock_all".to_owned(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Epoch {
    window: WindowId,
    kind: Kind,
    begun: u64,
    ended: u64,
    is_cut: bool,
    is_open: bool,
}

/// Whether a record begins an epoch, ends one, or both.
fn turns(record: &Record) -> (Option<Kind>, Option<Kind>) {
    let What::Call { call, is_fence } = record.what else { return (None, None) };
    let opened = |kind| (None, Some(kind).filter(|_| record.error.is_none()));
    match call {
        Call::Fence => (Some(Kind::Fence), Some(Kind::Fence).filter(|_| is_fence)),
        Call::Start => opened(Kind::Access),
        Call::Complete => (Some(Kind::Access), None),
        Call::Post => opened(Kind::Exposure),
        Call::Wait | Call::Test => (Some(Kind::Exposure), None),
        Call::Lock => opened(Kind::Lock(record.target)),
        Call::Unlock => (Some(Kind::Lock(record.target)), None),
        Call::LockAll => opened(Kind::LockAll),
        Call::UnlockAll => (Some(Kind::LockAll), None),
        _ => (None, None),
    }
}

/// The epochs that the calls have opened and closed, in the order of their ends.
fn epochs<'a>(records: impl Iterator<Item = &'a Record> + Clone, now: u64) -> Vec<Epoch> {
    let first = records.clone().map(|record| record.begun).min().unwrap_or(now);
    let (mut over, mut open) = (Vec::new(), Vec::<Epoch>::new());
    for record in records {
        let Some(window) = record.window else { continue };
        let (closes, opens) = turns(record);
        let ended = record.ended;
        let closed = closes.and_then(|kind| {
            let found = open.iter().position(|epoch| (epoch.window, epoch.kind) == (window, kind));
            // Whether a fence has closed an epoch only its beginning could tell.
            let is_cut = found.is_none() && record.error.is_none() && kind != Kind::Fence;
            match found {
                Some(index) => Some(Epoch { ended, ..open.remove(index) }),
                None if is_cut => Some(Epoch { window, kind, begun: first, ended, is_cut, is_open: false }),
                None => None,
            }
        });
        over.extend(closed);
        if let Some(kind) = opens {
            // Between two epochs of fences is nothing.
            let begun = if closed.is_some() { ended } else { record.begun };
            open.push(Epoch { window, kind, begun, ended, is_cut: false, is_open: false });
        }
    }
    over.extend(open.into_iter().map(|epoch| Epoch { ended: now.max(epoch.begun), is_open: true, ..epoch }));
    over
}

/// Puts epochs of a window that overlap into different lanes.
fn in_lanes(mut epochs: Vec<Epoch>) -> impl Iterator<Item = Span> {
    epochs.sort_by_key(|epoch| (epoch.window.0, epoch.begun, epoch.ended));
    let (mut window, mut ends) = (None, Vec::<u64>::new());
    epochs.into_iter().map(move |epoch| {
        if window.replace(epoch.window) != Some(epoch.window) {
            ends.clear();
        }
        let lane = ends.iter().position(|end| *end <= epoch.begun).unwrap_or(ends.len());
        if lane == ends.len() {
            ends.push(0);
        }
        ends[lane] = epoch.ended;
        let target = match epoch.kind {
            Kind::Lock(target) => Some(target),
            _ => None,
        };
        let (is_cut, is_open) = (epoch.is_cut, epoch.is_open);
        Span {
            track: Track::Epochs { window: epoch.window.0, lane: lane as u32 },
            begun: epoch.begun,
            ended: epoch.ended,
            name: epoch.kind.name(),
            details: Details { window: Some(epoch.window), target, is_cut, is_open, ..Details::default() },
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call on window 0 that lasts from `begun` until `begun` + 10.
    fn call(call: Call, target: u32, begun: u64) -> Record {
        Record {
            begun,
            ended: begun + 10,
            what: What::Call { call, is_fence: false },
            window: Some(WindowId(0)),
            target: Rank(target),
            thread: 0,
            error: None,
            operations: 0,
            bytes: 0,
        }
    }

    fn fence(begun: u64, is_fence: bool) -> Record {
        Record { what: What::Call { call: Call::Fence, is_fence }, ..call(Call::Fence, u32::MAX, begun) }
    }

    /// The epochs among the spans: lane, name, begin, end.
    fn epochs_of(records: &[Record]) -> Vec<(u32, String, u64, u64)> {
        let of_epoch = |span: Span| match span.track {
            Track::Epochs { window: 0, lane } => Some((lane, span.name, span.begun, span.ended)),
            _ => None,
        };
        spans(records.iter(), 1000).into_iter().filter_map(of_epoch).collect()
    }

    fn epoch(lane: u32, name: &str, begun: u64, ended: u64) -> (u32, String, u64, u64) {
        (lane, name.to_owned(), begun, ended)
    }

    #[test]
    fn an_epoch_lasts_from_the_call_that_opens_it_to_the_end_of_the_one_that_closes_it() {
        let records = [
            call(Call::Lock, 3, 0),
            call(Call::Flush, 3, 20),
            call(Call::Unlock, 3, 40),
            call(Call::Start, u32::MAX, 60),
            call(Call::Post, u32::MAX, 80),
            call(Call::Complete, u32::MAX, 100),
            call(Call::Wait, u32::MAX, 120),
            call(Call::LockAll, u32::MAX, 140),
            call(Call::UnlockAll, u32::MAX, 160),
        ];
        let expected = [
            epoch(0, "lock of rank 3", 0, 50),
            epoch(0, "access epoch", 60, 110),
            epoch(0, "lock_all", 140, 170),
            epoch(1, "exposure epoch", 80, 130),
        ];
        assert_eq!(epochs_of(&records), expected);
    }

    #[test]
    fn locks_that_overlap_have_lanes_of_their_own_until_one_is_free() {
        let records = [
            call(Call::Lock, 1, 0),
            call(Call::Lock, 2, 20),
            call(Call::Unlock, 1, 40),
            call(Call::Lock, 1, 60),
            call(Call::Unlock, 2, 80),
            call(Call::Unlock, 1, 100),
        ];
        let expected = [
            epoch(0, "lock of rank 1", 0, 50),
            epoch(0, "lock of rank 1", 60, 110),
            epoch(1, "lock of rank 2", 20, 90),
        ];
        assert_eq!(epochs_of(&records), expected);
    }

    #[test]
    fn fences_close_and_open() {
        let records = [fence(0, true), fence(20, true), fence(40, false), fence(60, true), fence(80, false)];
        let expected = [
            epoch(0, "fence epoch", 0, 30),
            epoch(0, "fence epoch", 30, 50),
            epoch(0, "fence epoch", 60, 90),
        ];
        assert_eq!(epochs_of(&records), expected);
    }

    #[test]
    fn what_was_cut_off_begins_at_the_first_record_and_what_is_open_ends_now() {
        let records = [call(Call::Barrier, u32::MAX, 5), call(Call::Unlock, 2, 20), call(Call::Lock, 1, 40)];
        let all = spans(records.iter(), 1000);
        let epochs: Vec<&Span> =
            all.iter().filter(|span| matches!(span.track, Track::Epochs { .. })).collect();
        assert_eq!((epochs[0].begun, epochs[0].ended, epochs[0].details.is_cut), (5, 30, true));
        assert_eq!((epochs[1].begun, epochs[1].ended, epochs[1].details.is_open), (40, 1000, true));
    }

    #[test]
    fn a_call_that_failed_opens_nothing() {
        let failed = Record { error: Some(ErrorClass::RmaSync), ..call(Call::Lock, 1, 0) };
        let stray = Record { error: Some(ErrorClass::RmaSync), ..call(Call::Unlock, 1, 20) };
        assert_eq!(epochs_of(&[failed, stray]), []);
        assert_eq!(spans([failed].iter(), 1000)[0].details.error, Some(ErrorClass::RmaSync));
    }

    #[test]
    fn what_contains_comes_before_what_is_contained() {
        let whole = call(Call::Unlock, 1, 0);
        let wait = What::Wait { call: Call::Unlock, waiting_for: "the target" };
        // The wait is remembered first, because it is over first; here it has begun in the same nanosecond.
        let part = Record { what: wait, ended: 9, ..whole };
        let names: Vec<String> = spans([part, whole].iter(), 1000)
            .into_iter()
            .filter(|span| span.track == Track::Thread(0))
            .map(|span| span.name)
            .collect();
        assert_eq!(names, ["unlock", "unlock waits"]);
    }
}
