//! What is complete when the call returns, or has not happened.

use core::ptr;

use rma_core::dtype::Dtype;
use rma_core::ids::{PeerAddr, Tag};
use rma_core::op::ReduceOp;
use rma_core::provider::{Accepted, Atomic, NativeOps, RemoteAddr, Swapped, WordSwap};

use super::endpoint::SimEndpoint;
use super::memory::MemoryPointer;
use super::operation::{Kind, Operation};

impl SimEndpoint {
    /// Posts what is complete at once, or nothing.
    pub(super) fn post_now(&self, peer: PeerAddr, operation: Operation) -> bool {
        let mut state = self.fabric.state();
        // What is done at once has no tag.
        state.is_done_at_once(peer, &operation) && state.post(peer, operation) == Ok(Accepted::Complete)
    }

    /// An atomic without a tag, of one element until its length says more.
    pub(super) fn atomic_operation(
        &self,
        atomic: Atomic,
        at: RemoteAddr,
        dtype: Dtype,
        op: ReduceOp,
    ) -> Operation {
        let (kind, source, compare, result) = match atomic {
            Atomic::Reduce { operand } => (Kind::Atomic, operand, ptr::null(), ptr::null_mut()),
            Atomic::Fetch { result, .. } if op == ReduceOp::NoOp => {
                (Kind::FetchAtomic, ptr::null(), ptr::null(), result)
            }
            Atomic::Fetch { operand, result } => (Kind::FetchAtomic, operand, ptr::null(), result),
            Atomic::Swap { operand, compare, result } => (Kind::CompareAtomic, operand, compare, result),
        };
        let mut operation = Operation::new(kind, self.index, at, dtype.size(), Some(Tag(0)));
        operation.source = MemoryPointer::source(source);
        operation.compare = MemoryPointer::source(compare);
        operation.result = MemoryPointer::new(result);
        (operation.dtype, operation.reduce) = (dtype, op);
        operation
    }

    /// Swaps a word if it is as expected; what it was before.
    fn swap_word(&self, to: PeerAddr, WordSwap { at, from, into }: WordSwap) -> Option<u64> {
        let mut before = 0_u64;
        let len = size_of::<u64>();
        let mut operation = Operation::new(Kind::CompareAtomic, self.index, at, len, Some(Tag(0)));
        operation.source = MemoryPointer::source((&raw const into).cast());
        operation.compare = MemoryPointer::source((&raw const from).cast());
        operation.result = MemoryPointer::new((&raw mut before).cast());
        operation.dtype = Dtype::U64;
        self.post_now(to, operation).then_some(before)
    }

    /// Whether a call that may be answered by nothing is, as any may.
    pub(super) fn declines(&self) -> bool {
        let mut state = self.fabric.state();
        let per_mille = state.config.faults.again_per_mille;
        state.random.chance(per_mille)
    }

    /// An atomic of so many elements.
    pub(super) fn do_atomic_now(
        &self,
        to: PeerAddr,
        (atomic, count): (Atomic, usize),
        at: RemoteAddr,
        dtype: Dtype,
        op: ReduceOp,
    ) -> bool {
        let native = &self.native_near;
        let is_native = match atomic {
            Atomic::Reduce { .. } => NativeOps::has(&native.atomic, dtype, op),
            Atomic::Fetch { .. } => NativeOps::has(&native.fetch_atomic, dtype, op),
            Atomic::Swap { .. } => native.compare_atomic & (1 << dtype as u32) != 0,
        };
        // Where the processor changes words, it changes whatever one of its instructions covers.
        let is_covered = self.maps_near && dtype.size() <= size_of::<u64>();
        let is_defined = match atomic {
            Atomic::Swap { .. } => dtype.has_compare_and_swap(),
            Atomic::Reduce { .. } | Atomic::Fetch { .. } => op.is_defined_for(dtype),
        };
        if !(is_native || is_covered && is_defined) || self.declines() {
            return false;
        }
        let Some(len) = count.checked_mul(dtype.size()) else { return false };
        let mut operation = self.atomic_operation(atomic, at, dtype, op);
        (operation.len, operation.is_assisted) = (len, !is_native);
        self.post_now(to, operation)
    }

    /// Swaps words, one after the other.
    pub(super) fn do_swaps_now(&self, to: PeerAddr, swaps: &[WordSwap]) -> Option<Swapped> {
        if self.native_near.compare_atomic & (1 << Dtype::U64 as u32) == 0 {
            return None;
        }
        if self.declines() {
            return None;
        }
        let mut swapped = Swapped { count: 0, other: 0 };
        for &swap in swaps {
            let mut before = self.swap_word(to, swap);
            // Where one was done, so is the next: what the fabric refuses by chance it takes another time.
            while before.is_none() && swapped.count > 0 {
                before = self.swap_word(to, swap);
            }
            let before = before?;
            if before != swap.from {
                swapped.other = before;
                break;
            }
            swapped.count += 1;
        }
        Some(swapped)
    }
}
