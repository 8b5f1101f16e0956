//! An RDMA device in this thread's memory, for tests: the functions of libibverbs that the provider calls, as
//! unkind as real devices may be. Datagrams get lost, the network moves only in `ibv_poll_cq` and by a random number
//! of requests, the send queue has room again only when a completion behind was read, and a queue pair that is
//! destroyed takes with it what it received and nobody read.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use std::collections::VecDeque;

use super::library::Library;
pub(crate) use super::network::Trouble;
use super::network::{read, with, Entry, Pair, Request, DEPTH};
use super::types::*;
use crate::events::Event;

/// The name of the device; the provider takes this library for it.
pub(crate) const NAME: &core::ffi::CStr = c"emulated0";

unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, count: c_int, out: *mut ibv_wc) -> c_int {
    with(|network| {
        network.run();
        let mut taken = 0;
        while taken < count as usize {
            let queue = network.cqs.get_mut(&(cq as usize)).expect("a queue that exists");
            let Some(Entry { wc, frees }) = queue.pop_front() else { break };
            if let Some(pair) = network.qps.get_mut(&wc.qp_num) {
                pair.used -= frees;
            }
            // SAFETY: there is room for `count` entries.
            let place = unsafe { out.add(taken) };
            // SAFETY: as above.
            unsafe { place.write(wc) };
            taken += 1;
        }
        taken as c_int
    })
}

unsafe extern "C" fn req_notify_cq(_: *mut ibv_cq, _: c_int) -> c_int {
    0
}

/// The receive request and its place, for the three kinds of queues.
///
/// # Safety
/// One request with one piece.
unsafe fn received(request: *mut ibv_recv_wr) -> (u64, ibv_sge) {
    // SAFETY: by the caller's promise.
    let request = unsafe { &*request };
    // SAFETY: as above.
    (request.wr_id, unsafe { *request.sg_list })
}

unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    request: *mut ibv_recv_wr,
    _: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the provider posts one at a time.
    let received = unsafe { received(request) };
    with(|network| network.srqs.get_mut(&(srq as usize)).expect("a queue").push_back(received));
    0
}

unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    request: *mut ibv_recv_wr,
    _: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the provider posts one at a time.
    let received = unsafe { received(request) };
    // SAFETY: the queue pair exists.
    let number = unsafe { (*qp).qp_num };
    with(|network| network.qps.get_mut(&number).expect("it exists").own_receives.push_back(received));
    0
}

unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    mut next: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the queue pair exists.
    let number = unsafe { (*qp).qp_num };
    with(|network| {
        while !next.is_null() {
            // SAFETY: a list of requests.
            let wr = unsafe { &*next };
            let used = network.qps[&number].used;
            let is_full = used >= DEPTH || used > 0 && network.random_below(50) == 0;
            if is_full {
                // SAFETY: the caller's place for the first that was not taken.
                unsafe { bad.write(next) };
                return libc::ENOMEM;
            }
            let pair = network.qps.get_mut(&number).expect("it exists");
            // SAFETY: a list of so many pieces.
            let request = unsafe { copied(wr, pair.kind) };
            pair.used += 1;
            pair.sends.push_back(request);
            next = wr.next;
        }
        0
    })
}

/// # Safety
/// The request's pieces are readable.
unsafe fn copied(wr: &ibv_send_wr, kind: c_uint) -> Request {
    let mut pieces = Vec::new();
    for index in 0..wr.num_sge as usize {
        // SAFETY: by the caller's promise.
        let piece = unsafe { wr.sg_list.add(index) };
        // SAFETY: as above.
        pieces.push(unsafe { *piece });
    }
    let inline = (wr.send_flags & IBV_SEND_INLINE != 0).then(|| read(&pieces));
    let is_atomic = matches!(wr.opcode, IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD);
    let mut request = Request {
        id: wr.wr_id,
        opcode: wr.opcode,
        data: wr.imm_data,
        is_reported: wr.send_flags & IBV_SEND_SIGNALED != 0,
        inline,
        pieces,
        addr: 0,
        rkey: 0,
        operands: [0; 2],
        to_datagram_queue: 0,
    };
    if kind == IBV_QPT_UD {
        // SAFETY: what requests on such a queue pair have.
        request.to_datagram_queue = unsafe { wr.wr.ud }.remote_qpn;
    } else if is_atomic {
        // SAFETY: what such requests have.
        let atomic = unsafe { wr.wr.atomic };
        (request.addr, request.rkey) = (atomic.remote_addr, atomic.rkey);
        request.operands = [atomic.compare_add, atomic.swap];
    } else {
        // SAFETY: what the others have.
        let rdma = unsafe { wr.wr.rdma };
        (request.addr, request.rkey) = (rdma.remote_addr, rdma.rkey);
    }
    request
}

