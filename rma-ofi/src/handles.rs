//! One owner for each libfabric object.

use core::ffi::{c_int, c_void};
use core::ptr::{self, NonNull};
use std::sync::Arc;

use ofi_sys as fi;
use ofi_sys::{calls, Library};
use rma_core::provider::ProviderError;

use crate::error::{call_failed, fabric_code, say};
use crate::ledger::{Entry, Ledger};

/// An `fi_info` that libfabric allocated; freed as a list.
#[derive(Debug)]
pub(crate) struct Info {
    raw: NonNull<fi::fi_info>,
    free: unsafe extern "C" fn(*mut fi::fi_info),
}

// SAFETY: an fi_info is plain data; it belongs to no thread.
unsafe impl Send for Info {}
// SAFETY: a shared Info is only read.
unsafe impl Sync for Info {}

impl Info {
    /// Takes over what `fi_getinfo` or `fi_dupinfo` returned; `None` for null.
    ///
    /// # Safety
    /// `raw` is null or an `fi_info` from this library that nobody else frees.
    pub(crate) unsafe fn from_raw(library: &Library, raw: *mut fi::fi_info) -> Option<Self> {
        Some(Self { raw: NonNull::new(raw)?, free: library.freeinfo })
    }

    /// An empty one with all its parts allocated, for hints (`fi_allocinfo`).
    pub(crate) fn empty(library: &Library) -> Option<Self> {
        // SAFETY: fi_dupinfo of null is how libfabric allocates an empty info.
        let raw = unsafe { (library.dupinfo)(ptr::null()) };
        // SAFETY: just made, and handed to nobody else.
        unsafe { Self::from_raw(library, raw) }
    }

    /// A copy of the first entry of a list.
    ///
    /// # Safety
    /// `raw` is a valid `fi_info` of this library.
    pub(crate) unsafe fn copy_of(library: &Library, raw: *const fi::fi_info) -> Option<Self> {
        // SAFETY: by the caller's promise.
        let copy = unsafe { (library.dupinfo)(raw) };
        // SAFETY: just made, and handed to nobody else.
        unsafe { Self::from_raw(library, copy) }
    }

    pub(crate) fn as_ptr(&self) -> *mut fi::fi_info {
        self.raw.as_ptr()
    }
}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: owned, and freed once.
        unsafe { (self.free)(self.raw.as_ptr()) }
    }
}

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident($kind:ty) $what:literal $(, $field:ident: $field_type:ty)*) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $name {
            raw: NonNull<$kind>,
            // Closed after the object itself, because fields drop after `drop`.
            $($field: $field_type,)*
        }

        // SAFETY: libfabric objects may be used from any thread, by one at a time; the callers
        // serialize, and the provider does as well (threading model FI_THREAD_SAFE).
        unsafe impl Send for $name {}

        impl $name {
            pub(crate) fn as_ptr(&self) -> *mut $kind {
                self.raw.as_ptr()
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: the object is open, is closed only here, and its first member is its fid.
                let result = unsafe { calls::close(self.raw.as_ptr().cast()) };
                if result != 0 {
                    say(format_args!("closing the {} failed: {}", $what, fabric_code(-result)));
                }
            }
        }
    };
}

handle! {
    /// The network.
    Fabric(fi::fid_fabric) "fabric"
}
handle! {
    /// Access to one interface; regions and endpoints belong to it.
    Domain(fi::fid_domain) "domain", fabric: Fabric, ledger: Ledger
}
handle! {
    /// Addresses of peers.
    AddressVector(fi::fid_av) "address vector", _domain: Arc<Domain>
}
handle! {
    /// Completions.
    CompletionQueue(fi::fid_cq) "completion queue", _domain: Arc<Domain>
}
handle! {
    /// The endpoint.
    Ep(fi::fid_ep) "endpoint", _domain: Arc<Domain>
}
handle! {
    /// A registered region, with its line in the domain's account, which ends first.
    Mr(fi::fid_mr) "memory region", _entry: Entry, _domain: Arc<Domain>
}

// SAFETY: a shared Domain is used to read its pointer, and to register and close regions; under
// FI_THREAD_SAFE the provider itself guards what belongs to a domain.
unsafe impl Sync for Domain {}

/// Runs an opening call and takes over the object that it made.
fn opened<T>(
    call: &str,
    object: &str,
    open: impl FnOnce(*mut *mut T) -> c_int,
) -> Result<NonNull<T>, ProviderError> {
    let mut raw = ptr::null_mut();
    let result = open(&mut raw);
    if result != 0 {
        return Err(call_failed(call, object, result));
    }
    NonNull::new(raw).ok_or_else(|| call_failed(call, object, fi::FI_EOTHER))
}

