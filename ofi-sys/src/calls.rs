//! libfabric's `static inline` functions: one call through the table of the object each.
//!
//! Named as in C without the `fi_`. A table that is missing, too short (made by a library older than
//! the slot), or empty at the slot gives `-FI_ENOSYS`, as the C headers do for newer slots.
//!
//! All of them are unsafe for the same reasons: the object must be open, and the arguments must be
//! what the manual page of the C function asks for. The memory that an operation names stays valid
//! until its completion.

use core::ffi::{c_int, c_void};
use core::mem::{offset_of, size_of};

#[allow(clippy::wildcard_imports)] // every line of this file is about generated names
use crate::bindings::*;

macro_rules! calls {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($object:ident: *mut $kind:ty $(, $argument:ident: $argument_type:ty)*) -> $result:ty
            = $($path:ident).+ => $table:ident . $slot:ident ($($pass:expr),*);
    )*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// See the module.
        #[inline]
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $name($object: *mut $kind $(, $argument: $argument_type)*) -> $result {
            // SAFETY: the object is open by the caller's promise; the pointer to its table is constant.
            let table: *mut $table = unsafe { (*$object).$($path).+ };
            const END: usize = offset_of!($table, $slot) + size_of::<usize>();
            // SAFETY: a table that is not null starts with its size and lives as long as the object.
            if table.is_null() || unsafe { (*table).size } < END {
                return -(FI_ENOSYS as $result);
            }
            // SAFETY: the table reaches beyond the slot.
            match unsafe { (*table).$slot } {
                // SAFETY: the arguments are the caller's promise.
                Some(call) => unsafe { call($($pass),*) },
                None => -(FI_ENOSYS as $result),
            }
        }
    )*};
}

