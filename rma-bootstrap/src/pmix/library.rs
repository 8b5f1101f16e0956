//! Finding and opening the PMIx library, and its functions behind safe calls.

use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::sync::OnceLock;
use std::{mem, ptr};

use super::abi::{self, Info, Proc, Value};
use super::answers;

/// The name that the dynamic loader looks for.
const SONAME: &CStr = c"libpmix.so.2";

/// The oldest major version whose data types are those of [`abi`].
const MAJOR_MIN: u32 = 3;

/// The functions of the library, which is never unloaded: it starts a thread.
#[derive(Debug)]
pub(super) struct Library {
    init: abi::Init,
    finalize: abi::Finalize,
    abort: abi::Abort,
    put: abi::Put,
    commit: abi::Commit,
    get: abi::Get,
    fence: abi::Fence,
    error_string: abi::ErrorString,
    version: String,
}

/// A wish that nobody changes.
struct Wish(Info);

// SAFETY: it has no pointers but null ones, so any thread may have it.
unsafe impl Send for Wish {}

// SAFETY: it is only read.
unsafe impl Sync for Wish {}

/// What a call that is answered later said at once.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Started {
    /// The answer follows.
    Waiting,
    /// Done, and no answer follows.
    Done,
}

impl Library {
    /// Opens `path`, or what the dynamic loader finds as `libpmix.so.2`.
    ///
    /// # Errors
    /// When there is none, or it is no PMIx of a version that can be used.
    pub(super) fn open(path: Option<&str>) -> Result<Self, String> {
        let file = match path {
            None => SONAME.to_owned(),
            // With a slash in it the loader takes the name as a path instead of searching for it.
            Some(path) => {
                CString::new(if path.contains('/') { path.to_owned() } else { format!("./{path}") })
                    .map_err(|_| "RMA_PMIX has a zero byte in it".to_owned())?
            }
        };
        let name = file.to_string_lossy();
        let handle = load(&file).map_err(|reason| {
            format!(
                "the PMIx library could not be loaded ({name}: {reason}); install it (Debian: apt install libpmix2), \
                 or set RMA_PMIX to the path of the one that the launcher uses"
            )
        })?;
        let symbol = |symbol: &CStr| {
            // SAFETY: `handle` came from dlopen and the name is terminated.
            let address = unsafe { libc::dlsym(handle, symbol.as_ptr()) };
            if address.is_null() {
                return Err(format!("{name} has no {}, so it is no PMIx library", symbol.to_string_lossy()));
            }
            Ok(address)
        };
        let get_version = symbol(c"PMIx_Get_version")?;
        // SAFETY: the symbol's name fixes the signature, which the PMIx standard gives.
        let get_version = unsafe { mem::transmute::<*mut c_void, abi::GetVersion>(get_version) };
        // SAFETY: takes nothing, may be called before PMIx_Init, and returns a string that stays.
        let version = text(unsafe { get_version() });
        // Before any function of which older versions have another signature is as much as looked up.
        if major_version(&version).is_none_or(|major| major < MAJOR_MIN) {
            return Err(format!(
                "{name} is '{version}', but PMIx {MAJOR_MIN} or later is needed; set RMA_PMIX to the path of one"
            ));
        }
        Ok(Self {
            // SAFETY: as above.
            init: unsafe { mem::transmute::<*mut c_void, abi::Init>(symbol(c"PMIx_Init")?) },
            // SAFETY: as above.
            finalize: unsafe { mem::transmute::<*mut c_void, abi::Finalize>(symbol(c"PMIx_Finalize")?) },
            // SAFETY: as above.
            abort: unsafe { mem::transmute::<*mut c_void, abi::Abort>(symbol(c"PMIx_Abort")?) },
            // SAFETY: as above.
            put: unsafe { mem::transmute::<*mut c_void, abi::Put>(symbol(c"PMIx_Put")?) },
            // SAFETY: as above.
            commit: unsafe { mem::transmute::<*mut c_void, abi::Commit>(symbol(c"PMIx_Commit")?) },
            // SAFETY: as above.
            get: unsafe { mem::transmute::<*mut c_void, abi::Get>(symbol(c"PMIx_Get_nb")?) },
            // SAFETY: as above.
            fence: unsafe { mem::transmute::<*mut c_void, abi::Fence>(symbol(c"PMIx_Fence_nb")?) },
            // SAFETY: as above.
            error_string: unsafe {
                mem::transmute::<*mut c_void, abi::ErrorString>(symbol(c"PMIx_Error_string")?)
            },
            version,
        })
    }

    /// What the library says about its version.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Joins the job: who this process is.
    pub(super) fn init(&self) -> Result<Proc, String> {
        let mut me = Proc { namespace: [0; abi::NAMESPACE_BYTES], rank: 0 };
        // SAFETY: `me` is a pmix_proc_t that may be written, and there is no info.
        let status = unsafe { (self.init)(&mut me, ptr::null(), 0) };
        self.check("PMIx_Init", status).map(|_| me)
    }

    /// Leaves the job.
    pub(super) fn finalize(&self) -> Result<(), String> {
        // SAFETY: the process has joined, and there is no info.
        let status = unsafe { (self.finalize)(ptr::null(), 0) };
        self.check("PMIx_Finalize", status).map(drop)
    }

