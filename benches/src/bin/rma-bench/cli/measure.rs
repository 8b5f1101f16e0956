//! Options of the commands that measure operations: those of OSU's one-sided benchmarks where they have them.

use std::str::FromStr;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use clap::Args;
use rma::LockType;
use rma_bench::output::Format;

use crate::exchange::{Manner, Sync};
use crate::ground::{Operation, WindowKind};
use crate::measure::Effort;
use crate::pattern::Pattern;
use crate::team::TargetKind;

/// Options of `rma-bench latency`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Latency {
    #[command(flatten)]
    pub(crate) measurement: Measurement,

    #[command(flatten)]
    pub(crate) range: SizeRange,

    #[command(flatten)]
    pub(crate) meanwhile: Meanwhile,

    #[command(flatten)]
    pub(crate) partners: Partners,
}

/// Options of `rma-bench bandwidth`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Bandwidth {
    #[command(flatten)]
    pub(crate) measurement: Measurement,

    #[command(flatten)]
    pub(crate) range: SizeRange,

    /// Operations between two synchronizations, as far as they fit in 64 MiB
    #[arg(long, short = 'W', value_name = "N", default_value = "64", value_parser = outstanding())]
    pub(crate) outstanding: usize,

    /// Both ranks of a pair at the same time
    #[arg(long, short = 'b')]
    pub(crate) bidirectional: bool,
}

/// Options of `rma-bench rate`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Rate {
    #[command(flatten)]
    pub(crate) measurement: Measurement,

    /// Bytes of an operation; fetch_and_op and compare_and_swap have 8
    #[arg(long, value_name = "BYTES", default_value = "8")]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=1 << 20))]
    pub(crate) size: usize,

    /// Operations to each target between two synchronizations
    #[arg(long, short = 'W', value_name = "N", default_value = "64", value_parser = outstanding())]
    pub(crate) outstanding: usize,

    /// Numbers of pairs that work at once [default: 1, 2, 4 ... and all]
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    #[arg(value_parser = RangedU64ValueParser::<u32>::new().range(1..=1 << 20))]
    pub(crate) pairs: Vec<u32>,

    /// Numbers of threads of each origin, each with a window of its own
    #[arg(long, short = 't', value_name = "N,...", value_delimiter = ',', default_value = "1")]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=256))]
    pub(crate) threads: Vec<usize>,

    #[command(flatten)]
    pub(crate) partners: Partners,
}

/// Options of `rma-bench overlap`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Overlap {
    #[command(flatten)]
    pub(crate) measurement: Measurement,

    /// Sizes in bytes: from MIN (1) on, doubled up to MAX; K and M are understood
    #[arg(long, short = 'm', value_name = "[MIN:]MAX", default_value = "4K:4M")]
    pub(crate) sizes: Sizes,

    #[command(flatten)]
    pub(crate) meanwhile: Meanwhile,

    /// Pieces of the computation; between two of them the origin lets the library make progress
    #[arg(long, value_name = "N", default_value = "1")]
    #[arg(value_parser = RangedU64ValueParser::<u32>::new().range(1..=1000))]
    pub(crate) slices: u32,
}

/// What the commands that measure operations have in common.
#[derive(Args, Clone, Debug)]
pub(crate) struct Measurement {
    /// What to measure; several with commas
    #[arg(long, short = 'o', value_enum, value_name = "OP,...", value_delimiter = ',')]
    #[arg(default_value = "put")]
    pub(crate) operation: Vec<Operation>,

    #[command(flatten)]
    pub(crate) epochs: Epochs,

    #[command(flatten)]
    pub(crate) amount: Amount,

    #[command(flatten)]
    pub(crate) output: Output,
}

/// Sizes of operations.
#[derive(Args, Clone, Debug)]
pub(crate) struct SizeRange {
    /// Sizes in bytes: from MIN (1) on, doubled up to MAX; K and M are understood
    #[arg(long, short = 'm', value_name = "[MIN:]MAX", default_value = "1:4M")]
    pub(crate) sizes: Sizes,
}

/// What others do while an origin measures.
#[derive(Args, Clone, Debug)]
pub(crate) struct Meanwhile {
    /// What targets do meanwhile; not with fence and pscw, in which they take part
    #[arg(long, value_enum, value_name = "STATE", default_value = "polling")]
    pub(crate) target: TargetKind,
}

/// How ranks are matched.
#[derive(Args, Clone, Debug)]
pub(crate) struct Partners {
    /// Who accesses whom
    #[arg(long, value_enum, value_name = "PATTERN", default_value = "pairs")]
    pub(crate) pattern: Pattern,
}

