//! Options of the commands about locks, windows and notified puts, and of those that read results.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use clap::{Args, ValueEnum};
use rma::LockType;

use super::measure::{outstanding, seconds, Amount, Output, Rounds, SizeRange, Sizes};
use crate::ground::WindowKind;
use crate::limits::Limit;

/// Options of `rma-bench locks`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Locks {
    /// Types of lock
    #[arg(long, short = 'l', value_enum, value_name = "TYPE,...", value_delimiter = ',')]
    #[arg(default_value = "shared,exclusive")]
    pub(crate) lock: Vec<LockKind>,

    /// Numbers of origins that want the lock of rank 0 at once [default: 1, 2, 4 ... and all others]
    #[arg(long, short = 'n', value_name = "N,...", value_delimiter = ',')]
    #[arg(value_parser = RangedU64ValueParser::<u32>::new().range(1..=1 << 20))]
    pub(crate) origins: Vec<u32>,

    /// Seconds for each row, all rounds together
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub(crate) time: Duration,

    #[command(flatten)]
    pub(crate) rounds: Rounds,

    #[command(flatten)]
    pub(crate) output: Output,
}

/// A type of lock.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LockKind {
    Shared,
    Exclusive,
}

impl LockKind {
    /// As it is given and stored.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Exclusive => "exclusive",
        }
    }

    /// The library's.
    pub(crate) const fn lock_type(self) -> LockType {
        match self {
            Self::Shared => LockType::Shared,
            Self::Exclusive => LockType::Exclusive,
        }
    }
}

/// Options of `rma-bench windows`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Windows {
    /// Kinds of window
    #[arg(long, short = 'w', value_enum, value_name = "KIND,...", value_delimiter = ',')]
    #[arg(default_value = "create,allocate,dynamic")]
    pub(crate) window: Vec<WindowKind>,

    /// Sizes in bytes at each rank of the first pair: from MIN (1) on, doubled up to MAX
    #[arg(long, short = 'm', value_name = "[MIN:]MAX", default_value = "4K:64M")]
    pub(crate) sizes: Sizes,

    #[command(flatten)]
    pub(crate) rounds: Rounds,

    #[command(flatten)]
    pub(crate) output: Output,
}

/// Options of `rma-bench notified`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Notified {
    #[command(flatten)]
    pub(crate) range: SizeRange,

    #[command(flatten)]
    pub(crate) amount: Amount,

    #[command(flatten)]
    pub(crate) output: Output,
}

/// Options of `rma-bench stale`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Stale {
    /// Sizes in bytes: from MIN (1) on, doubled up to MAX; K and M are understood
    #[arg(long, short = 'm', value_name = "[MIN:]MAX", default_value = "8:4K")]
    pub(crate) sizes: Sizes,

    /// Reads of each size
    #[arg(long, short = 'i', value_name = "N", default_value = "1000")]
    #[arg(value_parser = RangedU64ValueParser::<u64>::new().range(1..=1_000_000_000))]
    pub(crate) iterations: u64,

    #[command(flatten)]
    pub(crate) output: Output,
}

/// Options of `rma-bench limits`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Limits {
    /// What to measure; several with commas
    #[arg(long, short = 'l', value_enum, value_name = "LIMIT,...", value_delimiter = ',')]
    #[arg(default_value = "tcp,packet,write,read")]
    pub(crate) limit: Vec<Limit>,

    #[command(flatten)]
    pub(crate) range: SizeRange,

    /// Writes at once for rate and bandwidth, as far as they fit in 64 MiB
    #[arg(long, short = 'W', value_name = "N", default_value = "64", value_parser = outstanding())]
    pub(crate) outstanding: usize,

    /// Where rank 0 finds rank 1 for TCP; not needed on one host
    #[arg(long, value_name = "IP")]
    pub(crate) address: Option<IpAddr>,

    #[command(flatten)]
    pub(crate) amount: Amount,

    #[command(flatten)]
    pub(crate) output: Output,
}

/// Options of `rma-bench peers`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Peers {
    /// Own results of --json, of several alternated runs one behind the other
    pub(crate) own: PathBuf,

    /// The same of others
    #[arg(required = true)]
    pub(crate) peers: Vec<PathBuf>,
}