/// A zeroed object, leaked into C's hands.
fn made<T>() -> *mut T {
    Box::into_raw(Box::<MaybeUninit<T>>::new(MaybeUninit::zeroed())).cast()
}

/// # Safety
/// Came from [`made`], and is freed once.
unsafe fn freed<T>(object: *mut T) -> c_int {
    // SAFETY: by the caller's promise.
    drop(unsafe { Box::from_raw(object.cast::<MaybeUninit<T>>()) });
    0
}

/// The one entry of the list of devices.
unsafe extern "C" fn get_device_list(len: *mut c_int) -> *mut *mut ibv_device {
    // SAFETY: the caller's place.
    unsafe { len.write(1) };
    Box::into_raw(Box::new(NAME.as_ptr().cast_mut().cast()))
}

unsafe extern "C" fn free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: made above.
    drop(unsafe { Box::from_raw(list) });
}

unsafe extern "C" fn get_device_name(_: *mut ibv_device) -> *const c_char {
    NAME.as_ptr()
}

fn made_context(async_fd: c_int) -> *mut ibv_context {
    let ops = ibv_context_ops::of(poll_cq, req_notify_cq, post_srq_recv, post_send, post_recv);
    Box::into_raw(Box::new(ibv_context { device: ptr::null_mut(), ops, cmd_fd: -1, async_fd }))
}

unsafe extern "C" fn open_device(_: *mut ibv_device) -> *mut ibv_context {
    made_context(descriptor())
}

unsafe extern "C" fn close_device(context: *mut ibv_context) -> c_int {
    with(|network| network.events.remove(&(context as usize)));
    // SAFETY: made above.
    let descriptor = unsafe { (*context).async_fd };
    // SAFETY: nobody uses it any more.
    unsafe { libc::close(descriptor) };
    // SAFETY: made above.
    unsafe { freed(context) }
}

/// A descriptor that is readable while there is something.
fn descriptor() -> c_int {
    // SAFETY: takes numbers.
    unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE) }
}

unsafe extern "C" fn query_device(_: *mut ibv_context, attributes: *mut ibv_device_attr) -> c_int {
    // SAFETY: the caller has zeroed it.
    let attributes = unsafe { &mut *attributes };
    (attributes.max_qp_wr, attributes.max_cqe, attributes.max_srq_wr) = (DEPTH as c_int, 1 << 16, 1 << 12);
    (attributes.max_sge, attributes.max_sge_rd, attributes.phys_port_cnt) = (30, 30, 1);
    (attributes.max_qp_rd_atom, attributes.max_qp_init_rd_atom, attributes.atomic_cap) = (16, 16, 1);
    0
}

unsafe extern "C" fn query_port(_: *mut ibv_context, _: u8, attributes: *mut ibv_port_attr) -> c_int {
    // SAFETY: the caller has zeroed it.
    let attributes = unsafe { &mut *attributes };
    (attributes.state, attributes.active_mtu, attributes.gid_tbl_len) = (IBV_PORT_ACTIVE, 3, 1);
    (attributes.max_msg_sz, attributes.link_layer) = (1 << 30, IBV_LINK_LAYER_ETHERNET);
    attributes.pkey_tbl_len = 2;
    0
}

unsafe extern "C" fn query_gid(_: *mut ibv_context, _: u8, index: c_int, gid: *mut ibv_gid) -> c_int {
    if index > 0 {
        return -1;
    }
    // SAFETY: the caller's place.
    unsafe { gid.write(ibv_gid { raw: [1; 16] }) };
    0
}

unsafe extern "C" fn alloc_pd(_: *mut ibv_context) -> *mut ibv_pd {
    Box::into_raw(Box::new(0_u64)).cast()
}

unsafe extern "C" fn dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: made above.
    unsafe { freed(pd.cast::<u64>()) }
}