pub(super) fn outstanding() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=65_536)
}

/// Windows and epochs.
#[derive(Args, Clone, Debug)]
pub(crate) struct Epochs {
    /// Kind of window
    #[arg(long, short = 'w', value_enum, value_name = "KIND", default_value = "allocate")]
    pub(crate) window: WindowKind,

    /// What completes the operations
    #[arg(long, short = 's', value_enum, value_name = "SYNC", default_value = "flush")]
    pub(crate) sync: Sync,

    /// Take exclusive locks, with lock, flush and flush_local; OSU's are shared
    #[arg(long)]
    pub(crate) exclusive: bool,
}

impl Epochs {
    /// What completes the operations, and how locks are taken if not as usual.
    pub(crate) fn name(&self) -> String {
        let lock = if self.exclusive { " exclusive" } else { "" };
        format!("{}{lock}", self.sync.name())
    }

    /// By one thread, which takes no turns with a target that polls.
    pub(crate) const fn manner(&self) -> Manner {
        let lock_type = if self.exclusive { LockType::Exclusive } else { LockType::Shared };
        let target = TargetKind::Polling;
        Manner { sync: self.sync, lock_type, target, takes_turns: false, threads: 1 }
    }
}

/// How much is measured.
#[derive(Args, Clone, Debug)]
pub(crate) struct Amount {
    /// Epochs of each row, all rounds together [default: as many as fit in --time]
    #[arg(long, short = 'i', value_name = "N")]
    #[arg(value_parser = RangedU64ValueParser::<u64>::new().range(1..=1_000_000_000))]
    pub(crate) iterations: Option<u64>,

    /// Epochs before them that are not timed [default: until batches are stable]
    #[arg(long, short = 'x', value_name = "N")]
    #[arg(value_parser = RangedU64ValueParser::<u64>::new().range(0..=1_000_000_000))]
    pub(crate) warmup: Option<u64>,

    /// Seconds for each row, all rounds together, unless --iterations says how much
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = seconds)]
    pub(crate) time: Duration,

    #[command(flatten)]
    pub(crate) rounds: Rounds,
}

impl Amount {
    pub(crate) const fn effort(&self) -> Effort {
        let rounds = self.rounds.rounds;
        Effort { iterations: self.iterations, warm_up: self.warmup, time: self.time, rounds }
    }
}

/// How often everything is measured.
#[derive(Args, Clone, Debug)]
pub(crate) struct Rounds {
    /// Rounds; each one measures every row, and the intervals are over rounds
    #[arg(long, short = 'r', value_name = "N", default_value = "11")]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=1000))]
    pub(crate) rounds: usize,
}

/// How results are printed, and over what.
#[derive(Args, Clone, Debug)]
pub(crate) struct Output {
    /// Print one JSON object a row, with its environment, for 'compare' and 'report'
    #[arg(long, conflicts_with = "csv")]
    pub(crate) json: bool,

    /// Print comma-separated values
    #[arg(long)]
    pub(crate) csv: bool,

    /// Provider to use: shm, verbs, ofi or one of libfabric's, such as 'tcp;ofi_rxm' (as RMA_PROVIDER)
    #[arg(long, value_name = "P")]
    pub(crate) provider: Option<String>,
}

impl Output {
    pub(crate) const fn format(&self) -> Format {
        match (self.json, self.csv) {
            (true, _) => Format::Json,
            (_, true) => Format::Csv,
            _ => Format::Table,
        }
    }
}

/// A range of sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sizes {
    min: usize,
    max: usize,
}

impl Sizes {
    /// The sizes from the least, each double the one before.
    pub(crate) fn all(self) -> Vec<usize> {
        std::iter::successors(Some(self.min), |size| size.checked_mul(2))
            .take_while(|&size| size <= self.max)
            .collect()
    }
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (min, max) = text.split_once(':').unwrap_or(("", text));
        let min = if min.is_empty() { 1 } else { bytes(min)? };
        let max = if max.is_empty() { SIZE_DEFAULT_MAX } else { bytes(max)? };
        if min == 0 || min > max || max > SIZE_MAX {
            return Err(format!("sizes go from 1 to {SIZE_MAX} bytes, the smaller first"));
        }
        Ok(Self { min, max })
    }
}

