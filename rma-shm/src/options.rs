//! What the user may choose.

use rma_core::provider::ProviderError;

use crate::error::refused;

/// How peers get at registered memory. What lies in [`crate::Memory`], such as all that the endpoint allocates, they
/// map; only there are atomics, because a processor's atomics want memory that is mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// All registered memory is such memory, so that everything is offered everywhere. Registering any other is an
    /// error.
    Mapped,
    /// Into other memory the kernel copies (`process_vm_writev`), where it lets processes of one user do that. Where it
    /// wants each process's leave for that (Yama's `ptrace_scope` of 1), opening the endpoint gives it.
    Attached,
    /// Other memory is not reached: what is meant for it travels as packets.
    Allocated,
    /// No memory is reached: everything travels as packets.
    Packets,
}

/// How the pages of memory for windows are taken.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Pages {
    /// All of them when the memory is made, so that what there is not is an error then. Otherwise what is asked for is
    /// compared with what there is, and pages are taken when they are touched.
    pub reserve: bool,
    /// Whether they are larger than the processor's smallest.
    pub huge: HugePages,
}

/// Huge pages.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum HugePages {
    /// None.
    #[default]
    No,
    /// As the kernel has some at hand, where its setting for shared memory lets those have them that ask (`advise`).
    Transparent,
    /// Of 2 MiB, of the kernel's pool, all of them taken when the memory is made.
    Of2M,
    /// The same of 1 GiB.
    Of1G,
}

/// How an endpoint is made. What the fields from `packet_bytes` to `regions_max` say must be the same at all
/// ranks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// `None`: [`Reach::Attached`] where a child process can read this one's memory, if need be with its leave, else
    /// [`Reach::Allocated`].
    pub reach: Option<Reach>,
    /// Largest packet, bytes; 512 to 65,536.
    pub packet_bytes: usize,
    /// Room for packets of one class from one peer, bytes; a power of two, and at least two packets.
    pub ring_bytes: usize,
    /// Peers that may send to this endpoint; 1 to 65,536. Memory is taken for those that do.
    pub senders_max: usize,
    /// Regions that may be registered at one time; 1 to 65,536.
    pub regions_max: usize,
    /// Receive buffers of each class of packets.
    pub receive_buffers: usize,
    /// Puts, gets, atomics and flushes that may have been posted and not yet been said to be complete.
    pub outstanding: usize,
    /// The pages of the memory that it allocates.
    pub pages: Pages,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            reach: None,
            packet_bytes: 8192,
            ring_bytes: 32_768,
            senders_max: 1024,
            regions_max: 4096,
            receive_buffers: 128,
            outstanding: 1024,
            pages: Pages::default(),
        }
    }
}

impl Options {
    /// Checks the sizes.
    pub(crate) fn check(&self) -> Result<(), ProviderError> {
        for (what, given, least, most) in [
            ("packet_bytes (RMA_EAGER_BYTES)", self.packet_bytes, 512, SIZE_MAX),
            ("ring_bytes", self.ring_bytes, 1024, RING_BYTES_MAX),
            ("senders_max", self.senders_max, 1, SIZE_MAX),
            ("regions_max", self.regions_max, 1, SIZE_MAX),
            ("receive_buffers", self.receive_buffers, 1, SIZE_MAX),
            ("outstanding", self.outstanding, 1, SIZE_MAX),
        ] {
            if given < least || given > most {
                return Err(refused(format!("{what} is {given}, but must be from {least} to {most}")));
            }
        }
        if !self.ring_bytes.is_power_of_two() || self.ring_bytes < 2 * (self.packet_bytes + HEADROOM) {
            let least = (2 * (self.packet_bytes + HEADROOM)).next_power_of_two();
            return Err(refused(format!(
                "ring_bytes is {}, but must be a power of two with room for two packets: at least {least}",
                self.ring_bytes
            )));
        }
        Ok(())
    }
}

/// Larger sizes are mistakes: 64 Ki buffers of 64 KiB are 4 GiB.
const SIZE_MAX: usize = 65_536;
const RING_BYTES_MAX: usize = 1 << 24;
/// What a packet takes in a ring beside its bytes, rounded up.
const HEADROOM: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_out_of_range_are_errors_that_name_the_option() {
        Options::default().check().unwrap();
        type Change = fn(&mut Options);
        let wrong: [(&str, Change); 5] = [
            ("packet_bytes (RMA_EAGER_BYTES) is 511", |options| options.packet_bytes = 511),
            ("senders_max is 0", |options| options.senders_max = 0),
            ("outstanding is 65537", |options| options.outstanding = 65_537),
            ("at least 32768", |options| options.ring_bytes = 16_384),
            ("a power of two", |options| options.ring_bytes = 40_000),
        ];
        for (part, change) in wrong {
            let mut options = Options::default();
            change(&mut options);
            let message = options.check().unwrap_err().message;
            assert!(message.contains(part), "{part} missing in: {message}");
        }
    }
}
