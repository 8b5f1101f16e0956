//! What went wrong, in words.

use rma_core::provider::{FabricCode, ProviderError};
use rustix::io::Errno;

/// No peer has this number.
pub(crate) const NO_PEER: FabricCode =
    FabricCode { code: libc::ENOENT, text: "no such peer on this endpoint" };
/// The peer's process has ended.
pub(crate) const ENDED: FabricCode = FabricCode { code: 0, text: "its process has ended" };
/// The peer has closed its endpoint in order.
pub(crate) const CLOSED: FabricCode = FabricCode { code: 0, text: "the peer has closed its endpoint" };
/// A packet or transfer above the limits.
pub(crate) const TOO_LONG: FabricCode =
    FabricCode { code: libc::EMSGSIZE, text: "longer than the endpoint takes" };
/// No region has the key.
pub(crate) const NO_REGION: FabricCode =
    FabricCode { code: 0, text: "the peer has no region with this key, or has it no more" };
/// A byte is outside of the region.
pub(crate) const OUT_OF_REGION: FabricCode = FabricCode { code: 0, text: "outside of the peer's region" };
/// [`rma_core::provider::NativeOps`] does not have the operation.
pub(crate) const NOT_OFFERED: FabricCode =
    FabricCode { code: libc::EOPNOTSUPP, text: "the endpoint does not offer this operation" };
/// A list of pieces that is not what the limits and the contract say.
pub(crate) const BAD_PIECES: FabricCode =
    FabricCode { code: libc::EINVAL, text: "the pieces of a vector differ at both sides, or are too many" };
/// Shared memory holds what no endpoint of this library writes.
pub(crate) const NONSENSE: FabricCode =
    FabricCode { code: libc::EPROTO, text: "the peer wrote nonsense to the shared memory" };
/// The file behind a region is not there, or is not what the peer's table says.
pub(crate) const NO_FILE: FabricCode =
    FabricCode { code: libc::ESTALE, text: "the memory of the peer's region cannot be mapped" };

/// The code for an error number of the kernel's.
#[cold]
#[inline(never)]
pub(crate) fn errno_code(code: i32) -> FabricCode {
    let text = match code {
        libc::EPERM => "the kernel does not let this process access the peer's memory",
        libc::EFAULT => "the memory at one of the sides is not mapped",
        libc::ENOMEM => "out of memory",
        libc::ESRCH => return ENDED,
        _ => "the kernel refused to copy between the processes",
    };
    FabricCode { code, text }
}

/// A call that failed while something was opened; `what` names the call and its object.
#[cold]
pub(crate) fn call_failed(what: &str, error: Errno) -> ProviderError {
    let remedy = match error {
        Errno::MFILE => "; raise the limit on open files (ulimit -n)",
        Errno::NOMEM => "; there is no memory, or this process has too many mappings (vm.max_map_count)",
        Errno::ACCESS | Errno::PERM => {
            "; ranks of one host must belong to one user, and may not have made themselves undumpable"
        }
        _ => "",
    };
    ProviderError { message: format!("{what}: {error}{remedy}") }
}

#[cold]
pub(crate) fn refused(message: impl Into<String>) -> ProviderError {
    ProviderError { message: message.into() }
}
