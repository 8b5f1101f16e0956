//! A timeline of a job's ranks (`RMA_TRACE`), for people.
//!
//! While a job runs, each blocking call leaves a [`Record`] in a [`Ring`] of fixed size, behind the guard. That is
//! all: what epochs there were is found out from the calls when the timeline is written ([`spans`]), and writing is
//! what the end of a job does ([`file`]). Operations leave nothing: the engine's counters, read after each call, tell
//! how many there were.

pub(crate) mod clock;
pub(crate) mod file;
mod json;
pub(crate) mod metrics;
mod ring;
mod spans;

use std::path::PathBuf;

pub(crate) use clock::Alignment;
pub(crate) use ring::{traffic, Record, Ring, What};

/// Records that a ring has room for if nobody says otherwise (`RMA_TRACE_EVENTS`).
pub(crate) const EVENTS_DEFAULT: usize = 16_384;

/// What is written when a rank leaves its job, and where.
#[derive(Clone, Default, Debug)]
pub(crate) struct Outputs {
    /// The timeline of all ranks, and whose records are this rank's.
    pub(crate) trace: Option<(PathBuf, Origin)>,
    /// The counters, in a file of each rank.
    pub(crate) metrics: Option<PathBuf>,
}

/// What the records of one rank mean.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) rank: u32,
    pub(crate) size: u32,
    pub(crate) host: String,
    pub(crate) process: u32,
    pub(crate) alignment: Alignment,
}
