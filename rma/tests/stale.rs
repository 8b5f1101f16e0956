//! A flushed put is visible to whoever learns of it: to the target's CPU and to a third rank, at every size
//! up to the providers' inject sizes and above, where a completion that comes too early shows.

mod common;

use std::time::{Duration, Instant};

use common::*;
use rma::{Error, Job, Rank, Window};

/// Rounds over all sizes together.
const ROUNDS: usize = 1000;

/// Bytes put, around the inject sizes of tcp (128) and tcp;ofi_rxm (64).
const SIZES: [usize; 8] = [8, 16, 64, 72, 120, 128, 136, 512];

const ORIGIN: Rank = Rank(0);
const TARGET: Rank = Rank(1);
const THIRD: Rank = Rank(2);

/// Waits until this rank's flag is `round`.
fn await_flag(job: &Job, flags: &Window<u64>, round: u64) -> Result<(), Error> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while flags.local().get(0)? < round {
        assert!(Instant::now() < deadline, "rank {} waits for round {round}", job.rank());
        if job.progress() == 0 {
            std::thread::yield_now();
        }
    }
    Ok(())
}

#[test]
fn a_flushed_put_is_never_stale() {
    ranks("a_flushed_put_is_never_stale", 3, |job| {
        let (data, flags) = (job.allocate::<u8>(512)?, job.allocate::<u64>(1)?);
        let mut seen = [0; 512];
        let mut stale = 0;
        data.lock_all(|data_epoch| {
            flags.lock_all(|flag_epoch| {
                for round in 1..=ROUNDS {
                    let size = SIZES[round % SIZES.len()];
                    let fresh = [round as u8; 512];
                    let round = round as u64;
                    match job.rank() {
                        ORIGIN => {
                            data_epoch.batch(|batch| batch.put(TARGET, 0, &fresh[..size]))?;
                            flag_epoch.put_value(THIRD, 0, round)?;
                            await_flag(job, &flags, round)?;
                        }
                        THIRD => {
                            await_flag(job, &flags, round)?;
                            data_epoch.batch(|batch| batch.get(TARGET, 0, &mut seen[..size]))?;
                            stale += u32::from(seen[..size] != fresh[..size]);
                            flag_epoch.put_value(TARGET, 0, round)?;
                        }
                        _ => {
                            await_flag(job, &flags, round)?;
                            data.local().read(0, &mut seen[..size])?;
                            stale += u32::from(seen[..size] != fresh[..size]);
                            flag_epoch.put_value(ORIGIN, 0, round)?;
                        }
                    }
                }
                Ok(())
            })
        })?;
        assert_eq!(stale, 0, "stale reads of {ROUNDS} at rank {}", job.rank());
        flags.free()?;
        data.free().map(drop)
    });
}
