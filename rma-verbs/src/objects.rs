//! libibverbs' objects, each destroyed when dropped, and each keeping alive what it was made of.

use core::ffi::{c_int, c_uint, c_void};
use core::ptr::{self, NonNull};
use std::sync::Arc;

use rma_core::provider::ProviderError;

use crate::error::{call_failed, last_errno};
use crate::events::Event;
use crate::sys::{self, Library};

/// An opened device and a protection domain on it.
#[derive(Debug)]
pub(crate) struct Domain {
    pub(crate) library: &'static Library,
    pd: NonNull<sys::ibv_pd>,
    context: NonNull<sys::ibv_context>,
}

// SAFETY: libibverbs' objects may be used from any thread, and its calls are thread-safe.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

impl Domain {
    /// Takes the context, which `library` has opened and which is closed with the domain.
    pub(crate) fn new(
        library: &'static Library,
        context: NonNull<sys::ibv_context>,
        name: &str,
    ) -> Result<Arc<Self>, ProviderError> {
        // SAFETY: the context is open.
        let pd = NonNull::new(unsafe { (library.alloc_pd)(context.as_ptr()) });
        let Some(pd) = pd else {
            let error = call_failed("ibv_alloc_pd", name, last_errno());
            // SAFETY: the context is open, and nothing was made of it.
            unsafe { (library.close_device)(context.as_ptr()) };
            return Err(error);
        };
        Ok(Arc::new(Self { library, pd, context }))
    }

    pub(crate) fn context(&self) -> *mut sys::ibv_context {
        self.context.as_ptr()
    }

    /// Asynchronous events of the device come without waiting from here on; the descriptor that tells of them.
    pub(crate) fn stop_waiting_for_events(&self) -> c_int {
        // SAFETY: the context is open.
        let fd = unsafe { (*self.context.as_ptr()).async_fd };
        set_nonblocking(fd);
        fd
    }

    /// The next asynchronous event, if there is one.
    pub(crate) fn next_event(&self) -> Option<Event> {
        let mut event = core::mem::MaybeUninit::<sys::ibv_async_event>::uninit();
        // SAFETY: the context is open, its descriptor does not block, and there is room for an event.
        if unsafe { (self.library.get_async_event)(self.context(), event.as_mut_ptr()) } != 0 {
            return None;
        }
        // SAFETY: the call above filled it.
        let mut event = unsafe { event.assume_init() };
        // SAFETY: each event is acknowledged once.
        unsafe { (self.library.ack_async_event)(&mut event) };
        Some(Event { kind: event.event_type, element: event.element })
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: whatever was made of it holds an Arc of this, so it is gone.
        unsafe { (self.library.dealloc_pd)(self.pd.as_ptr()) };
        // SAFETY: as above.
        unsafe { (self.library.close_device)(self.context.as_ptr()) };
    }
}

fn set_nonblocking(fd: c_int) {
    // SAFETY: takes a descriptor and numbers.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    // SAFETY: as above.
    unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) };
}

/// Something that a domain made, with the call that destroys it.
macro_rules! object {
    ($(#[$doc:meta])* $name:ident($raw:ident), $destroy:ident) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $name {
            raw: NonNull<sys::$raw>,
            domain: Arc<Domain>,
        }

        // SAFETY: libibverbs' objects may be used from any thread.
        unsafe impl Send for $name {}

        impl $name {
            /// Takes what the call returned; the error number where that is nothing.
            fn own(raw: *mut sys::$raw, domain: &Arc<Domain>) -> Result<Self, c_int> {
                let raw = NonNull::new(raw).ok_or_else(last_errno)?;
                Ok(Self { raw, domain: Arc::clone(domain) })
            }

            #[inline]
            pub(crate) fn as_ptr(&self) -> *mut sys::$raw {
                self.raw.as_ptr()
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: made by the call that belongs to this one, and destroyed once. What depends on it is
                // dropped before it (the order of fields wherever objects are kept).
                unsafe { (self.domain.library.$destroy)(self.raw.as_ptr()) };
            }
        }
    };
}