unsafe extern "C" fn reg_mr(_: *mut ibv_pd, base: *mut c_void, len: usize, _: c_int) -> *mut ibv_mr {
    let mr = made::<ibv_mr>();
    let key = with(|network| {
        // Keys that differ in one bit are not both given out.
        let key = network.next_number() << 8 | 0x11;
        network.mrs.insert(key, (base as usize, len));
        key
    });
    // SAFETY: numbers and pointers only, for which zero is a value.
    let object = unsafe { &mut *mr };
    (object.lkey, object.rkey) = (key, key);
    mr
}

unsafe extern "C" fn dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: made above.
    let key = unsafe { (*mr).rkey };
    with(|network| network.mrs.remove(&key));
    // SAFETY: as above.
    unsafe { freed(mr) }
}

unsafe extern "C" fn create_comp_channel(_: *mut ibv_context) -> *mut ibv_comp_channel {
    let channel = made::<ibv_comp_channel>();
    // SAFETY: numbers and pointers only, for which zero is a value.
    let object = unsafe { &mut *channel };
    object.fd = descriptor();
    channel
}

unsafe extern "C" fn destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: made above.
    let descriptor = unsafe { (*channel).fd };
    // SAFETY: nobody uses it any more.
    unsafe { libc::close(descriptor) };
    // SAFETY: made above.
    unsafe { freed(channel) }
}

unsafe extern "C" fn create_cq(
    context: *mut ibv_context,
    _: c_int,
    _: *mut c_void,
    _: *mut ibv_comp_channel,
    _: c_int,
) -> *mut ibv_cq {
    let cq = made::<ibv_cq>();
    // SAFETY: a pointer only, for which zero is a value.
    let object = unsafe { &mut *cq };
    object.context = context;
    with(|network| network.cqs.insert(cq as usize, VecDeque::new()));
    cq
}

unsafe extern "C" fn destroy_cq(cq: *mut ibv_cq) -> c_int {
    with(|network| network.cqs.remove(&(cq as usize)));
    // SAFETY: made above.
    unsafe { freed(cq) }
}

unsafe extern "C" fn get_cq_event(
    _: *mut ibv_comp_channel,
    _: *mut *mut ibv_cq,
    _: *mut *mut c_void,
) -> c_int {
    -1
}

unsafe extern "C" fn ack_cq_events(_: *mut ibv_cq, _: c_uint) {}

unsafe extern "C" fn create_srq(_: *mut ibv_pd, _: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    // Its context has the function that posts; every context has the same ones.
    let context = made_context(-1);
    let srq = made::<ibv_srq>();
    // SAFETY: a pointer only, for which zero is a value.
    let object = unsafe { &mut *srq };
    object.context = context;
    with(|network| network.srqs.insert(srq as usize, VecDeque::new()));
    srq
}

unsafe extern "C" fn destroy_srq(srq: *mut ibv_srq) -> c_int {
    with(|network| network.srqs.remove(&(srq as usize)));
    // SAFETY: made above, with a context of its own.
    let context = unsafe { (*srq).context };
    // SAFETY: as above.
    unsafe { freed(context) };
    // SAFETY: as above.
    unsafe { freed(srq) }
}

unsafe extern "C" fn create_qp(_: *mut ibv_pd, wanted: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    if with(|network| network.trouble.makes_no_queues) {
        set_errno(libc::ENOMEM);
        return ptr::null_mut();
    }
    // SAFETY: the caller's attributes.
    let wanted = unsafe { &*wanted };
    let qp = made::<ibv_qp>();
    // SAFETY: the queue exists.
    let context = unsafe { (*wanted.send_cq).context };
    let number = with(|network| {
        let number = network.next_number();
        let (cq, srq, kind) = (wanted.send_cq as usize, wanted.srq as usize, wanted.qp_type);
        let pair = Pair {
            context: context as usize,
            object: qp as usize,
            kind,
            state: 0,
            partition: 0,
            cq,
            srq,
            own_receives: VecDeque::new(),
            remote: 0,
            sends: VecDeque::new(),
            used: 0,
            unreported: 0,
            tries: 0,
        };
        network.qps.insert(number, pair);
        number
    });
    // SAFETY: numbers and pointers only, for which zero is a value.
    let object = unsafe { &mut *qp };
    (object.context, object.qp_num) = (context, number);
    qp
}

