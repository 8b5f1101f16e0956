//! Behaviours that fail, to show that a failure and a hang are said. Only with `--only`.

use rma::Job;

use super::behaviours;
use crate::failure::{same, Outcome};
use crate::window::{barrier, Words};

behaviours![fails_on_purpose, hangs_on_purpose];

fn fails_on_purpose(job: &Job) -> Outcome {
    let window = Words::allocate(job, 1)?;
    if job.rank().0 == job.size() - 1 {
        same!(window.own(0), 17);
    }
    // The others wait here for the one that fails.
    Ok(barrier(job)?)
}

fn hangs_on_purpose(job: &Job) -> Outcome {
    let window = Words::allocate(job, 1)?;
    // A fence that rank 0 never comes to.
    if job.rank().0 == 0 {
        barrier(job)?;
    } else {
        window.fence()?;
        window.fence_end()?;
    }
    Ok(window.free()?)
}