    /// Has the whole job ended with `code`.
    pub(super) fn abort(&self, code: i32, message: &CStr) -> Result<(), String> {
        // SAFETY: the message is terminated; no array of ranks means all of the job.
        let status = unsafe { (self.abort)(code, message.as_ptr(), ptr::null(), 0) };
        self.check("PMIx_Abort", status).map(drop)
    }

    /// Puts a value for all ranks; it leaves with the next [`Library::commit`].
    pub(super) fn put(&self, key: &CStr, value: &[u8]) -> Result<(), String> {
        let value = Value::of_bytes(value);
        // SAFETY: key and value are read during the call only.
        let status = unsafe { (self.put)(abi::SCOPE_GLOBAL, key.as_ptr(), &value) };
        self.check("PMIx_Put", status).map(drop)
    }

    /// Sends what was put to the server.
    pub(super) fn commit(&self) -> Result<(), String> {
        // SAFETY: the process has joined.
        let status = unsafe { (self.commit)() };
        self.check("PMIx_Commit", status).map(drop)
    }

    /// Asks for a value of a rank or a job; the answer comes under `number`, and if `at_once`, from what the
    /// server of this host has now. The library looks at the key when this call is over, in its own thread.
    pub(super) fn get(
        &self,
        of: &Proc,
        key: &'static CStr,
        number: u32,
        at_once: bool,
    ) -> Result<Started, String> {
        // The library may look at it until it answers, so it lives as long as the program.
        static IMMEDIATE: OnceLock<Wish> = OnceLock::new();
        let immediate = || ptr::from_ref(&IMMEDIATE.get_or_init(|| Wish(Info::immediate())).0);
        let (wishes, count) = if at_once { (immediate(), 1) } else { (ptr::null(), 0) };
        let context = answers::context(number);
        // SAFETY: the rank is copied by the call, and the key stays; the callback takes any number, and no pointer.
        let status = unsafe { (self.get)(of, key.as_ptr(), wishes, count, answers::on_value, context) };
        self.check("PMIx_Get_nb", status)
    }

    /// Enters a barrier of all ranks; its end comes under `number`.
    pub(super) fn fence(&self, number: u32) -> Result<Started, String> {
        let context = answers::context(number);
        // SAFETY: no array of ranks means all of the job; the callback takes any number, and no pointer.
        let status = unsafe { (self.fence)(ptr::null(), 0, ptr::null(), 0, answers::on_done, context) };
        self.check("PMIx_Fence_nb", status)
    }

    /// The library's text for a status.
    pub(super) fn describe(&self, status: c_int) -> String {
        // SAFETY: takes a number and returns a string that stays.
        format!("{} ({status})", text(unsafe { (self.error_string)(status) }))
    }

    fn check(&self, call: &str, status: c_int) -> Result<Started, String> {
        match status {
            abi::SUCCESS => Ok(Started::Waiting),
            abi::OPERATION_SUCCEEDED => Ok(Started::Done),
            _ => Err(format!("{call}: {}", self.describe(status))),
        }
    }
}

/// The name of the job in `proc`.
pub(super) fn namespace(proc: &Proc) -> &str {
    let end = proc.namespace.iter().position(|byte| *byte == 0).unwrap_or(proc.namespace.len());
    std::str::from_utf8(&proc.namespace[..end]).unwrap_or_default()
}

/// The number in front of the first point of a text such as `OpenPMIx 4.2.2 (PMIx Standard: 4.2)`.
pub(super) fn major_version(text: &str) -> Option<u32> {
    let digits = text.split('.').next()?.rsplit(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

fn load(file: &CStr) -> Result<*mut c_void, String> {
    // The library's plug-ins look for its symbols among the global ones.
    let flags = libc::RTLD_NOW | libc::RTLD_GLOBAL;
    // SAFETY: loading runs the library's initializers, which may run at any time. The name is terminated.
    let handle = unsafe { libc::dlopen(file.as_ptr(), flags) };
    if !handle.is_null() {
        return Ok(handle);
    }
    // SAFETY: no other dl call of this thread came between.
    Err(text(unsafe { libc::dlerror() }))
}

/// A text of the library or the loader, which stays at least until the thread's next call.
fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return "no reason given".to_owned();
    }
    // SAFETY: not null, and terminated, as all strings that PMIx and the loader return.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_an_error_that_names_it_and_the_remedy() {
        let error = Library::open(Some("/nonexistent/libpmix.so.2")).unwrap_err();
        for part in ["/nonexistent/libpmix.so.2", "apt install libpmix2", "RMA_PMIX"] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_library_that_is_not_pmix_is_refused() {
        let error = Library::open(Some("/lib/x86_64-linux-gnu/libc.so.6")).unwrap_err();
        assert!(error.contains("PMIx_Get_version"), "{error}");
    }

    #[test]
    fn versions() {
        for (text, major) in [
            ("OpenPMIx 4.2.2rc2 (PMIx Standard: 4.2, Stable ABI: 0.0)", Some(4)),
            ("PMIx 3.2.3", Some(3)),
            ("OpenPMIx 10.0.0", Some(10)),
            ("3.1", Some(3)),
            ("PMIx", None),
            ("", None),
        ] {
            assert_eq!(major_version(text), major, "{text}");
        }
    }
}