/// Bytes, as `64`, `64K`, `4M` or `1G`.
pub(crate) fn bytes(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let factor: usize = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        other => return Err(format!("'{other}' is no unit; K, M and G are")),
    };
    let count: usize = digits.parse().map_err(|_| format!("'{text}' is no number of bytes"))?;
    count.checked_mul(factor).ok_or_else(|| format!("'{text}' is more than memory can hold"))
}

/// A time that is not zero.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("'{text}' is no number of seconds"))?;
    let time = Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?;
    if time.is_zero() || time > TIME_MAX {
        return Err(format!("from a nanosecond to {} s", TIME_MAX.as_secs()));
    }
    Ok(time)
}

const SIZE_MAX: usize = 1 << 30;
const SIZE_DEFAULT_MAX: usize = 4 << 20;
const TIME_MAX: Duration = Duration::from_secs(3600);

pub(crate) const LATENCY_HELP: &str = "\
The time of one operation and what completes it, at the origin. Iterations, batches and warm-up are found unless
they are given. What was written is read back, what was fetched is compared, sums are counted, in every run.

SYNC, as in OSU's benchmarks:
  flush         operation, flush; the lock stays. At the target when flush returns
  flush_local   operation, flush_local: the buffer may be used again, the target may not have it yet
  lock          lock, operation, unlock. Three calls, and one packet each way where it is small
  lock_all      lock_all, operation, unlock_all
  fence         operation, fence, of all ranks
  pscw          start, operation, complete; post, wait: half of the time of both ranks taking turns

Columns: median over the rounds; its 95 % confidence interval, wide where the machine changes its speed; 99th
percentile and minimum of all batches; epochs in all, and those timed together (1 unless one is too short for the
clock); warm-up.

Examples:
  rmarun -n 2 rma-bench latency
  rmarun -n 2 rma-bench latency -o put,get,fetch_and_op,compare_and_swap -m 8:8
  rmarun -n 2 rma-bench latency -o accumulate -s lock -m 8:64K
  RMA_PROGRESS=none rmarun -n 2 rma-bench latency --target busy -m 8:8     nobody serves the target
  rmarun --host node1,node2 -n 2 --provider verbs rma-bench latency --json > verbs.jsonl
  rma-bench compare before.jsonl after.jsonl";

pub(crate) const BANDWIDTH_HELP: &str = "\
Millions of bytes a second (OSU's MB/s): -W operations, what completes them, and again. In a round the bytes of all
batches are divided by the time from the first to the last; with several pairs, and with --bidirectional, what all
origins reach is added up.

Examples:
  rmarun -n 2 rma-bench bandwidth
  rmarun -n 2 rma-bench bandwidth -o put,get --bidirectional -m 64K:4M
  rmarun -n 2 rma-bench bandwidth -s fence -W 16";

pub(crate) const RATE_HELP: &str = "\
Operations a second of all origins together: -W operations, what completes them, and again. Pair i is rank i and rank
i + N/2, so that with one host after the other pairs span hosts.

Examples:
  rmarun -n 2 rma-bench rate
  rmarun -n 2 rma-bench rate -o put,fetch_and_op --threads 1,2,4
  rmarun --host node1:8,node2:8 -n 16 rma-bench rate --pairs 1,2,4,8
  rmarun -n 8 rma-bench rate --pattern all-to-one";

pub(crate) const OVERLAP_HELP: &str = "\
How much of an operation's time goes on while the origin computes: in each round the operation and what completes it
alone, a computation that takes as long, and both, with the computation between the operation and what completes it.

Rows: communication, computation, both; overlap, the share of the communication that both have not taken longer than
the computation (1: all of it was hidden; 0: none), from the three times of the same round.

Examples:
  rmarun -n 2 rma-bench overlap
  rmarun -n 2 rma-bench overlap -o put,get -m 64K:4M --slices 8
  RMA_PROGRESS=none rmarun -n 2 rma-bench overlap --target busy -m 64K:64K";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_as_for_osu() {
        let all = |text: &str| text.parse().map(Sizes::all);
        assert_eq!(all("1:8"), Ok(vec![1, 2, 4, 8]));
        assert_eq!(all("4"), Ok(vec![1, 2, 4]));
        assert_eq!(all("3:13"), Ok(vec![3, 6, 12]));
        assert_eq!(all("64K:128k"), Ok(vec![65_536, 131_072]));
        assert_eq!(all("2M:").map(|sizes| sizes.len()), Ok(2));
        for wrong in ["0:8", "8:4", "x", "1:2T", "-1:4", "2G", "1:99999999999999999999"] {
            assert!(all(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_are_bounded() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "nan", "1e9", "soon"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