object!(
    /// Registered memory.
    Mr(ibv_mr), dereg_mr
);
object!(
    /// A queue pair.
    Qp(ibv_qp), destroy_qp
);
object!(
    /// A shared receive queue.
    Srq(ibv_srq), destroy_srq
);
object!(
    /// A completion queue.
    Cq(ibv_cq), destroy_cq
);
object!(
    /// What wakes a thread that sleeps until a completion.
    Channel(ibv_comp_channel), destroy_comp_channel
);
object!(
    /// How datagrams reach a peer.
    Ah(ibv_ah), destroy_ah
);

impl Mr {
    /// Registers `len` bytes at `base`.
    ///
    /// # Safety
    /// The memory stays valid until the registration is dropped, and may be accessed by others as `access` says.
    ///
    /// # Errors
    /// The error number.
    pub(crate) unsafe fn open(
        domain: &Arc<Domain>,
        base: *mut u8,
        len: usize,
        access: c_int,
    ) -> Result<Self, c_int> {
        // SAFETY: the domain is open; the memory is the caller's promise.
        let raw = unsafe { (domain.library.reg_mr)(domain.pd.as_ptr(), base.cast(), len, access) };
        Self::own(raw, domain)
    }

    pub(crate) fn lkey(&self) -> u32 {
        // SAFETY: the registration is alive; the key does not change.
        unsafe { (*self.as_ptr()).lkey }
    }

    pub(crate) fn rkey(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.as_ptr()).rkey }
    }
}

impl Channel {
    pub(crate) fn open(domain: &Arc<Domain>) -> Result<Self, ProviderError> {
        // SAFETY: the context is open.
        let raw = unsafe { (domain.library.create_comp_channel)(domain.context()) };
        let channel = Self::own(raw, domain)
            .map_err(|code| call_failed("ibv_create_comp_channel", "the endpoint", code))?;
        set_nonblocking(channel.fd());
        Ok(channel)
    }

    pub(crate) fn fd(&self) -> c_int {
        // SAFETY: the channel is alive; the descriptor does not change.
        unsafe { (*self.as_ptr()).fd }
    }

    /// Takes the events that are there.
    pub(crate) fn drain(&self, cq: &Cq) {
        let (mut of, mut context) = (ptr::null_mut(), ptr::null_mut());
        let mut taken: c_uint = 0;
        // SAFETY: the channel is open and does not block; both places are written.
        while unsafe { (self.domain.library.get_cq_event)(self.as_ptr(), &mut of, &mut context) } == 0 {
            taken += 1;
        }
        if taken > 0 {
            // SAFETY: the queue is the channel's only one, and so many events were taken.
            unsafe { (self.domain.library.ack_cq_events)(cq.as_ptr(), taken) };
        }
    }
}

impl Cq {
    pub(crate) fn open(
        domain: &Arc<Domain>,
        channel: &Channel,
        entries: usize,
    ) -> Result<Self, ProviderError> {
        let entries = entries as c_int;
        // SAFETY: context and channel are open, and the channel outlives the queue (order of fields).
        let raw = unsafe {
            (domain.library.create_cq)(domain.context(), entries, ptr::null_mut(), channel.as_ptr(), 0)
        };
        Self::own(raw, domain)
            .map_err(|code| call_failed("ibv_create_cq", &format!("{entries} entries"), code))
    }

    /// Reads up to `entries.len()` completions; the number of those read, or less than 0.
    #[inline]
    pub(crate) fn poll(&self, entries: &mut [core::mem::MaybeUninit<sys::ibv_wc>]) -> c_int {
        // SAFETY: the queue is open, hence its context.
        let context = unsafe { (*self.as_ptr()).context };
        // SAFETY: as above.
        let poll = unsafe { (*context).ops.poll_cq };
        // SAFETY: the queue is open, and there is room for so many entries.
        unsafe { poll(self.as_ptr(), entries.len() as c_int, entries.as_mut_ptr().cast()) }
    }

