//! What was opened, for programs and for people.

use std::fmt;
use std::path::PathBuf;

use rma_core::dtype::Dtype;
use rma_core::provider::{CompletionScope, Endpoint, Limits, NativeOps};
use rma_shm::ShmEndpoint;

/// The fabric that a job communicates over, and why this one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Description {
    /// The provider, as `RMA_PROVIDER` names it: `shm`, `verbs`, or one of libfabric's.
    pub provider: String,
    /// Why it was chosen.
    pub reason: String,
    /// Device or interface; for shared memory how peers get at it.
    pub domain: String,
    /// NIC, and why this one of several; `None` where no RDMA device is known.
    pub nic: Option<String>,
    /// libfabric's version and the file that was loaded; `None` where another provider was chosen.
    pub libfabric: Option<((u32, u32), PathBuf)>,
    /// Sizes and orders of the endpoint.
    pub limits: Limits,
    /// What the fabric executes on memory of the program's: of created and dynamic windows.
    pub native: NativeOps,
    /// What it executes on memory of the library's: of allocated and shared windows.
    pub native_allocated: NativeOps,
    /// Bytes of packet buffers and operation slots that the endpoint holds.
    pub memory_bytes: usize,
    /// The rest, a line each.
    pub(crate) details: String,
    /// What else there is, and why it was not taken.
    pub(crate) candidates: String,
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "chosen               {}: {}", self.provider, self.reason)?;
        write!(f, "{}", self.details)
    }
}

/// What a provider that is not libfabric's has beside its own words: a line each, as libfabric's has them.
pub(super) fn details(own: &str, endpoint: &impl Endpoint) -> String {
    let limits = endpoint.limits();
    let yes = |flag: bool| if flag { "yes" } else { "no" };
    let completion = match limits.put_completes {
        CompletionScope::Remote => "each put by itself",
        CompletionScope::Local => "flush reads back from the target",
    };
    [
        format!("provider             {own}"),
        format!(
            "order relied on      put before send {}, put before get {}",
            yes(limits.order.put_before_send),
            yes(limits.order.put_before_get)
        ),
        format!(
            "target progress      {}",
            if limits.needs_target_progress { "needed" } else { "not needed" }
        ),
        format!("remote completion    {completion}"),
        format!("native               {}", native_words(endpoint.native())),
        format!("on allocated memory  {}", native_words(endpoint.native_allocated())),
        format!(
            "limits               packet {} B, put or get {} B in {} to {} pieces, outstanding {}, receive buffers 2 x {}",
            limits.send_bytes_max,
            limits.message_bytes_max,
            limits.vector_local_max,
            limits.vector_remote_max,
            limits.outstanding_max,
            limits.receive_buffers
        ),
        format!("sleep on descriptor  {}", yes(endpoint.wait_fd().is_some())),
    ]
    .map(|line| line + "\n")
    .concat()
}

/// How memory of allocated windows is made in shared memory.
pub(super) fn memory_line(shm: &ShmEndpoint) -> String {
    format!("memory of a window   {}\n", shm.memory_description())
}

fn native_words(native: &NativeOps) -> String {
    let access = if native.put && native.get { "put, get" } else { "neither put nor get" };
    let complete: Vec<&str> =
        Dtype::ALL.iter().filter(|&&dtype| native.is_complete_for(dtype)).map(|dtype| dtype.name()).collect();
    if complete.is_empty() {
        return format!("{access}; accumulates travel as packets");
    }
    format!("{access}; all accumulates on {}", complete.join(", "))
}
