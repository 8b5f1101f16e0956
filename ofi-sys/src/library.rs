//! Finding and opening the shared library.

use core::ffi::{c_char, c_int, c_void, CStr};
use core::{fmt, mem, ptr};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::bindings::{fi_info, fi_type, fid_fabric};
use crate::signals::keeping_handlers;

/// The name that the dynamic loader looks for.
const SONAME: &CStr = c"libfabric.so.1";

/// Room for the text of a value; all bits of one take some 600 bytes.
const DESCRIPTION_BYTES_MAX: usize = 1024;

/// The symbols that are real functions, with the layouts of the 1.17 headers.
///
/// The library is never unloaded: providers start threads and install handlers that outlive any
/// object of ours.
#[derive(Clone, Debug)]
pub struct Library {
    /// `fi_getinfo`
    pub getinfo: unsafe extern "C" fn(
        version: u32,
        node: *const c_char,
        service: *const c_char,
        flags: u64,
        hints: *const fi_info,
        info: *mut *mut fi_info,
    ) -> c_int,
    /// `fi_freeinfo`
    pub freeinfo: unsafe extern "C" fn(info: *mut fi_info),
    /// `fi_dupinfo`
    pub dupinfo: unsafe extern "C" fn(info: *const fi_info) -> *mut fi_info,
    /// `fi_fabric`
    pub fabric: unsafe extern "C" fn(
        attr: *mut crate::bindings::fi_fabric_attr,
        fabric: *mut *mut fid_fabric,
        context: *mut c_void,
    ) -> c_int,
    version: unsafe extern "C" fn() -> u32,
    tostr_r: unsafe extern "C" fn(
        text: *mut c_char,
        text_bytes: usize,
        data: *const c_void,
        datatype: fi_type,
    ) -> *mut c_char,
    path: PathBuf,
}

/// The library could not be opened, or is not one that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibraryError {
    /// What was tried, what the loader said to each, and the remedy.
    pub message: String,
}

impl fmt::Display for LibraryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for LibraryError {}

impl Library {
    /// Opens `path` (the library itself, or a directory that holds it), or what the dynamic loader
    /// finds as `libfabric.so.1`.
    ///
    /// # Errors
    /// When there is none, or it is older than 1.17; the message says what was tried and the remedy.
    pub fn open(path: Option<&Path>) -> Result<Self, LibraryError> {
        let mut tried = String::new();
        for candidate in candidates(path) {
            match load(&candidate) {
                Ok(handle) => return Self::resolve(handle, &candidate),
                Err(reason) => {
                    tried += &format!("\n  {}: {reason}", candidate.to_string_lossy());
                }
            }
        }
        Err(LibraryError {
            message: format!(
                "libfabric could not be loaded. Tried:{tried}\nInstall it (Debian: apt install libfabric1), \
                 or set RMA_LIBFABRIC to the path of libfabric.so.1 or of its directory"
            ),
        })
    }

    /// `fi_version()`: the interface version of the loaded library as (major, minor).
    pub fn version(&self) -> (u32, u32) {
        // SAFETY: takes nothing and returns a number; the library stays loaded.
        let packed = unsafe { (self.version)() };
        (packed >> 16, packed & 0xffff)
    }

    /// The file that was loaded.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `fi_tostr_r`: libfabric's own text for a value, such as the bits of `FI_TYPE_MSG_ORDER`. `fi_tostr` has
    /// one buffer for all threads.
    pub fn describe(&self, value: &u64, kind: fi_type) -> String {
        let data: *const u64 = value;
        let mut text = [0u8; DESCRIPTION_BYTES_MAX];
        // SAFETY: `data` points to 8 readable bytes, the widest value that fi_tostr_r reads for the
        // kinds that are numbers, and of `text` it writes no more than it is told that there are.
        let written = unsafe { (self.tostr_r)(text.as_mut_ptr().cast(), text.len(), data.cast(), kind) };
        match CStr::from_bytes_until_nul(&text) {
            Ok(text) if !written.is_null() => text.to_string_lossy().into_owned(),
            _ => String::new(),
        }
    }

