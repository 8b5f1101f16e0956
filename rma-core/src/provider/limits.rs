//! What an endpoint can do, and how much.

#[cfg(doc)]
use super::{Completion, Endpoint};
use crate::dtype::Dtype;
use crate::op::ReduceOp;

/// How far an operation's completion reaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompletionScope {
    /// The origin's buffer may be reused; nothing is known about the target.
    Local,
    /// The target's memory holds the bytes, visible to its CPU.
    Remote,
}

/// Which orders between operations to one peer the fabric keeps. All false is legal.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Order {
    /// A request is not delivered before every put and atomic posted earlier to that peer is visible.
    pub put_before_send: bool,
    /// A get posted after a put to the same peer reads what the put wrote.
    pub put_before_get: bool,
}

/// Sizes and depths of an endpoint. Constant while it is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Largest source of [`Endpoint::put_inject`], bytes; 0 when there is no such operation.
    pub inject_bytes_max: usize,
    /// Largest packet (header and payload together) of [`Endpoint::send`], bytes; at least 512.
    pub send_bytes_max: usize,
    /// Largest put or get, bytes; larger ones are split by the engine.
    pub message_bytes_max: usize,
    /// Tracked operations that may be outstanding on the endpoint at one time.
    pub outstanding_max: usize,
    /// Packets of a class that [`Endpoint::poll`] may have handed out and not yet got back.
    pub receive_buffers: usize,
    /// Orders the fabric keeps.
    pub order: Order,
    /// What the completion of a put, or of an atomic without result, says.
    pub put_completes: CompletionScope,
    /// Whether the target's process must call [`Endpoint::poll`] for puts and gets to proceed.
    pub needs_target_progress: bool,
    /// Pieces of this process's memory that one put or get may name; at least 1.
    pub vector_local_max: usize,
    /// Pieces of the peer's memory that one put or get may name; at least 1.
    pub vector_remote_max: usize,
}

/// More pieces than this at one side are never asked of a provider, whatever it offers: the lists live on
/// the stack.
pub const VECTOR_PIECES_MAX: usize = 8;

impl Limits {
    /// Whether [`Endpoint::put_vector`] and [`Endpoint::get_vector`] work.
    #[inline]
    pub fn offers_vectors(&self) -> bool {
        self.vector_local_max > 1 || self.vector_remote_max > 1
    }
}

/// Reductions of each type: entry `dtype`, bit `op`.
pub type OpTable = [u16; Dtype::COUNT];

/// Which operations the fabric executes itself; everything else travels as packets.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NativeOps {
    /// [`Endpoint::put`] works.
    pub put: bool,
    /// [`Endpoint::get`] works.
    pub get: bool,
    /// Bit `op` of entry `dtype`: [`Endpoint::atomic`] works for the pair.
    pub atomic: OpTable,
    /// The same for [`Endpoint::fetch_atomic`].
    pub fetch_atomic: OpTable,
    /// Bit `dtype`: [`Endpoint::compare_atomic`] works.
    pub compare_atomic: u32,
}

impl NativeOps {
    /// Whether `table` (one of the fields above) has the pair.
    #[inline]
    pub fn has(table: &OpTable, dtype: Dtype, op: ReduceOp) -> bool {
        table[dtype as usize] & (1 << op as u16) != 0
    }

    /// Whether every accumulate-family operation on `dtype` is native: the condition under which a
    /// window may let the NIC execute them at all (one atomicity domain per window).
    pub fn is_complete_for(&self, dtype: Dtype) -> bool {
        let swaps = !dtype.has_compare_and_swap() || self.compare_atomic & (1 << dtype as u32) != 0;
        swaps
            && ReduceOp::ALL.iter().filter(|op| op.is_defined_for(dtype)).all(|&op| self.is_native(dtype, op))
    }

    /// Whether a reduction on `dtype` is native, fetching and not.
    pub fn is_native(&self, dtype: Dtype, op: ReduceOp) -> bool {
        Self::has(&self.fetch_atomic, dtype, op)
            && (op == ReduceOp::NoOp || Self::has(&self.atomic, dtype, op))
    }
}
