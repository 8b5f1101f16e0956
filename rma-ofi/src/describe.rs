//! What an endpoint is, for people.

use std::fmt;
use std::path::PathBuf;

use ofi_sys as fi;
use rma_core::dtype::Dtype;
use rma_core::provider::{Limits, NativeOps};

use crate::discover::Choice;
use crate::endpoint::Claims;
use crate::profile::RemoteCompletion;

/// What was opened: libfabric's claims as they were returned, and what is made of them.
#[derive(Clone, Debug)]
pub struct Description {
    /// Provider, full name.
    pub provider: String,
    /// Fabric, such as a network.
    pub fabric: String,
    /// Domain, such as an interface.
    pub domain: String,
    /// NIC, and why this one of several; `None` where no RDMA device is known.
    pub nic: Option<String>,
    /// Address that the endpoint is bound to.
    pub address: String,
    /// Version of the loaded library's interface.
    pub library_version: (u32, u32),
    /// File that was loaded.
    pub library_path: PathBuf,
    /// Orders that the provider claims, in libfabric's words.
    pub message_order: String,
    /// Registration modes that it demands, in libfabric's words.
    pub registration_mode: String,
    /// Whether all that libfabric is given is registered, the program's buffers too.
    pub registers_buffers: bool,
    /// Modes that it demands of the caller, in libfabric's words.
    pub mode: String,
    /// Capabilities, in libfabric's words.
    pub capabilities: String,
    /// Progress that it claims, in libfabric's words; [`Limits::needs_target_progress`] is what holds.
    pub claimed_progress: String,
    /// Largest message that the provider copies at once, bytes.
    pub inject_bytes: usize,
    /// Sizes and orders of the endpoint.
    pub limits: Limits,
    /// What the fabric executes.
    pub native: NativeOps,
    /// How puts become visible.
    pub remote_completion: RemoteCompletion,
    /// Whether a thread can sleep on the endpoint.
    pub has_wait_descriptor: bool,
    /// Bytes of packet buffers and operation slots that the endpoint holds.
    pub memory_bytes: usize,
    /// Why this provider was chosen.
    pub reason: String,
}

impl Description {
    pub(crate) fn new(
        choice: &Choice,
        claims: &Claims,
        limits: &Limits,
        native: &NativeOps,
        remote_completion: RemoteCompletion,
        has_wait_descriptor: bool,
    ) -> Self {
        let candidate = choice.candidate();
        let words = |value: u64, kind| match choice.library.describe(&value, kind) {
            text if text.trim().is_empty() => "none".to_owned(),
            text => text,
        };
        Self {
            provider: candidate.provider.clone(),
            fabric: candidate.fabric.clone(),
            domain: candidate.domain.clone(),
            nic: choice.nic.clone(),
            address: candidate.address.clone(),
            library_version: choice.library.version(),
            library_path: choice.library.path().to_owned(),
            message_order: words(claims.order, fi::FI_TYPE_MSG_ORDER),
            registers_buffers: claims.registers,
            registration_mode: words(claims.mr_mode, fi::FI_TYPE_MR_MODE),
            mode: words(claims.mode, fi::FI_TYPE_MODE),
            capabilities: words(claims.caps, fi::FI_TYPE_CAPS),
            claimed_progress: words(u64::from(claims.data_progress), fi::FI_TYPE_PROGRESS),
            inject_bytes: claims.inject_bytes,
            limits: *limits,
            native: *native,
            remote_completion,
            has_wait_descriptor,
            memory_bytes: 0,
            reason: choice.profile.reason.to_owned(),
        }
    }
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.library_version;
        let yes = |flag: bool| if flag { "yes" } else { "no" };
        writeln!(f, "libfabric            {major}.{minor} from {}", self.library_path.display())?;
        writeln!(f, "provider             {} ({})", self.provider, self.reason)?;
        writeln!(f, "fabric, domain       {}, {}", self.fabric, self.domain)?;
        let nic = self.nic.as_deref().unwrap_or("no RDMA device; interfaces are chosen by whom they reach");
        writeln!(f, "NIC                  {nic}")?;
        writeln!(f, "address              {}", self.address)?;
        writeln!(f, "capabilities         {}", self.capabilities)?;
        writeln!(f, "demanded modes       {}; of registration: {}", self.mode, self.registration_mode)?;
        let who =
            if self.registers_buffers { "here, before they are posted" } else { "by libfabric, if at all" };
        writeln!(f, "buffers registered   {who}")?;
        writeln!(f, "claimed order        {}", self.message_order)?;
        writeln!(
            f,
            "order relied on      put before send {}, put before get {}",
            yes(self.limits.order.put_before_send),
            yes(self.limits.order.put_before_get)
        )?;
        writeln!(
            f,
            "target progress      {} (claimed: {})",
            if self.limits.needs_target_progress { "needed" } else { "not needed" },
            self.claimed_progress
        )?;
        let completion = match self.remote_completion {
            RemoteCompletion::DeliveryComplete => "each put by itself (delivery complete)",
            RemoteCompletion::ReadBack => "flush reads back from the target",
        };
        writeln!(f, "remote completion    {completion}")?;
        writeln!(f, "native               {}", native_words(&self.native))?;
        writeln!(
            f,
            "limits               packet {} B, put or get {} B in {} to {} pieces, inject {} B, outstanding {}, \
             receive buffers 2 x {}",
            self.limits.send_bytes_max,
            self.limits.message_bytes_max,
            self.limits.vector_local_max,
            self.limits.vector_remote_max,
            self.inject_bytes,
            self.limits.outstanding_max,
            self.limits.receive_buffers
        )?;
        writeln!(f, "sleep on descriptor  {}", yes(self.has_wait_descriptor))?;
        writeln!(f, "memory held          {} B", self.memory_bytes)
    }
}

fn native_words(native: &NativeOps) -> String {
    let complete: Vec<&str> =
        Dtype::ALL.iter().filter(|&&dtype| native.is_complete_for(dtype)).map(|dtype| dtype.name()).collect();
    let accumulate = if complete.is_empty() {
        "accumulates travel as packets".to_owned()
    } else {
        format!("all accumulates on {}", complete.join(", "))
    };
    format!("put, get; {accumulate}")
}
