//! `rma-bench notified`: a put that tells the target of itself, and the target's that answers it.

use std::mem::ManuallyDrop;
use std::time::Instant;

use rma::raw::RawWindow;
use rma::{Change, Notification, Rank};
use rma_bench::record::{Record, Unit};
use serde_json::json;

use crate::cli::Notified;
use crate::exchange::{Batches, Row, Times};
use crate::ground::Operation;
use crate::measure::{self, Subject};
use crate::session::{self, Reporter};
use crate::team::Team;
use crate::Outcome;

/// Runs the command.
pub(crate) fn run(options: &Notified) -> Outcome<()> {
    session::run("notified", 2, &options.output, |team, reporter| measure(team, reporter, options))
}

fn measure(team: &Team<'_>, reporter: &mut Reporter, options: &Notified) -> Outcome<()> {
    let sizes = options.range.sizes.all();
    let row = |&size: &usize| Row::new(Operation::Put, size, 1);
    let rows: Vec<Row> = sizes.iter().map(row).collect();
    let size_max = sizes.last().copied().ok_or("no size to measure")?;
    let mut table_tennis = TableTennis::new(team, size_max)?;
    let measured = measure::rows(&mut table_tennis, &rows, &options.amount.effort())?;
    table_tennis.free()?;
    let records: Vec<Record> = rows
        .iter()
        .zip(&measured)
        .map(|(row, measured)| {
            let key =
                session::key(json!({ "benchmark": "notified", "operation": "put_notify", "size": row.size }));
            let times = measured.times.iter().copied();
            reporter.record(key, Unit::Microseconds, times, session::details(measured))
        })
        .collect();
    reporter.group(&records, &["size"])
}

/// Ranks 0 and 1 put to each other in turn; each waits for the other's notification only.
struct TableTennis<'a> {
    team: &'a Team<'a>,
    window: RawWindow,
    /// What this rank puts. Freed after the window only.
    source: ManuallyDrop<Vec<u8>>,
    /// Where the word for notifications is.
    word: u64,
    /// Notifications that this rank has had.
    heard: u64,
    batches: u8,
}

impl<'a> TableTennis<'a> {
    fn new(team: &'a Team<'a>, size_max: usize) -> Outcome<Self> {
        let word = size_max.checked_next_multiple_of(WORD).ok_or("more bytes than memory can hold")?;
        Ok(Self {
            team,
            window: RawWindow::allocate(team.job(), word + WORD, 1)?,
            source: ManuallyDrop::new(vec![0; size_max]),
            word: word as u64,
            heard: 0,
            batches: 0,
        })
    }

    fn free(self) -> Outcome<()> {
        self.window.free()?;
        drop(ManuallyDrop::into_inner(self.source));
        Ok(())
    }

    fn send(&self, to: Rank, size: usize) -> rma::Result<()> {
        let notification = Notification { disp: self.word, change: Change::Add(1) };
        // SAFETY: the source is written again only when a batch begins, after the unlock of the last.
        unsafe { self.window.put_notify(self.source.as_ptr(), size, to, 0, notification) }
    }

    fn receive(&mut self) -> rma::Result<()> {
        self.heard += 1;
        self.window.wait_notification(self.word, self.heard).map(|_| ())
    }

    /// Whether the window holds what the other rank has put.
    fn check(&self, size: usize) -> Outcome<()> {
        let expected = data(1 - self.team.job().rank().0, self.batches);
        for offset in 0..size {
            let byte = self.window.base().wrapping_add(offset);
            // SAFETY: the byte is inside of the window, and the other rank's epoch is over.
            if unsafe { byte.read_volatile() } != expected {
                return Err(format!("a notified put of {size} bytes brought a wrong one").into());
            }
        }
        Ok(())
    }
}

impl Subject for TableTennis<'_> {
    type Row = Row;

    fn team(&self) -> &Team<'_> {
        self.team
    }

    fn threads(&self) -> usize {
        1
    }

    fn turns(&self) -> f64 {
        2.0
    }

    fn segment(&mut self, row: &Row, batches: Batches) -> Outcome<Times> {
        let (job, mut times) = (self.team.job(), Times::default());
        let rank = job.rank();
        self.batches = self.batches.wrapping_add(1);
        self.source.fill(data(rank.0, self.batches));
        job.barrier()?;
        if rank.0 < 2 {
            let other = Rank(1 - rank.0);
            self.window.lock_all(false)?;
            let wall = Instant::now();
            for _ in 0..batches.count {
                let begun = Instant::now();
                for _ in 0..batches.epochs {
                    if rank.0 == 0 {
                        self.send(other, row.size)?;
                        self.receive()?;
                    } else {
                        self.receive()?;
                        self.send(other, row.size)?;
                    }
                }
                if rank.0 == 0 {
                    times.batches.push(nanoseconds(begun));
                }
            }
            if rank.0 == 0 {
                times.wall = nanoseconds(wall);
            }
            self.window.unlock_all()?;
        }
        job.barrier()?;
        if rank.0 < 2 {
            self.check(row.size)?;
        }
        Ok(times)
    }
}

fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// What a rank puts in a batch: never what it has put in the one before, nor what the window began with.
const fn data(rank: u32, batch: u8) -> u8 {
    ((rank as u8) << 7) | (batch % 127 + 1)
}

/// Bytes of the word for notifications.
const WORD: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_of_a_batch_are_new() {
        for batch in 0..=u8::MAX {
            assert_ne!(data(0, batch), data(0, batch.wrapping_add(1)));
        }
        assert_ne!(data(0, 2), data(1, 2));
        assert_ne!(data(0, 0), 0);
    }
}
