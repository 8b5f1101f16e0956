//! The command line.

mod measure;
mod special;

use clap::builder::RangedU64ValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use measure::{Bandwidth, Latency, Measurement, Output, Overlap, Rate, Rounds};
pub(crate) use special::{Compare, Limits, LockKind, Locks, Notified, Peers, Report, Stale, Windows};

/// Measures one-sided communication: what it costs on the wire and in time, and what the optimizations
/// gain. Start it under rmarun, or under the launcher of your cluster.
#[derive(Parser, Debug)]
#[command(name = "rma-bench", version, max_term_width = 100, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  rmarun -n 2 rma-bench latency              put and flush, 1 byte to 4 MiB
  rmarun -n 2 rma-bench latency -o fetch_and_op,compare_and_swap -s lock
  rmarun -n 2 rma-bench optimizations        what each optimization gains, as one table
  rmarun -n 2 rma-bench optimizations --json --epoch lock-put-unlock
  rma-bench info                             what libfabric offers here, and what was chosen

'rma-bench COMMAND --help' tells more about each.";

/// What to do.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Latency of put, get, accumulate, get_accumulate, fetch_and_op and compare_and_swap
    #[command(after_help = measure::LATENCY_HELP)]
    Latency(Latency),
    /// Bandwidth of put and get with many outstanding at once, one way or both ways
    #[command(after_help = measure::BANDWIDTH_HELP)]
    Bandwidth(Bandwidth),
    /// Small operations a second, of 1 to N pairs of ranks and 1 to N threads
    #[command(after_help = measure::RATE_HELP)]
    Rate(Rate),
    /// How much of an operation's time passes while the origin computes
    #[command(after_help = measure::OVERLAP_HELP)]
    Overlap(Overlap),
    /// Contention for one target's lock: throughput and fairness
    #[command(after_help = special::LOCKS_HELP)]
    Locks(Locks),
    /// Making a window, touching its memory first, freeing it
    #[command(after_help = special::WINDOWS_HELP)]
    Windows(Windows),
    /// Latency of puts that tell the target of themselves
    #[command(after_help = special::NOTIFIED_HELP)]
    Notified(Notified),
    /// Whether what flush has completed is what others read
    #[command(after_help = special::STALE_HELP)]
    Stale(Stale),
    /// What is below the engine: the kernel's TCP, the fabric's packets, writes and reads
    #[command(after_help = special::LIMITS_HELP)]
    Limits(Limits),
    /// Own results beside those of others, as ratios
    #[command(after_help = special::PEERS_HELP)]
    Peers(Peers),
    /// What has changed beyond noise between two files of results
    #[command(after_help = special::COMPARE_HELP)]
    Compare(Compare),
    /// One HTML page with plots, from files of results
    #[command(after_help = special::REPORT_HELP)]
    Report(Report),
    /// Epochs with every optimization on and off: packets, round trips, latency
    #[command(after_help = OPTIMIZATIONS_HELP)]
    Optimizations(Optimizations),
    /// Rates of puts and fetch_and_ops of 1, 2 and 4 threads of rank 0
    Threads(Threads),
    /// What an origin sees of a target that polls, computes or sleeps, with the driver of RMA_PROGRESS
    Agent(Agent),
    /// What libfabric offers here, what was chosen and why, limits, memory, settings
    #[command(after_help = INFO_HELP)]
    Info(Info),
}

const OPTIMIZATIONS_HELP: &str = "\
Rank 0 is the origin and rank 1 the target; further ranks wait in barriers and take part in fences.
The target polls inside of the library while rank 0 measures.

Epochs:
  lock-put-unlock       lock (exclusive), one put, unlock
  lock-puts-unlock      lock, K puts, unlock
  lock-puts-get-unlock  lock, a put, a get, K-2 more puts, unlock
  fence-put-fence       fence (nothing precedes), one put, fence (nothing succeeds)

Switches: each epoch is measured with all of them on, with each one alone turned off, and with all off.
  single-op-lock (RMA_SINGLE_OP_LOCK), piggyback (RMA_PIGGYBACK), coalesce (RMA_COALESCE),
  get-to-tail (RMA_GET_TO_TAIL), lazy-targets (RMA_LAZY_TARGETS)

Examples:
  rmarun -n 2 rma-bench optimizations
  rmarun -n 2 rma-bench optimizations --operations 32 --size 64
  rmarun -n 2 rma-bench optimizations --epoch lock-put-unlock --rounds 21 --iterations 1000
  rmarun -n 2 rma-bench optimizations --grid --json > grid.jsonl
  rmarun -n 2 --provider 'tcp;ofi_rxm' rma-bench optimizations --json > results.jsonl

benches/README.md explains each column.";

const INFO_HELP: &str = "\
Examples:
  rma-bench info
  rma-bench info --provider sockets               why a provider is not used
  RMA_LIBFABRIC=/opt/lib/libfabric.so.1 rma-bench info
  rmarun -n 2 rma-bench info                      as the ranks of a job see it (rank 0 prints)";

