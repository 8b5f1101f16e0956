//! `rma-bench stale`: whether what flush has completed is what others read.
//!
//! Rank 0 puts to rank 1 and flushes, then tells the last rank, which reads: with get, or, where it is the target itself,
//! by loads. A flush that returns before the data are there is fast, and shows here.

use rma::raw::RawWindow;
use rma::Rank;
use rma_bench::record::Unit;
use serde_json::json;

use crate::cli::Stale;
use crate::session::{self, Reporter};
use crate::team::{Team, LEADER};
use crate::Outcome;

/// The rank that is written.
const TARGET: Rank = Rank(1);

/// Runs the command.
pub(crate) fn run(options: &Stale) -> Outcome<()> {
    session::run("stale", 2, &options.output, |team, reporter| measure(team, reporter, options))
}

fn measure(team: &Team<'_>, reporter: &mut Reporter, options: &Stale) -> Outcome<()> {
    let reader = Rank(team.job().size() - 1);
    let (mut records, mut all) = (Vec::new(), 0);
    for size in options.sizes.all() {
        let found = count(team, reader, size, options.iterations)?;
        let share = 1.0 - found as f64 / options.iterations as f64;
        let key = session::key(json!({
            "benchmark": "stale",
            "operation": "put",
            "sync": "flush",
            "reader": if reader == TARGET { "target" } else { "third rank" },
            "size": size,
        }));
        let details = json!({ "epochs": options.iterations, "stale": found });
        records.push(reporter.record(key, Unit::Share, [share], details));
        all += found;
    }
    reporter.group(&records, &["size"])?;
    if all > 0 {
        return Err(format!("{all} reads did not see what flush had completed").into());
    }
    Ok(())
}

/// Reads that did not see what was put, the same at all ranks. Collective.
fn count(team: &Team<'_>, reader: Rank, size: usize, epochs: u64) -> Outcome<u64> {
    let job = team.job();
    let window = RawWindow::allocate(job, size, 1)?;
    // Never freed where an epoch fails: the fabric may still use it.
    let mut buffer = std::mem::ManuallyDrop::new(vec![0_u8; size]);
    let mut stale = 0;
    job.barrier()?;
    window.lock_all(false)?;
    for epoch in 0..epochs {
        let (step, value) = (team.next_step(), (epoch % 251) as u8 + 1);
        if job.rank() == LEADER {
            buffer.fill(value);
            // SAFETY: the buffer is written again only after the flush.
            unsafe { window.put(buffer.as_ptr(), size, TARGET, 0) }?;
            window.flush(TARGET)?;
            team.sign(reader, step)?;
            team.wait_for_sign(reader, step)?;
        } else if job.rank() == reader {
            team.wait_for_sign(LEADER, step)?;
            if reader == TARGET {
                window.sync()?;
                load(&window, &mut buffer);
            } else {
                // SAFETY: the buffer is read only after the flush.
                unsafe { window.get(buffer.as_mut_ptr(), size, TARGET, 0) }?;
                window.flush(TARGET)?;
            }
            stale += u64::from(buffer.iter().any(|&byte| byte != value));
            team.sign(LEADER, step)?;
        }
    }
    window.unlock_all()?;
    job.barrier()?;
    window.free()?;
    drop(std::mem::ManuallyDrop::into_inner(buffer));
    let said = team.share(stale)?;
    Ok(said.iter().sum())
}

/// Copies the own window.
fn load(window: &RawWindow, into: &mut [u8]) {
    for (offset, byte) in into.iter_mut().enumerate() {
        let at = window.base().wrapping_add(offset);
        // SAFETY: the window has as many bytes as the buffer, and is written next when the origin has the answer.
        *byte = unsafe { at.read_volatile() };
    }
}
