//! What went wrong, in words: error numbers of calls, and the status of work completions.

use core::ffi::c_uint;

use rma_core::provider::{FabricCode, ProviderError};

/// The code for an error number of the operating system's, as the calls return it.
#[cold]
#[inline(never)]
pub(crate) fn errno_code(code: i32) -> FabricCode {
    let text = match code {
        libc::EPERM => "operation not permitted",
        libc::ENOENT => "no such peer",
        libc::ENOMEM => "out of memory, or over the limit on locked memory (see ulimit -l)",
        libc::EFAULT => "bad address",
        libc::EINVAL => "invalid argument",
        libc::EMSGSIZE => "message longer than the endpoint takes",
        libc::EOPNOTSUPP => "not supported by this device",
        libc::ESHUTDOWN => "endpoint shut down",
        libc::ENODEV => "the device broke, or was taken away",
        libc::ENETDOWN => "the device's port is down",
        libc::ENOTRECOVERABLE => "a queue of the device broke",
        libc::ECONNABORTED => "the device broke the connection to the peer",
        _ => "the device refused",
    };
    FabricCode { code, text }
}

/// Why a connection cannot be made, where the device or the peer said no. It has no number, as one would be taken for a sign
/// that the peer has ended.
#[cold]
#[inline(never)]
pub(crate) fn refusal(code: i32) -> FabricCode {
    let text = match code {
        libc::ECONNREFUSED => {
            "the peer refused the connection: it could not make its half, or has given this process up"
        }
        libc::ENETUNREACH => "the device finds no way to the peer: the network is unreachable",
        libc::EHOSTUNREACH => "the device finds no way to the peer: its host is unreachable",
        libc::ENETDOWN => "the device finds no way to the peer: the network is down",
        libc::ETIMEDOUT | libc::EDESTADDRREQ => {
            "the device finds no way to the peer: nobody says where its address is"
        }
        libc::ENOMEM => "the device makes no more queue pairs: out of memory, or as many as it can have",
        libc::EAGAIN | libc::EBUSY => "the device makes no queue pair now, nor did it for long",
        libc::EINVAL => "the device refused the way to the peer, or the queue pair for it, as invalid",
        libc::EOPNOTSUPP => "the device does not support such a connection",
        _ => "the device refused the connection to the peer",
    };
    FabricCode { code: 0, text }
}

/// The code for a work completion: the status, and above its 8 bits what the vendor adds.
#[cold]
#[inline(never)]
pub(crate) fn status_code(status: c_uint, vendor: u32) -> FabricCode {
    let text = match status {
        1 => "local length error",
        2 => "local queue pair error: the device cannot send, as when its port is down",
        4 => "local protection error: the operation's own memory is not registered",
        5 => "flushed: the connection to the peer broke",
        7 => "unexpected response from the peer",
        8 => "local access error",
        9 => "the peer refused the request as invalid",
        10 => "access to remote memory denied (key, range or right)",
        11 => "error at the peer",
        12 => "no answer from the peer: it has ended, or the network is down",
        13 => "the peer takes no packets",
        21 => "response timed out",
        _ => "work completion with an error",
    };
    FabricCode { code: (vendor << 8 | status & 0xff) as i32, text }
}

/// What the last call of this thread left in `errno`.
pub(crate) fn last_errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// A call that failed, as an error of opening.
#[cold]
pub(crate) fn call_failed(call: &str, object: &str, code: i32) -> ProviderError {
    let code = errno_code(code);
    let mut message = format!("{call} failed for {object}: {code}");
    if code.code == libc::ENOMEM {
        message += &locked_memory_remedy();
    }
    ProviderError { message }
}

/// The same for memory registration, where the usual cause is the limit on locked memory.
#[cold]
pub(crate) fn registration_failed(len: usize, code: i32) -> ProviderError {
    call_failed("ibv_reg_mr", &format!("{len} bytes"), code)
}

fn locked_memory_remedy() -> String {
    let limit = match locked_memory_limit() {
        Some(bytes) => format!("{} KiB", bytes / 1024),
        None => "unlimited".to_owned(),
    };
    format!(
        ". What devices access must fit into the limit on locked memory: `ulimit -l` is {limit} here. Raise it \
         (`ulimit -l unlimited` in the shell, memlock in /etc/security/limits.conf, or LimitMEMLOCK= of the \
         service), or make the window smaller"
    )
}

/// Bytes that this process may lock; `None` when there is no limit.
fn locked_memory_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: getrlimit fills the structure that it is given.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) };
    (result == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locked_memory_limit_too_small_names_limit_and_remedy() {
        let message = registration_failed(3 << 20, libc::ENOMEM).message;
        for part in ["ibv_reg_mr", "3145728 bytes", "ulimit -l", "limits.conf"] {
            assert!(message.contains(part), "{part} missing in: {message}");
        }
        assert!(!registration_failed(1, libc::EINVAL).message.contains("limits.conf"));
    }

    #[test]
    fn a_work_completion_keeps_status_and_vendor_code() {
        let code = status_code(12, 0x81);
        assert_eq!(code.code, 0x810c);
        assert!(code.text.contains("no answer"));
    }
}
