//! The data types of PMIx that are used here, as the PMIx standard lays them out on 64-bit machines, and
//! checks that they are laid out so.
//!
//! These layouts are the same in every library with the name `libpmix.so.2` from version 3 on (4.2 and 5
//! are what the tests run): the standard allows no other while that name stays. Versions 1 and 2 are refused when the
//! library is opened.

use std::ffi::{c_char, c_int, c_void};
use std::mem::{align_of, offset_of, size_of};

/// Longest name of a job, in bytes, with its terminator.
pub(super) const NAMESPACE_BYTES: usize = 256;

/// Longest key, in bytes, with its terminator.
pub(super) const KEY_BYTES: usize = 512;

/// `PMIX_SUCCESS`
pub(super) const SUCCESS: c_int = 0;

/// `PMIX_OPERATION_SUCCEEDED`: done at once, and no callback follows.
pub(super) const OPERATION_SUCCEEDED: c_int = -157;

/// `PMIX_ERR_NOT_FOUND`
pub(super) const ERR_NOT_FOUND: c_int = -46;

/// `PMIX_ERR_TIMEOUT`
pub(super) const ERR_TIMEOUT: c_int = -24;

/// `PMIX_GLOBAL`: for ranks on this host and on others.
pub(super) const SCOPE_GLOBAL: u8 = 3;

/// `PMIX_RANK_WILDCARD`: what is asked about is the job and no rank of it.
pub(super) const RANK_WILDCARD: u32 = u32::MAX - 1;

/// `PMIX_STRING`, `PMIX_UINT16`, `PMIX_UINT32`, `PMIX_BYTE_OBJECT`: types of a value.
pub(super) const TYPE_STRING: u16 = 3;
pub(super) const TYPE_UINT16: u16 = 13;
pub(super) const TYPE_UINT32: u16 = 14;
pub(super) const TYPE_BYTE_OBJECT: u16 = 27;

/// `PMIX_JOB_SIZE`: number of ranks, 32 bits.
pub(super) const KEY_JOB_SIZE: &std::ffi::CStr = c"pmix.job.size";

/// `PMIX_LOCAL_RANK`: rank among those on the same host, 16 bits.
pub(super) const KEY_LOCAL_RANK: &std::ffi::CStr = c"pmix.lrank";

/// `PMIX_LOCAL_SIZE`: number of ranks on this host, 32 bits.
pub(super) const KEY_LOCAL_SIZE: &std::ffi::CStr = c"pmix.local.size";

/// `PMIX_LOCAL_PEERS`: the ranks on this host, text such as `0,1,2`.
pub(super) const KEY_LOCAL_PEERS: &std::ffi::CStr = c"pmix.lpeers";

/// `pmix_proc_t`: a rank of a job.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Proc {
    pub(super) namespace: [u8; NAMESPACE_BYTES],
    pub(super) rank: u32,
}

/// `pmix_byte_object_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ByteObject {
    pub(super) bytes: *mut c_char,
    pub(super) len: usize,
}

/// The union in `pmix_value_t`: the members that are used, and its longest one (`pmix_envar_t`: two pointers
/// and a character).
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) union Data {
    flag: bool,
    pub(super) text: *const c_char,
    pub(super) uint16: u16,
    pub(super) uint32: u32,
    pub(super) byte_object: ByteObject,
    longest: [*mut c_void; 3],
}

/// `pmix_value_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Value {
    pub(super) kind: u16,
    pub(super) data: Data,
}

impl Value {
    /// These bytes, which must live as long as the value is used.
    pub(super) fn of_bytes(bytes: &[u8]) -> Self {
        let mut data = Data { longest: [std::ptr::null_mut(); 3] };
        data.byte_object = ByteObject { bytes: bytes.as_ptr().cast_mut().cast(), len: bytes.len() };
        Self { kind: TYPE_BYTE_OBJECT, data }
    }
}

/// `PMIX_BOOL`: type of a value.
const TYPE_BOOL: u16 = 1;

/// `PMIX_IMMEDIATE`: a server that does not have the value says so at once.
const KEY_IMMEDIATE: &[u8] = b"pmix.immediate";

/// `pmix_info_t`: a wish. Where there is none, a null pointer is passed.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Info {
    key: [u8; KEY_BYTES],
    flags: u32,
    value: Value,
}

impl Info {
    /// That a get is answered from what the server of this host has.
    pub(super) fn immediate() -> Self {
        let mut key = [0; KEY_BYTES];
        key[..KEY_IMMEDIATE.len()].copy_from_slice(KEY_IMMEDIATE);
        let mut data = Data { longest: [std::ptr::null_mut(); 3] };
        data.flag = true;
        Self { key, flags: 0, value: Value { kind: TYPE_BOOL, data } }
    }
}

/// `pmix_value_cbfunc_t`
pub(super) type OnValue = unsafe extern "C" fn(status: c_int, value: *const Value, context: *mut c_void);

/// `pmix_op_cbfunc_t`
pub(super) type OnDone = unsafe extern "C" fn(status: c_int, context: *mut c_void);

/// `PMIx_Init`
pub(super) type Init = unsafe extern "C" fn(me: *mut Proc, info: *const Info, count: usize) -> c_int;

/// `PMIx_Finalize`
pub(super) type Finalize = unsafe extern "C" fn(info: *const Info, count: usize) -> c_int;

/// `PMIx_Abort`
pub(super) type Abort =
    unsafe extern "C" fn(status: c_int, message: *const c_char, ranks: *const Proc, count: usize) -> c_int;

/// `PMIx_Put`
pub(super) type Put = unsafe extern "C" fn(scope: u8, key: *const c_char, value: *const Value) -> c_int;

/// `PMIx_Commit`
pub(super) type Commit = unsafe extern "C" fn() -> c_int;

/// `PMIx_Get_nb`
pub(super) type Get = unsafe extern "C" fn(
    of: *const Proc,
    key: *const c_char,
    info: *const Info,
    count: usize,
    on_value: OnValue,
    context: *mut c_void,
) -> c_int;

/// `PMIx_Fence_nb`
pub(super) type Fence = unsafe extern "C" fn(
    ranks: *const Proc,
    rank_count: usize,
    info: *const Info,
    count: usize,
    on_done: OnDone,
    context: *mut c_void,
) -> c_int;

/// `PMIx_Get_version`
pub(super) type GetVersion = unsafe extern "C" fn() -> *const c_char;

/// `PMIx_Error_string`
pub(super) type ErrorString = unsafe extern "C" fn(status: c_int) -> *const c_char;

const _: () = {
    assert!(size_of::<usize>() == 8, "the layouts below are those of 64-bit machines");
    assert!(size_of::<Proc>() == 260 && align_of::<Proc>() == 4 && offset_of!(Proc, rank) == 256);
    assert!(size_of::<ByteObject>() == 16 && offset_of!(ByteObject, len) == 8);
    assert!(size_of::<Data>() == 24 && align_of::<Data>() == 8);
    assert!(size_of::<Info>() == 552 && offset_of!(Info, flags) == 512 && offset_of!(Info, value) == 520);
    assert!(size_of::<Value>() == 32 && offset_of!(Value, data) == 8);
};