    /// The next completion wakes who sleeps on the channel.
    pub(crate) fn request_notice(&self) -> bool {
        // SAFETY: the queue is open, hence its context.
        let context = unsafe { (*self.as_ptr()).context };
        // SAFETY: as above.
        let request = unsafe { (*context).ops.req_notify_cq };
        // SAFETY: the queue is open.
        unsafe { request(self.as_ptr(), 0) == 0 }
    }
}

impl Srq {
    pub(crate) fn open(domain: &Arc<Domain>, entries: usize) -> Result<Self, ProviderError> {
        let mut wanted = sys::ibv_srq_init_attr {
            srq_context: ptr::null_mut(),
            max_wr: entries as u32,
            max_sge: 1,
            srq_limit: 0,
        };
        // SAFETY: the domain is open; the attributes are read and written during the call.
        let raw = unsafe { (domain.library.create_srq)(domain.pd.as_ptr(), &mut wanted) };
        Self::own(raw, domain)
            .map_err(|code| call_failed("ibv_create_srq", &format!("{entries} receive buffers"), code))
    }

    /// Gives a receive buffer to the device.
    ///
    /// # Safety
    /// The memory of `piece` is the device's until a completion with `wr_id`.
    #[inline]
    pub(crate) unsafe fn post(&self, wr_id: u64, piece: &mut sys::ibv_sge) -> c_int {
        let mut request = sys::ibv_recv_wr { wr_id, next: ptr::null_mut(), sg_list: piece, num_sge: 1 };
        let mut bad = ptr::null_mut();
        // SAFETY: the queue is open, hence its context.
        let context = unsafe { (*self.as_ptr()).context };
        // SAFETY: as above.
        let post = unsafe { (*context).ops.post_srq_recv };
        // SAFETY: the request is read during the call; the memory is the caller's promise.
        unsafe { post(self.as_ptr(), &mut request, &mut bad) }
    }
}

/// How large a queue pair is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Depths {
    pub(crate) sends: u32,
    pub(crate) receives: u32,
    /// Pieces of memory that a send, put or get names.
    pub(crate) pieces: u32,
    pub(crate) inline_bytes: u32,
}

impl Qp {
    /// A queue pair of this kind. Returns the bytes that it really sends inline, too.
    ///
    /// # Errors
    /// The error number.
    pub(crate) fn open(
        domain: &Arc<Domain>,
        cq: &Cq,
        srq: Option<&Srq>,
        kind: c_uint,
        depths: Depths,
    ) -> Result<(Self, u32), c_int> {
        let mut wanted = sys::ibv_qp_init_attr {
            qp_context: ptr::null_mut(),
            send_cq: cq.as_ptr(),
            recv_cq: cq.as_ptr(),
            srq: srq.map_or(ptr::null_mut(), Srq::as_ptr),
            cap: sys::ibv_qp_cap {
                max_send_wr: depths.sends,
                max_recv_wr: depths.receives,
                max_send_sge: depths.pieces,
                max_recv_sge: u32::from(srq.is_none()),
                max_inline_data: depths.inline_bytes,
            },
            qp_type: kind,
            sq_sig_all: 0,
        };
        // SAFETY: domain and queues are open and outlive the queue pair (order of fields); the attributes are
        // read and written during the call.
        let raw = unsafe { (domain.library.create_qp)(domain.pd.as_ptr(), &mut wanted) };
        Ok((Self::own(raw, domain)?, wanted.cap.max_inline_data))
    }

    pub(crate) fn number(&self) -> u32 {
        // SAFETY: the queue pair is alive; its number does not change.
        unsafe { (*self.as_ptr()).qp_num }
    }

