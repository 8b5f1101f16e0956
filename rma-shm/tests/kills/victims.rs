//! Processes that are killed one after the other, each as soon as it has come far enough, and replaced by another.

use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::time::Instant;

use rma_shm::ShmEndpoint;

use crate::{start_process, LIMIT_S};

/// How many, and how far they come.
pub(crate) struct Victims {
    /// What they run: one of this executable's tests that are none.
    pub(crate) name: &'static str,
    pub(crate) at_one_time: u64,
    pub(crate) kills: u32,
    /// By the count that is asked for.
    pub(crate) least: u64,
}

impl Victims {
    /// Kills them. `count` says how far the one of a number has come, or those before it; `meanwhile` is done between.
    pub(crate) fn kill(
        &self,
        ep: &mut ShmEndpoint,
        count: impl Fn(u64) -> u64,
        mut meanwhile: impl FnMut(&mut ShmEndpoint),
    ) {
        let start = |ep: &ShmEndpoint, number| (start_process(self.name, ep, number as u32), count(number));
        let mut living: Vec<_> = (0..self.at_one_time).map(|number| start(ep, number)).collect();
        let (begun, mut kills) = (Instant::now(), 0);
        while kills < self.kills {
            assert!(begun.elapsed().as_secs() < LIMIT_S, "{kills} were killed");
            meanwhile(ep);
            for (number, (child, first)) in (0..).zip(&mut living) {
                if count(number) - *first >= self.least {
                    end(child);
                    (*child, *first) = start(ep, number);
                    kills += 1;
                }
            }
        }
        living.iter_mut().for_each(|(child, _)| end(child));
    }
}

fn end(child: &mut Child) {
    child.kill().unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(9), "{status}");
}
