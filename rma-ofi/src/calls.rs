//! libfabric's calls that are given buffers, each looked up in the domain's ledger before.

use core::ffi::c_void;

use ofi_sys as fi;
use ofi_sys::calls;

use crate::ledger::Ledger;

/// # Safety
/// See [`calls::send`].
#[inline]
pub(crate) unsafe fn send(
    ledger: &Ledger,
    ep: *mut fi::fid_ep,
    (buf, len): (*const c_void, usize),
    desc: *mut c_void,
    to: fi::fi_addr_t,
    context: *mut c_void,
) -> isize {
    ledger.check(buf, len, desc, fi::FI_SEND);
    // SAFETY: by the caller's promise.
    unsafe { calls::send(ep, buf, len, desc, to, context) }
}

/// # Safety
/// See [`calls::recv`].
#[inline]
pub(crate) unsafe fn recv(
    ledger: &Ledger,
    ep: *mut fi::fid_ep,
    (buf, len): (*mut c_void, usize),
    desc: *mut c_void,
    from: fi::fi_addr_t,
    context: *mut c_void,
) -> isize {
    ledger.check(buf, len, desc, fi::FI_RECV);
    // SAFETY: by the caller's promise.
    unsafe { calls::recv(ep, buf, len, desc, from, context) }
}

/// # Safety
/// See [`calls::read`].
#[inline]
pub(crate) unsafe fn read(
    ledger: &Ledger,
    ep: *mut fi::fid_ep,
    (buf, len): (*mut c_void, usize),
    desc: *mut c_void,
    from: fi::fi_addr_t,
    (addr, key): (u64, u64),
    context: *mut c_void,
) -> isize {
    ledger.check(buf, len, desc, fi::FI_READ);
    // SAFETY: by the caller's promise.
    unsafe { calls::read(ep, buf, len, desc, from, addr, key, context) }
}

/// # Safety
/// See [`calls::writemsg`].
#[inline]
pub(crate) unsafe fn writemsg(
    ledger: &Ledger,
    ep: *mut fi::fid_ep,
    message: &fi::fi_msg_rma,
    flags: u64,
) -> isize {
    // SAFETY: a message that can be posted has its lists.
    unsafe { ledger.check_list(message.msg_iov, message.desc, message.iov_count, fi::FI_WRITE) };
    // SAFETY: by the caller's promise.
    unsafe { calls::writemsg(ep, message, flags) }
}

/// # Safety
/// See [`calls::readmsg`].
#[inline]
pub(crate) unsafe fn readmsg(
    ledger: &Ledger,
    ep: *mut fi::fid_ep,
    message: &fi::fi_msg_rma,
    flags: u64,
) -> isize {
    // SAFETY: a message that can be posted has its lists.
    unsafe { ledger.check_list(message.msg_iov, message.desc, message.iov_count, fi::FI_READ) };
    // SAFETY: by the caller's promise.
    unsafe { calls::readmsg(ep, message, flags) }
}
