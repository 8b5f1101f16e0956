//! libfabric's error numbers as values of the provider interface.

use std::fmt;
use std::io::{self, Write};

use ofi_sys as fi;
use rma_core::provider::{FabricCode, ProviderError};

/// The code for a positive `FI_E*` number. The texts are ours, so that they live for ever and are the
/// same for every version of the library.
#[cold]
#[inline(never)]
pub(crate) fn fabric_code(code: i32) -> FabricCode {
    let text = match code {
        fi::FI_EPERM => "operation not permitted",
        fi::FI_ENOENT => "no such peer or object",
        fi::FI_EIO => "input/output error",
        fi::FI_EAGAIN => "no resources now",
        fi::FI_ENOMEM => "out of memory or over a memory limit",
        fi::FI_EACCES => "access to remote memory denied (key, range or right)",
        fi::FI_EFAULT => "bad address",
        fi::FI_EBUSY => "device or resource busy",
        fi::FI_ENODEV => "no such device",
        fi::FI_EINVAL => "invalid argument",
        fi::FI_EMFILE => "too many open files (see ulimit -n)",
        fi::FI_ENOSPC => "no space left",
        fi::FI_ENOSYS => "not implemented by this provider",
        fi::FI_ENODATA => "no matching provider",
        fi::FI_EMSGSIZE => "message longer than the endpoint takes",
        fi::FI_EOPNOTSUPP => "not supported by this provider",
        fi::FI_EADDRINUSE => "address in use",
        fi::FI_EADDRNOTAVAIL => "address not available on this host; is RMA_INTERFACE one of its addresses?",
        fi::FI_ENETDOWN => "network is down",
        fi::FI_ENETUNREACH => {
            "network is unreachable; does RMA_INTERFACE name an interface by which hosts reach each other?"
        }
        fi::FI_ECONNABORTED => "connection aborted",
        fi::FI_ECONNRESET => "connection reset by the peer",
        fi::FI_EISCONN => "already connected",
        fi::FI_ENOTCONN => "not connected: the peer is gone",
        fi::FI_ESHUTDOWN => "endpoint shut down",
        fi::FI_ETIMEDOUT => "timed out",
        fi::FI_ECONNREFUSED => "connection refused: nobody listens at the peer's address",
        fi::FI_EHOSTDOWN => "host is down",
        fi::FI_EHOSTUNREACH => {
            "no route to host; does RMA_INTERFACE name an interface by which hosts reach each other?"
        }
        fi::FI_EREMOTEIO => "error at the peer",
        fi::FI_ECANCELED => "canceled: the connection to the peer broke",
        fi::FI_EKEYREJECTED => "key rejected by the peer",
        fi::FI_EOTHER => "unspecified error",
        fi::FI_ETOOSMALL => "buffer too small",
        fi::FI_EAVAIL => "error available",
        fi::FI_ENOCQ => "no completion queue bound",
        fi::FI_ECRC => "checksum error",
        fi::FI_ETRUNC => "message truncated",
        fi::FI_ENOKEY => "key not available or in use",
        fi::FI_ENOAV => "no address vector bound",
        fi::FI_EOVERRUN => "completion queue overrun",
        fi::FI_ENORX => "receiver not ready",
        _ => "unknown libfabric error",
    };
    FabricCode { code, text }
}

/// The code for a buffer of the program's that could not be registered.
#[cold]
pub(crate) fn unregistered_code(code: i32) -> FabricCode {
    let text = match code {
        fi::FI_ENOMEM | fi::FI_EPERM => {
            "the program's buffer cannot be registered: over the limit on locked memory (see ulimit -l)"
        }
        fi::FI_EFAULT => {
            "the program's buffer cannot be registered: it is not mapped, or cannot be written; for constants set \
             FI_MR_CACHE_MONITOR=disabled"
        }
        fi::FI_ENOKEY => "the program's buffer cannot be registered: the key is in use",
        _ => "the program's buffer cannot be registered",
    };
    FabricCode { code, text }
}

/// Whether an operation that failed with this number says that its peer cannot be reached any more,
/// and not only that this one operation was wrong.
pub(crate) fn is_peer_loss(code: i32) -> bool {
    matches!(
        code,
        fi::FI_EIO
            | fi::FI_ENOENT
            | fi::FI_ENETDOWN
            | fi::FI_ENETUNREACH
            | fi::FI_ECONNABORTED
            | fi::FI_ECONNRESET
            | fi::FI_ENOTCONN
            | fi::FI_ESHUTDOWN
            | fi::FI_ETIMEDOUT
            | fi::FI_ECONNREFUSED
            | fi::FI_EHOSTDOWN
            | fi::FI_EHOSTUNREACH
            | fi::FI_ECANCELED
    )
}

/// A call that failed with `-code`, as an error of opening.
#[cold]
pub(crate) fn call_failed(call: &str, object: &str, code: i32) -> ProviderError {
    let code = fabric_code(code.abs());
    ProviderError {
        message: format!("{call} failed for {object}: {code}; `rma-bench info` shows what libfabric offers"),
    }
}

/// The same for memory registration, where the usual cause is the limit on locked memory.
#[cold]
pub(crate) fn registration_failed(len: usize, code: i32) -> ProviderError {
    let reason = fabric_code(code.abs());
    let mut message = format!("fi_mr_reg of {len} bytes failed: {reason}");
    if matches!(reason.code, fi::FI_ENOMEM | fi::FI_EPERM) {
        let limit = match locked_memory_limit() {
            Some(bytes) => format!("{} KiB", bytes / 1024),
            None => "unlimited".to_owned(),
        };
        message += &format!(
            ". Registered memory must fit into the limit on locked memory: `ulimit -l` is {limit} here and the \
             region needs {} KiB. Raise it (`ulimit -l unlimited` in the shell, memlock in \
             /etc/security/limits.conf, or LimitMEMLOCK= of the service), or make the window smaller",
            len.div_ceil(1024)
        );
    } else if reason.code == fi::FI_ENOKEY {
        message += ". The key is in use by another region of this process";
    }
    ProviderError { message }
}

/// Bytes that this process may lock; `None` when there is no limit.
fn locked_memory_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: getrlimit fills the structure that it is given.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) };
    (result == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// A line on standard error, for people. Nobody may be there to read it, which is no reason to panic.
pub(crate) fn say(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "rma-ofi: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locked_memory_limit_too_small_names_limit_size_and_remedy() {
        for code in [-fi::FI_ENOMEM, -fi::FI_EPERM] {
            let message = registration_failed(3 << 20, code).message;
            for part in ["fi_mr_reg", "3145728 bytes", "ulimit -l", "3072 KiB", "limits.conf"] {
                assert!(message.contains(part), "{part} missing in: {message}");
            }
        }
        assert!(!registration_failed(1, -fi::FI_EINVAL).message.contains("ulimit"));
    }

    #[test]
    fn codes_keep_their_number_and_have_a_text() {
        let code = fabric_code(fi::FI_ECONNRESET);
        assert_eq!((code.code, code.text), (104, "connection reset by the peer"));
        assert_eq!(fabric_code(9999).text, "unknown libfabric error");
    }

    #[test]
    fn a_wrong_key_does_not_condemn_the_peer() {
        assert!(is_peer_loss(fi::FI_ECANCELED));
        assert!(!is_peer_loss(fi::FI_EACCES));
        assert!(!is_peer_loss(fi::FI_EINVAL));
    }
}