impl Domain {
    /// Opens the fabric and the domain that `info` names, with an account of what is registered.
    pub(crate) fn open(
        library: &Library,
        info: &Info,
        name: &str,
        ledger: Ledger,
    ) -> Result<Arc<Self>, ProviderError> {
        // SAFETY: an info from fi_getinfo has its fabric_attr.
        let attr = unsafe { (*info.as_ptr()).fabric_attr };
        let fabric = opened("fi_fabric", name, |out| {
            // SAFETY: `attr` lives as long as `info`; the context may be null.
            unsafe { (library.fabric)(attr, out, ptr::null_mut()) }
        })?;
        let fabric = Fabric { raw: fabric };
        let raw = opened("fi_domain", name, |out| {
            // SAFETY: the fabric is open and `info` is valid.
            unsafe { calls::domain(fabric.as_ptr(), info.as_ptr(), out, ptr::null_mut()) }
        })?;
        Ok(Arc::new(Self { raw, fabric, ledger }))
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(crate) fn fabric_ptr(&self) -> *mut fi::fid_fabric {
        self.fabric.as_ptr()
    }
}

impl AddressVector {
    pub(crate) fn open(domain: &Arc<Domain>) -> Result<Self, ProviderError> {
        let mut attr = fi::fi_av_attr {
            type_: fi::FI_AV_TABLE,
            rx_ctx_bits: 0,
            count: 0,
            ep_per_node: 0,
            name: ptr::null(),
            map_addr: ptr::null_mut(),
            flags: 0,
        };
        let raw = opened("fi_av_open", "the address table", |out| {
            // SAFETY: the domain is open and `attr` lives during the call.
            unsafe { calls::av_open(domain.as_ptr(), &mut attr, out, ptr::null_mut()) }
        })?;
        Ok(Self { raw, _domain: Arc::clone(domain) })
    }

    /// Makes an entry of an address, which must be as long as the provider's addresses are.
    pub(crate) fn insert(&self, name: &[u8]) -> Result<fi::fi_addr_t, ProviderError> {
        let mut entry: fi::fi_addr_t = 0;
        // SAFETY: the table is open; the name is as long as the provider reads.
        let inserted = unsafe {
            calls::av_insert(self.as_ptr(), name.as_ptr().cast(), 1, &mut entry, 0, ptr::null_mut())
        };
        match inserted {
            1 => Ok(entry),
            code => {
                let code = if code < 0 { code } else { fi::FI_EINVAL };
                Err(call_failed("fi_av_insert", "the peer's address", code))
            }
        }
    }

    /// Forgets an entry, once for each time it was inserted.
    pub(crate) fn remove(&self, mut entry: fi::fi_addr_t) -> Result<(), c_int> {
        // SAFETY: the table is open.
        match unsafe { calls::av_remove(self.as_ptr(), &mut entry, 1, 0) } {
            0 => Ok(()),
            result => Err(result),
        }
    }
}

impl CompletionQueue {
    /// A queue of at least `size` entries; with a descriptor to sleep on if `wait` and the provider
    /// has one.
    pub(crate) fn open(
        domain: &Arc<Domain>,
        size: usize,
        wait: fi::fi_wait_obj,
    ) -> Result<Self, ProviderError> {
        let mut attr = fi::fi_cq_attr {
            size,
            flags: 0,
            format: fi::FI_CQ_FORMAT_DATA,
            wait_obj: wait,
            signaling_vector: 0,
            wait_cond: fi::FI_CQ_COND_NONE,
            wait_set: ptr::null_mut(),
        };
        let raw = opened("fi_cq_open", &format!("{size} entries"), |out| {
            // SAFETY: the domain is open and `attr` lives during the call.
            unsafe { calls::cq_open(domain.as_ptr(), &mut attr, out, ptr::null_mut()) }
        })?;
        Ok(Self { raw, _domain: Arc::clone(domain) })
    }

