//! Atomics that the fabric executes: which it grants, and posting them.

use core::ffi::c_void;
use std::sync::Arc;

use ofi_sys as fi;
use ofi_sys::calls;
use rma_core::dtype::Dtype;
use rma_core::ids::{PeerAddr, Tag};
use rma_core::op::ReduceOp;
use rma_core::provider::{NativeOps, Post, PostError, RemoteAddr};

use crate::endpoint::OfiEndpoint;
use crate::error::fabric_code;
use crate::handles::Domain;
use crate::origin::NO_DESCRIPTORS;
use crate::post::Ticket;
use crate::vector::Direction;

/// Most elements of one atomic operation, by type and operation; 0 where there is none.
#[derive(Clone, Debug, Default)]
pub(crate) struct AtomicLimits {
    plain: [[u32; OPS]; TYPES],
    fetch: [[u32; OPS]; TYPES],
}

const TYPES: usize = Dtype::ALL.len();
const OPS: usize = ReduceOp::ALL.len();

/// Asks what the provider executes. A capability bit says nothing: some grant it and support no pair.
pub(crate) fn query(domain: &Arc<Domain>, wanted: bool) -> (NativeOps, AtomicLimits) {
    let mut native = NativeOps { put: true, get: true, ..NativeOps::default() };
    let mut limits = AtomicLimits::default();
    if !wanted {
        return (native, limits);
    }
    for dtype in Dtype::ALL.into_iter().filter(|&dtype| code_of_type(dtype).is_some()) {
        let row = dtype as usize;
        for op in ReduceOp::ALL.into_iter().filter(|op| op.is_defined_for(dtype)) {
            let Some(code) = code_of_op(op) else { continue };
            let column = op as usize;
            if op != ReduceOp::NoOp {
                limits.plain[row][column] = elements(domain, dtype, code, 0);
            }
            limits.fetch[row][column] = elements(domain, dtype, code, fi::FI_FETCH_ATOMIC);
            native.atomic[row] |= u16::from(limits.plain[row][column] > 0) << column;
            native.fetch_atomic[row] |= u16::from(limits.fetch[row][column] > 0) << column;
        }
        let compare = elements(domain, dtype, fi::FI_CSWAP, fi::FI_COMPARE_ATOMIC);
        native.compare_atomic |= u32::from(compare > 0) << row;
    }
    (native, limits)
}

/// Most elements of one operation of this kind; 0 when it is not supported.
fn elements(domain: &Arc<Domain>, dtype: Dtype, op: fi::fi_op, kind: u64) -> u32 {
    let Some(code) = code_of_type(dtype) else { return 0 };
    let mut attr = fi::fi_atomic_attr { count: 0, size: 0 };
    // SAFETY: the domain is open, and `attr` is written during the call.
    let result = unsafe { calls::query_atomic(domain.as_ptr(), code, op, &mut attr, kind) };
    if result != 0 || attr.size != dtype.size() {
        return 0;
    }
    u32::try_from(attr.count).unwrap_or(u32::MAX)
}

/// The fabric's name of a type; `None` where it has none that every libfabric from 1.17 on knows, or does
/// not compute as the engine does. Those are accumulated by the target's CPU.
fn code_of_type(dtype: Dtype) -> Option<fi::fi_datatype> {
    Some(match dtype {
        Dtype::I8 => fi::FI_INT8,
        Dtype::I16 => fi::FI_INT16,
        Dtype::I32 => fi::FI_INT32,
        Dtype::I64 => fi::FI_INT64,
        Dtype::U8 => fi::FI_UINT8,
        Dtype::U16 => fi::FI_UINT16,
        Dtype::U32 => fi::FI_UINT32,
        Dtype::U64 => fi::FI_UINT64,
        Dtype::F32 => fi::FI_FLOAT,
        Dtype::F64 => fi::FI_DOUBLE,
        _ => return None,
    })
}