/// Options of `rma-bench compare`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Compare {
    /// Results of --json before
    pub(crate) before: PathBuf,

    /// Results of --json after
    pub(crate) after: PathBuf,

    /// Changes of less than this are none, whatever the intervals say
    #[arg(long, value_name = "PERCENT", default_value = "2", value_parser = percent)]
    pub(crate) at_least: f64,

    /// Print all rows, and not only those that have changed
    #[arg(long, short = 'a')]
    pub(crate) all: bool,

    /// End with an error when something has become worse
    #[arg(long)]
    pub(crate) fail: bool,
}

/// Options of `rma-bench report`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Report {
    /// Results of --json, of any commands
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,

    /// Where to write the page [default: standard output]
    #[arg(long, short = 'o', value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

fn percent(text: &str) -> Result<f64, String> {
    let percent: f64 = text.parse().map_err(|_| format!("'{text}' is no number"))?;
    if (0.0..=1000.0).contains(&percent) {
        Ok(percent)
    } else {
        Err("from 0 to 1000".to_owned())
    }
}

pub(crate) const LOCKS_HELP: &str = "\
Origins (ranks 1 to N) lock rank 0, accumulate one word and unlock, again and again; rank 0 polls. Epochs are
counted at the target, and before each row of exclusive locks it is proved that they exclude.

Rows: throughput, epochs a second of all origins together; fairness, Jain's index of what each got (1: all the
same; 1/N: one got everything); epoch, the slowest origin's median time, with the 99th percentile and maximum of all.

Examples:
  rmarun -n 3 rma-bench locks
  rmarun -n 9 rma-bench locks -l exclusive --origins 1,8";

pub(crate) const WINDOWS_HELP: &str = "\
Steps, in this order: create; first put, lock, put of 8 bytes and unlock to a window that nobody has accessed; next
put; first touch, a store to each page of the own window; next touch; free (dynamic: with detach). Of calls that all
ranks make the longest counts. Ranks 0 and N/2 have memory in the window.

Examples:
  rmarun -n 2 rma-bench windows
  rmarun -n 2 rma-bench windows -w allocate,shared -m 1M:1G";

pub(crate) const NOTIFIED_HELP: &str = "\
Ranks 0 and 1 put to each other in turn with put_notify and wait for the other's notification: half of the round
trip. The data are in it: who sees the notification sees them.

Example:
  rmarun -n 2 rma-bench notified -m 8:64K";

pub(crate) const STALE_HELP: &str = "\
Rank 0 puts to rank 1, flushes, and tells the last rank, which reads rank 1's memory: with get, or, of two ranks, by
loads. Every read must see the put; the command fails where one does not. The share is of reads that did.

Examples:
  rmarun -n 3 rma-bench stale
  rmarun -n 2 rma-bench stale -m 8:64K -i 10000";

pub(crate) const LIMITS_HELP: &str = "\
What no runtime over the same fabric can beat, by loops of this program, without the engine, measured as everything else
is. Ranks 0 and 1 measure; sizes that a packet cannot have are left out.

Examples:
  rmarun -n 2 rma-bench limits -m 8:64K
  rmarun --host node1,node2 -n 2 rma-bench limits -l tcp --address 10.0.0.2";

pub(crate) const PEERS_HELP: &str = "\
Puts rows of the same measurement side by side: the median and the best of their rounds, and how many times as good the
own is (more than 1: less time, or a higher rate), by the ratio of medians, of the best, and the median of the ratios
of rounds with the same number, which is the one to trust where the machine changes its speed and runs were alternated.
Rows that others do not have, such as limits, follow by themselves. ci/peers.sh makes such files.

Example:
  rma-bench peers own.jsonl mpich.jsonl impi.jsonl";

pub(crate) const COMPARE_HELP: &str = "\
A row has changed if its two 95 % confidence intervals do not overlap and the medians differ by --at-least. Intervals
are over rounds, so that a machine which changes its speed while it measures shows fewer changes, not wrong ones.
Files of several runs (cat a1.jsonl a2.jsonl > a.jsonl) count as more rounds of the same rows: alternate the runs of
both sides, and a machine that is slow for minutes does not look like a change. What was measured over another provider,
or with other settings, stays a row of its own.

Examples:
  rma-bench compare before.jsonl after.jsonl
  rma-bench compare --fail --at-least 5 before.jsonl after.jsonl";

pub(crate) const REPORT_HELP: &str = "\
One page of HTML with everything in it: all measurements at a glance, what each optimization gains ('optimizations
--json'), plots by size, tables and environments. It opens without a network and prints. Rows of several files, providers
or settings are told apart.

Example:
  rma-bench report *.jsonl --output report.html";
