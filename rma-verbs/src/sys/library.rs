//! Finding and opening `libibverbs.so.1`.

use core::ffi::{c_char, c_int, c_uint, c_void, CStr};
use core::mem;
use std::sync::OnceLock;

use rma_core::provider::ProviderError;

use super::types::{
    ibv_ah, ibv_ah_attr, ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_device_attr,
    ibv_gid, ibv_mr, ibv_pd, ibv_port_attr, ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_srq,
    ibv_srq_init_attr,
};

const SONAME: &CStr = c"libibverbs.so.1";
/// The versions of the symbols here, the newer one first: all have it that ever had another.
const VERSIONS: [&CStr; 2] = [c"IBVERBS_1.1", c"IBVERBS_1.0"];

macro_rules! library {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions that are symbols, each named `ibv_` and its member's name.
        ///
        /// The library is never unloaded: the drivers that it loads may not be.
        #[derive(Debug)]
        pub(crate) struct Library {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Library {
            fn resolve(handle: *mut c_void) -> Result<Self, ProviderError> {
                Ok(Self {
                    $($name: {
                        let name = concat!("ibv_", stringify!($name), "\0");
                        let address = symbol(handle, CStr::from_bytes_with_nul(name.as_bytes()).unwrap_or(c""))?;
                        // SAFETY: the symbol's version fixes its signature, which is the member's type.
                        unsafe {
                            mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(
                                address,
                            )
                        }
                    },)*
                })
            }
        }
    };
}

library! {
    get_device_list: fn(*mut c_int) -> *mut *mut ibv_device;
    free_device_list: fn(*mut *mut ibv_device);
    get_device_name: fn(*mut ibv_device) -> *const c_char;
    open_device: fn(*mut ibv_device) -> *mut ibv_context;
    close_device: fn(*mut ibv_context) -> c_int;
    query_device: fn(*mut ibv_context, *mut ibv_device_attr) -> c_int;
    query_port: fn(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
    query_gid: fn(*mut ibv_context, u8, c_int, *mut ibv_gid) -> c_int;
    alloc_pd: fn(*mut ibv_context) -> *mut ibv_pd;
    dealloc_pd: fn(*mut ibv_pd) -> c_int;
    reg_mr: fn(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
    dereg_mr: fn(*mut ibv_mr) -> c_int;
    create_comp_channel: fn(*mut ibv_context) -> *mut ibv_comp_channel;
    destroy_comp_channel: fn(*mut ibv_comp_channel) -> c_int;
    create_cq: fn(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
    destroy_cq: fn(*mut ibv_cq) -> c_int;
    get_cq_event: fn(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
    ack_cq_events: fn(*mut ibv_cq, c_uint);
    create_srq: fn(*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq;
    destroy_srq: fn(*mut ibv_srq) -> c_int;
    create_qp: fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
    modify_qp: fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
    destroy_qp: fn(*mut ibv_qp) -> c_int;
    create_ah: fn(*mut ibv_pd, *mut ibv_ah_attr) -> *mut ibv_ah;
    destroy_ah: fn(*mut ibv_ah) -> c_int;
    get_async_event: fn(*mut ibv_context, *mut ibv_async_event) -> c_int;
    ack_async_event: fn(*mut ibv_async_event);
}

impl Library {
    /// The library for this device: the system's, unless a test names the device that is in its own memory.
    ///
    /// # Errors
    /// As for [`Self::get`].
    pub(crate) fn of(_device: Option<&str>) -> Result<&'static Self, ProviderError> {
        #[cfg(test)]
        if _device.map(str::as_bytes) == Some(super::emulated::NAME.to_bytes()) {
            return Ok(&super::emulated::LIBRARY);
        }
        Self::get()
    }

    /// The library, opened on first use.
    ///
    /// # Errors
    /// When there is none, or it lacks a symbol; the message says the remedy.
    pub(crate) fn get() -> Result<&'static Self, ProviderError> {
        static LIBRARY: OnceLock<Result<Library, ProviderError>> = OnceLock::new();
        LIBRARY.get_or_init(Self::open).as_ref().map_err(Clone::clone)
    }

    fn open() -> Result<Self, ProviderError> {
        // SAFETY: loading runs the library's initializers, which may run at any time. The name is terminated.
        let handle = unsafe { libc::dlopen(SONAME.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(ProviderError {
                message: format!(
                    "libibverbs could not be loaded: {}. Install it (Debian: apt install libibverbs1 \
                     ibverbs-providers), or use a libfabric provider",
                    loader_error()
                ),
            });
        }
        Self::resolve(handle)
    }
}

fn symbol(handle: *mut c_void, name: &CStr) -> Result<*mut c_void, ProviderError> {
    for version in VERSIONS {
        // SAFETY: `handle` came from dlopen and both strings are terminated.
        let address = unsafe { libc::dlvsym(handle, name.as_ptr(), version.as_ptr()) };
        if !address.is_null() {
            return Ok(address);
        }
    }
    Err(ProviderError {
        message: format!(
            "{} has no {}; install rdma-core 17 or later",
            SONAME.to_string_lossy(),
            name.to_string_lossy()
        ),
    })
}

fn loader_error() -> String {
    // SAFETY: no other dl call of this thread came between.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the loader gave no reason".to_owned();
    }
    // SAFETY: dlerror returns a terminated string, valid until the thread's next dl call.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