calls! {
    /// `fi_close`: for every kind of object.
    fn close(object: *mut fid) -> c_int = ops => fi_ops.close(object);
    /// `fi_control`.
    fn control(object: *mut fid, command: c_int, argument: *mut c_void) -> c_int
        = ops => fi_ops.control(object, command, argument);
    /// `fi_ep_bind`, `fi_mr_bind` and so on: for every kind of object.
    fn bind(object: *mut fid, to: *mut fid, flags: u64) -> c_int = ops => fi_ops.bind(object, to, flags);

    /// `fi_domain`.
    fn domain(fabric: *mut fid_fabric, info: *mut fi_info, domain: *mut *mut fid_domain, context: *mut c_void)
        -> c_int = ops => fi_ops_fabric.domain(fabric, info, domain, context);
    /// `fi_trywait`.
    fn trywait(fabric: *mut fid_fabric, objects: *mut *mut fid, count: c_int) -> c_int
        = ops => fi_ops_fabric.trywait(fabric, objects, count);

    /// `fi_av_open`.
    fn av_open(domain: *mut fid_domain, attr: *mut fi_av_attr, av: *mut *mut fid_av, context: *mut c_void)
        -> c_int = ops => fi_ops_domain.av_open(domain, attr, av, context);
    /// `fi_cq_open`.
    fn cq_open(domain: *mut fid_domain, attr: *mut fi_cq_attr, cq: *mut *mut fid_cq, context: *mut c_void)
        -> c_int = ops => fi_ops_domain.cq_open(domain, attr, cq, context);
    /// `fi_cntr_open`.
    fn cntr_open(
        domain: *mut fid_domain, attr: *mut fi_cntr_attr, cntr: *mut *mut fid_cntr, context: *mut c_void
    ) -> c_int = ops => fi_ops_domain.cntr_open(domain, attr, cntr, context);
    /// `fi_endpoint`.
    fn endpoint(domain: *mut fid_domain, info: *mut fi_info, ep: *mut *mut fid_ep, context: *mut c_void)
        -> c_int = ops => fi_ops_domain.endpoint(domain, info, ep, context);
    /// `fi_query_atomic`.
    fn query_atomic(
        domain: *mut fid_domain, datatype: fi_datatype, op: fi_op, attr: *mut fi_atomic_attr, flags: u64
    ) -> c_int = ops => fi_ops_domain.query_atomic(domain, datatype, op, attr, flags);
    /// `fi_mr_reg`.
    fn mr_reg(
        domain: *mut fid_domain, buf: *const c_void, len: usize, access: u64, offset: u64, requested_key: u64,
        flags: u64, mr: *mut *mut fid_mr, context: *mut c_void
    ) -> c_int = mr => fi_ops_mr.reg(
        // The first member of every object is its fid.
        domain.cast(), buf, len, access, offset, requested_key, flags, mr, context
    );

    /// `fi_av_insert`.
    fn av_insert(
        av: *mut fid_av, address: *const c_void, count: usize, peers: *mut fi_addr_t, flags: u64,
        context: *mut c_void
    ) -> c_int = ops => fi_ops_av.insert(av, address, count, peers, flags, context);
    /// `fi_av_remove`.
    fn av_remove(av: *mut fid_av, peers: *mut fi_addr_t, count: usize, flags: u64) -> c_int
        = ops => fi_ops_av.remove(av, peers, count, flags);

    /// `fi_getname`.
    fn getname(ep: *mut fid_ep, address: *mut c_void, address_bytes: *mut usize) -> c_int
        = cm => fi_ops_cm.getname(ep.cast(), address, address_bytes);

    /// `fi_cq_read`.
    fn cq_read(cq: *mut fid_cq, entries: *mut c_void, count: usize) -> isize
        = ops => fi_ops_cq.read(cq, entries, count);
    /// `fi_cq_readerr`.
    fn cq_readerr(cq: *mut fid_cq, entry: *mut fi_cq_err_entry, flags: u64) -> isize
        = ops => fi_ops_cq.readerr(cq, entry, flags);

    /// `fi_send`.
    fn send(
        ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void, to: fi_addr_t, context: *mut c_void
    ) -> isize = msg => fi_ops_msg.send(ep, buf, len, desc, to, context);
    /// `fi_inject`.
    fn inject(ep: *mut fid_ep, buf: *const c_void, len: usize, to: fi_addr_t) -> isize
        = msg => fi_ops_msg.inject(ep, buf, len, to);
    /// `fi_senddata`.
    fn senddata(
        ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void, data: u64, to: fi_addr_t,
        context: *mut c_void
    ) -> isize = msg => fi_ops_msg.senddata(ep, buf, len, desc, data, to, context);
    /// `fi_injectdata`.
    fn injectdata(ep: *mut fid_ep, buf: *const c_void, len: usize, data: u64, to: fi_addr_t) -> isize
        = msg => fi_ops_msg.injectdata(ep, buf, len, data, to);
    /// `fi_recv`.
    fn recv(
        ep: *mut fid_ep, buf: *mut c_void, len: usize, desc: *mut c_void, from: fi_addr_t, context: *mut c_void
    ) -> isize = msg => fi_ops_msg.recv(ep, buf, len, desc, from, context);

    /// `fi_read`.
    fn read(
        ep: *mut fid_ep, buf: *mut c_void, len: usize, desc: *mut c_void, from: fi_addr_t, addr: u64, key: u64,
        context: *mut c_void
    ) -> isize = rma => fi_ops_rma.read(ep, buf, len, desc, from, addr, key, context);
    /// `fi_write`.
    fn write(
        ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void, to: fi_addr_t, addr: u64, key: u64,
        context: *mut c_void
    ) -> isize = rma => fi_ops_rma.write(ep, buf, len, desc, to, addr, key, context);
    /// `fi_readmsg`.
    fn readmsg(ep: *mut fid_ep, message: *const fi_msg_rma, flags: u64) -> isize
        = rma => fi_ops_rma.readmsg(ep, message, flags);
    /// `fi_writemsg`.
    fn writemsg(ep: *mut fid_ep, message: *const fi_msg_rma, flags: u64) -> isize
        = rma => fi_ops_rma.writemsg(ep, message, flags);
    /// `fi_inject_write`.
    fn inject_write(ep: *mut fid_ep, buf: *const c_void, len: usize, to: fi_addr_t, addr: u64, key: u64) -> isize
        = rma => fi_ops_rma.inject(ep, buf, len, to, addr, key);

    /// `fi_atomicmsg`.
    fn atomicmsg(ep: *mut fid_ep, message: *const fi_msg_atomic, flags: u64) -> isize
        = atomic => fi_ops_atomic.writemsg(ep, message, flags);
    /// `fi_fetch_atomicmsg`.
    fn fetch_atomicmsg(
        ep: *mut fid_ep, message: *const fi_msg_atomic, result: *mut fi_ioc, result_desc: *mut *mut c_void,
        result_count: usize, flags: u64
    ) -> isize = atomic => fi_ops_atomic.readwritemsg(ep, message, result, result_desc, result_count, flags);
    /// `fi_compare_atomicmsg`.
    fn compare_atomicmsg(
        ep: *mut fid_ep, message: *const fi_msg_atomic, compare: *const fi_ioc, compare_desc: *mut *mut c_void,
        compare_count: usize, result: *mut fi_ioc, result_desc: *mut *mut c_void, result_count: usize, flags: u64
    ) -> isize = atomic => fi_ops_atomic.compwritemsg(
        ep, message, compare, compare_desc, compare_count, result, result_desc, result_count, flags
    );
}

/// `fi_enable`: the endpoint may be used from here on.
///
/// # Safety
/// See the module.
#[inline]
pub unsafe fn enable(ep: *mut fid_ep) -> c_int {
    // SAFETY: the first member of an endpoint is its fid; the caller promises that it is open.
    unsafe { control(ep.cast(), FI_ENABLE as c_int, core::ptr::null_mut()) }
}
