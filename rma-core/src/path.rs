//! Native or message: decided per window and class of operation at creation, the same at all ranks.

use crate::config::Config;
use crate::dtype::Dtype;
use crate::info::{AccumulateOps, WindowOptions};
use crate::op::ReduceOp;
use crate::provider::NativeOps;
use crate::wire::OpKind;

/// How an operation travels.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Path {
    /// The fabric executes it on the target's registered memory.
    Native,
    /// A packet carries it; the target's process executes it.
    Message,
}

/// Most bytes that one atomic of a fabric covers.
const FABRIC_ATOMIC_BYTES: u32 = 8;

/// Types of which the fabric may execute accumulates: integers of at most 8 bytes, which are the first.
const FABRIC_DTYPES: usize = 8;

/// Beside the reductions' bits that of compare-and-swap.
const SWAP: u16 = 1 << 15;

/// Every operation on a type.
const COMPLETE: u16 = u16::MAX;

/// The paths of one window. One atomicity domain for all accumulates that may meet at one location: either the
/// fabric executes every one of them, or processors do, the target's, or a neighbour's by the same instructions. By default any two on one element type may
/// meet, since a process's own keep their order whatever they do; so a type is the fabric's only if all that is
/// defined for it is. `same_op` promises that none meets another reduction: then each has a domain of its own.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Paths {
    pub(crate) put: bool,
    pub(crate) get: bool,
    /// Whether this rank may do an atomic that is a message by its own processor, where that reaches a
    /// neighbour's memory: the target's, which executes messages, does it by the same instructions. Of elements in groups
    /// (`mpi_accumulate_granularity`) it may not: 0; else the size from which on several elements may be done one by one.
    pub(crate) near_atomics: u8,
    /// Of each type the reductions, a bit each, and [`SWAP`], that are the fabric's.
    atomics: [u16; FABRIC_DTYPES],
}

impl Paths {
    /// What this rank could do.
    pub(crate) fn offered(native: &NativeOps, config: &Config, options: &WindowOptions) -> Self {
        // Only the target's process sees every access, and compares them.
        if config.force_message_path || options.check == Some(true) {
            return Self::default();
        }
        let mut paths = Self { put: native.put, get: native.get, ..Self::default() };
        // The fabric's atomics cover one element each.
        if options.accumulate_granularity > FABRIC_ATOMIC_BYTES {
            return paths;
        }
        // At most `FABRIC_ATOMIC_BYTES`.
        paths.near_atomics = if native.put { options.accumulate_granularity.max(1) as u8 } else { 0 };
        for dtype in Dtype::ALL.into_iter().filter(|&dtype| Self::is_exact(dtype)) {
            let is_single = options.accumulate_ops == AccumulateOps::SameOp;
            paths.atomics[dtype as usize] = match native.is_complete_for(dtype) {
                true => COMPLETE,
                false if is_single => Self::single(native, dtype),
                false => 0,
            };
        }
        paths
    }

    /// The operations on the type that the fabric has, where each may go its own way.
    fn single(native: &NativeOps, dtype: Dtype) -> u16 {
        let swap = if native.compare_atomic & (1 << dtype as u32) != 0 { SWAP } else { 0 };
        let defined = ReduceOp::ALL.into_iter().filter(|op| op.is_defined_for(dtype));
        let bits =
            defined.filter(|&op| native.is_native(dtype, op)).fold(swap, |bits, op| bits | 1 << op as u16);
        // Notifications change words by both, and stay in order.
        let (sum, replace) = (1 << ReduceOp::Sum as u16, 1 << ReduceOp::Replace as u16);
        let has_both = bits & sum != 0 && bits & replace != 0;
        if dtype == Dtype::U64 && !has_both {
            bits & !(sum | replace)
        } else {
            bits
        }
    }

    /// Whether every fabric computes the same as the CPU: integers that a processor has atomics for. Of
    /// floats fabrics round, and treat NaN, each in its own way; the other types no fabric has completely.
    fn is_exact(dtype: Dtype) -> bool {
        dtype.is_integer() && dtype.size() <= size_of::<u64>() && (dtype as usize) < FABRIC_DTYPES
    }

    /// A number for the agreement: others with the same one have the same paths. Of fabrics that differ the
    /// chance is 1 in 2^58 that this does not show.
    pub(crate) fn digest(self) -> u64 {
        // FNV-1a, by 16 bits.
        let mix = |hash: u64, bits: &u16| (hash ^ u64::from(*bits)).wrapping_mul(0x100_0000_01b3);
        let atomics = self.atomics.iter().fold(0xcbf2_9ce4_8422_2325, mix);
        u64::from(self.put) | u64::from(self.get) << 1 | u64::from(self.near_atomics) << 2 | atomics << 6
    }