/// Options of `rma-bench optimizations`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Optimizations {
    /// Operations in an epoch that has several (K), at least 2; several numbers with commas
    /// [default: 8, with --grid 2,8,32]
    #[arg(long, short = 'k', value_name = "K,...", value_delimiter = ',')]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(2..=65_536))]
    operations: Vec<usize>,

    /// Bytes that each operation moves; several with commas, K and M are understood
    /// [default: 8, with --grid 8,512,16K]
    #[arg(long, short = 's', value_name = "BYTES,...", value_delimiter = ',', value_parser = operation_bytes)]
    size: Vec<usize>,

    /// Every combination of switches, on both paths, instead of all, each one off, and none
    #[arg(long)]
    pub(crate) grid: bool,

    /// Epochs that are timed in each round, for each row
    #[arg(long, short = 'i', value_name = "N", default_value = "200")]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=10_000_000))]
    pub(crate) iterations: usize,

    /// Epochs before them that are not timed
    #[arg(long, value_name = "N", default_value = "20")]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(0..=10_000_000))]
    pub(crate) warm_up: usize,

    /// Rounds; each one measures the raw round trip and then every row
    #[arg(long, short = 'r', value_name = "N", default_value = "11")]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(5..=100_000))]
    pub(crate) rounds: usize,

    /// Measure only this epoch; may be given several times
    #[arg(long = "epoch", value_name = "NAME")]
    pub(crate) epochs: Vec<EpochKind>,

    #[command(flatten)]
    pub(crate) output: Output,
}

impl Optimizations {
    /// The numbers of operations to measure.
    pub(crate) fn operations(&self) -> Vec<usize> {
        self.asked_or(&self.operations, &[2, 8, 32])
    }

    /// The sizes to measure, in bytes.
    pub(crate) fn sizes(&self) -> Vec<usize> {
        self.asked_or(&self.size, &[8, 512, 16 << 10])
    }

    fn asked_or(&self, asked: &[usize], grid: &[usize]) -> Vec<usize> {
        match (asked.is_empty(), self.grid) {
            (false, _) => asked.to_vec(),
            (true, true) => grid.to_vec(),
            (true, false) => vec![8],
        }
    }
}

fn operation_bytes(text: &str) -> Result<usize, String> {
    let bytes = measure::bytes(text)?;
    if (1..=1 << 30).contains(&bytes) {
        Ok(bytes)
    } else {
        Err("from 1 byte to 1G".to_owned())
    }
}

/// Options of `rma-bench threads`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Threads {
    /// Numbers of threads to measure
    #[arg(long, short = 't', value_name = "N,...", value_delimiter = ',', default_value = "1,2,4")]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=256))]
    pub(crate) threads: Vec<usize>,

    /// Operations of each thread, in each round
    #[arg(long, short = 'i', value_name = "N", default_value = "2000")]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=10_000_000))]
    pub(crate) iterations: usize,

    #[command(flatten)]
    pub(crate) rounds: Rounds,

    #[command(flatten)]
    pub(crate) output: Output,
}

/// Options of `rma-bench agent`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Agent {
    /// Epochs with each kind of target, in each round
    #[arg(long, short = 'i', value_name = "N", default_value = "30")]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=10_000_000))]
    pub(crate) iterations: usize,

    #[command(flatten)]
    pub(crate) rounds: Rounds,

    #[command(flatten)]
    pub(crate) output: Output,
}

/// Options of `rma-bench info`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Info {
    /// Provider to use: shm, verbs, ofi or one of libfabric's, such as 'tcp;ofi_rxm' (as RMA_PROVIDER)
    #[arg(long, value_name = "P")]
    pub(crate) provider: Option<String>,
}

/// An epoch that can be measured.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EpochKind {
    LockPutUnlock,
    LockPutsUnlock,
    LockPutsGetUnlock,
    FencePutFence,
}

impl EpochKind {
    /// All of them, in the order of the table.
    pub(crate) const ALL: [Self; 4] =
        [Self::LockPutUnlock, Self::LockPutsUnlock, Self::LockPutsGetUnlock, Self::FencePutFence];

    /// Its name, as it is given and printed.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::LockPutUnlock => "lock-put-unlock",
            Self::LockPutsUnlock => "lock-puts-unlock",
            Self::LockPutsGetUnlock => "lock-puts-get-unlock",
            Self::FencePutFence => "fence-put-fence",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        for kind in EpochKind::ALL {
            assert_eq!(EpochKind::from_str(kind.name(), false), Ok(kind));
        }
    }

    #[test]
    fn counts_that_make_no_sense_are_refused() {
        for wrong in ["--operations=1", "--size=0", "--rounds=4", "--epoch=pscw", "--iterations=0"] {
            assert!(Cli::try_parse_from(["rma-bench", "optimizations", wrong]).is_err(), "{wrong}");
        }
    }
}
