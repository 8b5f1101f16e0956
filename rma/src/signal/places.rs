//! Where a thread may be interrupted to make progress.
//!
//! Progress calls libfabric and, through it, the C library, and takes their locks. The thread that a signal
//! interrupts may hold one of them, and would then wait for itself. So the handler works only where that
//! cannot be: between two instructions of the program's own executable, which contains neither, or in a
//! system call that waits, at an address found in one of the C library's functions that are little more
//! than that call. The addresses are found once, when the driver starts.

use std::ffi::{c_int, c_void, CStr};

use crate::error::{Error, ErrorKind, Result};

/// Functions of the C library that wait in the kernel without a lock. `read` and its kind may be called with
/// the lock of an input stream held, which nothing in a fabric takes.
const WAITS: [&CStr; 16] = [
    c"nanosleep",
    c"clock_nanosleep",
    c"poll",
    c"ppoll",
    c"select",
    c"pselect",
    c"epoll_wait",
    c"epoll_pwait",
    c"pause",
    c"read",
    c"readv",
    c"recv",
    c"recvfrom",
    c"recvmsg",
    c"accept",
    c"accept4",
];

/// Functions that must not be part of the executable: it is a static one, or brings its own allocator, which
/// libfabric then uses.
const FOREIGN: [&CStr; 4] = [c"malloc", c"free", c"calloc", c"realloc"];

/// Most parts of the executable that hold code, and most system calls in [`WAITS`].
const CODE_MAX: usize = 8;
const CALLS_MAX: usize = 64;

/// No function of [`WAITS`] is longer, bytes.
const FUNCTION_BYTES_MAX: usize = 1024;

#[cfg(target_arch = "x86_64")]
mod machine {
    /// `syscall`
    pub(super) const CALL: &[u8] = &[0x0f, 0x05];
    /// Instructions begin anywhere.
    pub(super) const STEP: usize = 1;
}

#[cfg(target_arch = "aarch64")]
mod machine {
    /// `svc #0`
    pub(super) const CALL: &[u8] = &[0x01, 0x00, 0x00, 0xd4];
    pub(super) const STEP: usize = 4;
}

/// The addresses. No pointers, and no memory of its own: the handler reads it.
#[derive(Debug)]
pub(super) struct Places {
    code: [(usize, usize); CODE_MAX],
    code_count: usize,
    calls: [usize; CALLS_MAX],
    call_count: usize,
}

impl Places {
    /// Finds them.
    ///
    /// # Errors
    /// When the C library is part of the executable, or the executable has its own allocator.
    pub(super) fn find() -> Result<Self> {
        let mut places =
            Self { code: [(0, 0); CODE_MAX], code_count: 0, calls: [0; CALLS_MAX], call_count: 0 };
        let data = std::ptr::from_mut(&mut places).cast();
        // SAFETY: `first_object` takes `data` as what it is, during this call only.
        unsafe { libc::dl_iterate_phdr(Some(first_object), data) };
        for name in FOREIGN.into_iter().chain(WAITS) {
            if address_of(name).is_some_and(|address| places.is_own_code(address)) {
                return Err(Error::new(ErrorKind::System(format!(
                    "RMA_PROGRESS=signal: the program contains {} itself (a static executable, or an allocator \
                     linked into it), so that the place of an interruption does not tell whether a lock of it is \
                     held; link the C library dynamically, or use RMA_PROGRESS=thread",
                    name.to_string_lossy()
                ))));
            }
        }
        for name in WAITS {
            if let Some(address) = address_of(name) {
                places.add_calls_of(address);
            }
        }
        Ok(places)
    }

    /// Whether a thread that was interrupted before the instruction at this address holds no lock that
    /// progress takes.
    pub(super) fn is_safe(&self, address: usize) -> bool {
        self.is_own_code(address) || self.calls[..self.call_count].contains(&address)
    }

    fn is_own_code(&self, address: usize) -> bool {
        self.code[..self.code_count].iter().any(|&(start, end)| (start..end).contains(&address))
    }

    /// Adds the system calls of a function: the instruction itself, to which the kernel goes back to begin it
    /// again, and the one behind it, where it has ended.
    fn add_calls_of(&mut self, function: usize) {
        let mut at = function;
        while at < function + FUNCTION_BYTES_MAX && is_within(at + machine::CALL.len() - 1, function) {
            // SAFETY: all bytes up to the last are within the function's code, which is readable.
            let bytes = unsafe { std::slice::from_raw_parts(at as *const u8, machine::CALL.len()) };
            if bytes == machine::CALL && self.call_count + 2 <= CALLS_MAX {
                self.calls[self.call_count] = at;
                self.calls[self.call_count + 1] = at + machine::CALL.len();
                self.call_count += 2;
            }
            at += machine::STEP;
        }
    }
}

/// The address of a function as the dynamic loader finds it.
fn address_of(name: &CStr) -> Option<usize> {
    // SAFETY: the name ends with a zero.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address as usize)
}

/// Whether the loader says that the address belongs to this function.
fn is_within(address: usize, function: usize) -> bool {
    // SAFETY: all zeros are null pointers.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `found` is writable; the address is only looked up.
    let known = unsafe { libc::dladdr(address as *const c_void, &raw mut found) };
    known != 0 && found.dli_saddr as usize == function
}

/// Takes the code of the first object, which is the executable, and stops.
unsafe extern "C" fn first_object(
    info: *mut libc::dl_phdr_info,
    _bytes: libc::size_t,
    data: *mut c_void,
) -> c_int {
    // SAFETY: given by `find`, which waits for this call.
    let places = unsafe { &mut *data.cast::<Places>() };
    // SAFETY: the loader's description is valid during the call.
    let info = unsafe { &*info };
    // SAFETY: as above, with as many headers.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    for header in headers {
        if header.p_type != libc::PT_LOAD || header.p_flags & libc::PF_X == 0 || places.code_count == CODE_MAX
        {
            continue;
        }
        let start = (info.dlpi_addr + header.p_vaddr) as usize;
        places.code[places.code_count] = (start, start + header.p_memsz as usize);
        places.code_count += 1;
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_code_is_safe_and_the_allocator_is_not() {
        let places = Places::find().unwrap();
        assert!(places.is_safe(machine_code as fn() as usize + 1));
        assert!(!places.is_safe(address_of(c"malloc").unwrap()));
        assert!(!places.is_safe(address_of(c"nanosleep").unwrap()), "only where it waits");
        assert!(!places.is_safe(0));
    }

    fn machine_code() {}

    #[test]
    fn the_places_where_the_c_library_waits_are_found() {
        let places = Places::find().unwrap();
        for name in [c"clock_nanosleep", c"poll", c"read", c"epoll_wait"] {
            let function = address_of(name).unwrap();
            let found = |&call: &usize| (function..function + FUNCTION_BYTES_MAX).contains(&call);
            assert!(places.calls[..places.call_count].iter().any(found), "{name:?}");
        }
        let malloc = address_of(c"malloc").unwrap();
        assert!(!places.calls.iter().any(|&call| is_within(call, malloc)));
    }
}
