//! What an epoch cost.

use rma_core::bootstrap::Bootstrap;
use rma_core::counters::Counters;
use rma_core::error::RmaError;
use rma_core::provider::Endpoint;
use serde_json::{Map, Value};

use crate::allocations;
use crate::calls;
use crate::epochs::Epoch;
use crate::ranks::Ranks;

/// Names of the counts, in the order of [`Counts`].
pub(crate) const NAMES: [&str; 8] = [
    "packets_out",
    "packets_back",
    "native_operations",
    "bytes",
    "round_trips",
    "barriers",
    "bytes_copied",
    "allocations",
];

/// The counts of one epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Counts(pub(crate) [u64; NAMES.len()]);

impl Counts {
    /// What was added to the counters of rank 0, and of all ranks.
    fn of(own: &Counters, all: &Counters, allocations: u64) -> Self {
        let packets = own.packets_sent.iter().sum::<u64>();
        let natives =
            all.native_puts + all.native_gets + all.native_atomics + all.assists + all.native_flushes;
        Self([
            packets,
            all.packets_sent.iter().sum::<u64>() - packets,
            natives + all.lock_atomics,
            all.packet_bytes_sent + all.native_bytes,
            own.round_trips,
            own.barriers_waited,
            all.payload_bytes_copied,
            allocations,
        ])
    }

    /// With their names.
    pub(crate) fn to_json(self) -> Map<String, Value> {
        NAMES.iter().zip(self.0).map(|(&name, count)| (name.to_owned(), count.into())).collect()
    }
}

/// Repeats an epoch between two marks for whoever watches the system calls, and counts each.
///
/// # Errors
/// What a call answers; or, that not all cost the same.
pub(crate) fn count<E: Endpoint, B: Bootstrap>(
    fabric: &str,
    epoch: &Epoch,
    ranks: &mut Ranks<E, B>,
) -> Result<Counts, String> {
    repeat(fabric, epoch, ranks).map_err(|error| error.to_string())?
}

fn repeat<E: Endpoint, B: Bootstrap>(
    fabric: &str,
    epoch: &Epoch,
    ranks: &mut Ranks<E, B>,
) -> Result<Result<Counts, String>, RmaError> {
    epoch.open(ranks)?;
    // The first ones connect peers, and learn where their windows are.
    for _ in 0..WARM_UP {
        epoch.run(ranks)?;
        ranks.settle();
    }
    let mut all = [None; EPOCHS_COUNTED as usize];
    calls::mark(fabric, epoch.name, calls::BEGIN);
    for counts in &mut all {
        let before = allocations::so_far();
        let counters = Snapshot::of(ranks);
        epoch.run(ranks)?;
        ranks.settle();
        let (own, sum) = Snapshot::of(ranks).since(&counters);
        *counts = Some(Counts::of(&own, &sum, allocations::so_far() - before));
    }
    calls::mark(fabric, epoch.name, calls::END);
    epoch.close(ranks)?;
    ranks.settle();
    let first = all[0].unwrap_or(Counts([0; NAMES.len()]));
    let other = all.iter().flatten().enumerate().find(|&(_, &counts)| counts != first);
    Ok(match other {
        None => Ok(first),
        Some((index, other)) => Err(format!(
            "{} over {fabric}: epoch {index} has other counts than the first: {:?}, {:?}",
            epoch.name,
            other.to_json(),
            first.to_json()
        )),
    })
}

/// The counters of all ranks.
struct Snapshot([Counters; RANKS_MAX]);

impl Snapshot {
    fn of<E: Endpoint, B: Bootstrap>(ranks: &Ranks<E, B>) -> Self {
        let mut all = [Counters::default(); RANKS_MAX];
        for (rank, counters) in all.iter_mut().enumerate().take(ranks.engines.len()) {
            *counters = ranks.counters(rank);
        }
        Self(all)
    }

    /// What was added at rank 0, and at all.
    fn since(&self, earlier: &Self) -> (Counters, Counters) {
        let own = self.0[0].since(&earlier.0[0]);
        let mut sum = own;
        for (now, then) in self.0.iter().zip(&earlier.0).skip(1) {
            let added = now.since(then);
            for (kind, more) in sum.packets_sent.iter_mut().zip(added.packets_sent) {
                *kind += more;
            }
            sum.packet_bytes_sent += added.packet_bytes_sent;
            sum.native_puts += added.native_puts;
            sum.native_gets += added.native_gets;
            sum.native_atomics += added.native_atomics;
            sum.assists += added.assists;
            sum.native_flushes += added.native_flushes;
            sum.native_bytes += added.native_bytes;
            sum.lock_atomics += added.lock_atomics;
            sum.payload_bytes_copied += added.payload_bytes_copied;
        }
        (own, sum)
    }
}

/// Epochs that are counted, all of which must cost the same.
pub(crate) const EPOCHS_COUNTED: u32 = 32;
/// Epochs before those.
const WARM_UP: u32 = 4;
/// Most ranks of an epoch.
const RANKS_MAX: usize = 5;