    /// The descriptor of a queue opened with `FI_WAIT_FD`.
    pub(crate) fn wait_fd(&self) -> Option<c_int> {
        let mut descriptor: c_int = -1;
        let argument: *mut c_int = &mut descriptor;
        // SAFETY: FI_GETWAIT on a queue with a descriptor writes one int.
        let result =
            unsafe { calls::control(self.as_ptr().cast(), fi::FI_GETWAIT as c_int, argument.cast()) };
        (result == 0 && descriptor >= 0).then_some(descriptor)
    }
}

impl Ep {
    /// Opens an endpoint, binds it to its queue and table, and enables it.
    pub(crate) fn open(
        domain: &Arc<Domain>,
        info: &Info,
        av: &AddressVector,
        cq: &CompletionQueue,
        name: &str,
    ) -> Result<Self, ProviderError> {
        let raw = opened("fi_endpoint", name, |out| {
            // SAFETY: the domain is open and `info` is the one it was opened with.
            unsafe { calls::endpoint(domain.as_ptr(), info.as_ptr(), out, ptr::null_mut()) }
        })?;
        let ep = Self { raw, _domain: Arc::clone(domain) };
        let fid = ep.as_ptr().cast();
        // SAFETY: both objects are open.
        let result = unsafe { calls::bind(fid, av.as_ptr().cast(), 0) };
        if result != 0 {
            return Err(call_failed("fi_ep_bind to the address vector", name, result));
        }
        // SAFETY: both objects are open.
        let result = unsafe { calls::bind(fid, cq.as_ptr().cast(), fi::FI_TRANSMIT | fi::FI_RECV) };
        if result != 0 {
            return Err(call_failed("fi_ep_bind to the completion queue", name, result));
        }
        let mut result = ep.enable();
        if result == -(fi::FI_EBUSY as c_int) {
            // A killed process that had this process's number left the file that shm wants to make. shm takes it for
            // a living process's, as the number is ours, refuses, and removes it: the way is free then.
            result = ep.enable();
        }
        if result != 0 {
            return Err(call_failed("fi_enable", name, result));
        }
        Ok(ep)
    }

    fn enable(&self) -> c_int {
        // SAFETY: the endpoint is open and bound.
        unsafe { calls::enable(self.as_ptr()) }
    }

    /// The endpoint's own address, at most `ADDRESS_BYTES_MAX` bytes.
    pub(crate) fn name(&self) -> Result<Vec<u8>, ProviderError> {
        let mut bytes = vec![0u8; rma_core::bootstrap::ADDRESS_BYTES_MAX];
        let mut len = bytes.len();
        // SAFETY: the buffer holds `len` bytes.
        let result = unsafe { calls::getname(self.as_ptr(), bytes.as_mut_ptr().cast(), &mut len) };
        if result != 0 {
            return Err(call_failed("fi_getname", "the endpoint", result));
        }
        bytes.truncate(len);
        Ok(bytes)
    }
}

impl Mr {
    /// Registers `len` bytes at `base`.
    ///
    /// # Safety
    /// The memory stays valid until the region is dropped.
    pub(crate) unsafe fn open(
        domain: &Arc<Domain>,
        base: NonNull<u8>,
        len: usize,
        access: u64,
        key: u64,
    ) -> Result<Self, c_int> {
        let mut raw = ptr::null_mut();
        // SAFETY: the domain is open and the memory is valid by the caller's promise.
        let result = unsafe {
            calls::mr_reg(
                domain.as_ptr(),
                base.as_ptr().cast(),
                len,
                access,
                0,
                key,
                0,
                &mut raw,
                ptr::null_mut(),
            )
        };
        match NonNull::new(raw) {
            Some(raw) if result == 0 => {
                // SAFETY: the region is open.
                let desc = unsafe { (*raw.as_ptr()).mem_desc };
                let entry = domain.ledger().enter(base.as_ptr(), len, access, desc);
                Ok(Self { raw, _entry: entry, _domain: Arc::clone(domain) })
            }
            _ => Err(if result == 0 { -fi::FI_EOTHER } else { result }),
        }
    }

    /// Binds to an endpoint and enables, where the provider demands it (`FI_MR_ENDPOINT`).
    pub(crate) fn attach(&self, ep: &Ep) -> Result<(), c_int> {
        let fid = self.as_ptr().cast();
        // SAFETY: both objects are open.
        let result = unsafe { calls::bind(fid, ep.as_ptr().cast(), 0) };
        if result != 0 {
            return Err(result);
        }
        // SAFETY: the region is open and bound; the command takes no argument.
        match unsafe { calls::control(fid, fi::FI_ENABLE as c_int, ptr::null_mut()) } {
            0 => Ok(()),
            result => Err(result),
        }
    }

    /// What operations on the memory name it by.
    pub(crate) fn desc(&self) -> *mut c_void {
        // SAFETY: the region is open; its descriptor is constant.
        unsafe { (*self.as_ptr()).mem_desc }
    }

    pub(crate) fn key(&self) -> u64 {
        // SAFETY: the region is open; its key is constant once it is registered (and enabled).
        unsafe { (*self.as_ptr()).key }
    }
}