    /// Changes what `mask` names.
    ///
    /// # Errors
    /// The error number.
    pub(crate) fn modify(&self, attributes: &mut sys::ibv_qp_attr, mask: c_int) -> Result<(), c_int> {
        // SAFETY: the queue pair is alive; the attributes are read during the call.
        let result = unsafe { (self.domain.library.modify_qp)(self.as_ptr(), attributes, mask) };
        if result == 0 {
            Ok(())
        } else {
            Err(result.abs())
        }
    }

    /// Breaks the connection: everything posted completes with an error.
    pub(crate) fn fail(&self) {
        let mut attributes = blank_attributes();
        attributes.qp_state = sys::IBV_QPS_ERR;
        // One that cannot be changed is broken already.
        let _ = self.modify(&mut attributes, sys::IBV_QP_STATE);
    }

    /// Posts one request without neighbours.
    ///
    /// # Safety
    /// The memory that the request names is the device's until a completion with its `wr_id`, unless the request
    /// is inline.
    #[inline]
    pub(crate) unsafe fn post(&self, request: &mut sys::ibv_send_wr) -> c_int {
        let mut bad = ptr::null_mut();
        // SAFETY: by the caller's promise.
        unsafe { self.post_list(request, &mut bad) }
    }

    /// Posts a list of requests; where the device does not take all, `bad` is the first that it did not take.
    ///
    /// # Safety
    /// The requests and the pieces that they name are readable during the call. The memory that they name is the
    /// device's until the completion of the request or of a later one, unless the request is inline.
    #[inline]
    pub(crate) unsafe fn post_list(
        &self,
        first: *mut sys::ibv_send_wr,
        bad: &mut *mut sys::ibv_send_wr,
    ) -> c_int {
        // SAFETY: the queue pair is open, hence its context.
        let context = unsafe { (*self.as_ptr()).context };
        // SAFETY: as above.
        let post = unsafe { (*context).ops.post_send };
        // SAFETY: the requests are read during the call; their memory is the caller's promise.
        unsafe { post(self.as_ptr(), first, bad) }
    }

    /// Gives a receive buffer to a queue pair that has a receive queue of its own.
    ///
    /// # Safety
    /// As for [`Srq::post`].
    pub(crate) unsafe fn post_receive(&self, wr_id: u64, piece: &mut sys::ibv_sge) -> c_int {
        let mut request = sys::ibv_recv_wr { wr_id, next: ptr::null_mut(), sg_list: piece, num_sge: 1 };
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair is open, hence its context.
        let context = unsafe { (*self.as_ptr()).context };
        // SAFETY: as above.
        let post = unsafe { (*context).ops.post_recv };
        // SAFETY: the request is read during the call; the memory is the caller's promise.
        unsafe { post(self.as_ptr(), &mut request, &mut bad) }
    }
}

impl Ah {
    /// # Errors
    /// The error number.
    pub(crate) fn open(domain: &Arc<Domain>, attributes: &sys::ibv_ah_attr) -> Result<Self, c_int> {
        let mut attributes = *attributes;
        // Where the kernel finds no neighbour of this address, libraries say so only if nothing else was said before.
        // SAFETY: takes nothing, and every thread has one.
        let error_number = unsafe { libc::__errno_location() };
        // SAFETY: this thread's own number.
        unsafe { *error_number = 0 };
        // SAFETY: the domain is open; the attributes are read during the call.
        let raw = unsafe { (domain.library.create_ah)(domain.pd.as_ptr(), &mut attributes) };
        Self::own(raw, domain).map_err(|code| if code == 0 { libc::EDESTADDRREQ } else { code })
    }
}

/// Attributes of a queue pair with nothing set.
pub(crate) fn blank_attributes() -> sys::ibv_qp_attr {
    // SAFETY: numbers only, for which zero is a value.
    unsafe { core::mem::zeroed() }
}

/// The bytes from `base`, as the device wants to be told of them.
#[inline]
pub(crate) fn piece(base: *const u8, len: usize, lkey: u32) -> sys::ibv_sge {
    sys::ibv_sge { addr: base as *const c_void as u64, length: len as u32, lkey }
}