fn code_of_op(op: ReduceOp) -> Option<fi::fi_op> {
    Some(match op {
        ReduceOp::Sum => fi::FI_SUM,
        ReduceOp::Prod => fi::FI_PROD,
        ReduceOp::Min => fi::FI_MIN,
        ReduceOp::Max => fi::FI_MAX,
        ReduceOp::LogicalAnd => fi::FI_LAND,
        ReduceOp::LogicalOr => fi::FI_LOR,
        ReduceOp::LogicalXor => fi::FI_LXOR,
        ReduceOp::BitAnd => fi::FI_BAND,
        ReduceOp::BitOr => fi::FI_BOR,
        ReduceOp::BitXor => fi::FI_BXOR,
        ReduceOp::Replace => fi::FI_ATOMIC_WRITE,
        ReduceOp::NoOp => fi::FI_ATOMIC_READ,
        _ => return None,
    })
}

/// A buffer as an atomic names it.
fn vector(buffer: fi::iovec, count: usize) -> fi::fi_ioc {
    fi::fi_ioc { addr: buffer.iov_base, count }
}

/// A buffer of so many elements.
fn buffer(address: *const u8, dtype: Dtype, count: usize) -> fi::iovec {
    fi::iovec { iov_base: address.cast_mut().cast(), iov_len: count * dtype.size() }
}

/// The message of an atomic on `remote` with the operand `local`.
fn message(
    to: PeerAddr,
    local: &fi::fi_ioc,
    desc: *mut *mut c_void,
    remote: &fi::fi_rma_ioc,
    (datatype, op): (fi::fi_datatype, fi::fi_op),
    context: *mut c_void,
) -> fi::fi_msg_atomic {
    fi::fi_msg_atomic {
        msg_iov: local,
        desc,
        iov_count: 1,
        addr: to.0,
        rma_iov: remote,
        rma_iov_count: 1,
        datatype,
        op,
        context,
        data: 0,
    }
}

fn remote(ticket: &Ticket, at: RemoteAddr, count: usize) -> fi::fi_rma_ioc {
    fi::fi_rma_ioc { addr: at.addr, count, key: ticket.key(at) }
}

impl OfiEndpoint {
    /// Most elements of one [`rma_core::provider::Endpoint::atomic`]; 0 where there is none.
    pub fn atomic_elements_max(&self, dtype: Dtype, op: ReduceOp) -> usize {
        self.atomic_limits.plain[dtype as usize][op as usize] as usize
    }

    /// Most elements of one [`rma_core::provider::Endpoint::fetch_atomic`]; 0 where there is none.
    pub fn fetch_atomic_elements_max(&self, dtype: Dtype, op: ReduceOp) -> usize {
        self.atomic_limits.fetch[dtype as usize][op as usize] as usize
    }

    /// # Safety
    /// See [`rma_core::provider::Endpoint::atomic`].
    #[allow(clippy::too_many_arguments)]
    pub(crate) unsafe fn post_atomic(
        &mut self,
        to: PeerAddr,
        operand: *const u8,
        count: usize,
        at: RemoteAddr,
        dtype: Dtype,
        op: ReduceOp,
        tag: Tag,
    ) -> Post {
        let (Some(datatype), Some(op_code)) = (code_of_type(dtype), code_of_op(op)) else {
            return Err(unsupported());
        };
        if count == 0 || count > self.atomic_elements_max(dtype, op) {
            return Err(unsupported());
        }
        self.post_gathered_to(to)?;
        let ticket = self.ticket(to, 0)?;
        let (mut buffers, mut descs) = ([buffer(operand, dtype, count)], NO_DESCRIPTORS);
        // SAFETY: by the caller's promise.
        let loan = unsafe { self.lend(&mut buffers, [Direction::Put], &mut descs) }?;
        self.check_buffers(&buffers, &descs, [fi::FI_WRITE]);
        let (local, remote) = (vector(buffers[0], count), remote(&ticket, at, count));
        let message = message(to, &local, self.list(&descs, 0), &remote, (datatype, op_code), ticket.context);
        // SAFETY: the endpoint is open; the message is read during the call; the operand is the
        // caller's promise.
        let result = unsafe { calls::atomicmsg(self.ep, &message, self.put_flags) };
        self.posted_with(&ticket, to, tag, result, loan)
    }

