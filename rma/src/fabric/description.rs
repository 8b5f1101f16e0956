//! What was opened, for programs and for people.

use std::fmt;
use std::path::PathBuf;

use rma_core::dtype::Dtype;
use rma_core::info::LockProtocol;
use rma_core::op::ReduceOp;
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
    let accumulates = if complete.is_empty() {
        "accumulates travel as packets".to_owned()
    } else {
        format!("all accumulates on {}", complete.join(", "))
    };
    let partial = partial_words(native);
    format!("{access}; {accumulates}{}{partial}", if partial.is_empty() { "" } else { "; " })
}

/// What is executed on types of which not everything is: windows use it where they need no other operation, and locks are
/// made of it.
fn partial_words(native: &NativeOps) -> String {
    let mut kinds: Vec<(String, Vec<&str>)> = Vec::new();
    for &dtype in Dtype::ALL.iter().filter(|&&dtype| !native.is_complete_for(dtype)) {
        let fetched = ReduceOp::ALL.iter().filter(|&&op| NativeOps::has(&native.fetch_atomic, dtype, op));
        let mut words: Vec<String> = fetched
            .map(|&op| match op {
                ReduceOp::Sum => "fetch-add".to_owned(),
                ReduceOp::NoOp => "atomic get".to_owned(),
                other => format!("fetch-{}", other.name()),
            })
            .collect();
        if native.compare_atomic & 1 << dtype as u32 != 0 {
            words.push("compare-and-swap".to_owned());
        }
        if words.is_empty() {
            continue;
        }
        let words = words.join(", ");
        match kinds.iter_mut().find(|(other, _)| *other == words) {
            Some((_, names)) => names.push(dtype.name()),
            None => kinds.push((words, vec![dtype.name()])),
        }
    }
    let said = |(words, names): (String, Vec<&str>)| format!("{words} on {}", names.join(", "));
    kinds.into_iter().map(said).collect::<Vec<_>>().join("; ")
}

/// What to say where windows are to be locked by atomics, and the fabric has none for that, neither towards all ranks nor
/// towards neighbours.
pub(crate) fn no_lock_atomics(protocol: LockProtocol, natives: [&NativeOps; 2]) -> Option<&'static str> {
    let (dtype, op) = (Dtype::U64, ReduceOp::Sum);
    let has = |native: &NativeOps| {
        NativeOps::has(&native.fetch_atomic, dtype, op) && native.compare_atomic & 1 << dtype as u32 != 0
    };
    let is_missing = protocol == LockProtocol::Nic && !natives.into_iter().any(has);
    is_missing.then_some(
        "RMA_LOCK_PROTOCOL=nic: this fabric executes no atomics, so windows are locked by message; a network that has \
         some executes them with RMA_NATIVE_ATOMICS=1",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn atomics_that_are_not_for_everything_are_named_and_missed() {
        let mut native = NativeOps { put: true, get: true, ..NativeOps::default() };
        assert_eq!(native_words(&native), "put, get; accumulates travel as packets");
        for dtype in [Dtype::I64, Dtype::U64] {
            native.fetch_atomic[dtype as usize] = 1 << ReduceOp::Sum as u16 | 1 << ReduceOp::NoOp as u16;
            native.compare_atomic |= 1 << dtype as u32;
        }
        let said = native_words(&native);
        assert!(said.starts_with("put, get; accumulates travel as packets; fetch-add, "), "{said}");
        assert!(said.contains("compare-and-swap on ") && said.contains("64"), "{said}");
        let none = NativeOps::default();
        assert_eq!(no_lock_atomics(LockProtocol::Nic, [&none, &native]), None);
        assert_eq!(no_lock_atomics(LockProtocol::Auto, [&none, &none]), None);
        let warning = no_lock_atomics(LockProtocol::Nic, [&none, &none]).unwrap();
        assert!(warning.contains("RMA_LOCK_PROTOCOL=nic") && warning.contains("by message"));
    }
}
