//! Atomics that the fabric executes: which it grants, and posting them.

use core::ptr;
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
    for dtype in Dtype::ALL {
        let row = dtype as usize;
        for op in ReduceOp::ALL.into_iter().filter(|op| op.is_defined_for(dtype)) {
            let column = op as usize;
            if op != ReduceOp::NoOp {
                limits.plain[row][column] = elements(domain, dtype, code_of_op(op), 0);
            }
            limits.fetch[row][column] = elements(domain, dtype, code_of_op(op), fi::FI_FETCH_ATOMIC);
            native.atomic[row] |= u16::from(limits.plain[row][column] > 0) << column;
            native.fetch_atomic[row] |= u16::from(limits.fetch[row][column] > 0) << column;
        }
        let compare = elements(domain, dtype, fi::FI_CSWAP, fi::FI_COMPARE_ATOMIC);
        native.compare_atomic |= u16::from(compare > 0) << row;
    }
    (native, limits)
}

/// Most elements of one operation of this kind; 0 when it is not supported.
fn elements(domain: &Arc<Domain>, dtype: Dtype, op: fi::fi_op, kind: u64) -> u32 {
    let mut attr = fi::fi_atomic_attr { count: 0, size: 0 };
    // SAFETY: the domain is open, and `attr` is written during the call.
    let result = unsafe { calls::query_atomic(domain.as_ptr(), code_of_type(dtype), op, &mut attr, kind) };
    if result != 0 || attr.size != dtype.size() {
        return 0;
    }
    u32::try_from(attr.count).unwrap_or(u32::MAX)
}

fn code_of_type(dtype: Dtype) -> fi::fi_datatype {
    const CODES: [fi::fi_datatype; TYPES] = [
        fi::FI_INT8,
        fi::FI_INT16,
        fi::FI_INT32,
        fi::FI_INT64,
        fi::FI_UINT8,
        fi::FI_UINT16,
        fi::FI_UINT32,
        fi::FI_UINT64,
        fi::FI_FLOAT,
        fi::FI_DOUBLE,
    ];
    CODES[dtype as usize]
}

fn code_of_op(op: ReduceOp) -> fi::fi_op {
    const CODES: [fi::fi_op; OPS] = [
        fi::FI_SUM,
        fi::FI_PROD,
        fi::FI_MIN,
        fi::FI_MAX,
        fi::FI_LAND,
        fi::FI_LOR,
        fi::FI_LXOR,
        fi::FI_BAND,
        fi::FI_BOR,
        fi::FI_BXOR,
        fi::FI_ATOMIC_WRITE,
        fi::FI_ATOMIC_READ,
    ];
    CODES[op as usize]
}

fn vector(address: *const u8, count: usize) -> fi::fi_ioc {
    fi::fi_ioc { addr: address.cast_mut().cast(), count }
}

/// The message of an atomic on `remote` with the operand `local`.
fn message(
    to: PeerAddr,
    local: &fi::fi_ioc,
    remote: &fi::fi_rma_ioc,
    dtype: Dtype,
    op: fi::fi_op,
    context: *mut core::ffi::c_void,
) -> fi::fi_msg_atomic {
    fi::fi_msg_atomic {
        msg_iov: local,
        desc: ptr::null_mut(),
        iov_count: 1,
        addr: to.0,
        rma_iov: remote,
        rma_iov_count: 1,
        datatype: code_of_type(dtype),
        op,
        context,
        data: 0,
    }
}

fn remote(at: RemoteAddr, count: usize) -> fi::fi_rma_ioc {
    fi::fi_rma_ioc { addr: at.addr, count, key: at.key.0 }
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
        if count == 0 || count > self.atomic_elements_max(dtype, op) {
            return Err(unsupported());
        }
        let ticket = self.ticket(to, 0)?;
        let (local, remote) = (vector(operand, count), remote(at, count));
        let message = message(to, &local, &remote, dtype, code_of_op(op), ticket.context);
        // SAFETY: the endpoint is open; the message is read during the call; the operand is the
        // caller's promise.
        let result = unsafe { calls::atomicmsg(self.ep, &message, self.put_flags) };
        self.posted(&ticket, to, tag, result)
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
        if count == 0 || count > self.fetch_atomic_elements_max(dtype, op) {
            return Err(unsupported());
        }
        let ticket = self.ticket(to, 0)?;
        // An atomic read has no operand, but some providers look at the vector all the same.
        let operand = if operand.is_null() { result.cast_const() } else { operand };
        let (local, remote) = (vector(operand, count), remote(at, count));
        let message = message(to, &local, &remote, dtype, code_of_op(op), ticket.context);
        let mut old = vector(result, count);
        // SAFETY: as above; the result is the caller's promise.
        let posted = unsafe {
            calls::fetch_atomicmsg(self.ep, &message, &mut old, ptr::null_mut(), 1, fi::FI_COMPLETION)
        };
        self.posted(&ticket, to, tag, posted)
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
        if self.native.compare_atomic & (1 << dtype as u16) == 0 {
            return Err(unsupported());
        }
        let ticket = self.ticket(to, 0)?;
        let (local, remote) = (vector(operand, 1), remote(at, 1));
        let message = message(to, &local, &remote, dtype, fi::FI_CSWAP, ticket.context);
        let compare = vector(compare, 1);
        let mut old = vector(result, 1);
        // SAFETY: as above.
        let posted = unsafe {
            calls::compare_atomicmsg(
                self.ep,
                &message,
                &compare,
                ptr::null_mut(),
                1,
                &mut old,
                ptr::null_mut(),
                1,
                fi::FI_COMPLETION,
            )
        };
        self.posted(&ticket, to, tag, posted)
    }
}

#[cold]
fn unsupported() -> PostError {
    PostError::Failed(fabric_code(fi::FI_EOPNOTSUPP))
}