    /// # Safety
    /// See [`rma_core::provider::Endpoint::fetch_atomic`].
    #[allow(clippy::too_many_arguments)]
    pub(crate) unsafe fn post_fetch_atomic(
        &mut self,
        to: PeerAddr,
        operand: *const u8,
        result: *mut u8,
        count: usize,
        at: RemoteAddr,
        dtype: Dtype,
        op: ReduceOp,
        tag: Tag,
    ) -> Post {
        let (Some(datatype), Some(op_code)) = (code_of_type(dtype), code_of_op(op)) else {
            return Err(unsupported());
        };
        if count == 0 || count > self.fetch_atomic_elements_max(dtype, op) {
            return Err(unsupported());
        }
        self.post_gathered_to(to)?;
        let ticket = self.ticket(to, 0)?;
        let mut buffers = [buffer(result, dtype, count), buffer(operand, dtype, count)];
        let mut descs = NO_DESCRIPTORS;
        let given = if operand.is_null() { 1 } else { 2 };
        // SAFETY: by the caller's promise.
        let loan = unsafe { self.lend(&mut buffers[..given], [Direction::Get, Direction::Put], &mut descs) }?;
        self.check_buffers(&buffers[..given], &descs, [fi::FI_READ, fi::FI_WRITE]);
        if operand.is_null() {
            // An atomic read has no operand, but some providers look at the vector all the same.
            (buffers[1], descs[1]) = (buffers[0], descs[0]);
        }
        let (mut old, local) = (vector(buffers[0], count), vector(buffers[1], count));
        let remote = remote(&ticket, at, count);
        let desc = self.list(&descs, 1);
        let message = message(to, &local, desc, &remote, (datatype, op_code), ticket.context);
        let desc = self.list(&descs, 0);
        // SAFETY: as above; the result is the caller's promise.
        let posted =
            unsafe { calls::fetch_atomicmsg(self.ep, &message, &mut old, desc, 1, fi::FI_COMPLETION) };
        self.posted_with(&ticket, to, tag, posted, loan)
    }

    /// # Safety
    /// See [`rma_core::provider::Endpoint::compare_atomic`].
    #[allow(clippy::too_many_arguments)]
    pub(crate) unsafe fn post_compare_atomic(
        &mut self,
        to: PeerAddr,
        operand: *const u8,
        compare: *const u8,
        result: *mut u8,
        at: RemoteAddr,
        dtype: Dtype,
        tag: Tag,
    ) -> Post {
        let Some(datatype) = code_of_type(dtype) else { return Err(unsupported()) };
        if self.native.compare_atomic & (1 << dtype as u32) == 0 {
            return Err(unsupported());
        }
        self.post_gathered_to(to)?;
        let ticket = self.ticket(to, 0)?;
        let mut buffers = [result.cast_const(), operand, compare].map(|at| buffer(at, dtype, 1));
        let (ways, mut descs) = ([Direction::Get, Direction::Put, Direction::Put], NO_DESCRIPTORS);
        // SAFETY: by the caller's promise.
        let loan = unsafe { self.lend(&mut buffers, ways, &mut descs) }?;
        self.check_buffers(&buffers, &descs, [fi::FI_READ, fi::FI_WRITE, fi::FI_WRITE]);
        let [mut old, local, compare] = buffers.map(|buffer| vector(buffer, 1));
        let remote = remote(&ticket, at, 1);
        let desc = self.list(&descs, 1);
        let message = message(to, &local, desc, &remote, (datatype, fi::FI_CSWAP), ticket.context);
        let (old_desc, compare_desc) = (self.list(&descs, 0), self.list(&descs, 2));
        // SAFETY: as above.
        let posted = unsafe {
            calls::compare_atomicmsg(
                self.ep,
                &message,
                &compare,
                compare_desc,
                1,
                &mut old,
                old_desc,
                1,
                fi::FI_COMPLETION,
            )
        };
        self.posted_with(&ticket, to, tag, posted, loan)
    }

    /// Looks the buffers up in the ledger, each for its access.
    #[inline]
    fn check_buffers<const N: usize>(
        &self,
        buffers: &[fi::iovec],
        descs: &[*mut c_void],
        accesses: [u64; N],
    ) {
        for ((buffer, &desc), access) in buffers.iter().zip(descs).zip(accesses) {
            self.live.domain.ledger().check(buffer.iov_base, buffer.iov_len, desc, access);
        }
    }
}

#[cold]
fn unsupported() -> PostError {
    PostError::Failed(fabric_code(fi::FI_EOPNOTSUPP))
}