unsafe extern "C" fn modify_qp(qp: *mut ibv_qp, attributes: *mut ibv_qp_attr, mask: c_int) -> c_int {
    // SAFETY: both exist.
    let number = unsafe { (*qp).qp_num };
    // SAFETY: as above.
    let attributes = unsafe { &*attributes };
    with(|network| {
        let lets_send = !network.trouble.lets_none_send;
        let pair = network.qps.get_mut(&number).expect("it exists");
        if mask & IBV_QP_STATE != 0 {
            // Each step is made from the one before.
            let before = match attributes.qp_state {
                IBV_QPS_INIT => IBV_QPS_RESET,
                IBV_QPS_RTR => IBV_QPS_INIT,
                IBV_QPS_RTS => IBV_QPS_RTR,
                _ => pair.state,
            };
            if pair.state != before {
                return libc::EINVAL;
            }
            if attributes.qp_state == IBV_QPS_RTS && pair.kind == IBV_QPT_RC && !lets_send {
                return libc::ENOMEM;
            }
            pair.state = attributes.qp_state;
        }
        if pair.state == IBV_QPS_RESET {
            network.reset(number);
            return 0;
        }
        if mask & IBV_QP_PKEY_INDEX != 0 {
            pair.partition = attributes.pkey_index;
        }
        if mask & IBV_QP_DEST_QPN != 0 {
            pair.remote = attributes.dest_qp_num;
        }
        0
    })
}

unsafe extern "C" fn destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: made above.
    let number = unsafe { (*qp).qp_num };
    with(|network| {
        network.qps.remove(&number);
        for events in network.events.values_mut() {
            events.retain(|event| event.element != qp as u64);
        }
        for queue in network.cqs.values_mut() {
            queue.retain(|entry| entry.wc.qp_num != number);
        }
    });
    // SAFETY: as above.
    unsafe { freed(qp) }
}

unsafe extern "C" fn create_ah(_: *mut ibv_pd, _: *mut ibv_ah_attr) -> *mut ibv_ah {
    if with(|network| network.trouble.is_port_down) {
        set_errno(libc::ENETUNREACH);
        return ptr::null_mut();
    }
    Box::into_raw(Box::new(0_u64)).cast()
}

fn set_errno(code: c_int) {
    // SAFETY: this thread's own.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { place.write(code) };
}

/// Entries of the table of partition keys that the queue pairs of this thread's devices use.
pub(crate) fn partitions() -> Vec<u16> {
    with(|network| network.qps.values().map(|pair| pair.partition).collect())
}

/// What is wrong with all devices of this thread from now on.
pub(crate) fn cause(trouble: Trouble) {
    with(|network| network.trouble = trouble);
}

unsafe extern "C" fn destroy_ah(ah: *mut ibv_ah) -> c_int {
    // SAFETY: made above.
    unsafe { freed(ah.cast::<u64>()) }
}

unsafe extern "C" fn get_async_event(context: *mut ibv_context, out: *mut ibv_async_event) -> c_int {
    let event = with(|network| network.events.get_mut(&(context as usize)).and_then(VecDeque::pop_front));
    let Some(event) = event else { return -1 };
    let mut one = 0;
    // SAFETY: the context exists.
    let descriptor = unsafe { (*context).async_fd };
    // SAFETY: the descriptor counts the events.
    unsafe { libc::eventfd_read(descriptor, &mut one) };
    // SAFETY: the caller's place.
    unsafe { out.write(event) };
    0
}

/// Lets the device say something without being asked.
pub(crate) fn raise(context: *mut ibv_context, event: Event) {
    with(|network| network.raise(context as usize, event));
}

unsafe extern "C" fn ack_async_event(_: *mut ibv_async_event) {}

/// The functions, in the place of the library's.
pub(crate) static LIBRARY: Library = Library {
    get_device_list,
    free_device_list,
    get_device_name,
    open_device,
    close_device,
    query_device,
    query_port,
    query_gid,
    alloc_pd,
    dealloc_pd,
    reg_mr,
    dereg_mr,
    create_comp_channel,
    destroy_comp_channel,
    create_cq,
    destroy_cq,
    get_cq_event,
    ack_cq_events,
    create_srq,
    destroy_srq,
    create_qp,
    modify_qp,
    destroy_qp,
    create_ah,
    destroy_ah,
    get_async_event,
    ack_async_event,
};