    fn resolve(handle: *mut c_void, file: &CStr) -> Result<Self, LibraryError> {
        let symbol = |name: &CStr, version: &CStr| {
            // SAFETY: `handle` came from dlopen and both strings are terminated.
            let address = unsafe { libc::dlvsym(handle, name.as_ptr(), version.as_ptr()) };
            if address.is_null() {
                Err(LibraryError {
                    message: format!(
                        "{} has no {}@{}, so it is not libfabric 1.17 or later; set RMA_LIBFABRIC to one that is",
                        file.to_string_lossy(),
                        name.to_string_lossy(),
                        version.to_string_lossy()
                    ),
                })
            } else {
                Ok(address)
            }
        };
        let getinfo = symbol(c"fi_getinfo", c"FABRIC_1.3")?;
        let freeinfo = symbol(c"fi_freeinfo", c"FABRIC_1.3")?;
        let dupinfo = symbol(c"fi_dupinfo", c"FABRIC_1.3")?;
        let fabric = symbol(c"fi_fabric", c"FABRIC_1.1")?;
        let version = symbol(c"fi_version", c"FABRIC_1.0")?;
        let tostr_r = symbol(c"fi_tostr_r", c"FABRIC_1.4")?;
        let library = Self {
            // SAFETY: the symbol version fixes the signature, which is that of the 1.17 headers.
            getinfo: unsafe { mem::transmute::<*mut c_void, GetInfo>(getinfo) },
            // SAFETY: as above.
            freeinfo: unsafe { mem::transmute::<*mut c_void, FreeInfo>(freeinfo) },
            // SAFETY: as above.
            dupinfo: unsafe { mem::transmute::<*mut c_void, DupInfo>(dupinfo) },
            // SAFETY: as above.
            fabric: unsafe { mem::transmute::<*mut c_void, OpenFabric>(fabric) },
            // SAFETY: as above.
            version: unsafe { mem::transmute::<*mut c_void, Version>(version) },
            // SAFETY: as above.
            tostr_r: unsafe { mem::transmute::<*mut c_void, ToStr>(tostr_r) },
            path: file_of(getinfo).unwrap_or_else(|| PathBuf::from(file.to_string_lossy().into_owned())),
        };
        let (major, minor) = library.version();
        if (major, minor) < (1, 17) {
            return Err(LibraryError {
                message: format!(
                    "{} is libfabric {major}.{minor}, but 1.17 or later is needed; install a newer one, or set \
                     RMA_LIBFABRIC to its path",
                    library.path.display()
                ),
            });
        }
        Ok(library)
    }
}

type GetInfo =
    unsafe extern "C" fn(u32, *const c_char, *const c_char, u64, *const fi_info, *mut *mut fi_info) -> c_int;
type FreeInfo = unsafe extern "C" fn(*mut fi_info);
type DupInfo = unsafe extern "C" fn(*const fi_info) -> *mut fi_info;
type OpenFabric =
    unsafe extern "C" fn(*mut crate::bindings::fi_fabric_attr, *mut *mut fid_fabric, *mut c_void) -> c_int;
type Version = unsafe extern "C" fn() -> u32;
type ToStr = unsafe extern "C" fn(*mut c_char, usize, *const c_void, fi_type) -> *mut c_char;

/// What to try, in order. A path with a zero byte inside names no file and gives nothing to try.
fn candidates(path: Option<&Path>) -> Vec<CString> {
    let to_c = |path: &Path| CString::new(path.as_os_str().as_bytes()).ok();
    match path {
        None => vec![SONAME.to_owned()],
        Some(path) if path.is_dir() => {
            ["libfabric.so.1", "libfabric.so"].iter().filter_map(|name| to_c(&path.join(name))).collect()
        }
        // With a slash in it the loader takes the name as a path instead of searching for it.
        Some(path) if path.components().count() == 1 => {
            to_c(&Path::new(".").join(path)).into_iter().collect()
        }
        Some(path) => to_c(path).into_iter().collect(),
    }
}

fn load(file: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: loading runs the library's initializers; libfabric's may run at any time. The name is
    // terminated.
    let handle =
        keeping_handlers(|| unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) });
    if !handle.is_null() {
        return Ok(handle);
    }
    // SAFETY: no other dl call of this thread came between.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return Err("the loader gave no reason".to_owned());
    }
    // SAFETY: dlerror returns a terminated string, valid until the thread's next dl call.
    Err(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// The file that holds `address`.
fn file_of(address: *mut c_void) -> Option<PathBuf> {
    let mut info = libc::Dl_info {
        dli_fname: ptr::null(),
        dli_fbase: ptr::null_mut(),
        dli_sname: ptr::null(),
        dli_saddr: ptr::null_mut(),
    };
    // SAFETY: dladdr only looks `address` up and fills `info`.
    let found = unsafe { libc::dladdr(address, &mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: a name that dladdr gives is terminated and lives as long as the library.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(name.to_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_an_error_that_names_it_and_the_remedy() {
        let error = Library::open(Some(Path::new("/nonexistent/libfabric.so.1"))).unwrap_err();
        assert!(error.message.contains("/nonexistent/libfabric.so.1"), "{error}");
        assert!(error.message.contains("apt install libfabric1"), "{error}");
        assert!(error.message.contains("RMA_LIBFABRIC"), "{error}");
    }

    #[test]
    fn a_library_that_is_not_libfabric_is_refused() {
        let error = Library::open(Some(Path::new("/lib/x86_64-linux-gnu/libc.so.6"))).unwrap_err();
        assert!(error.message.contains("fi_getinfo@FABRIC_1.3"), "{error}");
    }

    #[test]
    fn a_directory_stands_for_the_library_in_it() {
        let names = candidates(Some(Path::new("/usr/lib")));
        assert_eq!(names[0].as_c_str(), c"/usr/lib/libfabric.so.1");
    }

    #[test]
    fn the_systems_library_says_its_version() {
        let library = Library::open(None).unwrap();
        assert!(library.version() >= (1, 17));
        assert!(library.path().is_absolute(), "{}", library.path().display());
    }
}