    /// Whether any operation is native, so that the window's memory must be registered.
    pub(crate) fn any(self) -> bool {
        self != Self::default()
    }

    /// Whether the fabric executes any accumulate.
    pub(crate) fn has_atomics(self) -> bool {
        self.atomics != [0; FABRIC_DTYPES]
    }

    /// Reductions may meet each other from now on.
    pub(crate) fn join_reductions(&mut self) {
        self.atomics.iter_mut().filter(|bits| **bits != COMPLETE).for_each(|bits| *bits = 0);
    }

    /// The path of an operation.
    #[inline]
    pub(crate) fn of(self, kind: OpKind, dtype: Dtype, op: ReduceOp) -> Path {
        let atomic = |bit: u16| self.atomics.get(dtype as usize).is_some_and(|bits| bits & bit != 0);
        let is_native = match kind {
            OpKind::Put => self.put,
            OpKind::Get => self.get,
            OpKind::CompareAndSwap => atomic(SWAP),
            _ => atomic(1 << op as u16),
        };
        Self::path(is_native)
    }

    /// The path of all accumulates on a type together: native if every one is.
    pub(crate) fn of_all(self, dtype: Dtype) -> Path {
        Self::path(self.atomics.get(dtype as usize) == Some(&COMPLETE))
    }

    fn path(is_native: bool) -> Path {
        if is_native {
            Path::Native
        } else {
            Path::Message
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fabric that adds, swaps and replaces words.
    fn few() -> NativeOps {
        let mut native = NativeOps { put: true, get: true, ..NativeOps::default() };
        for dtype in [Dtype::U64, Dtype::I64] {
            let bits = 1 << ReduceOp::Sum as u16 | 1 << ReduceOp::Replace as u16;
            native.atomic[dtype as usize] = bits;
            native.fetch_atomic[dtype as usize] = bits;
            native.compare_atomic |= 1 << dtype as u32;
        }
        native
    }

    fn paths(native: &NativeOps, accumulate_ops: AccumulateOps) -> Paths {
        let options = WindowOptions { accumulate_ops, ..WindowOptions::DEFAULT };
        Paths::offered(native, &Config::default(), &options)
    }

    #[test]
    fn reductions_that_never_meet_go_their_own_ways() {
        let all = paths(&few(), AccumulateOps::SameOpNoOp);
        let mut single = paths(&few(), AccumulateOps::SameOp);
        let kind = OpKind::GetAccumulate;
        assert_eq!(all.of(kind, Dtype::U64, ReduceOp::Sum), Path::Message);
        assert_eq!(single.of(kind, Dtype::U64, ReduceOp::Sum), Path::Native);
        assert_eq!(single.of(OpKind::CompareAndSwap, Dtype::I64, ReduceOp::Replace), Path::Native);
        assert_eq!(single.of(kind, Dtype::U64, ReduceOp::Prod), Path::Message);
        assert_eq!(single.of(kind, Dtype::U32, ReduceOp::Sum), Path::Message);
        assert_eq!(single.of(kind, Dtype::F64, ReduceOp::Sum), Path::Message);
        assert_eq!(single.of_all(Dtype::U64), Path::Message);
        assert_ne!(all.digest(), single.digest());
        single.join_reductions();
        assert_eq!(single, all);
    }

    #[test]
    fn what_notifies_stays_together() {
        let mut native = few();
        native.fetch_atomic[Dtype::U64 as usize] = 1 << ReduceOp::Sum as u16;
        native.fetch_atomic[Dtype::I64 as usize] = 1 << ReduceOp::Sum as u16;
        let single = paths(&native, AccumulateOps::SameOp);
        assert_eq!(single.of(OpKind::Accumulate, Dtype::U64, ReduceOp::Sum), Path::Message);
        assert_eq!(single.of(OpKind::Accumulate, Dtype::I64, ReduceOp::Sum), Path::Native);
    }

    #[test]
    fn elements_in_groups_are_left_together() {
        let near = |granularity| {
            let options = WindowOptions { accumulate_granularity: granularity, ..WindowOptions::DEFAULT };
            Paths::offered(&few(), &Config::default(), &options).near_atomics
        };
        assert_eq!([0, 1, 2, 8, 9, u32::MAX].map(near), [1, 1, 2, 8, 0, 0]);
    }
}
